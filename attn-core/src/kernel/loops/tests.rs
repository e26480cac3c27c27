use super::known::{
    Add, AddProduct, AddScaled, Copy, Modulate, ModulateBackward, Mul, MulBackward, Scale,
    SiluGate, Sub,
};
use super::pieces::NEAR;
use super::*;
use crate::kernel::testing::*;
use crate::random::Philox4x32;

/// Lengths of one part and of several, and around the pieces in which elements are dropped.
fn lengths() -> impl Iterator<Item = usize> {
    let more = [NEAR - 1, NEAR + 1, SMALL - 1, 2 * SMALL + NEAR + 5];
    LENGTHS.into_iter().chain(more)
}

/// The values of a loop that has one, in new memory.
fn apart<E: Kernels, const N: usize>(
    of: &impl Loop<N, 1>,
    x: [Read<'_, E>; N],
    len: usize,
) -> Vec<E> {
    let mut to = vec![E::NAN; len];
    compute(of, x, [to.as_mut_slice().into()]);
    to
}

#[test]
fn known_loops_are_their_expressions() {
    fn test<E: Kernels + PartialEq + std::fmt::Debug>(what: &str) {
        for len in lengths() {
            let [a, b, c] = [1, 2, 3].map(|seed| noise::<E>(len, seed));
            let [of_a, of_b, of_c] = [&a, &b, &c].map(|x| read(x.as_slice()));
            let each = |f: &dyn Fn(E, E, E) -> E| -> Vec<E> {
                (0..len).map(|i| f(a[i], b[i], c[i])).collect()
            };
            let what = format!("{len} {what}");
            assert_eq!(apart(&Copy, [of_a], len), a, "{what}");
            assert_eq!(
                apart(&Add, [of_a, of_b], len),
                each(&|a, b, _| a + b),
                "{what}"
            );
            assert_eq!(
                apart(&Sub, [of_a, of_b], len),
                each(&|a, b, _| a - b),
                "{what}"
            );
            assert_eq!(
                apart(&Mul, [of_a, of_b], len),
                each(&|a, b, _| a * b),
                "{what}"
            );
            let by = E::of_f64(0.3);
            let scale = Scale { by: 0.3 };
            assert_eq!(
                apart(&scale, [of_a], len),
                each(&|a, _, _| a * by),
                "{what}"
            );
            let scaled = AddScaled { by: 0.3 };
            let want = each(&|a, b, _| a + b * by);
            assert_eq!(apart(&scaled, [of_a, of_b], len), want, "{what}");
            let want = each(&|a, b, c| a + b * c);
            assert_eq!(apart(&AddProduct, [of_a, of_b, of_c], len), want, "{what}");
            let want = each(&|a, b, c| a * (b + E::ONE) + c);
            assert_eq!(apart(&Modulate, [of_a, of_b, of_c], len), want, "{what}");
            let silu = |x: f64| x / (1.0 + (-x).exp());
            let want: Vec<f64> = (0..len).map(|i| silu(a[i].into()) * b[i].into()).collect();
            let found = apart(&SiluGate, [of_a, of_b], len);
            // Two roundings of numbers below 1, and those of the exponential.
            let bound = 8.0
                * if size_of::<E>() == 4 {
                    f64::from(f32::EPSILON)
                } else {
                    f64::EPSILON
                };
            assert_close(&what, &found, &want, Absolute(bound));
        }
    }
    on_every_isa(|isa| {
        test::<f32>(&format!("f32 on {isa}"));
        test::<f64>(&format!("f64 on {isa}"));
    });
}

#[test]
fn derivatives_write_add_and_stand_in_place() {
    on_every_isa(|isa| {
        for len in lengths() {
            let [a, b, d] = [1, 2, 3].map(|seed| noise::<f64>(len, seed));
            let what = format!("{len} on {isa}");
            let want_a: Vec<f64> = (0..len).map(|i| d[i] * b[i]).collect();
            let want_b: Vec<f64> = (0..len).map(|i| 0.5 + d[i] * a[i]).collect();
            // The gradient of the product stands where the first gradient is written; the second one is added to.
            let mut d_a = d.clone();
            let mut d_b = vec![0.5; len];
            let operands = [read(a.as_slice()), read(b.as_slice()), read(InPlace)];
            let to = [
                Write::with_mode(&mut d_a, WriteMode::Overwrite),
                Write::with_mode(&mut d_b, WriteMode::Add),
            ];
            compute(&MulBackward, operands, to);
            assert_eq!(d_a, want_a, "{what}");
            assert_eq!(d_b, want_b, "{what}");
        }
    });
}

/// Shapes of several parts and of pieces of them, repeated along the first axis, one in the middle, the last one, and all of them.
const REPEATED: [([usize; 3], [usize; 3]); 6] = [
    ([1, 1, 33], [5, 700, 33]),
    ([5, 1, 33], [5, 700, 33]),
    ([5, 700, 1], [5, 700, 33]),
    ([1, 700, 1], [5, 700, 33]),
    ([1, 1, 1], [5, 700, 33]),
    ([1, 1, NEAR + 3], [2, 17, NEAR + 3]),
];

/// The numbers in the larger shape.
fn expanded<E: Kernels>(x: &[E], from: [usize; 3], to: [usize; 3]) -> Vec<E> {
    let place = |index: usize, from: usize| if from == 1 { 0 } else { index };
    let mut all = Vec::new();
    for i in 0..to[0] {
        for j in 0..to[1] {
            for k in 0..to[2] {
                let row = place(i, from[0]) * from[1] + place(j, from[1]);
                all.push(x[row * from[2] + place(k, from[2])]);
            }
        }
    }
    all
}

/// Also beside an operand in place, of which elements are dropped.
#[test]
fn repeated_operands_are_those_of_an_expanded_array() {
    on_every_isa(|isa| {
        for (from, to) in REPEATED {
            let x = noise::<f32>(from.iter().product(), 1);
            let y = noise::<f32>(to.iter().product(), 2);
            let whole = expanded(&x, from, to);
            for dropout in [Dropout::NONE, Dropout::new(0.3, Some(7))] {
                let sum = |operand: Read<'_, f32>| {
                    let mut sum = y.clone();
                    let terms = [dropout.of(InPlace), operand];
                    compute(&Add, terms, [sum.as_mut_slice().into()]);
                    sum
                };
                let found = sum(read(repeated(&x, &from, &to)));
                assert_eq!(found, sum(read(&whole[..])), "{from:?} to {to:?} on {isa}");
            }
        }
    });
}

