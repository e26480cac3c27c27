//! Where the gradient of what a step reads goes.

use dfdx::tensor::Gradients;

use super::{Array, Place};
use crate::{
    Element, Host,
    kernel::{
        Buffer,
        elementwise::{self, NOTHING},
    },
    simd::Into,
};

/// Where a gradient goes: to the tape, or to an array of the operation's own.
///
/// What is written first to a stale array overwrites it, and all else is added.
///
/// ```
/// use attn_core::{fused::{Array, Target}, simd::Into};
/// use dfdx::{prelude::*, tensor::Gradients};
///
/// let mut gradients = Gradients::<f32, Cpu>::leaky();
/// let mut d_x = Array::<f32>::stale(1, [2]);
/// let mut target = Target::array(&mut d_x, Into::Overwrite);
/// target.add(2.0, &[1.0, 3.0], &mut gradients).unwrap();
/// target.add(-1.0, &[1.0, 1.0], &mut gradients).unwrap();
/// assert_eq!(d_x.numbers(), [1.0, 5.0]);
/// ```
pub struct Target<'a, E: Element, D: Host<E>> {
    to: To<'a, E, D>,
    into: Into,
}

enum To<'a, E: Element, D: Host<E>> {
    Tape(&'a Place<E, D>),
    Array(&'a mut [E]),
}

impl<'a, E: Element, D: Host<E>> Target<'a, E, D> {
    /// A gradient of the tape.
    pub fn tape(place: &'a Place<E, D>) -> Self {
        Self {
            to: To::Tape(place),
            into: Into::Add,
        }
    }

    /// An array; with [`Into::Overwrite`], whatever is in it.
    pub fn array<const N: usize>(array: &'a mut Array<E, N>, into: Into) -> Self {
        Self {
            to: To::Array(array.numbers_mut()),
            into,
        }
    }

    /// The numbers, and what is to become of those that are there.
    ///
    /// # Errors
    /// If a gradient of the tape cannot be allocated.
    pub fn numbers_mut<'b>(
        &'b mut self,
        gradients: &'b mut Gradients<E, D>,
    ) -> Result<(&'b mut [E], Into), D::Err> {
        let into = std::mem::replace(&mut self.into, Into::Add);
        let numbers = match &mut self.to {
            To::Tape(place) => place.find(gradients)?,
            To::Array(numbers) => numbers,
        };
        Ok((numbers, into))
    }

    /// Adds what `write` overwrites all numbers with.
    ///
    /// # Errors
    /// As [`numbers_mut`](Self::numbers_mut).
    pub fn overwrite(
        &mut self,
        gradients: &mut Gradients<E, D>,
        write: impl FnOnce(&mut [E]),
    ) -> Result<(), D::Err> {
        let (numbers, into) = self.numbers_mut(gradients)?;
        match into {
            Into::Overwrite => write(numbers),
            Into::Add => {
                let mut written = Buffer::stale(numbers.len());
                write(&mut written);
                elementwise::add_scaled(E::one(), &written, numbers);
            }
        }
        Ok(())
    }

    /// Lets `add` add to the numbers.
    ///
    /// # Errors
    /// As [`numbers_mut`](Self::numbers_mut).
    pub fn accumulate(
        &mut self,
        gradients: &mut Gradients<E, D>,
        add: impl FnOnce(&mut [E]),
    ) -> Result<(), D::Err> {
        let (numbers, into) = self.numbers_mut(gradients)?;
        if into == Into::Overwrite {
            numbers.fill(E::zero());
        }
        add(numbers);
        Ok(())
    }

    /// Adds `scale * x`.
    ///
    /// # Errors
    /// As [`numbers_mut`](Self::numbers_mut).
    pub fn add(
        &mut self,
        scale: f64,
        x: &[E],
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), D::Err> {
        let (numbers, into) = self.numbers_mut(gradients)?;
        match into {
            Into::Add => elementwise::add_scaled(E::of(scale), x, numbers),
            Into::Overwrite => elementwise::affine(E::of(scale), E::of(NOTHING), x, numbers),
        }
        Ok(())
    }
}
