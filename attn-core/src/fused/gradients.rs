//! The gradients that an operation accumulates into.

use std::ops::Range;

use super::{
    Slot, WantsGradient,
    finished::{Finished, Watch},
    zeros,
};
use crate::{
    Element,
    kernel::elementwise,
    simd::{WriteMode, call},
};

/// The current gradients of an operation's operands, to add to.
///
/// The gradients of a trainer stay from step to step, in one buffer. The first access in a step overwrites a gradient, or sets it to 0, so one
/// that no code accesses is known to be missing, and costs nothing.
#[derive(Debug, Default)]
pub struct Gradients<E> {
    slots: Vec<Gradient<E>>,
    /// The buffer of a trainer, once it is needed.
    arena: Vec<E>,
    /// The number of its elements.
    arena_len: usize,
    finished: Finished<Self>,
}

#[derive(Debug)]
struct Gradient<E> {
    memory: Memory<E>,
    /// Whether the numbers are those of this step.
    is_given: bool,
}

#[derive(Debug)]
enum Memory<E> {
    /// A vector of its own, for a gradient of a tape, or one that a trainer does not want. The first access allocates it.
    Own { numbers: Vec<E>, len: usize },
    /// A range of the buffer.
    Arena(Range<usize>),
}

impl<E: Element> Gradient<E> {
    fn given(numbers: Vec<E>) -> Self {
        let len = numbers.len();
        Self {
            memory: Memory::Own { numbers, len },
            is_given: true,
        }
    }

    /// One of so many numbers that nobody wants.
    fn unwanted(len: usize) -> Self {
        let numbers = Vec::new();
        Self {
            memory: Memory::Own { numbers, len },
            is_given: false,
        }
    }

    /// Its range of the buffer.
    fn range(&self) -> Range<usize> {
        match &self.memory {
            Memory::Own { .. } => 0..0,
            Memory::Arena(range) => range.clone(),
        }
    }

    /// The numbers, to add to, or to overwrite. `in_arena` is its range of the buffer.
    fn numbers_mut<'a>(&'a mut self, in_arena: &'a mut [E], into: WriteMode) -> &'a mut [E] {
        let is_given = std::mem::replace(&mut self.is_given, true);
        match &mut self.memory {
            Memory::Own { numbers, len } => {
                if !is_given {
                    *numbers = zeros(*len);
                }
                numbers
            }
            Memory::Arena(_) => {
                if !is_given && into == WriteMode::Add {
                    elementwise::clear(in_arena);
                }
                in_arena
            }
        }
    }
}

impl<E: Element> Gradients<E> {
    /// Gradients with these numbers.
    pub(super) fn of_numbers(all: Vec<Vec<E>>) -> Self {
        Self::new(all.into_iter().map(Gradient::given))
    }

    fn new(slots: impl IntoIterator<Item = Gradient<E>>) -> Self {
        Self {
            slots: slots.into_iter().collect(),
            arena: Vec::new(),
            arena_len: 0,
            finished: Finished::default(),
        }
    }

    /// The numbers of each; none of those in the buffer.
    pub(super) fn into_numbers(self) -> impl Iterator<Item = Vec<E>> {
        let slots = self.slots.into_iter();
        slots.map(|gradient| match gradient.memory {
            Memory::Own { numbers, .. } => numbers,
            Memory::Arena(_) => Vec::new(),
        })
    }

    /// The gradients of parameters with these numbers of elements, which are missing. A wanted one has a range of the buffer, which is
    /// allocated by [`allocate`](Self::allocate).
    pub(crate) fn of_parameters(
        parameters: impl IntoIterator<Item = (usize, Option<Range<usize>>)>,
    ) -> Self {
        let mut gradients = Self::new([]);
        for (len, range) in parameters {
            gradients.slots.push(match range {
                None => Gradient::unwanted(len),
                Some(range) => {
                    gradients.arena_len = gradients.arena_len.max(range.end);
                    Gradient {
                        memory: Memory::Arena(range),
                        is_given: false,
                    }
                }
            });
        }
        gradients
    }

    /// Allocates the buffer, unless it is there.
    pub(crate) fn allocate(&mut self) {
        if self.arena.len() < self.arena_len {
            self.arena = zeros(self.arena_len);
        }
    }

    /// Puts inputs with so many elements, whose gradients nobody wants, in the place of the first `before` operands.
    pub(crate) fn set_inputs(&mut self, before: usize, lens: &[usize]) {
        let inputs = lens.iter().map(|len| Gradient::unwanted(*len));
        self.slots.splice(..before, inputs);
    }

