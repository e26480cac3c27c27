//! Values by ids, ids that are computed, and values that share the memory of others.

use super::*;
use support::cases::lens_of;

support::sums_along!(exact);
support::selections!(exact);

exact! {
    detached {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d], [batch, seq, d], [batch, seq, d]) {
            let y = tanh(x);
            let still = detach(y);
            let mut z = linear::<d>(still);
            repeat 2 {
                z = detach(gelu(z)) * z + still;
                z = detach(z);
            }
            (z + detach(x), still, y, detach(z))
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)));
}

/// Computed ids take 8 bytes each, whatever the numbers are: the bytes are those of `f32`.
macro_rules! exact_with_ids {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:expr),*) ($first:ident: $x:expr $(, $other:expr)*) $(reads $input:ident)?;)*) => {$(
        #[test]
        fn $name() {
            attn::model! { $($model)* }

            type E = f32;
            let _alone = alone();
            in_threads(|| {
                let mut model = Cpu::default().build_module::<M, E>();
                for sizes in sizes() {
                    let [$($axis),*] = sizes;
                    // A shorter axis has no such indices.
                    if [$(stringify!($axis)),*].iter().zip(sizes).any(|(axis, size)| *axis == "seq" && !(2..=7).contains(&size)) {
                        continue;
                    }
                    let $first = $x;
                    let input = exact!(@input $first.leaky_traced() $(, $other)*);
                    let taken = peak::<E, _>(|| model.forward_mut(input));
                    assert_eq!(taken, M::activation_bytes($($axis),*), "{sizes:?}");
                }
            });
        }
    )*};
}

support::gathers!(exact_with_ids);
support::computed_ids!(exact_with_ids);
support::experts!(exact_with_ids);
support::losses!(exact_with_ids);
support::selected_along!(exact_with_ids);
