//! Norms against the definition, and derivatives against central differences.

use super::*;
use crate::kernel::Kernels;
use crate::kernel::dropout::Dropout;
use crate::kernel::loops::known::{Add, Copy};
use crate::kernel::loops::{self, InPlace, read};
use crate::kernel::rows::assign;
use crate::kernel::testing::*;

const KINDS: [NormKind; 2] = [NormKind::Layer, NormKind::Rms];

/// The kind of a gain, without its numbers.
type GainOf = Gain<()>;

fn gain_of<E>(kind: GainOf, gain: &[E]) -> Gain<&[E]> {
    kind.map(|()| gain)
}

/// A norm without gain and bias.
fn bare<E>(kind: NormKind, epsilon: E) -> Norm<'static, E> {
    Norm {
        kind,
        gain: Gain::One,
        bias: None,
        groups: 1,
        epsilon,
    }
}

fn naive(norm: &Norm<'_, f64>, x: &[f64]) -> Vec<f64> {
    let width = x.len() as f64;
    let mean = match norm.kind {
        NormKind::Layer => x.iter().sum::<f64>() / width,
        NormKind::Rms => 0.0,
    };
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width;
    let deviation = (variance + norm.epsilon).sqrt();
    let of = |row: Option<&[f64]>, j: usize, otherwise| row.map_or(otherwise, |row| row[j]);
    let factor = |j: usize| match norm.gain {
        Gain::One => 1.0,
        Gain::Factor(gain) => gain[j],
        Gain::OnePlus(gain) => 1.0 + gain[j],
    };
    let normalised = x.iter().map(|x| (x - mean) / deviation);
    normalised
        .enumerate()
        .map(|(j, h)| h * factor(j) + of(norm.bias, j, 0.0))
        .collect()
}

fn forward<E: Kernels>(norm: &Norm<'_, E>, x: &[E], width: usize) -> (Vec<E>, Vec<E>) {
    let rows = x.len() / width;
    let mut y = vec![E::NAN; x.len()];
    let mut statistics = vec![E::NAN; STATISTICS * rows];
    let to = MatrixMut::new(&mut y, rows, width);
    norm.forward(Matrix::new(x, rows, width), to, &mut statistics);
    (y, statistics)
}

/// `dx`, `dgain` and `dbias`, each added to ones.
fn backward<E: Kernels>(norm: &Norm<'_, E>, x: &[E], d_y: &[E], width: usize) -> [Vec<E>; 3] {
    let (rows, (_, statistics)) = (x.len() / width, forward(norm, x, width));
    let [mut d_x, mut d_gain, mut d_bias] = [x.len(), width, width].map(|len| vec![E::ONE; len]);
    norm.backward(
        Matrix::new(x, rows, width),
        &statistics,
        Matrix::new(d_y, rows, width),
        Gradients {
            x: MatrixMut::new(&mut d_x, rows, width),
            into: WriteMode::Add,
            gain: Some(&mut d_gain),
            bias: Some(&mut d_bias),
        },
    );
    [d_x, d_gain, d_bias]
}

#[test]
fn forward_takes_out_mean_and_deviation() {
    on_every_isa(|isa| {
        for (kind, width) in KINDS
            .into_iter()
            .flat_map(|kind| LENGTHS[1..].iter().map(move |&w| (kind, w)))
        {
            let [x, gain, bias] =
                [3 * width, width, width].map(|len| noise::<f32>(len, len as u64));
            let [x64, gain64, bias64] = [&x, &gain, &bias].map(|x| wide(x));
            let gains: [GainOf; 3] = [Gain::One, Gain::Factor(()), Gain::OnePlus(())];
            let ways = gains.map(|scaled| [false, true].map(|moved| (scaled, moved)));
            for (scaled, moved) in ways.into_iter().flatten() {
                let norm = Norm {
                    kind,
                    gain: gain_of(scaled, &gain),
                    bias: moved.then_some(&bias[..]),
                    groups: 1,
                    epsilon: 1e-2,
                };
                let norm64 = Norm {
                    kind,
                    gain: gain_of(scaled, &gain64),
                    bias: moved.then_some(&bias64[..]),
                    groups: 1,
                    epsilon: f64::from(1e-2_f32),
                };
                let want: Vec<f64> = x64.chunks(width).flat_map(|x| naive(&norm64, x)).collect();
                let (got, _) = forward(&norm, &x, width);
                // Some ten roundings of numbers up to 2.
                assert_close(
                    format!("{kind:?} of {width} on {isa}"),
                    &got,
                    &want,
                    Absolute(2e-6),
                );
            }
        }
    });
}