    /// Gives back the memory of the gradients that nobody wants.
    pub(crate) fn release_unwanted(&mut self) {
        for gradient in &mut self.slots {
            if let Memory::Own { numbers, .. } = &mut gradient.memory {
                *numbers = Vec::new();
                gradient.is_given = false;
            }
        }
    }

    /// Makes all of them missing. Their memory is kept.
    pub(crate) fn forget(&mut self) {
        for gradient in &mut self.slots {
            gradient.is_given = false;
        }
    }

    /// The gradient of a slot, if there is one, and it is wanted.
    pub(crate) fn given(&self, slot: Slot) -> Option<&[E]> {
        let gradient = self.slots.get(slot.wanted()?.index())?;
        let numbers = match &gradient.memory {
            Memory::Own { numbers, .. } => numbers,
            Memory::Arena(range) => self.arena.get(range.clone())?,
        };
        gradient.is_given.then_some(numbers)
    }

    /// [`given`](Self::given), mutable.
    pub(crate) fn given_mut(&mut self, slot: Slot) -> Option<&mut [E]> {
        self.given(slot).is_some().then(|| self.of(slot))
    }

    /// Adds the gradients of several slots to that of the first one, and returns this, if there is one.
    pub(crate) fn sum(&mut self, of: impl IntoIterator<Item = Slot>) -> Option<&[E]> {
        let mut slots = of.into_iter();
        let first = slots.next()?;
        for slot in slots {
            if self.given(slot).is_some()
                && let [Some(from), Some(to)] = self.get_disjoint([Some(slot), Some(first)])
            {
                accumulate(to, from);
            }
        }
        self.given(first)
    }

    /// The gradients of a slot. If they are not wanted, it is memory that nobody reads: a trainer gives it back behind the derivative.
    ///
    /// # Panics
    /// If the slot belongs to another operation.
    pub fn of(&mut self, slot: Slot) -> &mut [E] {
        self.finished.check(slot);
        let gradient = &mut self.slots[slot.index()];
        gradient.numbers_mut(&mut self.arena[gradient.range()], WriteMode::Add)
    }

    /// The gradients of several slots, for simultaneous writing; none of a slot that is there twice.
    pub(super) fn get_disjoint<const N: usize>(
        &mut self,
        slots: [Option<Slot>; N],
    ) -> [Option<&mut [E]>; N] {
        self.get_disjoint_to(WriteMode::Add, slots)
    }

    /// [`get_disjoint`](Self::get_disjoint), to add to, or to overwrite.
    fn get_disjoint_to<const N: usize>(
        &mut self,
        into: WriteMode,
        slots: [Option<Slot>; N],
    ) -> [Option<&mut [E]>; N] {
        slots
            .iter()
            .flatten()
            .for_each(|slot| self.finished.check(*slot));
        let mut found = [const { None }; N];
        let ranges = slots.map(|slot| slot.map_or(0..0, |slot| self.slots[slot.index()].range()));
        let Ok(in_arena) = self.arena.get_disjoint_mut(ranges) else {
            return found;
        };
        let mut in_arena = in_arena.map(Some);
        for (index, gradient) in self.slots.iter_mut().enumerate() {
            let is_here = |slot: &Option<Slot>| slot.is_some_and(|slot| slot.index() == index);
            if let Some(place) = slots.iter().position(is_here) {
                let in_arena = in_arena[place].take();
                found[place] = in_arena.map(|in_arena| gradient.numbers_mut(in_arena, into));
            }
        }
        found
    }

    /// The gradients of a weight and of its bias, those that are wanted, to add to.
    ///
    /// # Panics
    /// If a slot belongs to another operation, or both are the same.
    pub(crate) fn of_affine(&mut self, weight: Slot, bias: Option<Slot>) -> [Option<&mut [E]>; 2] {
        self.of_affine_to(WriteMode::Add, weight, bias)
    }

    /// [`of_affine`](Self::of_affine), for a caller that computes all of their numbers. They are to be overwritten if none is given yet.
    ///
    /// # Panics
    /// As [`of_affine`](Self::of_affine).
    pub(crate) fn write_affine(
        &mut self,
        weight: Slot,
        bias: Option<Slot>,
    ) -> ([Option<&mut [E]>; 2], WriteMode) {
        let slots = [weight.wanted(), bias.and_then(Slot::wanted)];
        let mut given = slots.iter().flatten().map(|slot| &self.slots[slot.index()]);
        let into = match given.any(|gradient| gradient.is_given) {
            true => WriteMode::Add,
            false => WriteMode::Overwrite,
        };
        (self.of_affine_to(into, weight, bias), into)
    }

