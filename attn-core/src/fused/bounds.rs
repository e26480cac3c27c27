//! Whether the indices that a spec computes stay inside of its learned tensors.

use super::Interval;
use crate::Error;

/// A learned tensor that is read at a computed index: one axis of it.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The layer's name.
    pub layer: &'static str,
    /// The tensor's name.
    pub tensor: &'static str,
    /// Which axis.
    pub axis: usize,
    /// Its size.
    pub size: usize,
}

impl Axis {
    /// Fails where `index(b, h, q_idx, kv_idx)` is not below the size of the axis, for any place below `places`.
    ///
    /// `bounds` is where the index may lie by what intervals say; only where they do not decide, every place is visited.
    /// `places` is 1 for what the index does not depend on.
    ///
    /// ```
    /// use attn_core::{Error, fused::{Axis, Interval}};
    ///
    /// let axis = Axis { layer: "Decoder", tensor: "bias", axis: 0, size: 4 };
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
    /// [`Error::OutsideOfTensor`], with the first such place.
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
        let [batch, heads, queries, keys] = places.map(|count| 0..count as i64);
        for b in batch {
            for h in heads.clone() {
                for q_idx in queries.clone() {
                    for kv_idx in keys.clone() {
                        let found = index(b, h, q_idx, kv_idx);
                        if !(0..size).contains(&found) {
                            return Err(self.error(found, [b, h, q_idx, kv_idx]));
                        }
                    }
                }
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use dfdx::tensor::CpuError;

    use super::*;

    const AXIS: Axis = Axis {
        layer: "Layer",
        tensor: "table",
        axis: 1,
        size: 5,
    };

    #[test]
    fn what_intervals_decide_is_not_visited() {
        let never = |_, _, _, _| panic!("visited");
        assert!(
            AXIS.check::<CpuError>(Interval::between(0, 4), [9; 4], never)
                .is_ok()
        );
    }

    #[test]
    fn what_they_leave_open_is_visited() {
        let index = |b: i64, h: i64, q: i64, k: i64| b + h + q * k % 3;
        let check = |places| AXIS.check::<CpuError>(Interval::ANY, places, index);
        assert!(check([2, 2, 7, 7]).is_ok());
        let error = check([3, 2, 7, 7]).expect_err("2 + 1 + 2");
        assert_eq!(
            error.to_string(),
            "Layer: at b = 2, h = 1, q_idx = 1, kv_idx = 2 `table` is read at index 5 of axis 1, whose size is 5"
        );
        // No place, no mistake.
        assert!(check([0, 2, 7, 7]).is_ok());
    }
}
