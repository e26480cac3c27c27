//! `activation_bytes` of a model equals the bytes of its forward and backward pass exactly. The tests have a binary of their own,
//! since all activations of a process are counted together.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod attend;
mod dots;
mod indices;
mod layers;
mod losses;
mod networks;
mod rope;
mod scan;
mod step;
mod values;

use attn::{
    Backend, Element,
    dfdx::{
        prelude::*,
        tensor::{PutTape, SplitTape},
    },
    memory,
};
use rayon::ThreadPoolBuilder;
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::cases::{ids, lens_up_to, marks};

/// Each test waits for the one before it.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The results of a model. The first one carries the tape.
trait Results<E: Dtype> {
    /// Runs the backward pass with gradients of zero, which take as much memory as others.
    fn run_back(self);
}

impl<S: Shape, E: Element> Results<E> for Tensor<S, E, Cpu, OwnedTape<E, Cpu>>
where
    Cpu: Backend<E>,
{
    fn run_back(self) {
        // dfdx cannot sum an empty tensor.
        let (_, tape) = self.split_tape();
        let loss: Tensor<Rank0, E, _> = Cpu::default().zeros();
        loss.put_tape(tape).backward();
    }
}

macro_rules! results {
    ($($Other:ident),*) => {
        impl<E: Element, First: Results<E>, $($Other),*> Results<E> for (First, $($Other),*) {
            fn run_back(self) {
                self.0.run_back();
            }
        }
    };
}

results!(B);
results!(B, C, D);

/// The peak bytes of activations during a forward and a backward pass of the model.
fn peak<E: Element, R: Results<E>>(forward: impl FnOnce() -> R) -> usize {
    let before = memory::allocated();
    memory::reset_peak();
    forward().run_back();
    assert_eq!(memory::allocated(), before, "all of it goes");
    memory::peak() - before
}

/// All assignments of one of some sizes to `N` axes.
fn sizes<const N: usize>() -> impl Iterator<Item = [usize; N]> {
    const SIZES: [usize; 5] = [0, 1, 2, 3, 7];
    let count = SIZES.len();
    (0..count.pow(N as u32)).map(move |number| {
        std::array::from_fn(|axis| SIZES[number / count.pow(axis as u32) % count])
    })
}

/// Runs `work` with one thread, and with two.
fn in_threads(work: impl Fn() + Send + Sync) {
    for threads in [1, 2] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(&work);
    }
}

/// For every model of a list, at every size, in both element types, with one and two threads: the stated bytes equal the measured
/// ones.
macro_rules! exact {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:expr),*) ($first:ident: $x:expr $(, $other:expr)*) $(reads $input:ident)?;)*) => {$(
        #[test]
        fn $name() {
            attn::model! { $($model)* }

            fn check<E: Element>()
            where
                Cpu: Backend<E>,
            {
                let mut model = Cpu::default().build_module::<M, E>();
                for sizes in sizes() {
                    let [$($axis),*] = sizes;
                    let $first = $x;
                    let input = exact!(@input $first.leaky_traced() $(, $other)*);
                    let promised = M::activation_bytes($($axis),*) / size_of::<f32>() * size_of::<E>();
                    let taken = peak::<E, _>(|| model.forward_mut(input));
                    assert_eq!(taken, promised, "{sizes:?}");
                }
            }
            let _alone = alone();
            in_threads(|| {
                check::<f32>();
                check::<f64>();
            });
        }
    )*};
    (@input $first:expr) => { $first };
    (@input $($input:expr),+) => { ($($input),+) };
}
use exact;

mod operations {
    use super::*;

    support::operations!(exact);
}

mod layer_options {
    use super::*;

    support::layer_options!(exact);
    support::layer_dropouts!(exact);
}

mod elementwise {
    use super::*;

    support::elementwise!(exact);
    support::combined_by_name!(exact);
    support::expanded!(exact);
    support::parts!(exact);
}

mod reductions {
    use super::*;

    support::reductions!(exact);
}

mod rows {
    use super::*;

    support::rows!(exact);
    support::dropped_rows!(exact);
}

mod shapes {
    use super::*;

    support::shapes!(exact);
}

mod products {
    use super::*;

    support::products!(exact);
}

mod graphs {
    use super::*;

    support::graphs!(exact);
}

mod dropouts {
    use super::*;

    support::dropouts!(exact);

    attn::model! {
        struct Falls<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, d] { mean_pool(2 * x + dropout::<0.5>(3 * x)) }
    }

    /// One array at a time, as without dropout, and the result with its gradient: neither the other term nor what is dropped is in memory.
    #[test]
    fn dropout_of_a_term_takes_no_memory() {
        for [batch, seq] in sizes() {
            let array = batch * seq * 8;
            let result = batch * 8;
            let most = array + 2 * result;
            assert_eq!(Falls::activation_bytes(batch, seq), most * size_of::<f32>());
        }
    }
}

/// `ones` in this shape: the values do not matter.
fn tensor<S: Shape, E: Element>(_name: &str, shape: S) -> Tensor<S, E, Cpu>
where
    Cpu: Backend<E>,
{
    Cpu::default().ones_like(&shape)
}
