//! Both forms drop the same elements: the seeds are drawn in the same order, and an element has the same index in a strip.

use super::*;

macro_rules! fall_alike {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:expr),*) ($first:ident: $x:expr) reads $input:ident;)*) => {$(
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
                    let x = $x;
                    let $first = dev.tensor_from_vec(x.as_vec(), *x.shape());
                    let x = $first.clone().leaky_traced();
                    let y = if composed { model.composed().forward_mut(x) } else { model.forward_mut(x) };
                    let ran: Backpropagated<E> = backpropagate(y);
                    let outcome: Outcome = ran.input("x", &$input).parameters(&model);
                    outcome
                };
                assert_same(stringify!($name), &outcome(false), &outcome(true), tolerance::<E>());
            }
            check::<f32>();
            check::<f64>();
        }
    )*};
}

support::dropped_rows!(fall_alike);
