//! The gradients that a backward pass has finished while it goes on with others.

use std::{any::Any, fmt};

use super::{Slot, WantsGradient};

/// Hears during a backward pass which of some gradients are finished.
pub(crate) trait Watch<G>: Any + Send {
    /// More of them are.
    fn hear(&mut self, finished: &FinishedSlots, gradients: &mut G);
}

/// The slots whose gradients are finished.
#[derive(Debug, Default)]
pub(crate) struct FinishedSlots(Vec<bool>);

impl FinishedSlots {
    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.0.get(slot.index()).is_some_and(|is_in| *is_in)
    }

    fn insert(&mut self, slot: Slot) {
        if self.0.len() <= slot.index() {
            self.0.resize(slot.index() + 1, false);
        }
        self.0[slot.index()] = true;
    }
}

/// The gradients that are finished so far, and the watch that hears of each.
pub(super) struct Finished<G> {
    slots: FinishedSlots,
    watch: Option<Box<dyn Watch<G>>>,
}

impl<G> Default for Finished<G> {
    fn default() -> Self {
        Self {
            slots: FinishedSlots::default(),
            watch: None,
        }
    }
}

impl<G> fmt::Debug for Finished<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl<G: 'static> Finished<G> {
    /// None so far.
    pub(super) fn watched(watch: impl Watch<G>) -> Self {
        Self {
            slots: FinishedSlots::default(),
            watch: Some(Box::new(watch)),
        }
    }

    pub(super) fn add(&mut self, of: &[&dyn WantsGradient], gradients: &mut G) {
        // Without a watch they are known for the check only.
        if self.watch.is_none() && !cfg!(debug_assertions) {
            return;
        }
        for of in of {
            of.slots(&mut |slot| self.slots.insert(slot));
        }
        if let Some(watch) = &mut self.watch {
            watch.hear(&self.slots, gradients);
        }
    }

    /// Checks that nothing is added to a gradient that is finished.
    pub(super) fn check(&self, slot: Slot) {
        debug_assert!(!self.slots.contains(slot), "{slot:?} is finished");
    }

    /// Who has heard of it.
    pub(super) fn into_watch<W: Watch<G>>(self) -> Option<W> {
        let watch: Box<dyn Any> = self.watch?;
        watch.downcast().ok().map(|watch| *watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of three slots it has heard of, each time.
    #[derive(Default)]
    struct Heard(Vec<[bool; 3]>);

    impl Watch<usize> for Heard {
        fn hear(&mut self, finished: &FinishedSlots, gradients: &mut usize) {
            *gradients += 1;
            let slots = [0, 1, 2].map(Slot::new);
            self.0.push(slots.map(|slot| finished.contains(slot)));
        }
    }

    #[test]
    fn a_watch_hears_of_every_slot() {
        let mut finished = Finished::watched(Heard::default());
        let mut calls = 0;
        let [first, second, third] = [0, 1, 2].map(Slot::new);
        finished.add(&[&third], &mut calls);
        finished.add(&[&vec![first, third], &None::<Slot>], &mut calls);
        finished.check(second);
        let heard: Heard = finished.into_watch().unwrap();
        assert_eq!(heard.0, [[false, false, true], [true, false, true]]);
        assert_eq!(calls, 2);
    }

    #[test]
    #[should_panic(expected = "is finished")]
    fn nothing_is_added_to_a_finished_gradient() {
        let mut finished = Finished::<()>::default();
        finished.add(&[&Slot::new(1)], &mut ());
        finished.check(Slot::new(1));
    }
}
