//! Checks that the indices of a spec are in bounds of its tensors, and that no integer is divided by 0.

use super::Interval;
use crate::Error;

/// An axis of a learned tensor that is read at a computed index.
#[derive(Clone, Copy, Debug)]
pub struct AxisBounds {
    /// The layer's name.
    pub layer: &'static str,
    /// The tensor's name.
    pub tensor: &'static str,
    /// The axis.
    pub axis: usize,
    /// Its size.
    pub size: usize,
}

impl AxisBounds {
    /// Fails if `index(b, h, q_idx, kv_idx)` is not below the size of the axis, for any position below `places`.
    ///
    /// `bounds` are the bounds of the index by interval arithmetic. Positions are visited only if these do not decide. `places`
    /// is 1 for an argument that the index does not depend on.
    ///
    /// ```
    /// use attn::{Error, __private::runtime::fused::{AxisBounds, Interval}};
    ///
    /// let axis = AxisBounds { layer: "Decoder", tensor: "bias", axis: 0, size: 4 };
    /// let distance = |_, _, q_idx, kv_idx| q_idx - kv_idx;
    /// let check = |len: usize| {
    ///     let bounds = Interval::of(&(0..len)) - Interval::of(&(0..len));
    ///     axis.check::<()>(bounds, [1, 1, len, len], distance)
    /// };
    /// assert!(check(1).is_ok());
    /// assert!(matches!(check(2), Err(Error::OutsideOfTensor { index: -1, .. })));
    /// ```
    ///
    /// # Errors
    /// [`Error::OutsideOfTensor`], with the first such position.
    pub fn check<Dev>(
        self,
        bounds: Interval,
        places: [usize; 4],
        index: impl Fn(i64, i64, i64, i64) -> i64,
    ) -> Result<(), Error<Dev>> {
        let size = i64::try_from(self.size).unwrap_or(i64::MAX);
        let (least, greatest) = bounds.ends();
        if 0 <= least && greatest < size {
            return Ok(());
        }
        let outside = |found: i64| !(0..size).contains(&found);
        match first(places, index, outside) {
            Some((place, found)) => Err(self.error(found, place)),
            None => Ok(()),
        }
    }

    fn error<Dev>(self, index: i64, place: [i64; 4]) -> Error<Dev> {
        Error::OutsideOfTensor {
            layer: self.layer,
            tensor: self.tensor,
            axis: self.axis,
            size: self.size,
            index,
            place,
        }
    }
}

/// The divisor of an integer.
#[derive(Clone, Copy, Debug)]
pub struct DivisorBounds {
    /// The layer's name.
    pub layer: &'static str,
    /// The divisor, as the user wrote it.
    pub divisor: &'static str,
}

impl DivisorBounds {
    /// Fails if `divisor(b, h, q_idx, kv_idx)` is 0. For `bounds` and `places` see [`AxisBounds::check`].
    ///
    /// ```
    /// use attn::{Error, __private::runtime::fused::{DivisorBounds, Interval}};
    ///
    /// let divisor = DivisorBounds { layer: "Decoder", divisor: "q_idx - 2" };
    /// let check = |len: usize| {
    ///     let bounds = Interval::of(&(0..len)) - Interval::exactly(2);
    ///     divisor.check::<()>(bounds, [1, 1, len, 1], |_, _, q_idx, _| q_idx - 2)
    /// };
    /// assert!(check(2).is_ok());
    /// assert!(matches!(check(3), Err(Error::DivisionByZero { place: [0, 0, 2, 0], .. })));
    /// ```
    ///
    /// # Errors
    /// [`Error::DivisionByZero`], with the first such position.
    pub fn check<Dev>(
        self,
        bounds: Interval,
        places: [usize; 4],
        divisor: impl Fn(i64, i64, i64, i64) -> i64,
    ) -> Result<(), Error<Dev>> {
        let (least, greatest) = bounds.ends();
        if 0 < least || greatest < 0 {
            return Ok(());
        }
        match first(places, divisor, |found| found == 0) {
            Some((place, _)) => Err(Error::DivisionByZero {
                layer: self.layer,
                divisor: self.divisor,
                place,
            }),
            None => Ok(()),
        }
    }
}

/// The first position below `places` where the value is a mistake, and the value.
fn first(
    places: [usize; 4],
    value: impl Fn(i64, i64, i64, i64) -> i64,
    is_mistake: impl Fn(i64) -> bool,
) -> Option<([i64; 4], i64)> {
    let [batch, heads, queries, keys] = places.map(|count| 0..count as i64);
    for b in batch {
        for h in heads.clone() {
            for q_idx in queries.clone() {
                for kv_idx in keys.clone() {
                    let found = value(b, h, q_idx, kv_idx);
                    if is_mistake(found) {
                        return Some(([b, h, q_idx, kv_idx], found));
                    }
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use dfdx::tensor::CpuError;

    use super::*;

    const AXIS: AxisBounds = AxisBounds {
        layer: "Layer",
        tensor: "table",
        axis: 1,
        size: 5,
    };

    #[test]
    fn positions_that_intervals_decide_are_not_visited() {
        let never = |_, _, _, _| panic!("visited");
        assert!(
            AXIS.check::<CpuError>(Interval::between(0, 4), [9; 4], never)
                .is_ok()
        );
    }

    #[test]
    fn positions_that_intervals_do_not_decide_are_visited() {
        let index = |b: i64, h: i64, q: i64, k: i64| b + h + q * k % 3;
        let check = |places| AXIS.check::<CpuError>(Interval::ANY, places, index);
        assert!(check([2, 2, 7, 7]).is_ok());
        let error = check([3, 2, 7, 7]).expect_err("2 + 1 + 2");
        assert_eq!(
            error.to_string(),
            "Layer: at b = 2, h = 1, q_idx = 1, kv_idx = 2 `table` is read at index 5 of axis 1, whose size is 5"
        );
        // Without positions there is no mistake.
        assert!(check([0, 2, 7, 7]).is_ok());
    }

    #[test]
    fn a_divisor_is_visited_only_if_it_may_be_0() {
        let divisor = DivisorBounds {
            layer: "Layer",
            divisor: "q_idx - 3 * kv_idx + 1",
        };
        let never = |_, _, _, _| panic!("visited");
        for bounds in [Interval::between(1, 4), Interval::between(-4, -1)] {
            assert!(divisor.check::<CpuError>(bounds, [9; 4], never).is_ok());
        }
        let value = |_, _, q: i64, k: i64| q - 3 * k + 1;
        let check = |places| divisor.check::<CpuError>(Interval::ANY, places, value);
        assert!(check([1, 1, 2, 7]).is_ok());
        let error = check([1, 1, 7, 7]).expect_err("2 - 3 + 1");
        assert_eq!(
            error.to_string(),
            "Layer: at b = 0, h = 0, q_idx = 2, kv_idx = 1 an integer is divided by `q_idx - 3 * kv_idx + 1`, which is 0"
        );
    }
}
