//! The coverage of a mask on a rectangle, computed without visiting its pairs.

use super::{Truth, Zone};
use crate::kernel::attention::Coverage;

/// The maximum number of zones for which a mask is evaluated before its coverage is assumed to be partial. Common masks need one to ten.
const MAX_ZONES: usize = 256;

impl Zone {
    /// The coverage of the zone, from that of its parts.
    ///
    /// Where the mask is unknown, the zone is split, and the mask is evaluated on both sides. So
    /// `causal & !sliding_window(64)` is known everywhere:
    ///
    /// ```
    /// use attn::__private::runtime::{fused::Zone, kernel::attention::Coverage};
    ///
    /// let far = |at: &Zone| {
    ///     let (q_idx, kv_idx) = (at.q_idx(), at.kv_idx());
    ///     kv_idx.at_most(q_idx) & !(q_idx - kv_idx).less(at.number(64))
    /// };
    /// assert_eq!(Zone::of(&(48..96), &(16..32)).coverage(&far), Coverage::Partial);
    /// assert_eq!(Zone::of(&(48..96), &(48..64)).coverage(&far), Coverage::Empty);
    /// assert_eq!(Zone::of(&(96..144), &(16..32)).coverage(&far), Coverage::Full);
    /// ```
    pub fn coverage(&self, mask: &dyn Fn(&Self) -> Truth) -> Coverage {
        let mut found = None;
        let mut left = MAX_ZONES;
        match (self.is_alike(mask, &mut found, &mut left), found) {
            (true, Some(true)) => Coverage::Full,
            (true, Some(false)) => Coverage::Empty,
            _ => Coverage::Partial,
        }
    }

    /// Whether the mask is `found` on the whole zone. The first piece on which the mask is known sets `found`.
    fn is_alike(
        &self,
        mask: &dyn Fn(&Self) -> Truth,
        found: &mut Option<bool>,
        left: &mut usize,
    ) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match mask(self) {
            Truth::True => *found.get_or_insert(true),
            Truth::False => !*found.get_or_insert(false),
            Truth::Mixed(_) | Truth::Unknown(None) => false,
            Truth::Unknown(Some(cut)) => {
                let sides = self.sides(cut);
                sides.iter().all(|side| side.is_alike(mask, found, left))
            }
        }
    }
}

#[cfg(test)]
mod tests;
