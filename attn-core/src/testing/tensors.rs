//! The parameters and inputs of a module as lists of numbers.

use dfdx::{
    nn::TensorCollection,
    tensor::{Gradients, UniqueId},
};

use super::inputs::{ALONE, InputVisitor, Inputs};
use crate::{
    Backend, Element,
    model::parameters::{Parameter, for_each, for_each_mut},
};

/// A parameter or an input.
#[derive(Clone, Debug)]
pub(super) struct NamedTensor<E> {
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    pub(super) id: UniqueId,
    /// Row-major.
    pub(super) values: Vec<E>,
}

impl<E: Element> NamedTensor<E> {
    fn of<D: Backend<E>>(name: &str, tensor: &dyn Parameter<E, D>) -> Self {
        let dims = tensor.dims();
        let mut values = vec![E::zero(); dims.iter().product()];
        if !values.is_empty() {
            tensor.read(&mut values);
        }
        Self {
            name: name.into(),
            dims,
            id: tensor.id(),
            values,
        }
    }
}

/// The parameters of a model, each once: some may share their numbers' gradient, as a clone does.
pub(super) fn parameters<M, E, D>(model: &M) -> Result<Vec<NamedTensor<E>>, D::Err>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Backend<E>,
{
    let mut found: Vec<NamedTensor<E>> = Vec::new();
    for_each(model, |path, parameter: &dyn Parameter<E, D>| {
        if !found.iter().any(|other| other.id == parameter.id()) {
            found.push(NamedTensor::of(named(&path.name), parameter));
        }
        Ok::<_, D::Err>(())
    })?;
    Ok(found)
}

/// dfdx names a parameter by the path of its fields, which is empty for a model that is a tensor.
fn named(name: &str) -> &str {
    match name {
        "" => "the parameter",
        name => name,
    }
}

/// Gives parameters of a model other numbers: those that `of` has for the name.
pub(super) fn write_parameters<M, E, D>(
    model: &mut M,
    mut of: impl FnMut(&str, UniqueId) -> Option<Vec<E>>,
) -> Result<(), D::Err>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Backend<E>,
{
    for_each_mut(model, |path, parameter: &mut dyn Parameter<E, D>| {
        if let Some(values) = of(named(&path.name), parameter.id())
            && !values.is_empty()
        {
            parameter.write(&values);
        }
        Ok::<_, D::Err>(())
    })
}

/// The inputs that have a gradient.
pub(super) fn inputs<I, E, D>(inputs: &mut I) -> Result<Vec<NamedTensor<E>>, D::Err>
where
    I: Inputs<E, D>,
    E: Element,
    D: Backend<E>,
{
    let mut found = Vec::new();
    let mut visit = |name: &str, input: &mut dyn Parameter<E, D>| {
        found.push(NamedTensor::of(name, input));
        Ok(())
    };
    inputs.visit(ALONE, &mut InputVisitor(&mut visit))?;
    Ok(found)
}

/// Gives an input other numbers.
pub(super) fn write_input<I, E, D>(inputs: &mut I, id: UniqueId, values: &[E]) -> Result<(), D::Err>
where
    I: Inputs<E, D>,
    E: Element,
    D: Backend<E>,
{
    let mut visit = |_: &str, input: &mut dyn Parameter<E, D>| {
        if input.id() == id {
            input.write(values);
        }
        Ok(())
    };
    inputs.visit(ALONE, &mut InputVisitor(&mut visit))
}

/// The gradients of the inputs, then of the parameters, in the order of [`inputs`] and [`parameters`]. One that the backward pass did not
/// reach is 0.
pub(super) fn gradients<M, I, E, D>(
    model: &M,
    inputs: &mut I,
    gradients: &mut Gradients<E, D>,
) -> Result<Vec<Vec<E>>, D::Err>
where
    M: TensorCollection<E, D>,
    I: Inputs<E, D>,
    E: Element,
    D: Backend<E>,
{
    let mut found = Vec::new();
    let mut visit = |_: &str, input: &mut dyn Parameter<E, D>| {
        found.push(input.gradient(gradients)?.clone());
        Ok(())
    };
    inputs.visit(ALONE, &mut InputVisitor(&mut visit))?;
    let mut seen = Vec::new();
    for_each(model, |_, parameter: &dyn Parameter<E, D>| {
        if !seen.contains(&parameter.id()) {
            seen.push(parameter.id());
            found.push(parameter.gradient(gradients)?.clone());
        }
        Ok::<_, D::Err>(())
    })?;
    Ok(found)
}

/// An element by its name: ``q_proj.weight[3, 1]``.
pub(super) fn element(name: &str, index: &[usize]) -> String {
    if index.is_empty() {
        return format!("`{name}`");
    }
    format!("`{name}` at {index:?}")
}
