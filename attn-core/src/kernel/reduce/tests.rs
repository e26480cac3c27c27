//! Reductions and their derivatives against loops.

use super::*;
use crate::kernel::testing::*;

const ALL: [Reduction; 6] = [
    Reduction::Sum,
    Reduction::Mean,
    Reduction::Max,
    Reduction::Min,
    Reduction::Variance,
    Reduction::Logsumexp,
];

/// The last ones are several tasks along `outer`, along the axis, and along `inner`.
const SIZES: [[usize; 3]; 13] = [
    [1, 1, 1],
    [3, 5, 7],
    [1, 700, 1],
    [4, 9, 1],
    [2, 130, 65],
    [5, 1, 4],
    [0, 3, 2],
    [3, 0, 2],
    [3, 0, 1],
    [3, 2, 0],
    [900, 3, 33],
    [1, 1100, 17],
    [1, 3, 20_000],
];

fn axis([outer, len, inner]: [usize; 3]) -> Axis {
    Axis { outer, len, inner }
}

/// The result for one column, by the definition.
fn naive(reduction: Reduction, x: &[f64]) -> f64 {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    match reduction {
        Reduction::Sum => x.iter().sum::<f64>() + 0.0,
        Reduction::Mean => mean,
        Reduction::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Reduction::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
        Reduction::Variance => x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n,
        Reduction::Logsumexp => x.iter().map(|x| x.exp()).sum::<f64>().ln(),
    }
}

/// The columns along the axis.
fn columns(x: &[f64], axis: Axis) -> impl Iterator<Item = Vec<f64>> {
    let places = (0..axis.outer).flat_map(move |o| (0..axis.inner).map(move |i| (o, i)));
    let at = move |o, l, i| x[(o * axis.len + l) * axis.inner + i];
    places.map(move |(o, i)| (0..axis.len).map(|l| at(o, l, i)).collect())
}

fn reduced<E: crate::kernel::Kernels>(reduction: Reduction, x: &[E], axis: Axis) -> Vec<E> {
    let mut y = vec![E::NAN; axis.outer * axis.inner];
    forward(reduction, x, axis, Counted::All, &mut y);
    y
}

#[test]
fn reductions_are_those_of_the_definition() {
    on_every_isa(|isa| {
        for axis in SIZES.map(axis) {
            let x = noise::<f32>(axis.elements(), 1);
            for reduction in ALL {
                let what = format!("{reduction:?} of {axis:?} on {isa}");
                let y = reduced(reduction, &x, axis);
                let want: Vec<f64> = columns(&wide(&x), axis)
                    .map(|column| naive(reduction, &column))
                    .collect();
                if axis.len == 0 {
                    let is_same = |(y, want): (&f32, &f64)| {
                        f64::from(*y) == *want || (y.is_nan() && want.is_nan())
                    };
                    assert!(y.iter().zip(&want).all(is_same), "{what}: {y:?}");
                } else {
                    // Sums of up to 1100 numbers, in several parts: some ten roundings of 30.
                    assert_close(&what, &y, &want, Absolute(1e-4));
                }
            }
        }
    });
}

#[test]
fn gradients_agree_with_central_differences() {
    on_every_isa(|isa| {
        for axis in [[1, 1, 1], [3, 5, 7], [2, 37, 1], [4, 2, 17], [3, 0, 2]].map(axis) {
            let x = noise::<f64>(axis.elements(), 1);
            let d_y = noise::<f64>(axis.outer * axis.inner, 2);
            for reduction in ALL {
                let y = reduced(reduction, &x, axis);
                let mut d_x = vec![1.0; x.len()];
                let [saved_x, saved_y] = [(reduction.reads_x(), &x), (reduction.reads_y(), &y)]
                    .map(|(is_read, numbers)| if is_read { &numbers[..] } else { &[] });
                backward(
                    reduction,
                    saved_x,
                    (axis, Counted::All),
                    saved_y,
                    &d_y,
                    &mut d_x,
                    WriteMode::Add,
                );
                let loss = |x: &[f64]| {
                    let y = columns(x, axis).map(|column| naive(reduction, &column));
                    y.zip(&d_y).map(|(y, d_y)| y * d_y).sum()
                };
                let want: Vec<f64> = slopes(&x, loss).into_iter().map(|d| 1.0 + d).collect();
                let what = format!("{reduction:?} of {axis:?} on {isa}");
                // The error of the central differences.
                assert_close(what, &d_x, &want, Absolute(1e-8));
            }
        }
    });
}

/// Both kinds of selections, as marks. Some select nothing.
fn selections(axis: Axis) -> [(Vec<usize>, Vec<bool>); 2] {
    let counts: Vec<usize> = (0..axis.outer).map(|o| o * 7 % (axis.len + 1)).collect();
    let mark = |place: usize| place / axis.len % 4 != 3 && place * place % 7 < 3;
    let marks = (0..axis.outer * axis.len).map(mark).collect();
    let first = Counted::First(&counts).marks(axis);
    [(counts, first), (Vec::new(), marks)]
}