#[test]
fn derivatives_are_slopes() {
    let f = |x: [f64; 3]| x[0] * (x[1] + 1.0) + x[2];
    let x = [0.3, -0.7, 1.1];
    let d = [0.9];
    let mut found = [[f64::NAN]; 2];
    let [to_0, to_1] = &mut found;
    let operands = [&x[..1], &x[1..2], &d].map(read);
    compute(
        &ModulateBackward,
        operands,
        [to_0.as_mut_slice().into(), to_1.as_mut_slice().into()],
    );
    for (operand, found) in found.iter().enumerate() {
        let want = d[0]
            * slope(STEP, |by| {
                let mut x = x;
                x[operand] += by;
                f(x)
            });
        // A rounding error of 1e-16 over a step of 1e-4; the function has no third derivative.
        assert!(
            (found[0] - want).abs() < 1e-11,
            "{operand}: {found:?}, not {want}"
        );
    }
}

/// Of two operands and of the result, whatever of these there can be.
fn dropouts() -> impl Iterator<Item = [Dropout; 3]> {
    let of = |place: u64| {
        let some = Dropout::new(0.1 + 0.3 * place as f64, Some(5 + place));
        [Dropout::NONE, some]
    };
    let two = of(0).into_iter().flat_map(move |x| of(1).map(|y| [x, y]));
    two.flat_map(move |[x, y]| of(2).map(|sum| [x, y, sum]))
}

/// Element `i` of an array, by the definition. The probabilities are those of [`dropouts`].
fn one<E: Real>(place: u64, dropout: Dropout, i: usize, x: E) -> E {
    if dropout.is_none() {
        return x;
    }
    let p = 0.1 + 0.3 * place as f64;
    let word = Philox4x32::new(5 + place).block([(i / 4) as u32, 0, 0, 0])[i % 4];
    if f64::from(word) < p * 2f64.powi(32) {
        return E::ZERO;
    }
    x * E::of_f64(1.0 / (1.0 - p))
}

fn naive_sum<E: Real>([of_x, of_y, of_sum]: [Dropout; 3], x: &[E], y: &[E]) -> Vec<E> {
    let sum = |i| one(0, of_x, i, x[i]) + one(1, of_y, i, y[i]);
    (0..x.len()).map(|i| one(2, of_sum, i, sum(i))).collect()
}

fn sum_in_place<E: Kernels>([of_x, of_y, of_sum]: [Dropout; 3], x: &[E], y: &[E]) -> Vec<E> {
    let mut sum = x.to_vec();
    compute(
        &Add,
        [of_x.of(InPlace), of_y.of(y)],
        [of_sum.to(sum.as_mut_slice())],
    );
    sum
}

