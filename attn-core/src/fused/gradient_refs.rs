//! The gradients of an operation's operands on the tape, from which they are taken for its derivative.

use std::{cell::RefCell, rc::Rc};

use dfdx::{
    shapes::{HasShape, Rank0, Shape},
    tensor::{Gradients as TapeGradients, HasErr, Merge, PutTape, SplitTape, Tape, Tensor, Trace},
    tensor_ops::Backward,
};

use super::{Gradients, Slot, gradients::accumulate, zeros};
use crate::{Backend, Element, Host};

/// References to the gradients of contiguous tensors. They do not keep the tensors' data alive.
pub struct GradientRefs<E: Element, D: Host<E>>(Vec<GradientRef<E, D>>);

struct GradientRef<E: Element, D: Host<E>> {
    find: Box<Find<E, D>>,
    /// The number of elements.
    len: usize,
}

/// Finds a gradient on the tape. dfdx's type for a tensor without its data is private, so a closure holds it.
type Find<E, D> = dyn Fn(&mut TapeGradients<E, D>) -> Result<&mut Vec<E>, <D as HasErr>::Err>;

impl<E: Element, D: Host<E>> Default for GradientRefs<E, D> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E: Element, D: Host<E>> GradientRefs<E, D> {
    /// Adds the gradient of `x`.
    pub fn add<S: Shape, T>(&mut self, x: &Tensor<S, E, D, T>) -> Slot {
        let ghost = x.ghost();
        self.0.push(GradientRef {
            find: Box::new(move |gradients| Ok(D::host(gradients.get_or_alloc_mut(&ghost)?))),
            len: x.shape().num_elements(),
        });
        Slot::new(self.0.len() - 1)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The number of elements of each.
    pub(super) fn lens(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|reference| reference.len)
    }

    /// The total number of elements.
    pub(super) fn len(&self) -> usize {
        self.lens().sum()
    }

    /// Takes the gradients out of the tape. Then several can be written at a time, and by any thread.
    ///
    /// A tensor that is read twice has one gradient. Its second slot gets a separate buffer, which [`give_back`](Self::give_back) adds.
    ///
    /// # Errors
    /// If a gradient cannot be allocated.
    pub fn take(&self, tape: &mut TapeGradients<E, D>) -> Result<Gradients<E>, D::Err> {
        let mut taken = Vec::with_capacity(self.0.len());
        for reference in &self.0 {
            let numbers = std::mem::take((reference.find)(tape)?);
            taken.push(if numbers.len() < reference.len {
                zeros(reference.len)
            } else {
                numbers
            });
        }
        Ok(Gradients::of_numbers(taken))
    }

    /// Gives the gradients back to the tape.
    ///
    /// # Errors
    /// If a gradient cannot be allocated.
    pub fn give_back(
        &self,
        gradients: Gradients<E>,
        tape: &mut TapeGradients<E, D>,
    ) -> Result<(), D::Err> {
        for (reference, numbers) in self.0.iter().zip(gradients.into_numbers()) {
            let of_tape = (reference.find)(tape)?;
            if of_tape.is_empty() {
                *of_tape = numbers;
            } else if !numbers.is_empty() {
                accumulate(of_tape, &numbers);
            }
        }
        Ok(())
    }
}

