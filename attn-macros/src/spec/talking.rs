//! `talking_heads`: what the heads mix, and what that rules out.

use super::Spec;
use super::check::Checker;
use crate::messages;
use crate::score::{Expr, Var};

/// What the heads mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TalkingHeads {
    pub(crate) scores: bool,
    pub(crate) weights: bool,
}

impl TalkingHeads {
    /// By a word of the key.
    fn of(word: &str) -> Self {
        TalkingHeads {
            scores: matches!(word, "before" | "both"),
            weights: matches!(word, "after" | "both"),
        }
    }

    pub(crate) fn is_any(self) -> bool {
        self.scores || self.weights
    }

    /// The fields of the matrices: that of the scores, and that of the weights.
    pub(crate) fn fields(self) -> [Option<&'static str>; 2] {
        [
            self.scores.then_some("mix_scores"),
            self.weights.then_some("mix_weights"),
        ]
    }
}

impl Checker<'_> {
    pub(super) fn talking_heads(&self) -> TalkingHeads {
        TalkingHeads::of(self.word_name("talking_heads", "none"))
    }

    /// A mixed pair is of all heads. So the mask is that of all of them, and a weight of a mixed score knows the score alone.
    pub(super) fn mixed_pairs(&self, spec: &Spec) {
        let mask = spec.predicate();
        if spec.talking_heads.is_any() && mask.is_some_and(|mask| mask.reads(Var::H)) {
            self.contradiction("talking_heads", messages::TALKING_WITH_MASK_OF_HEADS);
        }
        let weight = spec.normalizer.weight();
        let of_place = weight.is_some_and(|weight| weight.any(&is_of_place));
        if spec.talking_heads.scores && of_place {
            self.contradiction("talking_heads", messages::MIXED_SCORES_AT_PLACES);
        }
    }
}

/// Whether it reads more than the score.
fn is_of_place(part: &Expr) -> bool {
    matches!(part, Expr::Var(_) | Expr::Param { .. } | Expr::Data { .. })
}
