//! The seeds of the steps of a scan, for steps that are computed again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Random;
use crate::random::{DrawSeeds, Part};

/// The seeds that were drawn in the steps of a loop. All steps draw as many.
///
/// ```
/// use attn::__private::runtime::model::{Random, Seeds};
///
/// let draw = || 7;
/// let random = Random::new(true, &draw);
/// let seeds = Seeds::default();
/// let recorded = || seeds.record(random);
/// let recorded = random.with(&recorded);
/// assert_eq!(recorded.seed(), Some(7));
///
/// // The only step, again.
/// seeds.go_to(0, 1);
/// let again = || seeds.again();
/// assert_eq!(seeds.random(&again).seed(), Some(7));
/// ```
#[derive(Debug, Default)]
pub struct Seeds(Mutex<Drawn>);

#[derive(Debug, Default)]
struct Drawn {
    seeds: Vec<u64>,
    part: Option<Part>,
    /// The number of those that were drawn again.
    next: usize,
}

impl Seeds {
    fn drawn(&self) -> MutexGuard<'_, Drawn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws a seed.
    pub fn record(&self, random: Random<'_>) -> u64 {
        let seed = random.seed().unwrap_or_default();
        let mut drawn = self.drawn();
        drawn.seeds.push(seed);
        drawn.part = Some(random.part());
        seed
    }

    /// Begins again with a step of so many, in their order.
    pub fn go_to(&self, step: usize, steps: usize) {
        let mut drawn = self.drawn();
        drawn.next = drawn.seeds.len() / steps.max(1) * step;
    }

    /// The next seed of those that were drawn.
    pub fn again(&self) -> u64 {
        let mut drawn = self.drawn();
        drawn.next += 1;
        let seed = drawn.seeds.get(drawn.next - 1);
        seed.copied().unwrap_or_default()
    }

    /// The seeds of `draw`, if some were drawn.
    pub fn random<'a>(&self, draw: &'a dyn DrawSeeds) -> Random<'a> {
        let drawn = self.drawn();
        Random::of_part(
            !drawn.seeds.is_empty(),
            draw,
            drawn.part.unwrap_or(Part::WHOLE),
        )
    }
}
