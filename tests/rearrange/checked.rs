//! The claims about every model of the lists.

use std::sync::{Mutex, MutexGuard, PoisonError};

use attn::Element;
use attn::dfdx::prelude::*;
use attn::dfdx::tensor::{PutTape, SplitTape};
use attn::memory;

/// Each test waits for the one before it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The difference of both forms: sums of up to 60 terms of order 1, on about six levels, which are rounded in another order: √360
/// ε / 2 = 10 ε, and ten times that for gradients, whose terms are larger.
pub(crate) fn tolerance<E: Element>() -> f64 {
    100.0 * E::epsilon().into()
}

/// Returns `loss`. Its argument has the type of `_input`.
pub(crate) fn loss_of<X, M, F: Fn(&M, X) -> f64>(_input: &X, loss: F) -> F {
    loss
}

/// Every combination of one of these sizes for each axis.
pub(crate) fn combinations<const N: usize>(sizes: [&[usize]; N]) -> Vec<[usize; N]> {
    let mut all = vec![[0; N]];
    for (axis, sizes) in sizes.iter().enumerate() {
        let with = |of: &[usize; N], size: &usize| {
            let mut of = *of;
            of[axis] = *size;
            of
        };
        let more = all
            .iter()
            .flat_map(|of| sizes.iter().map(move |size| with(of, size)));
        all = more.collect();
    }
    all
}

/// The peak bytes of activations during a forward and a backward pass.
pub(crate) fn peak<S: Shape, E: Element>(
    forward: impl FnOnce() -> Tensor<S, E, Cpu, OwnedTape<E, Cpu>>,
) -> usize {
    let before = memory::allocated();
    memory::reset_peak();
    // dfdx cannot sum an empty tensor.
    let (y, tape) = forward().split_tape();
    let loss: Tensor<Rank0, E, _> = Cpu::default().zeros();
    drop(y);
    loss.put_tape(tape).backward();
    assert_eq!(memory::allocated(), before, "all of it goes");
    memory::peak() - before
}

/// For every model of a list: both forms agree in both element types, gradients are those of central differences, and at all sizes the
/// bytes are those that are promised. `batch: 2 [0, 1]` is an axis of size 2, and of the other sizes for the bytes.
macro_rules! checked {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:literal [$($more:literal),*]),*) ($first:ident: $x:expr $(, $other:expr)*) $(reads $input:ident)?;)*) => {$(
        #[test]
        fn $name() {
            use super::*;
            use attn::{Backend, Element, model};
            use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

            model! { $($model)* }

            fn check<E: Element>() -> Outcome
            where
                Cpu: Backend<E>,
            {
                let mut model = Cpu::default().build_module::<M, E>();
                support::cases::scatter(&mut model);
                $(let $axis = $size;)*
                let $first = $x;
                let outcome = |y| {
                    let ran: Backpropagated<E> = backpropagate(y);
                    $(let ran = ran.input("x", &$input);)?
                    let outcome: Outcome = ran.parameters(&model);
                    outcome
                };
                let fused = outcome(model.forward(checked!(@input $first.clone().leaky_traced() $(, $other)*)));
                let composed = outcome(model.composed().forward(checked!(@input $first.clone().leaky_traced() $(, $other)*)));
                assert_same(stringify!($name), &fused, &composed, checked::tolerance::<E>());
                for sizes in checked::combinations([$(&[$size, $($more),*]),*]) {
                    let [$($axis),*] = sizes;
                    let $first = $x;
                    let input = checked!(@input $first.leaky_traced() $(, $other)*);
                    let promised = M::activation_bytes($($axis),*) / size_of::<f32>() * size_of::<E>();
                    assert_eq!(checked::peak(|| model.forward_mut(input)), promised, "{sizes:?}");
                }
                fused
            }
            let _alone = checked::alone();
            check::<f32>();
            let outcome = check::<f64>();
            type E = f64;
            let mut model = Cpu::default().build_module::<M, E>();
            support::cases::scatter(&mut model);
            $(let $axis = $size;)*
            let $first = $x;
            let loss = checked::loss_of(&$first, |model: &M<E, Cpu>, $first| {
                let y = model.forward(checked!(@input $first.leaky_traced() $(, $other)*));
                backpropagate(y).parameters(&()).loss()
            });
            support::gradients::assert_gradients_of_parameters(&|| model.clone(), &outcome, &|moved| loss(&moved, $first.clone()));
            $(support::gradients::assert_gradient_of_input("x", &$input, &outcome, &|moved| loss(&model, moved));)?
        }
    )*};
    (@input $first:expr) => { $first };
    (@input $($input:expr),+) => { ($($input),+) };
}
pub(crate) use checked;
