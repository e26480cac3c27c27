//! The parameters of a model by their names.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use dfdx::{nn::tensor_collection::TensorCollection, tensor::Tape};

use super::{Weighted, parameters::for_each};
use crate::{
    Backend, Element,
    fused::{NamedTensor, Operation},
};

/// Reads the parameters of a model as [`read_weights`](super::read_weights), with the names of those that were read, in their order.
///
/// # Errors
/// If a copy of a view cannot be allocated.
pub fn read_named_weights<L, E, D, T>(
    model: &L,
    operation: &mut Operation<E, D, T>,
) -> Result<(L::Weights, Arc<[NamedTensor]>), D::Err>
where
    L: Weighted<E, D> + TensorCollection<E, D>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    operation.begin_parameters();
    let weights = model.weights(operation)?;
    let places = operation.read_parameters();
    // The first name of each, and its dimensions.
    let mut names = HashMap::new();
    let Ok(()) = for_each(model, |path, parameter| {
        let found = (path.name, parameter.dims());
        names.entry(parameter.id()).or_insert(found);
        Ok::<_, Infallible>(())
    });
    let places = places.into_iter().flat_map(|places| places.tensors);
    let mut tensors: Vec<_> = places
        .filter_map(|place| {
            let (name, dims) = names.get(&place.id)?.clone();
            let range = place.range;
            Some(NamedTensor { name, dims, range })
        })
        .collect();
    tensors.sort_by_key(|tensor| tensor.range.start);
    Ok((weights, tensors.into()))
}
