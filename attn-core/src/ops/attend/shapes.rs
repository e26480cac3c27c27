//! The shapes of what an attention reads beside queries, keys and values.

use dfdx::shapes::{Dim, Shape};

use crate::{Error, kernel::attention::Sizes};

/// The shape of a mask or of a bias: `(query, key)`, `(heads, query, key)` or `(batch, heads, query, key)`, as PyTorch broadcasts them. An
/// axis of size 1 is repeated, so one for each sequence is `(batch, 1, query, key)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the shape of a mask or a bias",
    note = "it is `(query, key)`, `(heads, query, key)` or `(batch, heads, query, key)`; one for each sequence is `(batch, 1, query, key)`"
)]
pub trait PairShape: Shape {
    /// The sizes of `[batch, heads, query, key]`, 1 where there is no axis.
    fn sizes(&self) -> [usize; 4];
}

macro_rules! shapes {
    ($(($($axis:ident)*) $shape:ident [$($size:expr),*];)*) => {$(
        impl<$($axis: Dim),*> PairShape for ($($axis,)*) {
            fn sizes(&self) -> [usize; 4] {
                let $shape = self;
                [$($size),*]
            }
        }
    )*};
}

shapes! {
    (Q K) of [1, 1, of.0.size(), of.1.size()];
    (H Q K) of [1, of.0.size(), of.1.size(), of.2.size()];
    (B H Q K) of [of.0.size(), of.1.size(), of.2.size(), of.3.size()];
}

/// The sizes of `q`, `k` and `v`, which must fit each other.
pub(super) fn sizes_of<Dev>([q, k, v]: [[usize; 4]; 3]) -> Result<Sizes, Error<Dev>> {
    let same = |axis, [input, other]: [&'static str; 2], size, found| match size == found {
        true => Ok(()),
        false => Err(Error::AxisMismatch {
            model: "attend",
            axis,
            input,
            size,
            other,
            found,
        }),
    };
    same("batch", ["q", "k"], q[0], k[0])?;
    same("batch", ["q", "v"], q[0], v[0])?;
    same("width", ["q", "k"], q[3], k[3])?;
    same("kv_heads", ["k", "v"], k[1], v[1])?;
    same("key", ["k", "v"], k[2], v[2])?;
    let (heads, kv_heads) = (q[1], k[1]);
    // Neither of them has heads, or the query heads are shared out evenly.
    if heads != 0 && (kv_heads == 0 || !heads.is_multiple_of(kv_heads)) {
        return Err(Error::Indivisible {
            model: "attend",
            axis: "heads",
            size: heads,
            of: kv_heads,
        });
    }
    Ok(Sizes {
        batch: q[0],
        heads,
        kv_heads,
        query: q[2],
        key: k[2],
        width: q[3],
        value_width: v[3],
    })
}

/// Checks that data with these sizes can be repeated to all pairs.
pub(super) fn check_pairs<Dev>(
    data: &'static str,
    found: [usize; 4],
    sizes: Sizes,
) -> Result<(), Error<Dev>> {
    const NAMES: [&str; 4] = ["batch", "heads", "query", "key"];
    let expected = [sizes.batch, sizes.heads, sizes.query, sizes.key];
    for axis in 0..4 {
        if found[axis] != expected[axis] && found[axis] != 1 {
            return Err(Error::DataMismatch {
                layer: "attend",
                data,
                axis,
                name: NAMES[axis],
                expected: expected[axis],
                found: found[axis],
            });
        }
    }
    Ok(())
}

/// Checks that there is one length for every sequence, and none beyond its keys.
pub(super) fn check_lengths<Dev>(lengths: &[usize], sizes: Sizes) -> Result<(), Error<Dev>> {
    if lengths.len() != sizes.batch {
        return Err(Error::BatchMismatch {
            layer: "attend",
            what: "valid lengths",
            x: sizes.batch,
            found: lengths.len(),
        });
    }
    match lengths.iter().position(|&length| length > sizes.key) {
        Some(b) => Err(Error::LengthBeyondKeys {
            layer: "attend",
            length: lengths[b],
            keys: sizes.key,
            index: vec![b],
        }),
        None => Ok(()),
    }
}
