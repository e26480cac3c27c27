//! Both forms of a model drop the same elements in every fusion: the same seeds, the same elements, the same gradients.

use super::{
    agree::{agree, tolerance},
    *,
};
use attn::{Backend, Element, model};
use support::compare::assert_same;

/// A tensor on another device.
fn on<S: Shape, F: Unit>(dev: &Cpu, x: &Tensor<S, F, Cpu>) -> Tensor<S, F, Cpu>
where
    Cpu: TensorFromVec<F>,
{
    dev.tensor_from_vec(x.as_vec(), *x.shape())
}

macro_rules! fall_alike {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:expr),*) ($first:ident: $x:expr $(, $other:expr)*) $(reads $input:ident)?;)*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            fn check<E: Element>()
            where
                Cpu: Backend<E>,
            {
                $(let $axis = $size;)*
                let outcome = |composed: bool| {
                    // All tensors are on a device whose next seeds are always the same.
                    let dev = Cpu::seed_from_u64(5);
                    let mut model = dev.build_module::<M, E>();
                    scatter(&mut model);
                    let $first = on(&dev, &$x);
                    let x = agree!(@input $first.clone().leaky_traced() $(, on(&dev, &$other))*);
                    let still = agree!(@input $first.clone() $(, on(&dev, &$other))*);
                    let y = if composed { model.composed().forward_mut(x) } else { model.forward_mut(x) };
                    assert_ne!(tensors::flat(&y), tensors::flat(&model.forward(still)));
                    let ran: Backpropagated<E> = backpropagate(y);
                    $(let ran = ran.input("x", &$input);)?
                    let outcome: Outcome = ran.parameters(&model);
                    outcome
                };
                assert_same(stringify!($name), &outcome(false), &outcome(true), tolerance::<E>());
            }
            check::<f32>();
            check::<f64>();
        }
    )*};
}

support::dropouts!(fall_alike);
support::layer_dropouts!(fall_alike);

/// Dropout does not act outside of training.
mod still {
    use super::*;

    support::dropouts!(agree);
    support::layer_dropouts!(agree);
}
