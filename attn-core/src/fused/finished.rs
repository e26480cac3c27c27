//! The gradients that a backward pass has finished while it goes on with others.

use std::{any::Any, fmt};

use super::{Gradients, Slot, WantsGradient};
use crate::Element;

/// Hears during a backward pass which gradients are finished.
pub(crate) trait Watch<E>: Any + Send {
    /// More of them are.
    fn hear(&mut self, finished: &FinishedSlots, gradients: &mut Gradients<E>);
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

/// What is known of finished gradients, and who hears of it.
pub(super) struct Finished<E> {
    slots: FinishedSlots,
    watch: Option<Box<dyn Watch<E>>>,
}

impl<E> Default for Finished<E> {
    fn default() -> Self {
        Self {
            slots: FinishedSlots::default(),
            watch: None,
        }
    }
}

impl<E> fmt::Debug for Finished<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl<E: Element> Finished<E> {
    /// None so far.
    pub(super) fn watched(watch: impl Watch<E>) -> Self {
        Self {
            slots: FinishedSlots::default(),
            watch: Some(Box::new(watch)),
        }
    }

    pub(super) fn add(&mut self, of: &[&dyn WantsGradient], gradients: &mut Gradients<E>) {
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
    pub(super) fn into_watch<W: Watch<E>>(self) -> Option<W> {
        let watch: Box<dyn Any> = self.watch?;
        watch.downcast().ok().map(|watch| *watch)
    }
}
