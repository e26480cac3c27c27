//! The rules of `position`.

use quote::quote;

use super::check::{Checker, LARGEST_SIZE, unless_out_of_bounds};
use super::rules::Rules;
use super::value::Size;
use super::word::Call;
use super::{Position, Score, Spec};
use crate::messages;

impl Checker<'_> {
    /// Position schemes require products of queries and keys. `mask_is_sound`: the mask of `spec` is the one that was written.
    pub(super) fn position(&mut self, spec: &Spec, mask_is_sound: bool) -> Position {
        if spec.score == Score::OfPlaces {
            return Position::None;
        }
        let name = self.word_name("position", "none");
        if name != "rel_pos_bias" && self.has("bidirectional") && !self.is_invalid("position") {
            self.contradiction("bidirectional", &messages::not_bidirectional(name));
        }
        let Some(call) = self.word("position") else {
            return Position::None;
        };
        let at = &call.origin;
        if name != "none" && spec.score == Score::Additive {
            self.cx.error(at, messages::position_with_additive(name));
            return Position::None;
        }
        match name {
            "rope" if spec.score == Score::Bilinear => {
                self.cx.error(at, messages::ROPE_WITH_BILINEAR);
                Position::None
            }
            "rope" => self.rope(&call, spec),
            "alibi" => Position::Alibi,
            "rel_pos_bias" => match self.is_one_sided(spec, mask_is_sound) {
                Some(one_sided) => self.rel_pos_bias(&call, one_sided),
                None => Position::None,
            },
            _ => Position::None,
        }
    }

    /// Whether there are no buckets for keys after the query: by `bidirectional`, or by the words of the mask. (Proofs do not
    /// count: the biases of a layer must not depend on what can be proved.) `None` after a mistake.
    fn is_one_sided(&self, spec: &Spec, mask_is_sound: bool) -> Option<bool> {
        if self.has("bidirectional") {
            return Some(self.word("bidirectional")?.word.name == "false");
        }
        if !mask_is_sound {
            return None;
        }
        let by_words = spec.mask.is_one_sided(spec.d_context.is_some());
        let decided = match spec.body.mask {
            // It removes pairs from those that the words allow.
            Some(_) => by_words.filter(|one_sided| *one_sided),
            None => by_words,
        };
        if decided.is_none() {
            let message = messages::bidirectional_or_not(spec.body.mask.is_some());
            self.cx.error(self.origin("position"), message);
        }
        decided
    }

    fn rel_pos_bias(&mut self, call: &Call, one_sided: bool) -> Position {
        let num_buckets = call.size("num_buckets");
        let max_distance = call.size("max_distance");
        for (size, what) in [
            (&num_buckets, "num_buckets` of `rel_pos_bias"),
            (&max_distance, "max_distance` of `rel_pos_bias"),
        ] {
            if !size.origin.is_empty() && !self.bounded(size, what, LARGEST_SIZE) {
                return Position::None;
            }
        }
        // The errors are at the numbers, if these were written.
        let at = |size: &Size| match size.origin.is_empty() {
            true => call.origin.clone(),
            false => size.origin.clone(),
        };
        // Both directions share the buckets, and half of each share is for exact distances.
        let per_exact = if one_sided { 2 } else { 4 };
        let enough = num_buckets
            .value
            .map(|n| n >= per_exact && (one_sided || n % 2 == 0));
        let condition = if one_sided {
            quote!(#num_buckets >= 2)
        } else {
            quote!(#num_buckets >= 4 && #num_buckets % 2 == 0)
        };
        let condition = unless_out_of_bounds(&[&num_buckets], condition);
        if !self.require(&at(&num_buckets), enough, condition, || {
            messages::too_few_buckets(&num_buckets, one_sided)
        }) {
            return Position::None;
        }
        let far = num_buckets
            .value
            .zip(max_distance.value)
            .map(|(n, far)| far > n / per_exact);
        let per_exact = per_exact as usize;
        let condition = unless_out_of_bounds(
            &[&num_buckets, &max_distance],
            quote!(#max_distance > #num_buckets / #per_exact),
        );
        let message = || messages::max_distance_too_near(&max_distance, &num_buckets, per_exact);
        if !self.require(&at(&max_distance), far, condition, message) {
            return Position::None;
        }
        Position::RelPosBias {
            num_buckets,
            max_distance,
            one_sided,
        }
    }
}
