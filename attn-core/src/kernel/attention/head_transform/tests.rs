use super::*;
use crate::kernel::Kernels;
use crate::kernel::attention::{Angles, RopeScaling, Rotary, angles};
use crate::kernel::testing::{
    Absolute, LENGTHS, assert_close, noise, on_every_isa, same_for_all_threads, slopes, wide,
};

const THETA: f64 = 1e4;

/// The epsilon of a norm, large enough to change the results.
const EPSILON: f64 = 1e-3;

/// Whether there is a bias, the norm, and whether there is a rotation.
type Way = (bool, Option<NormKind>, bool);

/// The maximum number of heads.
const HEADS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum NormKind {
    L2,
    Rms,
}

fn rotary(dims: usize, interleaved: bool) -> Rotary {
    Rotary {
        dims,
        theta: THETA,
        scaling: RopeScaling::None,
        interleaved,
    }
}

fn half_split<E: Kernels>(dims: usize, positions: usize) -> std::sync::Arc<Angles<E>> {
    angles(&rotary(dims, false), positions)
}

/// Of all heads.
fn bias<E: Kernels>(width: usize) -> Vec<E> {
    noise(HEADS * width, 9)
}

/// Calls `body` with the tables of a way that a width allows.
fn with<E: Kernels, T>(
    (has_bias, norm, rope): Way,
    gain: &[E],
    positions: usize,
    body: impl FnOnce(&HeadTransform<'_, E>) -> T,
) -> T {
    let bias = bias(gain.len());
    let angles = rope.then(|| half_split::<E>(gain.len(), positions));
    body(&HeadTransform {
        bias: has_bias.then_some(&bias[..]),
        norm: norm.map(|kind| match kind {
            NormKind::L2 => Norm::L2 { epsilon: EPSILON },
            NormKind::Rms => Norm::Rms {
                gain: Gain::Factor(gain),
                epsilon: EPSILON,
            },
        }),
        rope: angles.as_ref().map(|angles| angles.rope()),
    })
}

/// Every transform that a width allows.
fn ways(width: usize) -> impl Iterator<Item = Way> {
    let norms = [None, Some(NormKind::L2), Some(NormKind::Rms)];
    let ways = norms.map(|norm| [false, true].map(|rope| (norm, rope)));
    let ways = ways.into_iter().flatten();
    ways.flat_map(|(norm, rope)| [false, true].map(|bias| (bias, norm, rope)))
        .filter(move |(_, _, rope)| !rope || width.is_multiple_of(2))
}

/// One vector of the first head, by the definitions.
fn naive((has_bias, norm, rope): Way, gain: &[f64], position: usize, x: &[f64]) -> Vec<f64> {
    let width = x.len();
    let bias = bias::<f64>(width).into_iter();
    let x: Vec<f64> = x
        .iter()
        .zip(bias)
        .map(|(x, bias)| if has_bias { x + bias } else { *x })
        .collect();
    let squares: f64 = x.iter().map(|x| x * x).sum();
    let normed: Vec<f64> = (0..width)
        .map(|i| match norm {
            None => x[i],
            Some(NormKind::L2) => x[i] / (squares + EPSILON).sqrt(),
            Some(NormKind::Rms) => x[i] / (squares / width as f64 + EPSILON).sqrt() * gain[i],
        })
        .collect();
    let half = width / 2;
    let rotated = |i: usize| {
        let pair = i % half;
        let angle = position as f64 / THETA.powf(2.0 * pair as f64 / width as f64);
        let x1 = normed[pair];
        let x2 = normed[pair + half];
        if i < half {
            x1 * angle.cos() - x2 * angle.sin()
        } else {
            x2 * angle.cos() + x1 * angle.sin()
        }
    };
    if rope {
        (0..width).map(rotated).collect()
    } else {
        normed
    }
}

struct Load<'a, E> {
    transform: &'a HeadTransform<'a, E>,
    x: Matrix<'a, E>,
    first: usize,
    columns: bool,
    to: MatrixMut<'a, E>,
}

impl<E: Kernels> Kernel for Load<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        if self.columns {
            load_columns::<V>(self.transform, self.x, self.first, &mut self.to);
        } else {
            load_rows::<V>(self.transform, self.x, self.first, &mut self.to);
        }
    }
}

struct BackwardRows<'a, E> {
    transform: &'a HeadTransform<'a, E>,
    x: Matrix<'a, E>,
    first: usize,
    d: Matrix<'a, E>,
    to: MatrixMut<'a, E>,
    d_gain: Option<&'a mut [E]>,
}

impl<E: Kernels> Kernel for BackwardRows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Self {
            transform,
            x,
            first,
            d,
            ..
        } = self;
        backward_rows::<V>(transform, x, first, d, &mut self.to, self.d_gain);
    }
}

