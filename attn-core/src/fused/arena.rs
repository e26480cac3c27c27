//! The parameters of a model, one after the other in one buffer.
//!
//! Layers only reserve ranges of it. Then all tensors are copied at once, or the numbers of a [trainer](crate::train::Trainer) are there
//! already.

use std::{
    ops::{Deref, Range},
    sync::{Arc, OnceLock},
};

use dfdx::{
    optim::UnusedTensors,
    shapes::Shape,
    tensor::{Tensor, UniqueId},
};

use super::Slot;
use crate::{
    Backend, Element,
    kernel::{Buffer, Dtype, quantized::QuantizedMatrix},
};

/// The bytes of a cache line and of the widest vector, at which the ranges begin.
const ALIGNMENT: usize = 64;

/// A buffer that is filled once, after ranges of it are handed out.
pub(crate) type Arena<E> = Arc<OnceLock<Buffer<E>>>;

/// The numbers of a parameter, or of several side by side.
#[derive(Clone)]
pub enum Numbers<E: Element> {
    /// A range of an arena.
    Range {
        /// The arena.
        arena: Arena<E>,
        /// Its range.
        range: Range<usize>,
        /// The dtype of the operands of products with them.
        dtype: Dtype,
    },
    /// A rounded matrix of a session.
    Quantized(Arc<QuantizedMatrix>),
}

impl<E: Element> Numbers<E> {
    /// All numbers of a buffer.
    pub(super) fn of(buffer: Buffer<E>) -> Self {
        Self::Range {
            range: 0..buffer.len(),
            arena: Arc::new(OnceLock::from(buffer)),
            dtype: Dtype::Model,
        }
    }

    /// The dtype of the operands of products with them.
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::Range { dtype, .. } => *dtype,
            Self::Quantized(_) => Dtype::Model,
        }
    }

    /// The matrix, if it is rounded.
    pub(crate) fn quantized(&self) -> Option<&QuantizedMatrix> {
        match self {
            Self::Range { .. } => None,
            Self::Quantized(matrix) => Some(matrix),
        }
    }
}

impl<E: Element> Deref for Numbers<E> {
    type Target = [E];

    /// # Panics
    /// If the arena is not filled yet, or the numbers are those of a rounded matrix.
    #[inline]
    fn deref(&self) -> &[E] {
        match self {
            Self::Range { arena, range, .. } => match arena.get() {
                Some(numbers) => &numbers[range.clone()],
                None => panic!("parameters are read before they are copied"),
            },
            Self::Quantized(_) => panic!("weights of a session have no derivative"),
        }
    }
}

/// A tensor as a vector.
pub(super) type Flat<E, D> = Tensor<(usize,), E, D>;

/// A parameter that has no place in the arena yet.
pub(crate) struct Unread<E: Element, D: Backend<E>> {
    /// The id of the model's tensor. A copy of a view has another one.
    pub(super) id: UniqueId,
    pub(super) tensor: Flat<E, D>,
    pub(super) slot: Slot,
}

/// A tensor whose place in the arena is known, and the slot of its gradient.
pub(crate) struct Reserved<E: Element, D: Backend<E>> {
    /// The id of the model's tensor, which its clones share.
    pub(crate) id: UniqueId,
    tensor: Flat<E, D>,
    pub(crate) slot: Slot,
    pub(crate) range: Range<usize>,
}

/// The ranges of the gradients in a buffer for those that are trained: the ranges of the parameters in their arena, moved together over the
/// frozen ones. If all are trained, gradients stand where the parameters do.
pub(crate) fn ranges_of_trained<E>(
    parameters: &[Range<usize>],
    trained: &[bool],
) -> Vec<Option<Range<usize>>> {
    let mut order: Vec<_> = (0..parameters.len()).collect();
    order.sort_unstable_by_key(|place| parameters[*place].start);
    let mut ranges = vec![None; parameters.len()];
    let (mut end, mut end_of_parameters) = (0_usize, 0);
    let mut is_behind_frozen = false;
    for place in order {
        let range = &parameters[place];
        if trained[place] {
            let start = match is_behind_frozen {
                true => end.next_multiple_of(ALIGNMENT / size_of::<E>()),
                false => end + (range.start - end_of_parameters),
            };
            end = start + range.len();
            ranges[place] = Some(start..end);
        }
        is_behind_frozen = !trained[place];
        end_of_parameters = range.end;
    }
    ranges
}

/// The ranges of an arena that are reserved so far.
pub(crate) struct Reservations<E: Element, D: Backend<E>> {
    arena: Arena<E>,
    dtype: Dtype,
    len: usize,
    pub(crate) tensors: Vec<Reserved<E, D>>,
}

impl<E: Element, D: Backend<E>> Reservations<E, D> {
    /// Ranges of this arena. If it is filled, its numbers are those of the same layers, and nothing is copied.
    pub(crate) fn of(arena: Arena<E>, dtype: Dtype) -> Self {
        Self {
            arena,
            dtype,
            len: 0,
            tensors: Vec::new(),
        }
    }

