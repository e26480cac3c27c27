//! `attn::backward`: the backward pass from a given gradient.

use super::*;
use attn::nn::Linear;

/// The gradients of a product and a sum, with the same bits.
#[test]
fn gradients_are_those_of_the_sum_of_products() {
    fn check<S: Shape>(shape: S) {
        let x: Tensor<S, f64, Cpu> = tensor("x", shape);
        let upstream: Tensor<S, f64, Cpu> = tensor("upstream", shape);
        let y = || x.leaky_trace().square().tanh();
        let found = attn::backward(y(), &upstream).get(&x).as_vec();
        let count = (shape.num_elements(),);
        let products = (y() * upstream.clone()).reshape_like(&count);
        let want = products.sum::<Rank0, _>().backward().get(&x).as_vec();
        assert_eq!(found, want);
    }
    check((Const::<3>,));
    check((4, Const::<3>));
    check((2, 5, Const::<3>));
}

#[test]
fn gradients_of_a_layer() {
    let dev = Cpu::default();
    let mut layer = dev.build_module::<Linear<3, 2>, f64>();
    scatter(&mut layer);
    let x: Tensor<(usize, Const<3>), f64, Cpu> = tensor("x", (4, Const));
    let upstream: Tensor<(usize, Const<2>), f64, Cpu> = tensor("upstream", (4, Const));
    let found = attn::backward(layer.forward(x.leaky_trace()), &upstream);
    let want = (layer.forward(x.leaky_trace()) * upstream).sum().backward();
    for [found, want] in [
        [&found, &want].map(|of| of.get(&x).as_vec()),
        [&found, &want].map(|of| of.get(&layer.weight).as_vec()),
        [&found, &want].map(|of| of.get(&layer.bias).as_vec()),
    ] {
        assert_eq!(found, want);
    }
}

/// A gradient has the layout of its tensor, which is not that of a view.
#[test]
fn views_have_the_gradients_of_their_elements() {
    let dev = Cpu::default();
    let x: Tensor<Rank2<2, 3>, f64, Cpu> = tensor("x", Default::default());
    let upstream: Tensor<Rank2<3, 2>, f64, Cpu> = dev.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let turned: Tensor<Rank2<3, 2>, f64, Cpu, _> = x.leaky_trace().permute();
    let found = attn::backward(turned, &upstream).get(&x).array();
    assert_eq!(found, [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]);

    let turned: Tensor<Rank2<2, 3>, f64, Cpu> = upstream.clone().permute();
    let found = attn::backward(x.leaky_trace() * 2.0, &turned)
        .get(&x)
        .array();
    assert_eq!(found, [[2.0, 6.0, 10.0], [4.0, 8.0, 12.0]]);

    let row: Tensor<Rank1<2>, f64, Cpu> = dev.tensor([1.0, 2.0]);
    let repeated: Tensor<Rank2<3, 2>, f64, Cpu, _> = row.leaky_trace().broadcast();
    let found = attn::backward(repeated, &upstream).get(&row).array();
    assert_eq!(found, [9.0, 12.0]);
}

/// As `backward` of a loss does, it adds to the gradients that are there.
#[test]
fn gradients_accumulate() {
    let x: Tensor<Rank1<2>, f64, Cpu> = Cpu::default().tensor([1.0, 2.0]);
    let upstream = Cpu::default().tensor([10.0, 20.0]);
    let once = attn::backward(x.leaky_trace() * 3.0, &upstream);
    let twice = attn::backward(x.clone().traced(once) * 3.0, &upstream);
    assert_eq!(twice.get(&x).array(), [60.0, 120.0]);
    // The tensor may be a leaf itself.
    let found = attn::backward(x.leaky_trace(), &upstream);
    assert_eq!(found.get(&x).array(), [10.0, 20.0]);
}

#[test]
fn nothing_has_no_gradient() {
    let x: Tensor<(usize, Const<3>), f64, Cpu> = tensor("x", (0, Const));
    let layer = Cpu::default().build_module::<Linear<3, 2>, f64>();
    let upstream: Tensor<(usize, Const<2>), f64, Cpu> = tensor("upstream", (0, Const));
    let gradients = attn::backward(layer.forward(x.leaky_trace()), &upstream);
    assert_eq!(gradients.get(&layer.weight).as_vec(), [0.0; 6]);
}

#[test]
fn one_number_has_a_gradient_too() {
    let x: Tensor<Rank0, f32, Cpu> = Cpu::default().tensor(3.0);
    let found = attn::backward(x.leaky_trace().square(), &Cpu::default().tensor(0.5));
    assert_eq!(found.get(&x).array(), 3.0);
}

#[test]
#[should_panic(expected = "the upstream gradient has the shape of the tensor")]
fn sizes_that_differ_are_refused() {
    let x: Tensor<(usize, Const<3>), f64, Cpu> = tensor("x", (2, Const));
    let upstream: Tensor<(usize, Const<3>), f64, Cpu> = tensor("upstream", (1, Const));
    attn::backward(x.leaky_trace(), &upstream);
}
