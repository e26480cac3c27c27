use super::*;
use crate::kernel::testing::{Absolute, assert_close, noise, same_for_all_threads};

/// Rows of the input, rows of the result for each, groups, widths of the input and of the result.
const SHAPES: [[usize; 5]; 9] = [
    [0, 2, 3, 4, 5],
    [3, 0, 2, 2, 2],
    [1, 1, 1, 1, 1],
    [1, 2, 8, 5, 3],
    [7, 3, 4, 17, 9],
    [130, 1, 3, 33, 16],
    [40, 2, 50, 8, 31],
    [1300, 2, 2, 3, 4],
    [5, 2, 3, 4, 0],
];

/// Groups of rows: at random, all in the last one, and without the first one.
fn ids(count: usize, groups: usize) -> [Vec<usize>; 3] {
    let random = noise::<f64>(count, 9).into_iter();
    let random: Vec<usize> = random
        .map(|x| ((x + 1.0) / 2.0 * groups as f64) as usize % groups)
        .collect();
    let last = vec![groups - 1; count];
    let later = random
        .iter()
        .map(|id| (*id).max(1).min(groups - 1))
        .collect();
    [random, last, later]
}

/// The rows that a group has space for.
fn kept(of: RowGroups<'_>) -> Vec<Option<usize>> {
    let each = of.rows / of.ids.len().max(1);
    let capacity = of.capacity();
    let mut counts = vec![0; of.groups];
    let rows = (0..of.rows).map(|row| {
        let group = of.ids[row / each];
        counts[group] += 1;
        (counts[group] <= capacity).then_some(group)
    });
    rows.collect()
}

/// The result, and the derivatives by the input, the weights and the biases, added to 1.
fn naive(
    [x, w, bias, d_y]: [&[f64]; 4],
    of: RowGroups<'_>,
    [inputs, input, output]: [usize; 3],
) -> [Vec<f64>; 4] {
    let each = of.rows / inputs.max(1);
    let mut y = vec![0.0; of.rows * output];
    let mut d_x = vec![1.0; inputs * input];
    let mut d_w = vec![1.0; w.len()];
    let mut d_b = vec![1.0; bias.len()];
    for (row, group) in kept(of).into_iter().enumerate() {
        let Some(group) = group else { continue };
        for o in 0..output {
            let d = d_y[row * output + o];
            y[row * output + o] = bias[group * output + o];
            d_b[group * output + o] += d;
            for i in 0..input {
                let place = (group * output + o) * input + i;
                let x_place = row / each * input + i;
                y[row * output + o] += w[place] * x[x_place];
                d_x[x_place] += w[place] * d;
                d_w[place] += x[x_place] * d;
            }
        }
    }
    [y, d_x, d_w, d_b]
}

/// The same by the kernels. The gradient of the input is added to 1 as well, and overwritten before.
fn computed<E: Pooled + GroupedLinear<E>>(
    [x, w, bias, d_y]: [&[E]; 4],
    of: RowGroups<'_>,
    [inputs, input, output]: [usize; 3],
) -> [Vec<E>; 4] {
    let x = Matrix::new(x, inputs, input);
    let d_y = Matrix::new(d_y, of.rows, output);
    let mut y = vec![E::of_f64(f64::NAN); of.rows * output];
    let to = MatrixMut::new(&mut y, of.rows, output);
    forward(x, w, Some(bias), of, to);
    let mut written = vec![E::of_f64(f64::NAN); inputs * input];
    let to = MatrixMut::new(&mut written, inputs, input);
    input_gradient(d_y, w, of, WriteMode::Overwrite, to);
    let mut d_x = vec![E::ONE; inputs * input];
    let to = MatrixMut::new(&mut d_x, inputs, input);
    input_gradient(d_y, w, of, WriteMode::Add, to);
    for (written, added) in written.iter().zip(&d_x) {
        let difference: f64 = (*written + E::ONE - *added).into();
        assert!(difference.abs() < 1e-5, "{difference}");
    }
    let mut d_w = vec![E::ONE; w.len()];
    let mut d_b = vec![E::ONE; bias.len()];
    add_gradients(d_y, x, of, Some(&mut d_w), Some(&mut d_b));
    [y, d_x, d_w, d_b]
}

