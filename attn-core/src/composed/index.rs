//! Functions of the indices `(b, h, q_idx, kv_idx)`: masks, position biases, lookups in learned tensors.
//!
//! They are evaluated on the host, once per call of the layer, over the axes that they depend on. The result is broadcast over the other
//! axes as a view.

use dfdx::{
    dtypes::Dtype,
    shapes::{Axes2, Axis, Const, Dim, HasShape, Shape},
    tensor::{NoneTape, PutTape, Storage, Tape, Tensor, TensorFromVec},
    tensor_ops::{BroadcastTo, Device, GatherTo},
};

use super::{
    Condition, Scores,
    condition::less,
    tensors::{is_empty, reshape, zeros_after},
};
use crate::Element;

/// The axes besides query and key that a function of the indices depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DependsOn {
    /// Whether it depends on `b`.
    pub batch: bool,
    /// Whether it depends on `h`.
    pub head: bool,
}

/// The keys that each query attends to; made by [`index_mask`].
///
/// It is a tensor that is added to the scores: 0 where a query attends, minus infinity where it does not. The tensor is small, because it
/// only has the axes that the mask depends on; a view broadcasts it. Adding this view costs a fraction of dfdx's `choose`, which
/// copies the scores and reads four tensors element by element.
#[derive(Clone, Debug)]
pub struct ScoreMask<B: Dim, const H: usize, Q: Dim, K: Dim, E: Dtype, D: Storage<E>> {
    /// `None` if every query attends to every key.
    pub(super) bias: Option<Tensor<(B, Const<H>, Q, K), E, D>>,
}

/// The smaller of two indices or numbers.
pub fn min<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// The larger of two indices or numbers.
pub fn max<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// A number as an integer: truncated, and clamped to ±2³¹, the range of integers that can be passed. NaN becomes 0.
pub fn integer_of(x: f64) -> i64 {
    const LARGEST: i64 = 1 << 31;
    (x as i64).clamp(-LARGEST, LARGEST)
}

/// The logistic function of a number.
pub fn sigmoid_of(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A mask from a predicate of `(b, h, q_idx, kv_idx)`; `true` means attend.
pub fn index_mask<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>>(
    device: &D,
    sizes: (B, Q, K),
    depends_on: DependsOn,
    attends: impl Fn(i64, i64, i64, i64) -> bool,
) -> Result<ScoreMask<B, H, Q, K, E, D>, D::Err> {
    let attends = evaluate(concrete::<_, _, _, H>(sizes), depends_on, &attends);
    if attends.iter().all(|&attends| attends) {
        return Ok(ScoreMask { bias: None });
    }
    let bias = attends.into_iter().map(|attends| {
        if attends {
            E::zero()
        } else {
            E::neg_infinity()
        }
    });
    let bias = broadcast(vector(device, bias.collect())?, sizes, depends_on)?;
    Ok(ScoreMask { bias: Some(bias) })
}

/// Numbers from a function of `(b, h, q_idx, kv_idx)`, on an empty tape.
pub fn index_floats<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    device: &D,
    sizes: (B, Q, K),
    depends_on: DependsOn,
    f: impl Fn(i64, i64, i64, i64) -> f64,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let values = evaluate(concrete::<_, _, _, H>(sizes), depends_on, &|b, h, q, k| {
        E::of(f(b, h, q, k))
    });
    broadcast(vector(device, values)?.retaped(), sizes, depends_on)
}

/// A condition from a function of `(b, h, q_idx, kv_idx)`, on an empty tape.
pub fn index_condition<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    device: &D,
    sizes: (B, Q, K),
    depends_on: DependsOn,
    f: impl Fn(i64, i64, i64, i64) -> bool,
) -> Result<Condition<B, H, Q, K, D, T>, D::Err> {
    // Not every device of dfdx can create booleans from host memory.
    let number = |b, h, q, k| if f(b, h, q, k) { 1.0 } else { 0.0 };
    let numbers: Scores<B, H, Q, K, E, D, NoneTape> =
        index_floats(device, sizes, depends_on, number)?;
    let zeros = index_floats(device, sizes, DependsOn::default(), |_, _, _, _| 0.0)?;
    Ok(less(zeros, numbers)?.put_tape(T::default()))
}

