//! Both forms agree in both element types, and gradients are those of central differences.

use super::*;
use attn::{Backend, Element, model};
use support::compare::Backpropagated;

/// The difference of both forms: sums of up to 200 terms of order 1, on a few levels, which are rounded in another order.
fn tolerance<E: Element>() -> f64 {
    100.0 * E::epsilon().into()
}

/// Returns `loss`. Its argument has the type of `_input`.
fn loss_of<X, M, F: Fn(&M, X) -> f64>(_input: &X, loss: F) -> F {
    loss
}

macro_rules! agree {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:expr),*) ($first:ident: $x:expr $(, $other:expr)*) reads $input:ident;)*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            fn check<E: Element>() -> Outcome
            where
                Cpu: Backend<E>,
            {
                let mut model = Cpu::default().build_module::<M, E>();
                scatter(&mut model);
                $(let $axis = $size;)*
                let $first = $x;
                let outcome = |y| {
                    let ran: Backpropagated<E> = backpropagate(y);
                    ran.input("x", &$input).parameters(&model)
                };
                let fused = outcome(model.forward(agree!(@input $first.clone().leaky_traced() $(, $other)*)));
                let composed = outcome(model.composed().forward(agree!(@input $first.clone().leaky_traced() $(, $other)*)));
                assert_same(stringify!($name), &fused, &composed, tolerance::<E>());
                fused
            }
            check::<f32>();
            let outcome = check::<f64>();
            type E = f64;
            let mut model = Cpu::default().build_module::<M, E>();
            scatter(&mut model);
            $(let $axis = $size;)*
            let $first = $x;
            let loss = loss_of(&$first, |model: &M<E, Cpu>, $first| {
                let y = model.forward(agree!(@input $first.leaky_traced() $(, $other)*));
                backpropagate(y).parameters(&()).loss()
            });
            support::gradients::assert_gradients_of_parameters(&|| model.clone(), &outcome, &|moved| loss(&moved, $first.clone()));
            support::gradients::assert_gradient_of_input("x", &$input, &outcome, &|moved| loss(&model, moved));
        }
    )*};
    (@input $first:expr) => { $first };
    (@input $($input:expr),+) => { ($($input),+) };
}

support::products_of_learned_tensors!(agree);
support::products_of_values!(agree);
support::products_of_renamed_axes!(agree);

/// A value by other names is the same value, also as a result of its own.
#[test]
fn a_renamed_value_is_the_value() {
    model! {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) {
            let y = x as [batch, token = seq, d];
            (y + mean::<token>(y), y)
        }
    }
    let model = Cpu::default().build_module::<M, f64>();
    let x: Tensor<(usize, usize, Const<4>), f64, _> = tensor("x", (2, 3, Const));
    let (y, same) = model.forward(x.clone());
    assert_eq!(same.as_vec(), x.as_vec());
    let (composed, same) = model.composed().forward(x.clone());
    assert_eq!(same.as_vec(), x.as_vec());
    support::close::assert_close("the forms", &composed.as_vec(), &y.as_vec(), 1e-14);
}