/// The rows of one head among others, and their transpose; both between other columns that must stay as they are.
fn load<E: Kernels>(
    transform: &HeadTransform<'_, E>,
    x: Matrix<'_, E>,
    first: usize,
) -> (Vec<E>, Vec<E>) {
    let load = |columns| {
        let (rows, cols) = if columns {
            (x.cols(), x.rows())
        } else {
            (x.rows(), x.cols())
        };
        let mut wide = vec![E::TWO; rows * (cols + 3)];
        let to = MatrixMut::strided(&mut wide, rows, cols, cols + 3);
        run(Load {
            transform,
            x,
            first,
            columns,
            to,
        });
        assert!(wide.chunks(cols + 3).all(|row| row[cols..] == [E::TWO; 3]));
        wide.chunks(cols + 3)
            .flat_map(|row| row[..cols].to_vec())
            .collect()
    };
    (load(false), load(true))
}

fn backward<E: Kernels>(
    transform: &HeadTransform<'_, E>,
    x: Matrix<'_, E>,
    first: usize,
    d: &[E],
    d_gain: Option<&mut [E]>,
) -> Vec<E> {
    let len = x.rows();
    let width = x.cols();
    let mut to = vec![E::NAN; len * width];
    run(BackwardRows {
        transform,
        x,
        first,
        d: Matrix::new(d, len, width),
        to: MatrixMut::new(&mut to, len, width),
        d_gain,
    });
    to
}

/// Compares rows with the naive ones, and columns with rows.
fn check_load<E: Kernels + Into<f64>>(len: usize, width: usize, first: usize, tolerance: f64) {
    let data: Vec<E> = noise(len * (width + 5), 1);
    let x = Matrix::strided(&data, len, width, width + 5, 1);
    let gain: Vec<E> = noise(width, 2);
    for way in ways(width) {
        let (rows, columns) = with(way, &gain, first + len, |transform| {
            load(transform, x, first)
        });
        let want: Vec<f64> = (0..len)
            .flat_map(|i| naive(way, &wide(&gain), first + i, &wide(x.row(i))))
            .collect();
        let what = format!("{len} x {width} from {first}, {way:?}");
        assert_close(&what, &rows, &want, Absolute(tolerance));
        let rows = wide(&rows);
        let columns = wide(&columns);
        for (i, j) in (0..len).flat_map(|i| (0..width).map(move |j| (i, j))) {
            assert_eq!(columns[j * len + i], rows[i * width + j], "{what}");
        }
    }
}

#[test]
fn vectors_are_normalised_then_rotated() {
    on_every_isa(|_| {
        for width in LENGTHS {
            for (len, first) in [(0, 0), (1, 0), (2, 7), (15, 1), (65, 3)] {
                // A few roundings of numbers around 1, and one of an angle of up to 68.
                check_load::<f64>(len, width, first, 1e-13);
                check_load::<f32>(len, width, first, 1e-5);
            }
        }
    });
}

#[test]
fn gradients_agree_with_central_differences() {
    on_every_isa(|isa| {
        for width in [0, 1, 2, 7, 8, 16, 17, 34] {
            for (len, first) in [(0, 0), (1, 4), (3, 1)] {
                let x: Vec<f64> = noise(len * width, 1);
                let gain: Vec<f64> = noise(width, 2);
                let d: Vec<f64> = noise(len * width, 3);
                for way in ways(width) {
                    let loss = |x: &[f64], gain: &[f64]| -> f64 {
                        let y = (0..len)
                            .flat_map(|i| naive(way, gain, first + i, &x[i * width..][..width]));
                        y.zip(&d).map(|(y, d)| y * d).sum()
                    };
                    let mut d_gain = vec![1.0; width];
                    let d_x = with(way, &gain, first + len, |transform| {
                        let x = Matrix::new(&x, len, width);
                        backward(transform, x, first, &d, Some(&mut d_gain))
                    });
                    let what = format!("{len} x {width} from {first}, {way:?} on {isa}");
                    // The third derivative of the norm of a small number is large: 1e-10 / 6 of about 1000.
                    assert_close(&what, &d_x, &slopes(&x, |x| loss(x, &gain)), Absolute(2e-7));
                    let want = slopes(&gain, |gain| loss(&x, gain));
                    let want: Vec<f64> = want.iter().map(|d| 1.0 + d).collect();
                    assert_close(&what, &d_gain, &want, Absolute(1e-8));
                }
            }
        }
    });
}