impl<E: Element, D: Backend<E>> GradientRefs<E, D> {
    /// [`take`](Self::take) of gradients that may be missing, because nothing with a gradient was computed of the tensor. A missing one is
    /// empty. The tape gets zeros for it, which nothing has touched: for a large tensor they take no memory of the system.
    ///
    /// dfdx does not tell whether a gradient exists, since access creates it. But if tapes are merged, the gradients of the second one replace those of
    /// the first. So the first one has empty gradients, and a gradient that is still empty after the merge was missing.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn take_given(
        &self,
        device: &D,
        tape: &mut TapeGradients<E, D>,
    ) -> Result<Gradients<E>, D::Err> {
        let mut none = TapeGradients::leaky();
        let mut unused = Vec::with_capacity(self.0.len());
        for reference in &self.0 {
            unused.push(std::mem::take((reference.find)(&mut none)?));
        }
        let given = std::mem::replace(tape, TapeGradients::leaky());
        *tape = merge(device, none, given)?;
        let mut taken = Vec::with_capacity(self.0.len());
        for (reference, zeros) in self.0.iter().zip(unused) {
            let mut numbers = std::mem::take((reference.find)(tape)?);
            if numbers.len() < reference.len {
                *(reference.find)(tape)? = zeros;
                numbers = Vec::new();
            }
            taken.push(numbers);
        }
        Ok(Gradients::of_numbers(taken))
    }
}

/// Merges gradients. If both have one for a tensor, that of `second` is taken.
///
/// # Errors
/// If dfdx fails.
pub(crate) fn merge<E: Element, D: Backend<E>>(
    device: &D,
    first: TapeGradients<E, D>,
    second: TapeGradients<E, D>,
) -> Result<TapeGradients<E, D>, D::Err> {
    let loss: Tensor<Rank0, E, D> = device.try_zeros()?;
    let (_, first) = loss.trace(first).split_tape();
    let (loss, second) = loss.traced(second).split_tape();
    let mut tape = first.merge(second);
    // The gradients are moved out during the backward pass: at its end, dfdx drops those that `second` does not keep.
    let merged = Rc::new(RefCell::new(TapeGradients::leaky()));
    let to = Rc::clone(&merged);
    tape.add_backward_op(move |gradients| {
        std::mem::swap(gradients, &mut to.borrow_mut());
        Ok(())
    });
    loss.put_tape(tape).try_backward()?;
    Ok(merged.replace(TapeGradients::leaky()))
}

#[cfg(test)]
mod tests {
    use dfdx::{
        shapes::Rank1,
        tensor::{AsArray, Cpu, TensorFrom, TensorFromVec},
    };

    use super::*;

    #[test]
    fn a_tensor_that_is_read_twice_gets_both_contributions() {
        let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([1.0, 2.0]);
        let empty: Tensor<(usize,), f32, _> = Cpu::default().tensor_from_vec(vec![], (0,));
        let mut references = GradientRefs::default();
        let first = references.add(&x);
        let none = references.add(&empty);
        let second = references.add(&x);
        let mut tape = TapeGradients::leaky();
        for _ in 0..2 {
            let add = |gradients: &mut Gradients<f32>| {
                gradients.of(first)[0] += 1.0;
                gradients.of(second)[0] += 10.0;
                gradients.of(second)[1] += 20.0;
                assert!(gradients.of(none).is_empty());
            };
            let mut gradients = references.take(&mut tape).unwrap();
            add(&mut gradients);
            references.give_back(gradients, &mut tape).unwrap();
        }
        assert_eq!(tape.get(&x).array(), [22.0, 40.0]);
    }

    #[test]
    fn a_missing_gradient_is_empty_and_stays_zero_on_the_tape() {
        let device = Cpu::default();
        let [x, y]: [Tensor<Rank1<2>, f32, _>; 2] =
            [[1.0, 2.0], [3.0, 4.0]].map(|x| device.tensor(x));
        let mut references = GradientRefs::default();
        references.add(&x);
        references.add(&y);
        let mut tape = TapeGradients::leaky();
        tape.get_or_alloc_mut(&y).unwrap()[1] = 5.0;
        let gradients = references.take_given(&device, &mut tape).unwrap();
        let none: &[f32] = &[];
        assert_eq!(gradients.all(), [none, &[0.0, 5.0]]);
        references.give_back(gradients, &mut tape).unwrap();
        assert_eq!(tape.get(&x).array(), [0.0, 0.0]);
        assert_eq!(tape.get(&y).array(), [0.0, 5.0]);
    }
}
