//! The destination of a gradient.

use super::{Array, Gradients, Slot, VisitSlot, WantsGradient};
use crate::{
    Element,
    kernel::{
        Buffer, elementwise,
        loops::{self, known::Scale, read},
    },
    simd::WriteMode,
};

/// The destination of a gradient: a gradient of the tape, or an array of the operation.
///
/// The first write to an uninitialised array overwrites it. Later writes add.
///
/// ```
/// use attn::__private::runtime::{fused::{Array, Gradients, GradTarget}, simd::WriteMode};
///
/// let mut gradients = Gradients::default();
/// let mut d_x = Array::<f32>::uninit(1, [2]);
/// let mut target = GradTarget::array(&mut d_x, WriteMode::Overwrite);
/// target.add(2.0, &[1.0, 3.0], &mut gradients);
/// target.add(-1.0, &[1.0, 1.0], &mut gradients);
/// assert_eq!(d_x.as_slice(), [1.0, 5.0]);
/// ```
pub struct GradTarget<'a, E: Element> {
    to: GradBuffer<'a, E>,
    into: WriteMode,
}

enum GradBuffer<'a, E> {
    Tape(Slot),
    Array(&'a mut [E]),
}

impl<E: Element> WantsGradient for GradTarget<'_, E> {
    fn slots(&self, visit: VisitSlot<'_>) {
        if let GradBuffer::Tape(slot) = &self.to {
            visit(*slot);
        }
    }

    fn is_wanted(&self) -> bool {
        match &self.to {
            GradBuffer::Tape(slot) => slot.is_wanted(),
            GradBuffer::Array(_) => true,
        }
    }
}

impl<'a, E: Element> GradTarget<'a, E> {
    /// A gradient of the tape.
    pub fn slot(slot: Slot) -> Self {
        Self {
            to: GradBuffer::Tape(slot),
            into: WriteMode::Add,
        }
    }

    /// An array. With [`WriteMode::Overwrite`] its old numbers are ignored.
    pub fn array<const N: usize>(array: &'a mut Array<E, N>, into: WriteMode) -> Self {
        Self {
            to: GradBuffer::Array(array.as_mut_slice()),
            into,
        }
    }

    /// Rows of a gradient.
    pub fn local(numbers: &'a mut [E], into: WriteMode) -> Self {
        Self {
            to: GradBuffer::Array(numbers),
            into,
        }
    }

    /// The numbers, and whether to overwrite them or to add to them. `None` if nobody wants the gradient: then it is not computed.
    pub fn numbers_mut<'b>(
        &'b mut self,
        gradients: &'b mut Gradients<E>,
    ) -> Option<(&'b mut [E], WriteMode)> {
        let into = std::mem::replace(&mut self.into, WriteMode::Add);
        let numbers = match &mut self.to {
            GradBuffer::Tape(slot) => gradients.of(slot.wanted()?),
            GradBuffer::Array(numbers) => numbers,
        };
        Some((numbers, into))
    }

    /// [`numbers_mut`](Self::numbers_mut) of several destinations in distinct memory. The numbers of one that nobody wants are memory that
    /// nobody reads.
    ///
    /// # Panics
    /// If two of them are the same gradient of the tape.
    pub fn all_of<'b, const N: usize>(
        targets: [&'b mut Self; N],
        gradients: &'b mut Gradients<E>,
    ) -> [(&'b mut [E], WriteMode); N] {
        let slots = targets.each_ref().map(|target| match target.to {
            GradBuffer::Tape(slot) => Some(slot),
            GradBuffer::Array(_) => None,
        });
        let mut of_tape = gradients.get_disjoint(slots).into_iter();
        targets.map(|target| {
            let into = std::mem::replace(&mut target.into, WriteMode::Add);
            match (&mut target.to, of_tape.next().flatten()) {
                (GradBuffer::Array(numbers), _) => (&mut **numbers, into),
                (GradBuffer::Tape(_), Some(numbers)) => (numbers, into),
                (GradBuffer::Tape(slot), None) => panic!("{slot:?} is written twice at once"),
            }
        })
    }

    /// The numbers of several destinations in distinct memory, which are all to be overwritten.
    ///
    /// # Panics
    /// If numbers were written to one of them before.
    pub fn overwritten<'b, const N: usize>(
        targets: [&'b mut Self; N],
        gradients: &'b mut Gradients<E>,
    ) -> [&'b mut [E]; N] {
        Self::all_of(targets, gradients).map(|(numbers, into)| {
            assert_eq!(into, WriteMode::Overwrite, "a gradient was begun");
            numbers
        })
    }

    /// Calls `write`, which overwrites all numbers. If the destination is to be added to, `write` gets a temporary array.
    pub fn overwrite(&mut self, gradients: &mut Gradients<E>, write: impl FnOnce(&mut [E])) {
        let Some((numbers, into)) = self.numbers_mut(gradients) else {
            return;
        };
        match into {
            WriteMode::Overwrite => write(numbers),
            WriteMode::Add => {
                let mut written = Buffer::counted(numbers.len());
                write(&mut written);
                elementwise::add_scaled(E::one(), &written, numbers);
            }
        }
    }

    /// Calls `add`, which adds to the numbers.
    pub fn accumulate(&mut self, gradients: &mut Gradients<E>, add: impl FnOnce(&mut [E])) {
        let Some((numbers, into)) = self.numbers_mut(gradients) else {
            return;
        };
        if into == WriteMode::Overwrite {
            numbers.fill(E::zero());
        }
        add(numbers);
    }

    /// Adds `scale * x`.
    pub fn add(&mut self, scale: f64, x: &[E], gradients: &mut Gradients<E>) {
        let Some((numbers, into)) = self.numbers_mut(gradients) else {
            return;
        };
        match into {
            WriteMode::Add => elementwise::add_scaled(E::of(scale), x, numbers),
            WriteMode::Overwrite => {
                loops::compute(&Scale { by: scale }, [read(x)], [numbers.into()]);
            }
        }
    }
}