fn sum_apart<E: Kernels>([of_x, of_y, of_sum]: [Dropout; 3], x: &[E], y: &[E]) -> Vec<E> {
    let mut sum = vec![E::NAN; x.len()];
    compute(
        &Add,
        [of_x.of(x), of_y.of(y)],
        [of_sum.to(sum.as_mut_slice())],
    );
    sum
}

#[test]
fn dropout_of_operands_and_results_is_that_of_passes_of_their_own() {
    fn of<E: Kernels + PartialEq + std::fmt::Debug>(what: &str) {
        for len in lengths() {
            let x = noise::<E>(len, 1);
            let y = noise::<E>(len, 2);
            for dropouts in dropouts() {
                let want = naive_sum(dropouts, &x, &y);
                let what = format!("{dropouts:?} of {len} {what}");
                assert_eq!(sum_in_place(dropouts, &x, &y), want, "{what}");
                assert_eq!(sum_apart(dropouts, &x, &y), want, "{what}");
            }
        }
    }
    on_every_isa(|isa| {
        of::<f32>(&format!("f32 on {isa}"));
        of::<f64>(&format!("f64 on {isa}"));
    });
}

/// A part may begin anywhere: the rows of a norm do.
#[test]
fn dropout_of_a_part_is_by_the_place_in_the_whole() {
    let x = noise::<f32>(500, 1);
    let y = noise::<f32>(500, 2);
    on_every_isa(|isa| {
        for dropouts in dropouts() {
            let [of_x, of_y, of_sum] = dropouts;
            for elements in [1, 3, 4, 63, 65, 130] {
                let mut sum = x.clone();
                let mut whole = of_sum.to(sum.as_mut_slice());
                for first in (0..500).step_by(elements) {
                    let operands = [of_x.of(InPlace), of_y.of(&y[..])];
                    some(&Add, first, &operands, &mut [whole.next(elements)]);
                }
                let what = format!("{dropouts:?} of {elements} on {isa}");
                assert_eq!(sum, naive_sum(dropouts, &x, &y), "{what}");
            }
        }
    });
}

#[test]
fn dropped_elements_are_0_whatever_they_were() {
    const LEN: usize = 333;
    let all = Dropout::new(1.0, Some(1));
    let x = noise::<f64>(LEN, 1);
    for poison in [f64::NAN, f64::INFINITY] {
        let poison = [poison; LEN];
        let terms = [Dropout::NONE, all, Dropout::NONE];
        assert_eq!(sum_in_place(terms, &x, &poison), x);
        assert_eq!(sum_apart(terms, &x, &poison), x);
        let terms = [all, Dropout::NONE, Dropout::NONE];
        assert_eq!(sum_in_place(terms, &poison, &x), x);
        assert_eq!(sum_apart(terms, &poison, &x), x);
        let terms = [Dropout::NONE, Dropout::NONE, all];
        assert_eq!(sum_in_place(terms, &poison, &x), [0.0; LEN]);
        assert_eq!(sum_apart(terms, &poison, &x), [0.0; LEN]);
    }
}

#[test]
fn threads_change_no_bit() {
    let x = noise::<f32>(5 * SMALL + 3, 1);
    let y = noise::<f32>(5 * SMALL + 3, 2);
    let all = dropouts().last().expect("all three");
    same_for_all_threads(|| (sum_in_place(all, &x, &y), sum_apart(all, &x, &y)));
}

#[test]
#[should_panic(expected = "operands and results of one length")]
fn operands_of_fewer_elements_are_refused() {
    apart(&Add, [read(&[0.0_f32; 3][..]), read(&[0.0; 2][..])], 3);
}

#[test]
#[should_panic(expected = "operands and results of one length")]
fn operands_of_more_elements_are_refused() {
    apart(&Add, [read(&[0.0_f32; 3][..]), read(&[0.0; 4][..])], 3);
}

#[test]
#[should_panic(expected = "slices of one length")]
fn results_of_fewer_elements_are_refused() {
    let x = [0.0_f32; 3];
    let operands = [read(&x[..]), read(&x[..]), read(&x[..])];
    let mut one = [0.0; 3];
    let mut other = [0.0; 2];
    let to = [one.as_mut_slice().into(), other.as_mut_slice().into()];
    compute(&MulBackward, operands, to);
}

#[test]
#[should_panic(expected = "a loop that is not behind an operation on rows reads none")]
fn only_a_loop_behind_an_operation_on_rows_reads_them() {
    compute(&Copy, [read(Rows)], [Write::from(&mut [0.0_f32; 3][..])]);
}