#[test]
fn products_of_rotated_vectors_depend_only_on_the_distance() {
    let width = 34;
    let vector = |seed| -> Vec<f64> { noise::<f64>(width, seed).repeat(12) };
    let q = vector(1);
    let k = vector(2);
    let rotated = |x: &[f64], first| {
        with((false, None, true), &vec![0.0; width], 40, |transform| {
            load(transform, Matrix::new(x, 12, width), first).0
        })
    };
    let later = rotated(&k, 20);
    let q = rotated(&q, 0);
    let k = rotated(&k, 0);
    let product = |q: &[f64], i: usize, k: &[f64], j: usize| -> f64 {
        let q = &q[i * width..][..width];
        let k = &k[j * width..][..width];
        q.iter().zip(k).map(|(q, k)| q * k).sum()
    };
    for (i, j) in (0..11).flat_map(|i| (0..11).map(move |j| (i, j))) {
        let here = product(&q, i, &k, j);
        let next = product(&q, i + 1, &k, j + 1);
        assert!((here - next).abs() < 1e-13, "{i} {j}");
    }
    assert!((product(&q, 0, &k, 1) - product(&q, 0, &k, 2)).abs() > 1e-3);
    assert!((product(&q, 0, &k, 0) - product(&q, 0, &later, 0)).abs() > 1e-3);
}

#[test]
fn a_vector_of_zeros_stays_zero_with_a_finite_derivative() {
    for kind in [NormKind::L2, NormKind::Rms] {
        let gain = [2.0_f32; 6];
        let d = [1.0; 6];
        with((false, Some(kind), true), &gain, 1, |transform| {
            let x = Matrix::new(&[0.0; 6], 1, 6);
            assert_eq!(load(transform, x, 0).0, [0.0; 6]);
            let d_x = backward(transform, x, 0, &d, None);
            assert!(d_x.iter().all(|d| d.is_finite() && *d != 0.0));
        });
    }
}

#[test]
fn padding_may_have_any_value() {
    on_every_isa(|_| {
        let width = 18;
        let gain: Vec<f32> = noise(width, 1);
        let clean: Vec<f32> = noise(3 * width, 2);
        let mut d: Vec<f32> = noise(3 * width, 3);
        d[width..2 * width].fill(0.0);
        for garbage in [f32::NAN, f32::INFINITY, 1e30] {
            let mut x = clean.clone();
            x[width + 5..width + 9].fill(garbage);
            for way in ways(width) {
                let backward = |x: &[f32]| {
                    let mut d_gain = vec![0.0; width];
                    let d_x = with(way, &gain, 3, |transform| {
                        backward(
                            transform,
                            Matrix::new(x, 3, width),
                            0,
                            &d,
                            Some(&mut d_gain),
                        )
                    });
                    (d_x, d_gain)
                };
                assert_eq!(backward(&x), backward(&clean), "{garbage}, {way:?}");
            }
        }
    });
}

/// `head_transform`, and its derivative, over numbers that must be overwritten.
fn whole<E: Kernels>(
    way: Way,
    [batch, len, heads]: [usize; 3],
    gain: &[E],
    x: &[E],
    d: &[E],
) -> [Vec<E>; 3] {
    let rows = batch * len;
    let cols = heads * gain.len();
    let fresh = || vec![E::NAN; rows * cols];
    let mut y = fresh();
    let mut d_x = fresh();
    let mut d_gain = vec![E::NAN; gain.len()];
    let x = Matrix::new(x, rows, cols);
    let d = Matrix::new(d, rows, cols);
    with(way, gain, len, |transform| {
        head_transform(
            transform,
            batch,
            len,
            heads,
            x,
            MatrixMut::new(&mut y, rows, cols),
        );
        let to = MatrixMut::new(&mut d_x, rows, cols);
        head_transform_backward(transform, batch, len, heads, x, d, to, Some(&mut d_gain));
    });
    [y, d_x, d_gain]
}

#[test]
fn positions_of_each_head_and_sequence_start_at_0() {
    on_every_isa(|_| {
        for sizes @ [batch, len, heads] in [[0, 3, 2], [2, 0, 2], [2, 3, 0], [1, 1, 1], [3, 50, 2]]
        {
            for width in [0, 1, 2, 17, 64] {
                let rows = batch * len;
                let cols = heads * width;
                let x: Vec<f64> = noise(rows * cols, 1);
                let d: Vec<f64> = noise(rows * cols, 2);
                let gain: Vec<f64> = noise(width, 3);
                for way in ways(width) {
                    let [y, d_x, d_gain] = whole(way, sizes, &gain, &x, &d);
                    let mut sum = vec![0.0; width];
                    for (row, h) in (0..rows).flat_map(|row| (0..heads).map(move |h| (row, h))) {
                        let at = (row * heads + h) * width..(row * heads + h + 1) * width;
                        let vector = Matrix::new(&x[at.clone()], 1, width);
                        with(way, &gain, len, |transform| {
                            let transform = &transform.of_head(h, width);
                            assert_eq!(y[at.clone()], load(transform, vector, row % len).0);
                            let d = &d[at.clone()];
                            let want = backward(transform, vector, row % len, d, Some(&mut sum));
                            assert_eq!(d_x[at], want);
                        });
                    }
                    // The same 300 numbers below 10, added in another order.
                    assert_close(
                        format!("{sizes:?}, {way:?}"),
                        &d_gain,
                        &sum,
                        Absolute(1e-12),
                    );
                }
            }
        }
    });
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let sizes = [3, 700, 2];
    let width = 34;
    let x: Vec<f32> = noise(3 * 700 * 68, 1);
    let d: Vec<f32> = noise(3 * 700 * 68, 2);
    let gain: Vec<f32> = noise(width, 3);
    same_for_all_threads(|| whole((true, Some(NormKind::Rms), true), sizes, &gain, &x, &d));
}