#[test]
fn gradients_are_the_derivatives() {
    on_every_isa(|isa| {
        for (kind, width) in KINDS
            .into_iter()
            .flat_map(|kind| [1, 2, 7, 9, 33].map(|w| (kind, w)))
        {
            let x = noise::<f64>(2 * width, 1);
            let d_y = noise::<f64>(2 * width, 2);
            let gain = noise::<f64>(width, 3);
            let bias = noise::<f64>(width, 4);
            let norm = Norm {
                kind,
                gain: Gain::Factor(&gain),
                bias: Some(&bias),
                groups: 1,
                epsilon: 0.1,
            };
            let loss = |norm: &Norm<'_, f64>, x: &[f64]| -> f64 {
                let y = x.chunks(width).flat_map(|x| naive(norm, x));
                1.0 * y.zip(&d_y).map(|(y, d)| y * d).sum::<f64>()
            };
            let plus_one = |x: Vec<f64>| -> Vec<f64> { x.iter().map(|x| 1.0 + x).collect() };
            let what = format!("{kind:?} of {width} on {isa}");
            let [d_x, d_gain, d_bias] = backward(&norm, &x, &d_y, width);
            let want = plus_one(slopes(&x, |x| loss(&norm, x)));
            assert_close(&what, &d_x, &want, Absolute(1e-8));
            let want = slopes(&gain, |gain| {
                loss(
                    &Norm {
                        gain: Gain::Factor(gain),
                        ..norm
                    },
                    &x,
                )
            });
            assert_close(&what, &d_gain, &plus_one(want), Absolute(1e-8));
            let want = slopes(&bias, |bias| {
                loss(
                    &Norm {
                        bias: Some(bias),
                        ..norm
                    },
                    &x,
                )
            });
            assert_close(&what, &d_bias, &plus_one(want), Absolute(1e-8));

            let bare = Norm {
                gain: Gain::One,
                bias: None,
                ..norm
            };
            let want = plus_one(slopes(&x, |x| loss(&bare, x)));
            assert_close(
                &what,
                &backward(&bare, &x, &d_y, width)[0],
                &want,
                Absolute(1e-8),
            );
        }
    });
}

#[test]
fn every_row_is_on_its_own() {
    let rows = 600;
    let width = 65;
    let x = noise::<f64>(rows * width, 1);
    let d_y = noise::<f64>(rows * width, 2);
    let norm = bare(NormKind::Layer, 0.1);
    on_every_isa(|isa| {
        let (y, statistics) = forward(&norm, &x, width);
        let [d_x, d_gain, d_bias] = backward(&norm, &x, &d_y, width);
        let mut sum_gain = vec![1.0; width];
        let mut sum_bias = vec![1.0; width];
        for (i, (x, d_y)) in x.chunks(width).zip(d_y.chunks(width)).enumerate() {
            let (one_y, one_statistics) = forward(&norm, x, width);
            let [one_d_x, one_gain, one_bias] = backward(&norm, x, d_y, width);
            let part = i * width..(i + 1) * width;
            assert_eq!(y[part.clone()], one_y, "row {i} on {isa}");
            assert_eq!(
                statistics[2 * i..2 * i + 2],
                one_statistics,
                "row {i} on {isa}"
            );
            assert_eq!(d_x[part], one_d_x, "row {i} on {isa}");
            for j in 0..width {
                sum_gain[j] += one_gain[j] - 1.0;
                sum_bias[j] += one_bias[j] - 1.0;
            }
        }
        assert_close("gain", &d_gain, &sum_gain, Absolute(1e-12));
        assert_close("bias", &d_bias, &sum_bias, Absolute(1e-12));
    });
}

