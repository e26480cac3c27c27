//! Places of gradients, some of which are wanted.

/// The index of a tensor among the operands of an operation, and whether its gradient is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    index: usize,
    is_wanted: bool,
}

impl Slot {
    pub(super) const fn new(index: usize) -> Self {
        Self {
            index,
            is_wanted: true,
        }
    }

    /// Its index.
    pub(crate) fn index(self) -> usize {
        self.index
    }

    /// The slot behind so many others.
    pub(crate) fn behind(self, others: usize) -> Self {
        Self {
            index: others + self.index,
            ..self
        }
    }

    /// The same, if its gradient is wanted.
    pub(crate) fn wanted(self) -> Option<Self> {
        self.is_wanted.then_some(self)
    }

    /// A slot whose gradient is wanted or not.
    pub(crate) fn if_wanted(self, is_wanted: bool) -> Self {
        Self { is_wanted, ..self }
    }
}

/// Parameters and inputs of which some may want no gradient: those that are frozen, and the inputs of a trainer's loss.
pub trait WantsGradient {
    /// Calls `visit` with the slot of each.
    fn slots(&self, visit: VisitSlot<'_>);

    /// Whether the gradient of any of them is wanted.
    fn is_wanted(&self) -> bool {
        let mut any = false;
        self.slots(&mut |slot| any |= slot.is_wanted);
        any
    }
}

/// A function that is called with each slot.
pub type VisitSlot<'a> = &'a mut dyn FnMut(Slot);

impl WantsGradient for Slot {
    fn slots(&self, visit: VisitSlot<'_>) {
        visit(*self);
    }
}

impl<W: WantsGradient> WantsGradient for Option<W> {
    fn slots(&self, visit: VisitSlot<'_>) {
        self.iter().for_each(|of| of.slots(visit));
    }
}

impl<W: WantsGradient> WantsGradient for Vec<W> {
    fn slots(&self, visit: VisitSlot<'_>) {
        self.iter().for_each(|of| of.slots(visit));
    }
}

impl<W: WantsGradient> WantsGradient for &[W] {
    fn slots(&self, visit: VisitSlot<'_>) {
        self.iter().for_each(|of| of.slots(visit));
    }
}

/// The slots of all of these.
pub fn visit_slots(of: &[&dyn WantsGradient], visit: VisitSlot<'_>) {
    of.iter().for_each(|of| of.slots(visit));
}

/// Whether the gradient of any of these is wanted.
pub fn any_wanted(of: &[&dyn WantsGradient]) -> bool {
    of.iter().any(|of| of.is_wanted())
}

/// How many rounds of a loop the derivative takes, the last one first: all, if something is wanted that the loop passes a gradient on to or
/// that each round adds to (`others`), and otherwise those up to the first round that wants a gradient.
pub fn rounds_wanted<'w, W: WantsGradient + 'w>(
    others: bool,
    rounds: impl Iterator<Item = &'w W>,
) -> usize {
    let wanted = rounds
        .enumerate()
        .filter(|(_, of)| others || of.is_wanted());
    wanted.last().map_or(0, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_ends_with_the_first_round_that_wants_a_gradient() {
        let rounds = |wanted: &[usize]| {
            (0..4)
                .map(|i| Slot::new(i).if_wanted(wanted.contains(&i)))
                .collect::<Vec<_>>()
        };
        for (wanted, expected) in [(&[][..], 0), (&[3], 1), (&[1, 3], 3), (&[0], 4)] {
            let rounds = rounds(wanted);
            assert_eq!(rounds_wanted(false, rounds.iter().rev()), expected);
            assert_eq!(rounds_wanted(true, rounds.iter().rev()), 4);
        }
    }
}
