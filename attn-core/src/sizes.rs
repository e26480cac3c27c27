//! Arithmetic on sizes that only rustc knows, in constants. A separate assertion reports a mistake in a spec, so nothing here
//! panics.

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

#[cfg(test)]
mod tests {
    use super::*;

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
