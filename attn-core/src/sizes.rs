//! Arithmetic on sizes: on those that only rustc knows, in constants, and on places in row-major memory.
//!
//! A separate assertion reports a mistake in a spec, so nothing in a constant panics.

/// The smallest of some sizes, or `usize::MAX` if there is none.
pub fn least(sizes: &[usize]) -> usize {
    sizes.iter().copied().min().unwrap_or(usize::MAX)
}

/// `a / b`, or 1 if `b` is 0.
pub const fn quotient(a: usize, b: usize) -> usize {
    match a.checked_div(b) {
        Some(quotient) => quotient,
        None => 1,
    }
}

/// The square root, rounded as `f64::sqrt` rounds it, which is no `const fn`.
pub const fn square_root(x: f64) -> f64 {
    let is_positive = x > 0.0 && x < f64::INFINITY;
    if !is_positive {
        // Zeros, infinity and NaN stay, and a negative number has no root.
        return if x < 0.0 { f64::NAN } else { x };
    }
    let bits = x.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    // `x = mantissa * 2^exponent`
    let (mantissa, exponent) = match (bits >> 52) as i32 {
        0 => (fraction, -1074),
        biased => (fraction | 1 << 52, biased - 1075),
    };
    // 109 or 110 bits, so that the root has 55 of them, and half of the exponent is whole.
    let mut shift = mantissa.leading_zeros() as i32 + 45;
    if (exponent - shift) % 2 != 0 {
        shift += 1;
    }
    let square = (mantissa as u128) << shift;
    let root = square.isqrt();
    // A last bit says whether the root goes on, for the rounding.
    let rest = (root * root != square) as u64;
    let rounded = ((root as u64) << 1 | rest) as f64;
    let half = (exponent - shift) / 2 - 1;
    rounded * f64::from_bits(((half + 1023) as u64) << 52)
}

/// The largest of `sizes`.
pub const fn largest(sizes: &[usize]) -> usize {
    let mut largest = 0;
    let mut index = 0;
    while index < sizes.len() {
        if sizes[index] > largest {
            largest = sizes[index];
        }
        index += 1;
    }
    largest
}

/// The product of `factors`, or `u64::MAX` if it is greater.
pub const fn product(factors: &[usize]) -> u64 {
    let mut product = 1u64;
    let mut index = 0;
    while index < factors.len() {
        product = product.saturating_mul(factors[index] as u64);
        index += 1;
    }
    product
}

/// A number of indices, as a distance. No axis is longer than the largest one.
pub const fn distance(indices: usize) -> isize {
    match indices > isize::MAX as usize {
        true => isize::MAX,
        false => indices as isize,
    }
}

/// The product of the lengths of axes, or `usize::MAX` if it is greater.
pub const fn product_of_lengths(factors: &[usize]) -> usize {
    let mut product = 1usize;
    let mut index = 0;
    while index < factors.len() {
        product = product.saturating_mul(factors[index]);
        index += 1;
    }
    product
}

/// The sum of the lengths of axes, or `usize::MAX` if it is greater.
pub const fn sum_of_lengths(terms: &[usize]) -> usize {
    let mut sum = 0usize;
    let mut index = 0;
    while index < terms.len() {
        sum = sum.saturating_add(terms[index]);
        index += 1;
    }
    sum
}

/// The sum of `terms`, or `u64::MAX` if it is greater.
pub const fn total(terms: &[u64]) -> u64 {
    let mut total = 0u64;
    let mut index = 0;
    while index < terms.len() {
        total = total.saturating_add(terms[index]);
        index += 1;
    }
    total
}

/// The index along every axis of the element at a row-major place.
pub(crate) fn index_of(mut place: usize, sizes: &[usize]) -> Vec<usize> {
    let mut index = vec![0; sizes.len()];
    for (at, size) in index.iter_mut().zip(sizes).rev() {
        *at = place % size;
        place /= size;
    }
    index
}

/// For the place of an element of a tensor with the axes `to`, the place of the element of a tensor with the axes `from` that has the same
/// index. An axis is a place in `sizes`. Along those that `from` lacks, its elements are repeated; along those that `to` lacks, the index is 0.
pub(crate) fn place_in(
    from: &[usize],
    to: &[usize],
    sizes: &[usize],
) -> impl Fn(usize) -> usize + use<> {
    let stride = |axis: usize| -> usize {
        let place = from.iter().position(|of| *of == axis);
        place.map_or(0, |place| {
            from[place + 1..].iter().map(|of| sizes[*of]).product()
        })
    };
    let axes: Vec<_> = to.iter().map(|&axis| (sizes[axis], stride(axis))).collect();
    move |mut element| {
        let mut place = 0;
        for (size, stride) in axes.iter().rev() {
            place += element % size * stride;
            element /= size;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_index_runs_first() {
        let all: Vec<_> = (0..6).map(|place| index_of(place, &[2, 3])).collect();
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert!(index_of(0, &[]).is_empty());
    }

    #[test]
    fn an_element_is_found_by_its_index() {
        let sizes = [2, 3, 5];
        let [from, to] = [[2, 0], [0, 2]];
        let place = place_in(&from, &to, &sizes);
        for (at, [i, k]) in (0..2).flat_map(|i| (0..5).map(move |k| [i, k])).enumerate() {
            assert_eq!(place(at), 2 * k + i);
        }
        // The first has no axis 1, and the second no axis 2.
        let place = place_in(&from, &[1, 0], &sizes);
        for (at, [_, i]) in (0..3).flat_map(|j| (0..2).map(move |i| [j, i])).enumerate() {
            assert_eq!(place(at), i);
        }
    }

    #[test]
    fn roots_have_the_bits_of_the_hardware() {
        let special = [
            0.0,
            -0.0,
            f64::INFINITY,
            f64::MIN_POSITIVE,
            5e-324,
            f64::MAX,
            2.0,
            256.0,
        ];
        let mut bits = 1u64;
        let random = std::iter::from_fn(|| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some(f64::from_bits(bits >> 1))
        });
        let random = random.filter(|x| !x.is_nan()).take(20_000);
        for x in special.into_iter().chain(random) {
            assert_eq!(square_root(x).to_bits(), x.sqrt().to_bits(), "{x:e}");
        }
        assert!(square_root(-1.0).is_nan() && square_root(f64::NAN).is_nan());
        const { assert!(square_root(64.0) == 8.0) };
    }

    #[test]
    fn products_and_sums_saturate() {
        assert_eq!(quotient(7, 2), 3);
        assert_eq!(quotient(7, 0), 1);
        assert_eq!(largest(&[2, 9, 4]), 9);
        assert_eq!(product(&[2, 3, 4]), 24);
        assert_eq!(product(&[usize::MAX, 3]), u64::MAX);
        assert_eq!(product(&[usize::MAX, 3, 0]), 0);
        assert_eq!(distance(7), 7);
        assert_eq!(distance(usize::MAX), isize::MAX);
        assert_eq!(product_of_lengths(&[2, 3, 4]), 24);
        assert_eq!(product_of_lengths(&[usize::MAX, 3]), usize::MAX);
        assert_eq!(sum_of_lengths(&[2, 3, 4]), 9);
        assert_eq!(sum_of_lengths(&[usize::MAX, 3]), usize::MAX);
        assert_eq!(total(&[1, 2, 3]), 6);
        assert_eq!(total(&[u64::MAX, 1]), u64::MAX);
    }
}
