//! The claim that both forms of a model agree, and that its gradients are correct.

use attn::{Element, values::Values};

/// The difference of both forms: sums of up to 60 terms of order 1, on about six levels, which are rounded in another order: √360
/// ε / 2 = 10 ε, and ten times that for gradients, whose terms are larger.
pub(super) fn tolerance<E: Element>() -> f64 {
    100.0 * E::epsilon().into()
}

/// Returns `loss`. Its argument has the type of `_input`.
pub(super) fn loss_of<X, M, F: Fn(&M, X) -> f64>(_input: &X, loss: F) -> F {
    loss
}

/// Each operation of the chain has a name. There are as many as results, which is asserted where they are recorded.
pub(super) fn assert_names(values: &Values) {
    assert!(!values.is_empty());
    for value in values {
        assert!(
            !value.name().is_empty() && !value.operation().is_empty(),
            "{value:?}"
        );
        assert_eq!(
            value.numbers().len(),
            value.shape().iter().product::<usize>(),
            "{value:?}"
        );
    }
}

macro_rules! agree {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:expr),*) ($first:ident: $x:expr $(, $other:expr)*) $(reads $input:ident)?;)*) => {$(
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
                    $(let ran = ran.input("x", &$input);)?
                    let outcome: Outcome = ran.parameters(&model);
                    outcome
                };
                let fused = outcome(model.forward(agree!(@input $first.clone().leaky_traced() $(, $other)*)));
                let composed = outcome(model.composed().forward(agree!(@input $first.clone().leaky_traced() $(, $other)*)));
                assert_same(stringify!($name), &fused, &composed, tolerance::<E>());
                claim::assert_names(&model.values(agree!(@input $first.clone() $(, $other)*)));
                fused
            }
            check::<f32>();
            let outcome = check::<f64>();
            {
                type E = f64;
                let mut model = Cpu::default().build_module::<M, E>();
                scatter(&mut model);
                $(let $axis = $size;)*
                let $first = $x;
                let loss = claim::loss_of(&$first, |model: &M<E, Cpu>, $first| {
                    let y = model.forward(agree!(@input $first.leaky_traced() $(, $other)*));
                    backpropagate(y).parameters(&()).loss()
                });
                support::gradients::assert_gradients_of_parameters(&|| model.clone(), &outcome, &|moved| loss(&moved, $first.clone()));
                $(support::gradients::assert_gradient_of_input("x", &$input, &outcome, &|moved| loss(&model, moved));)?
            }
        }
    )*};
    (@input $first:expr) => { $first };
    (@input $($input:expr),+) => { ($($input),+) };
}
pub(super) use agree;