#[test]
#[should_panic(expected = "angles of another width")]
fn angles_of_another_width_are_refused() {
    let angles = half_split::<f64>(8, 1);
    let transform = HeadTransform {
        rope: Some(angles.rope()),
        ..HeadTransform::default()
    };
    load(&transform, Matrix::new(&[0.0; 6], 1, 6), 0);
}

/// The coordinates of pair `i`.
fn pair(dims: usize, interleaved: bool, i: usize) -> [usize; 2] {
    match interleaved {
        true => [2 * i, 2 * i + 1],
        false => [i, i + dims / 2],
    }
}

#[test]
fn a_part_of_a_vector_is_rotated_by_the_position_of_its_row() {
    let rows = [3, 0, 0, 40, 7];
    on_every_isa(|isa| {
        for width in [2, 7, 16, 34] {
            for (dims, interleaved) in [
                (2, true),
                (2, false),
                (width & !1, true),
                (width & !1, false),
            ] {
                let what = format!("{dims} of {width}, interleaved: {interleaved}, on {isa}");
                let x: Vec<f64> = noise(rows.len() * width, 1);
                let d: Vec<f64> = noise(x.len(), 2);
                let angles = angles::<f64>(&rotary(dims, interleaved), 41);
                let transform = HeadTransform {
                    rope: Some(Rope {
                        rows: Some(&rows),
                        ..angles.rope()
                    }),
                    ..HeadTransform::default()
                };
                let rotated = |x: &[f64], sign: f64| -> Vec<f64> {
                    let mut y = x.to_vec();
                    for (row, y) in rows.iter().zip(y.chunks_mut(width)) {
                        for i in 0..dims / 2 {
                            let [first, second] = pair(dims, interleaved, i);
                            let angle = *row as f64 / THETA.powf(2.0 * i as f64 / dims as f64);
                            let (sin, cos) = (sign * angle).sin_cos();
                            (y[first], y[second]) = (
                                y[first] * cos - y[second] * sin,
                                y[second] * cos + y[first] * sin,
                            );
                        }
                    }
                    y
                };
                let of = |x: &[f64]| load(&transform, Matrix::new(x, rows.len(), width), 0).0;
                assert_close(&what, &of(&x), &rotated(&x, 1.0), Absolute(1e-13));
                // The derivative is the rotation back.
                let matrix = Matrix::new(&x, rows.len(), width);
                let d_x = backward(&transform, matrix, 0, &d, None);
                assert_close(&what, &d_x, &rotated(&d, -1.0), Absolute(1e-13));
            }
        }
    });
}

#[test]
fn gains_of_one_plus_and_none_are_the_gains_that_they_stand_for() {
    on_every_isa(|isa| {
        for width in [1, 7, 16, 33] {
            let x: Vec<f64> = noise(3 * width, 1);
            let d: Vec<f64> = noise(3 * width, 2);
            let learned: Vec<f64> = noise(width, 3);
            let one_plus: Vec<f64> = learned.iter().map(|gain| 1.0 + gain).collect();
            let ones = vec![1.0; width];
            let run = |gain| {
                let transform = HeadTransform {
                    norm: Some(Norm::Rms {
                        gain,
                        epsilon: EPSILON,
                    }),
                    ..HeadTransform::default()
                };
                let matrix = Matrix::new(&x, 3, width);
                let mut d_gain = vec![0.0; width];
                let d_x = backward(&transform, matrix, 0, &d, Some(&mut d_gain));
                (load(&transform, matrix, 0).0, d_x, d_gain)
            };
            let what = format!("{width} on {isa}");
            let (y, d_x, d_gain) = run(Gain::OnePlus(&learned));
            let want = run(Gain::Factor(&one_plus));
            assert_close(&what, &y, &want.0, Absolute(1e-14));
            assert_close(&what, &d_x, &want.1, Absolute(1e-13));
            assert_eq!(d_gain, want.2, "{what}");
            let (y, d_x, d_gain) = run(Gain::One);
            let want = run(Gain::Factor(&ones));
            assert_eq!((y, d_x), (want.0, want.1), "{what}");
            assert_eq!(d_gain, vec![0.0; width], "{what}: there is none");
        }
    });
}