#[test]
fn what_is_overwritten_is_not_read() {
    let x = noise::<f64>(40, 1);
    let d_y = noise::<f64>(40, 2);
    let norm = bare(NormKind::Layer, 0.1);
    let (_, statistics) = forward(&norm, &x, 20);
    let mut d_x = vec![f64::NAN; 40];
    norm.backward(
        Matrix::new(&x, 2, 20),
        &statistics,
        Matrix::new(&d_y, 2, 20),
        Gradients {
            x: MatrixMut::new(&mut d_x, 2, 20),
            into: WriteMode::Overwrite,
            gain: None,
            bias: None,
        },
    );
    let added = &backward(&norm, &x, &d_y, 20)[0];
    let want: Vec<f64> = added.iter().map(|x| x - 1.0).collect();
    assert_close("overwritten", &d_x, &want, Absolute(1e-15));
}

#[test]
fn a_large_mean_cancels_nothing() {
    let x: Vec<f32> = noise::<f32>(512, 1).iter().map(|x| 1000.0 + x).collect();
    let norm = bare(NormKind::Layer, 1e-5);
    let norm64 = bare(NormKind::Layer, 1e-5);
    let (y, _) = forward(&norm, &x, 512);
    // The mean is rounded to 3e-5, a fraction of the deviation of 0.58. The mean of the squares would be rounded to 0.03.
    assert_close("mean 1000", &y, &naive(&norm64, &wide(&x)), Absolute(2e-4));
}

#[test]
fn rows_without_length_stay_finite() {
    for kind in KINDS {
        let norm = bare(kind, 1e-5_f32);
        let (y, _) = forward(&norm, &[0.0; 40], 20);
        assert_eq!(y, [0.0; 40]);
        let [d_x, ..] = backward(&norm, &[0.0; 40], &[1.0; 40], 20);
        assert!(d_x.iter().all(|x| x.is_finite()));
    }
    let norm = bare(NormKind::Layer, 1e-5);
    assert_eq!(forward(&norm, &[3.0; 40], 20).0, [0.0; 40]);
}

#[test]
fn rows_may_lie_apart_and_there_may_be_none() {
    let x = noise::<f64>(5 * 12, 1);
    let norm = bare(NormKind::Layer, 0.1);
    let mut y = vec![7.0; 5 * 12];
    let mut statistics = vec![0.0; 10];
    let view = Matrix::new(&x, 5, 12).some_cols(2..11);
    norm.forward(view, MatrixMut::strided(&mut y, 5, 9, 12), &mut statistics);
    for i in 0..5 {
        assert_close(
            "strided",
            &y[12 * i..][..9],
            &naive(&norm, view.row(i)),
            Absolute(1e-14),
        );
        assert!(i == 4 || y[12 * i + 9..][..3] == [7.0; 3]);
    }
    for (rows, width) in [(0, 9), (3, 0)] {
        let mut statistics = vec![0.0; STATISTICS * rows];
        let x = Matrix::new(&x[..0], rows, width);
        norm.forward(x, MatrixMut::new(&mut [], rows, width), &mut statistics);
        let to = Gradients {
            x: MatrixMut::new(&mut [], rows, width),
            into: WriteMode::Overwrite,
            gain: None,
            bias: None,
        };
        norm.backward(x, &statistics, x, to);
    }
}

