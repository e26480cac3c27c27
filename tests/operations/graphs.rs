//! Graphs of every form as one operation: values that are read twice, swapped, returned from loops, or returned unchanged.

use super::agree::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::{compare::assert_same, differences::assert_gradient_along_some};

support::graphs!(agree);

model! {
    struct Several<d = 6>;
    fn forward(x: [batch, seq, d], y: [batch, seq, d])
        -> ([batch, seq, d], [batch, d], [batch, seq, d], [batch, seq, d], [batch, seq, d])
    {
        let a = linear::<d>(x) + y;
        let b = softmax(a);
        (b, mean_pool(a), b, x, y)
    }
}

/// A loss of all results, each with weights of its own.
macro_rules! loss {
    ($results:expr) => {{
        let (a, pooled, again, x, y) = $results;
        let weigh =
            |t: Tensor<_, f64, _, _>, name| (t * tensor::<_, f64>(name, (2, 3, Const::<6>))).sum();
        let pooled = (pooled * tensor::<_, f64>("p", (2, Const::<6>))).sum();
        weigh(a, "a") + pooled + weigh(again, "again") + weigh(x, "x too") + weigh(y, "y too")
    }};
}

#[test]
fn results_may_be_repeated_or_inputs() {
    let mut model = Cpu::default().build_module::<Several, f64>();
    scatter(&mut model);
    let x = tensor::<_, f64>("x", (2, 3, Const::<6>));
    let y = tensor::<_, f64>("y", (2, 3, Const::<6>));
    let outcome = |loss: Tensor<Rank0, f64, Cpu, OwnedTape<f64, Cpu>>| {
        let value = loss.array();
        let gradients = loss.backward();
        let gradient = gradients.get(&x);
        let learned = gradients.get(&model.linear.weight);
        (
            value,
            tensors::flat(&gradient),
            tensors::flat(&learned),
            tensors::flat(&gradients.get(&y)),
        )
    };
    type X = Tensor<(usize, usize, Const<6>), f64, Cpu>;
    let loss = |model: &Several<f64, Cpu>, x: X, y: X| -> f64 {
        let loss: Tensor<Rank0, f64, Cpu, _> = loss!(model.forward((x.leaky_traced(), y)));
        loss.array()
    };
    let one = outcome(loss!(model.forward((x.clone().leaky_traced(), y.clone()))));
    let of = |values: &[f64]| Cpu::default().tensor_from_vec(values.to_vec(), *x.shape());
    assert_gradient_along_some("x", &tensors::flat(&x), &one.1, |x| {
        loss(&model, of(x), y.clone())
    });
    assert_gradient_along_some("y", &tensors::flat(&y), &one.3, |y| {
        loss(&model, x.clone(), of(y))
    });
    let weight = tensors::flat(&model.linear.weight);
    assert_gradient_along_some("linear.weight", &weight, &one.2, |weight| {
        let mut model = model.clone();
        model.linear.weight.copy_from(weight);
        loss(&model, x.clone(), y.clone())
    });
    let many = outcome(loss!(
        model
            .composed()
            .forward((x.clone().leaky_traced(), y.clone()))
    ));
    // Some hundred terms of order 1.
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(close(one.0, many.0), "{} {}", one.0, many.0);
    for (one, many) in [(one.1, many.1), (one.2, many.2), (one.3, many.3)] {
        assert!(
            one.iter().zip(&many).all(|(a, b)| close(*a, *b)),
            "{one:?} {many:?}"
        );
    }
}
