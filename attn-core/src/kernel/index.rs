//! Indices in data: tokens, classes.

/// An index that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The position among the indices.
    pub position: usize,
    /// The index.
    pub index: usize,
    /// The number of valid indices.
    pub count: usize,
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            position,
            index,
            count,
        } = self;
        write!(
            f,
            "index {index}, at position {position}, is not below {count}"
        )
    }
}

impl std::error::Error for OutOfRange {}

/// Returns the first index that is not below `count` as an error.
pub(super) fn check(indices: &[usize], count: usize) -> Result<(), OutOfRange> {
    check_but(indices, count, None)
}

/// [`check`], which skips one index.
pub(super) fn check_but(
    indices: &[usize],
    count: usize,
    ignored: Option<usize>,
) -> Result<(), OutOfRange> {
    let bad = |&index: &usize| index >= count && Some(index) != ignored;
    match indices.iter().position(bad) {
        Some(position) => Err(OutOfRange {
            position,
            index: indices[position],
            count,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_index_out_of_range_is_reported() {
        assert_eq!(check(&[], 0), Ok(()));
        assert_eq!(check(&[0, 2], 3), Ok(()));
        let error = check(&[0, 3, 4], 3).unwrap_err();
        assert_eq!(error.to_string(), "index 3, at position 1, is not below 3");
        assert_eq!(check_but(&[0, 9], 3, Some(9)), Ok(()));
        assert_eq!(check_but(&[9, 8], 3, Some(9)).unwrap_err().position, 1);
    }
}