#[test]
fn every_row_is_mapped_by_the_weights_of_its_group() {
    for [inputs, each, groups, input, output] in SHAPES {
        let rows = inputs * each;
        let x = noise(inputs * input, 1);
        let w = noise(groups * output * input, 2);
        let bias = noise(groups * output, 3);
        let d_y = noise(rows * output, 4);
        let numbers: [&[f64]; 4] = [&x, &w, &bias, &d_y];
        // An id for each row, and one for several.
        let counts = [rows, inputs]
            .into_iter()
            .filter(|count| *count == rows || each > 0);
        for count in counts {
            for ids in ids(count, groups) {
                for capacity_factor in [None, Some(0.0), Some(0.7), Some(1.25), Some(1e300)] {
                    let of = RowGroups {
                        ids: &ids,
                        rows,
                        groups,
                        capacity_factor,
                        by_group: ByGroup::default(),
                    };
                    let sizes = [inputs, input, output];
                    let got = computed(numbers, of, sizes);
                    let want = naive(numbers, of, sizes);
                    for (got, want) in got.iter().zip(&want) {
                        // Up to 2600 products of at most 1, each rounded to 1e-16 of a sum below 100.
                        let what = format!("{inputs} rows to {rows}, {capacity_factor:?}");
                        assert_close(what, got, want, Absolute(3e-11));
                    }
                }
            }
        }
    }
}

/// Rows of so many numbers in the order of their groups, or back.
fn reorder(numbers: &[f64], width: usize, sorted: &Sorted, back: bool) -> Vec<f64> {
    let mut to = numbers.to_vec();
    for (place, row) in sorted.rows.iter().enumerate() {
        let [from, into] = if back { [place, *row] } else { [*row, place] };
        to[into * width..][..width].copy_from_slice(&numbers[from * width..][..width]);
    }
    to
}

#[test]
fn matrices_by_group_have_the_same_numbers_at_other_places() {
    for [inputs, each, groups, input, output] in SHAPES {
        let rows = inputs * each;
        let x = noise::<f64>(inputs * input, 1);
        let w = noise(groups * output * input, 2);
        let bias = noise(groups * output, 3);
        let d_y = noise::<f64>(rows * output, 4);
        for ids in ids(rows, groups) {
            for (capacity_factor, by_input, result) in [
                (None, false, true),
                (None, true, false),
                (None, true, true),
                (Some(0.7), false, true),
                (Some(0.7), true, true),
            ] {
                // The input has a row for each of the result, or is in the order of the ids.
                let input_by_group = by_input && each == 1;
                let of = RowGroups {
                    ids: &ids,
                    rows,
                    groups,
                    capacity_factor,
                    by_group: ByGroup::default(),
                };
                let by_group = RowGroups {
                    by_group: ByGroup {
                        input: input_by_group,
                        result,
                    },
                    ..of
                };
                let sizes = [inputs, input, output];
                let want = computed([&x, &w, &bias, &d_y], of, sizes);
                let sorted = Sorted::new(of);
                let reordered = |numbers: &[f64], width, is_sorted, back| match is_sorted {
                    true => reorder(numbers, width, &sorted, back),
                    false => numbers.to_vec(),
                };
                let given_x = reordered(&x, input, input_by_group, false);
                let given_d_y = reordered(&d_y, output, result, false);
                let [y, d_x, d_w, d_b] =
                    computed([&given_x, &w, &bias, &given_d_y], by_group, sizes);
                let got = [
                    reordered(&y, output, result, true),
                    reordered(&d_x, input, input_by_group, true),
                    d_w,
                    d_b,
                ];
                for (got, want) in got.iter().zip(&want) {
                    // The sums are the same, in products of other strides.
                    let what = format!("{inputs} rows to {rows}, {capacity_factor:?}");
                    assert_close(what, got, want, Absolute(3e-11));
                }
            }
        }
    }
}

