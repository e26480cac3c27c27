//! Sinusoidal positions.

use super::*;
use attn::ops::{self, composed};
use support::{tensors::flat, waves::waves};

fn are_waves<E: Element, const W: usize>()
where
    Cpu: Backend<E>,
{
    let dev = Cpu::default();
    for len in [0, 1, 2, 17] {
        let expected = waves(len, W);
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
fn positions_equal_their_definitions() {
    are_waves::<f32, 1>();
    are_waves::<f32, 8>();
    are_waves::<f64, 5>();
    are_waves::<f64, 64>();
}
