//! Elementwise functions and gates.

use super::*;
use attn::{
    nn::{GeGlu, ReGlu, SwiGlu},
    ops::{
        self, Activation, Gelu, GeluTanh, Relu, ReluSquared, Sigmoid, Silu, Tanh, activate,
        composed, gate,
    },
};
use support::{differences::assert_gradient, tensors::flat};

/// Points where functions are curved, and beyond them.
const POINTS: [f64; 16] = [
    0.0, -0.0, 0.3, -0.3, 1.0, -1.0, 2.5, -2.5, 6.0, -6.0, 13.0, -13.0, 90.0, -90.0, 1e4, -1e4,
];

fn agrees<A: Activation, E: Element>()
where
    Cpu: Backend<E>,
{
    let points = POINTS.map(number).to_vec();
    let x: Tensor<Rank1<16>, E, _> = Cpu::default().tensor_from_vec(points, Default::default());
    // The tolerance is relative to 1e4, the largest. dfdx's error function has an error of about 1e-7 in `f32`.
    assert_agree!(
        format!("{} at points", A::NAME),
        [x],
        activate::<A, _, _, _, _>(x.leaky_trace()),
        A::compose(x.leaky_trace()).unwrap()
    );
    for (b, s) in SIZES {
        let x: Tensor<(usize, Const<3>, usize), E, _> = tensor("x", (b, Const, s));
        assert_agree!(
            format!("{} of {b} x 3 x {s}", A::NAME),
            [x],
            activate::<A, _, _, _, _>(x.leaky_trace()),
            A::compose(x.leaky_trace()).unwrap()
        );
    }
}

fn gates_agree<A: Activation, E: Element, const W: usize, const H: usize>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize, Const<W>), E, _> = tensor("x", (b, s, Const));
        assert_agree!(
            format!("{} gates {b} x {s} x {W}", A::NAME),
            [x],
            gate::<A, H, _, _, _, _>(x.leaky_trace()),
            composed::gate::<A, H, _, _, _, _>(x.leaky_trace()).unwrap()
        );
    }
}

fn all_agree<E: Element>()
where
    Cpu: Backend<E>,
{
    agrees::<Gelu, E>();
    agrees::<GeluTanh, E>();
    agrees::<Relu, E>();
    agrees::<ReluSquared, E>();
    agrees::<Silu, E>();
    agrees::<Sigmoid, E>();
    agrees::<Tanh, E>();
    gates_agree::<Silu, E, 2, 1>();
    gates_agree::<Silu, E, 18, 9>();
    gates_agree::<Gelu, E, 18, 9>();
    gates_agree::<GeluTanh, E, 18, 9>();
    gates_agree::<Relu, E, 18, 9>();
}

#[test]
fn activations_equal_those_of_dfdx() {
    for_both!(all_agree);
}

/// The derivative of dfdx's `accurate_gelu` differs: `Φ(x) + √2 x φ(x)`.
#[test]
fn the_gradient_of_gelu_is_its_derivative() {
    let x = [-3.0, -1.0, -0.3, 0.0, 0.3, 1.0, 3.0];
    let points: Tensor<Rank1<7>, f64, _> = Cpu::default().tensor(x);
    let gradient = ops::gelu(points.leaky_trace()).sum().backward();
    assert_gradient("gelu", &x, &flat(&gradient.get(&points)), |x| {
        let points = Cpu::default().tensor_from_vec(x.to_vec(), (Const::<7>,));
        ops::gelu(points).sum().array()
    });
}

#[test]
fn functions_types_and_layers_are_the_same() {
    let x: Tensor<Rank2<3, 4>, f32, _> = tensor("x", Default::default());
    assert_eq!(flat(&ops::gelu(x.clone())), flat(&Gelu.forward(x.clone())));
    assert_eq!(
        flat(&ops::gelu_tanh(x.clone())),
        flat(&GeluTanh.forward(x.clone()))
    );
    assert_eq!(flat(&ops::relu(x.clone())), flat(&Relu.forward(x.clone())));
    assert_eq!(
        flat(&ops::relu_squared(x.clone())),
        flat(&ReluSquared.forward(x.clone()))
    );
    assert_eq!(flat(&ops::silu(x.clone())), flat(&Silu.forward(x.clone())));
    assert_eq!(
        flat(&ops::sigmoid(x.clone())),
        flat(&Sigmoid.forward(x.clone()))
    );
    assert_eq!(flat(&ops::tanh(x.clone())), flat(&Tanh.forward(x.clone())));
    let gated: Tensor<Rank2<3, 2>, f32, _> = ops::swiglu(x.clone());
    assert_eq!(flat(&gated), flat(&SwiGlu::<2>.forward(x.clone())));
    let gated: Tensor<Rank2<3, 2>, f32, _> = ops::geglu(x.clone());
    assert_eq!(flat(&gated), flat(&GeGlu::<2>.forward(x.clone())));
    let gated: Tensor<Rank2<3, 2>, f32, _> = ops::reglu(x.clone());
    assert_eq!(flat(&gated), flat(&ReGlu::<2>.forward(x)));
}

#[test]
fn views_are_read_in_their_order() {
    let columns: Tensor<Rank2<6, 4>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<4, 6>, f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns],
        ops::gelu(permuted()),
        Gelu::compose(permuted()).unwrap()
    );
    let row: Tensor<Rank1<6>, f64, _> = tensor("row", Default::default());
    let broadcast = || -> Traced<Rank2<5, 6>, f64> { row.leaky_trace().broadcast::<_, Axis<0>>() };
    assert_agree!(
        "broadcast",
        [row],
        ops::swiglu::<3, _, _, _, _>(broadcast()),
        composed::gate::<Silu, 3, _, _, _, _>(broadcast()).unwrap()
    );
}

#[test]
fn scalars_and_empty_tensors_are_accepted() {
    let x: Tensor<Rank0, f64, _> = Cpu::default().tensor(-2.0);
    let y = ops::relu_squared((-x.clone()).leaky_traced());
    assert_eq!(y.array(), 4.0);
    let x: Tensor<(usize, Const<4>), f64, _> = tensor("x", (0, Const));
    backward_of_nothing(ops::silu(x.leaky_trace())).get(&x);
    let y: Traced<(usize, Const<2>), f64> = ops::geglu(x.leaky_trace());
    backward_of_nothing(y).get(&x);
}

#[test]
fn activations_are_one_operation_each() {
    let x: Tensor<Rank2<2, 6>, f32, _> = tensor("x", Default::default());
    assert_eq!(operations(ops::gelu(x.leaky_trace())), 1);
    assert_eq!(operations(ops::swiglu::<3, _, _, _, _>(x.leaky_trace())), 1);
}
