//! Values against an independent computation, for axes of `usize` and of `Const`.

use super::*;
use attn::model;
use support::cases::scatter;
use support::compare::{Backpropagated, assert_same, backpropagate};

/// The composed form has the same numbers.
macro_rules! both {
    ($model:expr, $x:expr) => {{
        let (x, model) = ($x, $model);
        let y = flat(&model.forward(x.clone()));
        assert_eq!(y, flat(&model.composed().forward(x)));
        y
    }};
}

#[test]
fn patches_are_those_of_the_image() {
    let _alone = checked::alone();
    model! {
        struct Patches<channels = 2, p = 2, q = 3>;
        fn forward(x: [batch, channels, 4, 6]) -> [batch, 4, 12] {
            rearrange::<[batch, channels, (h, p), (w, q)] -> [batch, (h, w), (p, q, channels)]>(x)
        }
    }
    let model = Cpu::default().build_module::<Patches, f64>();
    let x = numbers((3, Const::<2>, Const::<4>, Const::<6>));
    let image = flat(&x);
    let y = both!(&model, x);
    let mut expected = Vec::new();
    for batch in 0..3 {
        for (h, w) in (0..2).flat_map(|h| (0..2).map(move |w| (h, w))) {
            for (p, q) in (0..2).flat_map(|p| (0..3).map(move |q| (p, q))) {
                for channel in 0..2 {
                    let row = (batch * 2 + channel) * 4 + h * 2 + p;
                    expected.push(image[row * 6 + w * 3 + q]);
                }
            }
        }
    }
    assert_eq!(y, expected);
}

#[test]
fn sizes_may_be_constants_that_rustc_alone_evaluates() {
    let _alone = checked::alone();
    const HEADS: usize = 4 / 2;
    const WIDTH: usize = HEADS * 3;
    model! {
        struct Heads<heads = { HEADS }, width = { WIDTH }>;
        fn forward(x: [batch, seq, width]) -> [batch, heads, seq, { WIDTH / HEADS }] {
            rearrange::<[batch, seq, (heads, w)] -> [batch, heads, seq, w]>(x)
        }
    }
    let model = Cpu::default().build_module::<Heads, f64>();
    let y = both!(&model, numbers((Const::<1>, 2, Const::<6>)));
    assert_eq!(y, [0., 1., 2., 6., 7., 8., 3., 4., 5., 9., 10., 11.]);
    let patches = both!(&model, numbers((1, Const::<2>, Const::<6>)));
    assert_eq!(patches, y);
}

#[test]
fn stacked_values_are_a_new_axis() {
    let _alone = checked::alone();
    model! {
        struct Stacked<d = 2>;
        fn forward(x: [batch, d]) -> [batch, 3, d] {
            stack::<[batch, 3, d]>(x, 10 * x, -x)
        }
    }
    let model = Cpu::default().build_module::<Stacked, f64>();
    let y = both!(&model, numbers((2, Const::<2>)));
    assert_eq!(y, [0., 1., 0., 10., -0., -1., 2., 3., 20., 30., -2., -3.]);
    assert_eq!(both!(&model, numbers((Const::<2>, Const::<2>))), y);
}

#[test]
fn a_shift_moves_tokens_and_brings_zeros() {
    let _alone = checked::alone();
    model! {
        struct Shifted<d = 1>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 3] {
            concat(shift::<seq, 1>(x), shift::<seq, -2>(x), shift::<seq, 5>(x))
        }
    }
    let model = Cpu::default().build_module::<Shifted, f64>();
    let y = both!(&model, numbers((1, 4, Const::<1>)));
    assert_eq!(y, [0., 2., 0., 0., 3., 0., 1., 0., 0., 2., 0., 0.]);
    assert_eq!(
        both!(&model, numbers((Const::<1>, Const::<4>, Const::<1>))),
        y
    );
    assert_eq!(both!(&model, numbers((1, 1, Const::<1>))), [0.0; 3]);
    assert_eq!(both!(&model, numbers((2, 0, Const::<1>))), [0.0; 0]);
}