#[test]
fn threads_change_no_bit() {
    let rows = 2000;
    let width = 65;
    let x = noise::<f32>(rows * width, 1);
    let d_y = noise::<f32>(rows * width, 2);
    let gain = noise::<f32>(width, 3);
    for kind in KINDS {
        let norm = Norm {
            kind,
            gain: Gain::Factor(&gain),
            bias: None,
            groups: 1,
            epsilon: 1e-5,
        };
        same_for_all_threads(|| (forward(&norm, &x, width), backward(&norm, &x, &d_y, width)));
    }
}

/// Elements of the terms and of the sum are dropped as in passes of their own, whatever a row and a task are.
#[test]
fn a_sum_and_its_norm_are_what_they_are_one_after_the_other() {
    let [of_x, of_y, of_sum] = [1, 2, 3].map(|key| Dropout::new(0.3, Some(key)));
    let dropouts = [
        [Dropout::NONE; 3],
        [Dropout::NONE, of_y, Dropout::NONE],
        [of_x, Dropout::NONE, of_sum],
        [of_x, of_y, of_sum],
    ];
    on_every_isa(|isa| {
        // Up to more rows than a task has.
        for (rows, width) in [(0, 4), (1, 1), (3, 7), (5, 33), (300, 129)] {
            let x = noise::<f32>(rows * width, 1);
            let y = noise::<f32>(rows * width, 2);
            let gain = noise::<f32>(width, 3);
            let bias = noise::<f32>(width, 4);
            for (kind, [of_x, of_y, of_sum]) in KINDS
                .into_iter()
                .flat_map(|kind| dropouts.map(|dropouts| (kind, dropouts)))
            {
                let norm = Norm {
                    kind,
                    gain: Gain::Factor(&gain),
                    bias: Some(&bias),
                    groups: 1,
                    epsilon: 1e-5,
                };
                let dropped = |dropout: Dropout, x: &[f32]| {
                    let mut y = vec![f32::NAN; x.len()];
                    loops::compute(&Copy, [dropout.of(x)], [y.as_mut_slice().into()]);
                    y
                };
                let one = dropped(of_x, &x);
                let other = dropped(of_y, &y);
                let sum: Vec<f32> = one.iter().zip(&other).map(|(x, y)| x + y).collect();
                let sum = dropped(of_sum, &sum);
                let (want, want_statistics) = forward(&norm, &sum, width);
                let mut in_place = x.clone();
                let mut got = vec![f32::NAN; x.len()];
                let mut statistics = vec![f32::NAN; STATISTICS * rows];
                let terms = [of_x.of(InPlace), of_y.of(&y[..])];
                norm.forward(
                    &mut assign(Add, terms, of_sum.to(in_place.as_mut_slice())),
                    MatrixMut::new(&mut got, rows, width),
                    &mut statistics,
                );
                let what = format!("{kind:?} of ({rows} x {width}) on {isa}");
                assert_eq!(in_place, sum, "{what}");
                assert_eq!(got, want, "{what}");
                assert_eq!(statistics, want_statistics, "{what}");
            }
        }
    });
}

#[test]
fn threads_change_no_bit_of_a_sum_and_its_norm() {
    let rows = 2000;
    let width = 65;
    let x = noise::<f32>(rows * width, 1);
    let y = noise::<f32>(rows * width, 2);
    let norm = bare(NormKind::Layer, 1e-5);
    same_for_all_threads(|| {
        let mut sum = x.clone();
        let mut to = vec![0.0; x.len()];
        let mut statistics = vec![0.0; STATISTICS * rows];
        let terms = [read(InPlace), Dropout::new(0.2, Some(2)).of(&y[..])];
        norm.forward(
            &mut assign(
                Add,
                terms,
                Dropout::new(0.1, Some(1)).to(sum.as_mut_slice()),
            ),
            MatrixMut::new(&mut to, rows, width),
            &mut statistics,
        );
        (sum, to, statistics)
    });
}