#[test]
fn the_capacity_is_a_share_of_the_rows_rounded_up_and_first_rows_stay() {
    let of = |capacity_factor| RowGroups {
        ids: &[1, 1, 0, 1, 1, 2, 1],
        rows: 7,
        groups: 3,
        capacity_factor: Some(capacity_factor),
        by_group: ByGroup::default(),
    };
    // 7 / 3 = 2.33..
    for (factor, capacity) in [
        (0.0, 0),
        (0.4, 1),
        (1.0, 3),
        (1.25, 3),
        (2.0, 5),
        (1e300, usize::MAX),
    ] {
        assert_eq!(of(factor).capacity(), capacity, "{factor}");
    }
    let sorted = Sorted::new(of(1.0));
    assert_eq!(sorted.rows[..], [2, 0, 1, 3, 4, 6, 5]);
    assert_eq!(sorted.ends[..], [1, 6, 7]);
    let groups = sorted
        .groups()
        .map(|parts| parts.map(|part| part.rows.to_vec()));
    let groups: Vec<_> = groups.collect();
    assert_eq!(groups[1], [vec![0, 1, 3], vec![4, 6]]);
    assert_eq!(groups[2], [vec![5], vec![]]);
    assert_eq!(sorted.places()[..], [1, 2, 0, 3, 4, 6, 5]);
}

/// A row that is not that of a group is not read for it.
#[test]
fn what_is_not_finite_stays_in_its_row_and_its_group() {
    let mut x = noise::<f64>(4 * 3, 1);
    x[3..6].fill(f64::NAN);
    let mut w = noise::<f64>(3 * 2 * 3, 2);
    w[12..].fill(f64::INFINITY);
    let of = RowGroups {
        ids: &[0, 1, 0, 0],
        rows: 4,
        groups: 3,
        capacity_factor: None,
        by_group: ByGroup::default(),
    };
    let bias = [0.0; 6];
    let d_y = noise::<f64>(4 * 2, 3);
    let [y, d_x, d_w, d_b] = computed([&x, &w, &bias, &d_y], of, [4, 3, 2]);
    let finite = |numbers: &[f64]| numbers.iter().map(|x| x.is_finite()).collect::<Vec<_>>();
    assert_eq!(
        finite(&y),
        [[true; 2], [false; 2], [true; 2], [true; 2]].concat()
    );
    assert_eq!(finite(&d_x), [true; 12]);
    assert_eq!(finite(&d_w), [[true; 6], [false; 6], [true; 6]].concat());
    assert_eq!(finite(&d_b), [true; 6]);
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let [inputs, each, groups, input, output] = [700, 2, 5, 130, 70];
    let rows = inputs * each;
    let x = noise::<f32>(inputs * input, 1);
    let w = noise::<f32>(groups * output * input, 2);
    let bias = noise::<f32>(groups * output, 3);
    let d_y = noise::<f32>(rows * output, 4);
    for ids in ids(rows, groups) {
        let of = RowGroups {
            ids: &ids,
            rows,
            groups,
            capacity_factor: None,
            by_group: ByGroup::default(),
        };
        same_for_all_threads(|| {
            let numbers: [&[f32]; 4] = [&x, &w, &bias, &d_y];
            let x = Matrix::new(numbers[0], inputs, input);
            let d_y = Matrix::new(numbers[3], rows, output);
            let mut y = vec![0.0; rows * output];
            forward(x, &w, Some(&bias), of, MatrixMut::new(&mut y, rows, output));
            let mut d_x = vec![0.0; inputs * input];
            let to = MatrixMut::new(&mut d_x, inputs, input);
            input_gradient(d_y, &w, of, WriteMode::Add, to);
            let mut d_w = vec![0.0; w.len()];
            let mut d_b = vec![0.0; bias.len()];
            add_gradients(d_y, x, of, Some(&mut d_w), Some(&mut d_b));
            (y, d_x, d_w, d_b)
        });
    }
}

#[test]
#[should_panic(expected = "3 weights of (2 x 4)")]
fn mismatched_shapes_are_refused() {
    let of = RowGroups {
        ids: &[0],
        rows: 1,
        groups: 3,
        capacity_factor: None,
        by_group: ByGroup::default(),
    };
    let to = &mut [0.0; 2];
    forward(
        Matrix::new(&[0.0; 4], 1, 4),
        &[0.0; 5],
        None,
        of,
        MatrixMut::new(to, 1, 2),
    );
}