    /// [`write_affine`](Self::write_affine) of the weights and of the biases of several maps at once, where each stand side by side in the
    /// buffer of a trainer. `None` if they do not, or if some alone are wanted, or given already.
    pub(crate) fn write_stacked(
        &mut self,
        weights: &[Slot],
        biases: &[Slot],
    ) -> Option<([Option<&mut [E]>; 2], WriteMode)> {
        let is_given = self.slots.get(weights.first()?.index())?.is_given;
        let of_weights = self.stacked(weights, is_given)?;
        let of_biases = match biases {
            [] => None,
            _ => Some(self.stacked(biases, is_given)?),
        };
        for slot in weights.iter().chain(biases) {
            self.finished.check(*slot);
            self.slots[slot.index()].is_given = true;
        }
        let found = match of_biases {
            None => [Some(&mut self.arena[of_weights]), None],
            Some(of_biases) => {
                let both = self.arena.get_disjoint_mut([of_weights, of_biases]);
                both.ok()?.map(Some)
            }
        };
        let into = match is_given {
            true => WriteMode::Add,
            false => WriteMode::Overwrite,
        };
        Some((found, into))
    }

    /// The range of the buffer that these gradients are together, if they are wanted, and given or not.
    fn stacked(&self, slots: &[Slot], is_given: bool) -> Option<Range<usize>> {
        let mut all: Option<Range<usize>> = None;
        for slot in slots {
            let gradient = &self.slots[slot.wanted()?.index()];
            let range = match &gradient.memory {
                Memory::Arena(range) if gradient.is_given == is_given => range.clone(),
                _ => return None,
            };
            all = match all {
                None => Some(range),
                Some(all) if all.end == range.start => Some(all.start..range.end),
                Some(_) => return None,
            };
        }
        all
    }

    fn of_affine_to(
        &mut self,
        into: WriteMode,
        weight: Slot,
        bias: Option<Slot>,
    ) -> [Option<&mut [E]>; 2] {
        let slots = [weight.wanted(), bias.and_then(Slot::wanted)];
        let found = self.get_disjoint_to(into, slots);
        for (slot, found) in slots.iter().zip(&found) {
            assert_eq!(
                slot.is_some(),
                found.is_some(),
                "{slots:?} are written at once"
            );
        }
        found
    }

    /// Says that the backward pass adds to none of these from here on.
    pub fn finish(&mut self, of: &[&dyn WantsGradient]) {
        let mut finished = std::mem::take(&mut self.finished);
        finished.add(of, self);
        self.finished = finished;
    }

    /// Calls `run`, during which `watch` hears of finished gradients.
    ///
    /// # Panics
    /// If another watch takes its place in the meantime.
    pub(super) fn watched<W: Watch<Self>>(&mut self, watch: W, run: impl FnOnce(&mut Self)) -> W {
        self.finished = Finished::watched(watch);
        run(self);
        let Some(watch) = std::mem::take(&mut self.finished).into_watch() else {
            panic!("another watch is here");
        };
        watch
    }

    /// Begins a pass, which has finished none.
    pub(super) fn unwatched(&mut self, run: impl FnOnce(&mut Self)) {
        self.finished = Finished::default();
        run(self);
        self.finished = Finished::default();
    }

    /// The gradients of all slots of a tape, read-only.
    pub(super) fn all<const N: usize>(&self) -> [&[E]; N] {
        std::array::from_fn(|slot| match &self.slots[slot].memory {
            Memory::Own { numbers, .. } => numbers.as_slice(),
            Memory::Arena(range) => &self.arena[range.clone()],
        })
    }

    /// The buffer of a trainer, if it is allocated.
    #[cfg(test)]
    pub(crate) fn buffer(&self) -> &[E] {
        &self.arena
    }

    /// The number of elements that are there, without gaps in the buffer.
    pub(crate) fn len(&self) -> usize {
        let slots = self.slots.iter().map(|gradient| match &gradient.memory {
            Memory::Own { numbers, .. } => numbers.len(),
            Memory::Arena(range) if range.end <= self.arena.len() => range.len(),
            Memory::Arena(_) => 0,
        });
        slots.sum()
    }
}