#[test]
fn only_numbers_that_are_counted_are_reduced() {
    on_every_isa(|isa| {
        for axis in SIZES
            .map(axis)
            .into_iter()
            .filter(|axis| axis.elements() < 20_000)
        {
            let numbers = noise::<f64>(axis.elements(), 1);
            for (counts, marks) in selections(axis) {
                let counted = match counts.is_empty() {
                    true => Counted::Where(&marks),
                    false => Counted::First(&counts),
                };
                let is_marked = |place: usize| marks[place / axis.inner];
                // NaN is not read.
                let x: Vec<f64> = (0..numbers.len())
                    .map(|place| {
                        if is_marked(place) {
                            numbers[place]
                        } else {
                            f64::NAN
                        }
                    })
                    .collect();
                let d_y = noise::<f64>(axis.outer * axis.inner, 2);
                for reduction in ALL {
                    let what = format!("{reduction:?} of {counted:?} in {axis:?} on {isa}");
                    let naive = |column: &[f64]| {
                        let some: Vec<f64> =
                            column.iter().copied().filter(|x| !x.is_nan()).collect();
                        match some.is_empty() {
                            true => reduction.of_none(),
                            false => naive(reduction, &some),
                        }
                    };
                    let mut y = vec![f64::NAN; d_y.len()];
                    forward(reduction, &x, axis, counted, &mut y);
                    let want: Vec<f64> = columns(&x, axis).map(|column| naive(&column)).collect();
                    let is_close = |(y, want): (&f64, &f64)| y == want || (y - want).abs() < 1e-12;
                    assert!(
                        y.iter().zip(&want).all(is_close),
                        "{what}: {y:?}, not {want:?}"
                    );
                    let mut d_x = vec![1.0; x.len()];
                    backward(
                        reduction,
                        &x,
                        (axis, counted),
                        &y,
                        &d_y,
                        &mut d_x,
                        WriteMode::Add,
                    );
                    let unread = (0..x.len()).filter(|place| !is_marked(*place));
                    assert!(unread.map(|place| d_x[place]).all(|d| d == 1.0), "{what}");
                    assert!(d_x.iter().all(|d| d.is_finite()), "{what}");
                }
            }
        }
    });
}

#[test]
fn infinities_and_nan_stay_in_their_column() {
    let inf = f32::INFINITY;
    let nan = f32::NAN;
    let rows = [
        [0.0, -inf, 0.0],
        [-inf; 3],
        [0.0, inf, 1.0],
        [-inf, inf, 0.0],
        [nan, inf, 0.0],
        [1e38, -1e38, 1e38],
    ];
    let x = rows.as_flattened();
    let transposed: Vec<f32> = (0..3).flat_map(|l| rows.map(|row| row[l])).collect();
    let ln_2 = std::f32::consts::LN_2;
    let want = [
        (Reduction::Sum, [-inf, -inf, inf, nan, nan, 1e38]),
        (Reduction::Max, [0.0, -inf, inf, inf, nan, 1e38]),
        (Reduction::Min, [-inf, -inf, 0.0, -inf, nan, -1e38]),
        (Reduction::Logsumexp, [ln_2, -inf, inf, inf, nan, 1e38]),
    ];
    on_every_isa(|isa| {
        for (reduction, want) in want {
            let by_rows = reduced(reduction, x, axis([6, 3, 1]));
            let by_columns = reduced(reduction, &transposed, axis([1, 3, 6]));
            for y in [by_rows, by_columns] {
                let is_same = |(y, want): (&f32, f32)| {
                    (y - want).abs() < 1e-6 || *y == want || (y.is_nan() && want.is_nan())
                };
                let agree = y.iter().zip(want).all(is_same);
                assert!(agree, "{reduction:?} on {isa}: {y:?}, not {want:?}");
            }
        }
    });
}

#[test]
fn gradients_of_numbers_that_are_not_finite_are_limits() {
    let inf = f32::INFINITY;
    let x = [0.0, -inf, -inf, -inf, 0.0, inf, f32::NAN, f32::NAN];
    let axis = axis([4, 2, 1]);
    let gradient = |reduction| {
        let y = reduced(reduction, &x, axis);
        let mut d_x = [0.0; 8];
        backward(
            reduction,
            &x,
            (axis, Counted::All),
            &y,
            &[2.0; 4],
            &mut d_x,
            WriteMode::Add,
        );
        d_x
    };
    let d_x = gradient(Reduction::Logsumexp);
    assert_eq!(d_x[..5], [2.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(d_x[5..].iter().all(|d| d.is_nan()), "{d_x:?}");
    let d_x = gradient(Reduction::Max);
    assert_eq!(d_x, [2.0, 0.0, 2.0, 0.0, 0.0, 2.0, 2.0, 0.0]);
    let d_x = gradient(Reduction::Min);
    assert_eq!(d_x, [0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0]);
}

#[test]
fn variances_of_numbers_far_from_0_are_accurate() {
    // The mean of the squares less the square of the mean would be off by about 10, the rounding of 10^8.
    let x: Vec<f32> = (0..300).map(|i| 1e4 + (i % 3) as f32).collect();
    for (sizes, want) in [([1, 300, 1], 2.0 / 3.0), ([1, 100, 3], 0.0)] {
        for y in reduced(Reduction::Variance, &x, axis(sizes)) {
            // The square of the error of the mean, which is the sum of 100 numbers, each addition rounded by up to 0.03.
            assert!((y - want).abs() <= 1e-3, "{y}, not {want}");
        }
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    for axis in [[90, 41, 33], [1, 1500, 40], [700, 65, 1], [1, 40_000, 1]].map(axis) {
        let x = noise::<f32>(axis.elements(), 1);
        for reduction in ALL {
            same_for_all_threads(|| {
                let y = reduced(reduction, &x, axis);
                let mut d_x = vec![0.0; axis.elements()];
                backward(
                    reduction,
                    &x,
                    (axis, Counted::All),
                    &y,
                    &y,
                    &mut d_x,
                    WriteMode::Add,
                );
                (y, d_x)
            });
        }
    }
}
