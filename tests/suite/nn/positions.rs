//! Positions as waves.

use super::*;
use crate::tensors::flat;
use attn::ops::{self, composed};

/// By the definition.
pub(crate) fn naive(len: usize, width: usize) -> Vec<f64> {
    let wave = |s: usize, column: usize| {
        let angle = s as f64 / 10_000_f64.powf((column - column % 2) as f64 / width as f64);
        if column.is_multiple_of(2) {
            angle.sin()
        } else {
            angle.cos()
        }
    };
    (0..len * width)
        .map(|place| wave(place / width, place % width))
        .collect()
}

fn are_waves<E: Element, const W: usize>()
where
    Cpu: Backend<E>,
{
    let dev = Cpu::default();
    for len in [0, 1, 2, 17] {
        let expected = naive(len, W);
        let rows: Tensor<(usize, Const<W>), E, _> = ops::sinusoidal_position((len,), &dev);
        compare::assert_close("rows", &flat(&rows), &expected, tolerance::<E>());
        let composed: Tensor<(usize, Const<W>), E, _> =
            composed::sinusoidal_position((len,), &dev).unwrap();
        compare::assert_close("composed", &flat(&composed), &expected, tolerance::<E>());
        let batch: Tensor<(Const<3>, usize, Const<W>), E, _> =
            ops::sinusoidal_position((Const, len), &dev);
        assert_eq!(flat(&batch), flat(&rows).repeat(3));
        let composed: Tensor<(Const<3>, usize, Const<W>), E, _> =
            composed::sinusoidal_position((Const, len), &dev).unwrap();
        compare::assert_close(
            "batch",
            &flat(&composed),
            &expected.repeat(3),
            tolerance::<E>(),
        );
    }
}

#[test]
fn they_are_what_they_are_defined_to_be() {
    are_waves::<f32, 1>();
    are_waves::<f32, 8>();
    are_waves::<f64, 5>();
    are_waves::<f64, 64>();
}