/// Elements of a learned tensor. The function of `(b, h, q_idx, kv_idx)` gives the index along each of its axes. Differentiable in the
/// tensor.
///
/// PyTorch: `param[index_0, index_1, ..]`.
///
/// # Panics
/// If an index is out of bounds.
pub fn index_param<
    P: Shape<Concrete = [usize; N]>,
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    const N: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    param: &Tensor<P, E, D>,
    sizes: (B, Q, K),
    depends_on: DependsOn,
    index: impl Fn(i64, i64, i64, i64) -> [i64; N],
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let [b, h, q, k] = concrete::<_, _, _, H>(sizes);
    let shape = param.shape().concrete();
    let param = param.retaped::<T>();
    if is_empty(&[b, h, q, k]) || is_empty(param.shape()) {
        return zeros_after(param, full(sizes));
    }
    let indices = evaluate([b, h, q, k], depends_on, &|b, h, q, k| {
        let index = index(b, h, q, k);
        let flat = flat_index(index, shape);
        flat.unwrap_or_else(|| panic!("no element {index:?} in a parameter of shape {shape:?}"))
    });
    let len = shape.iter().product::<usize>();
    let count = (indices.len(),);
    let indices = TensorFromVec::<usize>::try_tensor_from_vec(param.device(), indices, count)?;
    let chosen: Tensor<(usize,), E, D, T> = reshape(param, (len,))?.try_gather(indices)?;
    broadcast(chosen, sizes, depends_on)
}

/// The row-major offset of an element, if the index is in bounds.
fn flat_index<const N: usize>(index: [i64; N], shape: [usize; N]) -> Option<usize> {
    std::iter::zip(index, shape).try_fold(0, |flat, (index, size)| {
        let index = usize::try_from(index).ok()?;
        (index < size).then_some(flat * size + index)
    })
}

/// The values of `f`, row-major over the axes that it depends on.
fn evaluate<V>(
    [b, h, q, k]: [usize; 4],
    depends_on: DependsOn,
    f: &dyn Fn(i64, i64, i64, i64) -> V,
) -> Vec<V> {
    let batches = if depends_on.batch { b } else { 1 };
    let heads = if depends_on.head { h } else { 1 };
    let mut values = Vec::with_capacity(batches * heads * q * k);
    for b in 0..batches as i64 {
        for h in 0..heads as i64 {
            for q in 0..q as i64 {
                values.extend((0..k as i64).map(|k| f(b, h, q, k)));
            }
        }
    }
    values
}

fn vector<E: Element, D: Device<E>>(
    device: &D,
    values: Vec<E>,
) -> Result<Tensor<(usize,), E, D>, D::Err> {
    let len = (values.len(),);
    TensorFromVec::<E>::try_tensor_from_vec(device, values, len)
}

/// Values from [`evaluate`], broadcast to `[batch, heads, query, key]`.
fn broadcast<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    values: Tensor<(usize,), E, D, T>,
    (b, q, k): (B, Q, K),
    depends_on: DependsOn,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let full = full((b, q, k));
    if is_empty(&full) {
        return zeros_after(values, full);
    }
    match (depends_on.batch, depends_on.head) {
        (true, true) => reshape(values, full),
        (true, false) => reshape(values, (b, q, k))?.try_broadcast_like::<_, Axis<1>>(&full),
        (false, true) => {
            reshape(values, (Const::<H>, q, k))?.try_broadcast_like::<_, Axis<0>>(&full)
        }
        (false, false) => reshape(values, (q, k))?.try_broadcast_like::<_, Axes2<0, 1>>(&full),
    }
}

fn full<B: Dim, Q: Dim, K: Dim, const H: usize>((b, q, k): (B, Q, K)) -> (B, Const<H>, Q, K) {
    (b, Const, q, k)
}