    /// The range for tensors side by side. Each comes with the slot of its gradient; in the place of one that is not there are as many
    /// zeros.
    pub(super) fn reserve(
        &mut self,
        parts: impl IntoIterator<Item = (usize, Option<Unread<E, D>>)>,
    ) -> Numbers<E> {
        let start = self.len.next_multiple_of(ALIGNMENT / size_of::<E>());
        self.len = start;
        for (len, tensor) in parts {
            let range = self.len..self.len + len;
            self.len = range.end;
            self.tensors
                .extend(tensor.map(|Unread { id, tensor, slot }| Reserved {
                    id,
                    tensor,
                    slot,
                    range,
                }));
        }
        Numbers::Range {
            arena: Arc::clone(&self.arena),
            range: start..self.len,
            dtype: self.dtype,
        }
    }

    /// Copies all tensors, on several threads if they are many numbers.
    pub(crate) fn fill(&self) {
        self.arena.get_or_init(|| {
            let mut arena = Buffer::exact(self.len);
            let mut rest = &mut arena[..];
            let mut end = 0;
            let mut tensors = Vec::with_capacity(self.tensors.len());
            for Reserved { tensor, range, .. } in &self.tensors {
                let (between, others) = rest.split_at_mut(range.start - end);
                between.fill(E::zero());
                let (to, others) = others.split_at_mut(range.len());
                tensors.push((tensor, to));
                (rest, end) = (others, range.end);
            }
            rest.fill(E::zero());
            D::read(tensors);
            arena
        });
    }
}

/// The id of a tensor: dfdx has it only in its own errors.
pub(crate) fn id_of<S: Shape, E: Element, D: Backend<E>, T>(x: &Tensor<S, E, D, T>) -> UniqueId {
    let mut unused = UnusedTensors::default();
    unused.add(x);
    unused.ids[0]
}

#[cfg(test)]
mod tests {
    use dfdx::tensor::{Cpu, TensorFromVec};

    use super::*;
    use crate::fused::GradientRefs;

    #[test]
    fn tensors_stand_side_by_side_with_zeros_for_those_that_are_not_there() {
        let tensor = |numbers: &[f32]| -> Flat<f32, Cpu> {
            Cpu::default().tensor_from_vec(numbers.to_vec(), (numbers.len(),))
        };
        let mut slots = GradientRefs::default();
        let [x, y, z] = [&[1.0, 2.0][..], &[3.0], &[4.0, 5.0, 6.0]].map(tensor);
        let [x, y, z] = [x, y, z].map(|tensor| Unread {
            id: id_of(&tensor),
            slot: slots.add(&tensor),
            tensor,
        });
        let mut reserved = Reservations::of(Arena::default(), Dtype::Model);
        let pair = reserved.reserve([(2, Some(x)), (3, None), (1, Some(y))]);
        let empty = reserved.reserve([(0, None)]);
        let alone = reserved.reserve([(3, Some(z))]);
        reserved.fill();
        assert_eq!(*pair, [1.0, 2.0, 0.0, 0.0, 0.0, 3.0]);
        assert!(empty.is_empty());
        assert_eq!(*alone, [4.0, 5.0, 6.0]);
        assert_eq!(alone.as_ptr() as usize % ALIGNMENT, 0);
    }

    #[test]
    fn gradients_stand_where_their_parameters_do_without_room_for_frozen_ones() {
        // The second and the third one are side by side, such as a weight and its bias.
        let parameters = [0..5, 16..20, 20..22, 32..32, 32..41];
        let ranges = |trained| ranges_of_trained::<f32>(&parameters, trained);
        assert_eq!(ranges(&[true; 5]), parameters.clone().map(Some));
        assert_eq!(ranges(&[false; 5]), [const { None }; 5]);
        assert_eq!(
            ranges(&[false, true, true, false, true]),
            [None, Some(0..4), Some(4..6), None, Some(16..25)]
        );
        assert_eq!(
            ranges(&[true, true, false, true, true]),
            [Some(0..5), Some(16..20), None, Some(32..32), Some(32..41)]
        );
    }

    #[test]
    fn a_filled_arena_is_not_filled_again() {
        let x: Flat<f64, Cpu> = Cpu::default().tensor_from_vec(vec![1.0], (1,));
        let x = Unread {
            id: id_of(&x),
            slot: GradientRefs::default().add(&x),
            tensor: x,
        };
        let mut numbers = Buffer::zeros(1);
        numbers[0] = 7.0;
        let mut reserved = Reservations::of(Arc::new(OnceLock::from(numbers)), Dtype::Bf16);
        let read = reserved.reserve([(1, Some(x))]);
        reserved.fill();
        assert_eq!(*read, [7.0]);
        assert_eq!(read.dtype(), Dtype::Bf16);
    }
}
