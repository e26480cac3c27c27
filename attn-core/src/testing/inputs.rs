//! What a checked module takes.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{OwnedTape, Tensor, Trace},
};

use crate::{Backend, Element, data::values, model::parameters::Parameter};

/// The inputs of a module: a tensor of floats, ids (`usize`) or marks (`bool`), or a tuple of up to six of those. Gradients with respect to
/// all floats are checked. A single number, as the valid length of input without a batch, may be a `usize`.
///
/// The name of a lone tensor is `the input`; those of a tuple are `input 0`, `input 1`, ..
pub trait Inputs<E: Element, D: Backend<E>>: Clone {
    /// The same with a tape, as modules take it: the first one has it.
    type Traced;

    /// Starts a tape.
    fn into_traced(self) -> Self::Traced;

    /// The same numbers in tensors of their own.
    #[doc(hidden)]
    fn try_copied(&self) -> Result<Self, D::Err>;

    #[doc(hidden)]
    fn visit(&mut self, name: &str, visitor: &mut InputVisitor<'_, E, D>) -> Result<(), D::Err>;
}

/// Visits the tensors of floats with their names.
#[doc(hidden)]
pub struct InputVisitor<'a, E: Element, D: Backend<E>>(pub(super) &'a mut Visit<'a, E, D>);

pub(super) type Visit<'a, E, D> =
    dyn FnMut(&str, &mut dyn Parameter<E, D>) -> Result<(), <D as dfdx::tensor::HasErr>::Err> + 'a;

/// The name of an input that is not part of a tuple.
pub(super) const ALONE: &str = "the input";

/// The name of a part of `name`.
pub(super) fn part(name: &str, alone: &str, index: usize) -> String {
    match name.strip_prefix("the ") {
        Some(kind) if name == alone => format!("{kind} {index}"),
        _ => format!("{name}.{index}"),
    }
}

impl<S: Shape, E: Element, D: Backend<E>> Inputs<E, D> for Tensor<S, E, D> {
    type Traced = Tensor<S, E, D, OwnedTape<E, D>>;

    fn into_traced(self) -> Self::Traced {
        self.leaky_traced()
    }

    fn try_copied(&self) -> Result<Self, D::Err> {
        self.device()
            .try_tensor_from_vec(values(self), *self.shape())
    }

    fn visit(&mut self, name: &str, visitor: &mut InputVisitor<'_, E, D>) -> Result<(), D::Err> {
        (visitor.0)(name, self)
    }
}

macro_rules! inputs_without_a_gradient {
    ($($element:ty),*) => {
        $(
            impl<S: Shape, E: Element, D: Backend<E>> Inputs<E, D> for Tensor<S, $element, D>
            where
                D: dfdx::tensor::Storage<$element>,
            {
                type Traced = Tensor<S, $element, D, OwnedTape<E, D>>;

                fn into_traced(self) -> Self::Traced {
                    self.leaky_traced()
                }

                fn try_copied(&self) -> Result<Self, D::Err> {
                    Ok(self.clone())
                }

                fn visit(&mut self, _: &str, _: &mut InputVisitor<'_, E, D>) -> Result<(), D::Err> {
                    Ok(())
                }
            }
        )*
    };
}

inputs_without_a_gradient!(usize, bool);

impl<E: Element, D: Backend<E>> Inputs<E, D> for usize {
    type Traced = usize;

    fn into_traced(self) -> usize {
        self
    }

    fn try_copied(&self) -> Result<Self, D::Err> {
        Ok(*self)
    }

    fn visit(&mut self, _: &str, _: &mut InputVisitor<'_, E, D>) -> Result<(), D::Err> {
        Ok(())
    }
}

macro_rules! tuples {
    ($($($part:ident $index:tt)+;)*) => {
        $(
            impl<E: Element, D: Backend<E>, First: Inputs<E, D>, $($part: Inputs<E, D>),+> Inputs<E, D> for (First, $($part),+) {
                type Traced = (First::Traced, $($part),+);

                fn into_traced(self) -> Self::Traced {
                    (self.0.into_traced(), $(self.$index),+)
                }

                fn try_copied(&self) -> Result<Self, D::Err> {
                    Ok((self.0.try_copied()?, $(self.$index.try_copied()?),+))
                }

                fn visit(&mut self, name: &str, visitor: &mut InputVisitor<'_, E, D>) -> Result<(), D::Err> {
                    self.0.visit(&part(name, ALONE, 0), visitor)?;
                    $(self.$index.visit(&part(name, ALONE, $index), visitor)?;)+
                    Ok(())
                }
            }
        )*
    };
}

tuples! {
    P1 1;
    P1 1 P2 2;
    P1 1 P2 2 P3 3;
    P1 1 P2 2 P3 3 P4 4;
    P1 1 P2 2 P3 3 P4 4 P5 5;
}