/// Adds a contribution to a gradient.
pub fn accumulate<E: Element>(gradient: &mut [E], contribution: &[E]) {
    call::axpy(E::one(), contribution, gradient);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_that_are_not_wanted_are_not_given() {
        let mut gradients = Gradients::<f32>::of_parameters([(2, Some(0..2)), (3, Some(4..7))]);
        assert_eq!(gradients.len(), 0);
        gradients.allocate();
        let [weight, bias] = [Slot::new(0), Slot::new(1)];
        let frozen = weight.if_wanted(false);
        assert!(matches!(
            gradients.of_affine(frozen, Some(bias)),
            [None, Some([_, _, _])]
        ));
        assert!(matches!(
            gradients.of_affine(weight, Some(bias.if_wanted(false))),
            [Some([_, _]), None]
        ));
        assert!(gradients.given(weight).is_some());
        assert!(gradients.given(frozen).is_none());
        assert_eq!(gradients.len(), 5);
    }

    #[test]
    fn gradients_side_by_side_are_written_as_one() {
        let ranges = [(2, Some(0..2)), (4, Some(2..6)), (3, Some(8..11))];
        let new = || {
            let mut gradients = Gradients::<f32>::of_parameters(ranges.clone());
            gradients.allocate();
            gradients
        };
        let [first, second, apart] = [0, 1, 2].map(Slot::new);
        let mut gradients = new();
        let written = gradients.write_stacked(&[first, second], &[apart]);
        assert!(matches!(
            written,
            Some((
                [Some([_, _, _, _, _, _]), Some([_, _, _])],
                WriteMode::Overwrite
            ))
        ));
        let all = [first, second, apart];
        assert!(all.iter().all(|slot| gradients.given(*slot).is_some()));
        let again = gradients.write_stacked(&[first, second], &[]);
        assert!(matches!(again, Some(([Some(_), None], WriteMode::Add))));

        assert!(new().write_stacked(&[second, apart], &[]).is_none());
        assert!(new().write_stacked(&[second, first], &[]).is_none());
        let frozen = second.if_wanted(false);
        assert!(new().write_stacked(&[first, frozen], &[]).is_none());
        let mut gradients = new();
        gradients.of(second);
        assert!(gradients.write_stacked(&[first, second], &[]).is_none());
        assert!(gradients.given(first).is_none());
        let mut of_tape = Gradients::of_numbers(vec![vec![1.0_f32]]);
        assert!(of_tape.write_stacked(&[first], &[]).is_none());
    }

    #[test]
    fn the_first_gradients_of_a_step_are_overwritten() {
        let mut gradients = Gradients::<f32>::of_parameters([(1, Some(0..1)), (1, Some(1..2))]);
        gradients.allocate();
        let [weight, bias] = [Slot::new(0), Slot::new(1)];
        let write = |gradients: &mut Gradients<f32>| {
            let (found, into) = gradients.write_affine(weight, Some(bias));
            for to in found.into_iter().flatten() {
                match into {
                    WriteMode::Overwrite => to[0] = 2.0,
                    WriteMode::Add => to[0] += 2.0,
                }
            }
            [weight, bias].map(|slot| gradients.given(slot).map(|numbers| numbers[0]))
        };
        for _ in 0..2 {
            assert_eq!(write(&mut gradients), [Some(2.0); 2]);
            assert_eq!(write(&mut gradients), [Some(4.0); 2]);
            gradients.forget();
        }
        // One that is given already is added to, and the other one is 0 before.
        gradients.of(weight)[0] = 3.0;
        assert_eq!(write(&mut gradients), [Some(5.0), Some(2.0)]);
    }

    #[test]
    fn gradients_of_a_trainer_stand_in_one_buffer_and_others_are_given_back() {
        let mut gradients =
            Gradients::<f64>::of_parameters([(2, Some(0..2)), (3, None), (1, Some(4..5))]);
        gradients.allocate();
        gradients.set_inputs(0, &[4]);
        let [input, first, frozen, last] = [0, 1, 2, 3].map(Slot::new);
        for _ in 0..2 {
            gradients.of(input)[3] += 1.0;
            let all = gradients.get_disjoint([last, first, frozen].map(Some));
            for (gradient, expected) in all.into_iter().flatten().zip([1, 2, 3]) {
                assert!(gradient.iter().all(|x| *x == 0.0));
                assert_eq!(gradient.len(), expected);
                gradient[0] = expected as f64;
            }
            assert_eq!(gradients.given(last), Some(&[1.0][..]));
            assert_eq!(gradients.arena, [2.0, 0.0, 0.0, 0.0, 1.0]);
            gradients.release_unwanted();
            assert_eq!(gradients.len(), 3);
            gradients.set_inputs(1, &[4]);
            gradients.forget();
            assert!(gradients.given(first).is_none());
        }
        let twice = gradients.get_disjoint([Some(first), Some(first)]);
        assert!(twice.iter().any(Option::is_none));
    }
}