fn concrete<B: Dim, Q: Dim, K: Dim, const H: usize>(sizes: (B, Q, K)) -> [usize; 4] {
    full::<_, _, _, H>(sizes).concrete()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    type Floats<E> = Scores<usize, 2, usize, usize, E, Cpu, NoneTape>;

    const SIZES: [(usize, usize, usize); 5] =
        [(2, 3, 5), (1, 1, 1), (0, 3, 5), (2, 0, 5), (2, 3, 0)];

    const DEPENDS_ON: [DependsOn; 4] = [
        DependsOn {
            batch: false,
            head: false,
        },
        DependsOn {
            batch: false,
            head: true,
        },
        DependsOn {
            batch: true,
            head: false,
        },
        DependsOn {
            batch: true,
            head: true,
        },
    ];

    /// A number that differs for all indices along the axes that it depends on.
    fn number(depends_on: DependsOn, b: i64, h: i64, q: i64, k: i64) -> f64 {
        let b = if depends_on.batch { b } else { 0 };
        let h = if depends_on.head { h } else { 0 };
        (1000 * b + 100 * h + 10 * q + k) as f64
    }

    fn expected(depends_on: DependsOn, (b, q, k): (usize, usize, usize)) -> Vec<f64> {
        naive([b, 2, q, k], |b, h, q, k| {
            number(depends_on, b as i64, h as i64, q as i64, k as i64)
        })
    }

    #[test]
    fn floats_are_the_values_of_the_function() {
        for sizes in SIZES {
            for depends_on in DEPENDS_ON {
                let f = |b, h, q, k| number(depends_on, b, h, q, k);
                let floats: Floats<f64> =
                    index_floats(&Cpu::default(), sizes, depends_on, f).unwrap();
                assert_eq!(values(&floats), expected(depends_on, sizes));
                let floats: Floats<f32> =
                    index_floats(&Cpu::default(), sizes, depends_on, f).unwrap();
                assert_eq!(values(&floats), expected(depends_on, sizes));
            }
        }
    }

    #[test]
    fn the_function_is_evaluated_over_its_axes_only() {
        let count = |depends_on| {
            let calls = RefCell::new(0);
            let _: Floats<f32> =
                index_floats(&Cpu::default(), (7, 3, 5), depends_on, |_, _, _, _| {
                    *calls.borrow_mut() += 1;
                    0.0
                })
                .unwrap();
            calls.into_inner()
        };
        assert_eq!(DEPENDS_ON.map(count), [15, 2 * 15, 7 * 15, 7 * 2 * 15]);
    }

    #[test]
    fn floats_support_constant_sizes_and_a_tape() {
        let depends_on = DependsOn {
            batch: true,
            head: true,
        };
        let floats: Traced<Rank4<2, 2, 3, 5>> = index_floats(
            &Cpu::default(),
            (Const::<2>, Const::<3>, Const::<5>),
            depends_on,
            |b, h, q, k| number(depends_on, b, h, q, k),
        )
        .unwrap();
        assert_eq!(values(&floats), expected(depends_on, (2, 3, 5)));
    }

    #[test]
    fn masks_are_zero_or_minus_infinity() {
        for sizes in SIZES {
            for depends_on in DEPENDS_ON {
                let attends = |b, h, q, k| number(depends_on, b, h, q, k) % 3.0 != 1.0;
                let mask: ScoreMask<usize, 2, usize, usize, f32, Cpu> =
                    index_mask(&Cpu::default(), sizes, depends_on, attends).unwrap();
                let expected: Vec<f64> = expected(depends_on, sizes)
                    .into_iter()
                    .map(|n| {
                        if n % 3.0 != 1.0 {
                            0.0
                        } else {
                            f64::NEG_INFINITY
                        }
                    })
                    .collect();
                let bias = mask
                    .bias
                    .map_or(vec![0.0; expected.len()], |bias| values(&bias));
                assert_eq!(bias, expected);
            }
        }
    }

    #[test]
    fn a_mask_without_masked_pairs_has_no_tensor() {
        let mask: ScoreMask<usize, 2, usize, usize, f32, Cpu> = index_mask(
            &Cpu::default(),
            (2, 3, 5),
            DependsOn::default(),
            |_, _, _, _| true,
        )
        .unwrap();
        assert!(mask.bias.is_none());
    }

    #[test]
    fn conditions_are_the_values_of_the_function() {
        for sizes in SIZES {
            for depends_on in DEPENDS_ON {
                let f = |b, h, q, k| number(depends_on, b, h, q, k) % 3.0 != 1.0;
                let condition: Condition<usize, 2, usize, usize, Cpu, NoneTape> =
                    index_condition::<_, _, _, 2, f32, _, _>(&Cpu::default(), sizes, depends_on, f)
                        .unwrap();
                assert_eq!(condition.shape().concrete(), [sizes.0, 2, sizes.1, sizes.2]);
                let found = match is_empty(condition.shape()) {
                    true => Vec::new(),
                    false => condition.as_vec(),
                };
                let expected: Vec<bool> = expected(depends_on, sizes)
                    .into_iter()
                    .map(|n| n % 3.0 != 1.0)
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn the_logistic_function_does_not_overflow() {
        let found = [-1e9, -1.5, 0.0, 1.5, 1e9].map(sigmoid_of);
        let one = 1.0 / (1.0 + 1.5_f64.exp());
        assert_close(&found, &[0.0, one, 0.5, 1.0 - one, 1.0], F64);
    }

    #[test]
    fn numbers_of_any_size_convert_to_integers() {
        let found = [-1e300, -1.5, 1.5, f64::INFINITY, f64::NAN].map(integer_of);
        assert_eq!(found, [-(1 << 31), -1, 1, 1 << 31, 0]);
    }

    /// An element of a table `[4, 2]` for these indices.
    fn element(depends_on: DependsOn, b: i64, h: i64, q: i64, k: i64) -> [i64; 2] {
        let number = number(depends_on, b, h, q, k) as i64;
        [number / 2 % 4, number % 2]
    }

    #[test]
    fn params_are_gathered_by_the_index_of_each_axis() {
        let table: Tensor<Rank2<4, 2>, f64, Cpu> = tensor(Default::default(), 1);
        for sizes in SIZES {
            for depends_on in DEPENDS_ON {
                let index = |b, h, q, k| element(depends_on, b, h, q, k);
                let chosen: Floats<f64> = index_param(&table, sizes, depends_on, index).unwrap();
                let table = values(&table);
                let expected: Vec<f64> = expected(depends_on, sizes)
                    .into_iter()
                    .map(|n| table[n as usize % 8])
                    .collect();
                assert_eq!(values(&chosen), expected);
            }
        }
    }

    #[test]
    fn params_get_the_sum_of_the_gradients_of_their_reads() {
        let table: Tensor<Rank2<4, 2>, f64, Cpu> = tensor(Default::default(), 1);
        for depends_on in DEPENDS_ON {
            check_gradient(&table, |table| -> Traced<(usize, Const<2>, usize, usize)> {
                let index = |b, h, q, k| element(depends_on, b, h, q, k);
                index_param(table, (2, 3, 5), depends_on, index).unwrap()
            });
        }
    }

    #[test]
    fn params_get_a_gradient_from_an_empty_result() {
        let table: Tensor<Rank2<4, 2>, f64, Cpu> = tensor(Default::default(), 1);
        let chosen: Traced<(usize, Const<2>, usize, usize)> =
            index_param(&table, (2, 0, 5), DependsOn::default(), |_, _, _, _| [0, 0]).unwrap();
        assert_eq!(values(&backward_of_nothing(chosen).get(&table)), [0.0; 8]);
    }

    #[test]
    fn a_param_may_have_one_axis_or_none() {
        let row: Tensor<(usize,), f64, Cpu> = tensor((3,), 1);
        let number: Tensor<Rank0, f64, Cpu> = filled((), &[0.25]);
        let index = |_, _, _, k| [k % 3];
        let chosen: Floats<f64> =
            index_param(&row, (1, 1, 4), DependsOn::default(), index).unwrap();
        let row = values(&row);
        let expected = [row[0], row[1], row[2], row[0]];
        assert_eq!(values(&chosen), [expected, expected].concat());
        let nothing = |_, _, _, _| [];
        let chosen: Floats<f64> =
            index_param(&number, (1, 1, 2), DependsOn::default(), nothing).unwrap();
        assert_eq!(values(&chosen), [0.25; 4]);
    }

    fn read(index: [i64; 2]) {
        let table: Tensor<Rank2<4, 2>, f64, Cpu> = tensor(Default::default(), 1);
        let _: Floats<f64> =
            index_param(&table, (1, 1, 1), DependsOn::default(), |_, _, _, _| index).unwrap();
    }

    #[test]
    #[should_panic(expected = "no element [4, 0] in a parameter of shape [4, 2]")]
    fn an_index_out_of_bounds_panics() {
        read([4, 0]);
    }

    #[test]
    #[should_panic(expected = "no element [0, 2] in a parameter of shape [4, 2]")]
    fn an_index_beyond_its_axis_does_not_read_the_next_row() {
        read([0, 2]);
    }

    #[test]
    #[should_panic(expected = "no element [1, -1] in a parameter of shape [4, 2]")]
    fn a_negative_index_does_not_read_the_previous_row() {
        read([1, -1]);
    }
}
