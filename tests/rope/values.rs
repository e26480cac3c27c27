//! Rotations against the formula, and as attention does them.

use super::*;
use support::close::assert_close;
use support::tensors::flat;

model! {
    struct Given<d = 6>;
    fn forward(x: [batch, heads, seq, d], at: ids[batch, seq]) -> [batch, heads, seq, d] {
        rope::<theta = 100.0, dims = 4>(x, at)
    }
}

/// Equation 34 of Su et al. (2021), with pairs of the two halves of four numbers.
#[test]
fn vectors_are_rotated_by_given_positions() {
    let model = Cpu::default().build_module::<Given, f64>();
    let x: Tensor<(usize, usize, usize, Const<6>), f64, _> = tensor("x", (2, 3, 4, Const));
    // No table has all of these.
    let positions = [[0, 1, 1_000_000, 3], [5000, 0, 2, 2]];
    let at: Tensor<Rank2<2, 4>, usize, _> = Cpu::default().tensor(positions);
    let x: Tensor<Rank4<2, 3, 4, 6>, f64, _> = x.realize();
    let y = model.forward((x.clone(), at.clone()));
    let composed = model.composed().forward((x.clone(), at));
    for (place, vector) in x.as_vec().chunks(6).enumerate() {
        let position = positions[place / 12][place % 4] as f64;
        let mut expected = vector.to_vec();
        for i in 0..2 {
            let (sin, cos) = (position * 100_f64.powf(-(i as f64) / 2.0)).sin_cos();
            expected[i] = vector[i] * cos - vector[i + 2] * sin;
            expected[i + 2] = vector[i + 2] * cos + vector[i] * sin;
        }
        // An angle of a million has an error of 1e-10.
        assert_close(place, &y.as_vec()[6 * place..][..6], &expected, 1e-9);
        assert_close(place, &composed.as_vec()[6 * place..][..6], &expected, 1e-9);
    }
}

model! {
    struct Before<d = 8, heads = 2, width = 6>;
    fn forward(x: [batch, seq, d], at: ids[batch, seq]) -> [batch, seq, heads, width] {
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<12, name = q>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<12, name = k>(x));
        let q = rope::<seq, dims = 4, scaling = llama3(8.0, 1.0, 4.0, 32)>(q, at);
        let k = rope::<seq, dims = 4, scaling = llama3(8.0, 1.0, 4.0, 32)>(k, at);
        attend::<mask = causal>(q, k, k)
    }
}

model! {
    struct Within<d = 8, heads = 2, width = 6>;
    fn forward(x: [batch, seq, d], at: ids[batch, seq]) -> [batch, seq, heads, width] {
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<12, name = q>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<12, name = k>(x));
        let v = rope::<seq, dims = 4, scaling = llama3(8.0, 1.0, 4.0, 32)>(k, at);
        attend::<mask = causal, position = rope(dims = 4, scaling = llama3(8.0, 1.0, 4.0, 32))>(q, k, v, position_ids = at)
    }
}

#[test]
fn it_is_the_rotation_of_an_attention() {
    let mut before = Cpu::default().build_module::<Before, f64>();
    scatter(&mut before);
    let mut within = Cpu::default().build_module::<Within, f64>();
    scatter(&mut within);
    let x: Tensor<(usize, usize, Const<8>), f64, _> = tensor("x", (3, 5, Const));
    let at = ids((3, 5), 40);
    let of_before: Outcome = backpropagate(before.forward((x.leaky_trace(), at.clone())))
        .input("x", &x)
        .outcome();
    let of_within = backpropagate(within.forward((x.leaky_trace(), at)))
        .input("x", &x)
        .outcome();
    assert_same("rotated", &of_before, &of_within, 1e-13);
}

#[test]
fn without_vectors_there_is_nothing_to_rotate() {
    let model = Cpu::default().build_module::<Given, f32>();
    for (batch, seq) in [(0, 3), (2, 0)] {
        let x: Tensor<(usize, Const<2>, usize, Const<6>), f32, _> =
            tensor("x", (batch, Const, seq, Const));
        assert!(flat(&model.forward((x.leaky_trace(), ids((batch, seq), 9)))).is_empty());
    }
}