#[test]
fn a_convolution_is_a_map_of_windows() {
    let _alone = checked::alone();
    model! {
        struct Convolution<d = 2, kernel = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, n, 6] {
            let padded = pad::<seq, before = 1, after = 1, value = 0.5, to = padded>(x);
            rearrange::<[batch, n, (kernel, d)]>(windows::<padded, kernel, 2, to = n>(padded))
        }
    }
    let model = Cpu::default().build_module::<Convolution, f64>();
    for len in [1, 2, 5, 6] {
        let x = numbers((2, len, Const::<2>));
        let numbers = flat(&x);
        let y = both!(&model, x);
        let mut expected = Vec::new();
        for batch in 0..2 {
            for start in (0..len).step_by(2).filter(|start| *start < len) {
                for (token, i) in (start..start + 3).flat_map(|t| (0..2).map(move |i| (t, i))) {
                    let inside = (1..=len).contains(&token);
                    let number = || numbers[(batch * len + token - 1) * 2 + i];
                    expected.push(if inside { number() } else { 0.5 });
                }
            }
        }
        assert_eq!(y, expected, "{len}");
    }
}

#[test]
fn learned_tokens_stand_before_all_others() {
    let _alone = checked::alone();
    model! {
        struct Prompt<d = 2>;
        fn forward(x: [batch, seq, d]) -> ([batch, all, d], [batch, seq, d], [batch, 2, d]) {
            param prompt: [2, d] = 7;
            let all = concat::<seq, to = all>(prompt, x);
            (all, all[all = 2..], all[all = ..2])
        }
    }
    let model = Cpu::default().build_module::<Prompt, f64>();
    let x = numbers((2, 1, Const::<2>));
    let (all, tokens, prompt) = model.forward(x.clone());
    assert_eq!(all.shape().concrete(), [2, 3, 2]);
    assert_eq!(flat(&all), [7., 7., 7., 7., 0., 1., 7., 7., 7., 7., 2., 3.]);
    assert_eq!(flat(&tokens), flat(&x));
    assert_eq!(flat(&prompt), [7.0; 8]);
    let (of_composed, ..) = model.composed().forward(x);
    assert_eq!(flat(&of_composed), flat(&all));
}

/// A view has no memory: the model takes what it takes without it.
#[test]
fn a_change_of_the_shape_takes_no_memory() {
    let _alone = checked::alone();
    model! {
        struct Plain<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = gelu(linear::<d>(x));
            x + linear::<d>(layer_norm(y) * y)
        }
    }
    model! {
        struct Viewed<d = 8, heads = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(linear::<d>(x));
            let y = rearrange::<[batch, seq, heads, w] -> [batch, seq, (heads, w)]>(gelu(y));
            let norm = rearrange::<[rows = (batch, seq), d]>(layer_norm(y));
            let product = norm * rearrange::<[(batch, seq), d]>(y);
            x + rearrange::<[(batch, seq), d] -> [batch, seq, d]>(linear::<d>(product))
        }
    }
    for (batch, seq) in [(1, 1), (2, 3), (16, 128)] {
        let plain = Plain::activation_bytes(batch, seq);
        assert_eq!(Viewed::activation_bytes(batch, seq), plain);
    }
}

/// A dropout in the pass of a neighbour, where others read the same memory in another shape.
#[test]
fn dropout_of_a_value_that_is_read_in_another_shape() {
    let _alone = checked::alone();
    model! {
        struct Dropped<d = 6>;
        fn forward(x: [batch, d]) -> [batch, d] {
            let y = dropout::<0.5>(linear::<d>(x));
            let rows = rearrange::<[batch, (2, 3)] -> [batch, 2, 3]>(y);
            let z = dropout::<0.5>(gelu(rows)) + rows;
            y + rearrange::<[batch, 2, 3] -> [batch, (2, 3)]>(z)
        }
    }
    let mut model = Cpu::default().build_module::<Dropped, f64>();
    for batch in [0, 1, 3] {
        let x = numbers((batch, Const::<6>));
        let promised = Dropped::activation_bytes(batch) * 2;
        let taken = checked::peak(|| model.forward_mut(x.leaky_traced()));
        assert_eq!(taken, promised, "{batch}");
    }
    let outcome = |composed: bool| {
        // All tensors are on a device whose next seeds are always the same.
        let device = Cpu::seed_from_u64(5);
        let mut model = device.build_module::<Dropped, f64>();
        scatter(&mut model);
        let x = device.tensor_from_vec(flat(&numbers((3, Const::<6>))), (3, Const::<6>));
        let traced = x.clone().leaky_traced();
        let y = match composed {
            true => model.composed().forward_mut(traced),
            false => model.forward_mut(traced),
        };
        assert_ne!(flat(&y), flat(&model.forward(x.clone())));
        let ran: Backpropagated<f64> = backpropagate(y);
        ran.input("x", &x).parameters(&model)
    };
    let tolerance = checked::tolerance::<f64>();
    assert_same("dropout", &outcome(false), &outcome(true), tolerance);
}
