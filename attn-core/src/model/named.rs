//! The parameters of a model by their names.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use dfdx::{
    nn::tensor_collection::{
        RecursiveWalker, TensorCollection, TensorOptions, TensorVisitor, ViewTensorName,
        ViewTensorRef,
    },
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor, UniqueId},
};

use super::Weighted;
use crate::{
    Backend, Element,
    fused::{NamedTensor, Operation, id_of},
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
    let mut names = Names(HashMap::new());
    let Ok(_) = L::iter_tensors(&mut RecursiveWalker {
        m: (model, String::new()),
        f: &mut names,
    });
    let places = places.into_iter().flat_map(|places| places.tensors);
    let mut tensors: Vec<_> = places
        .filter_map(|place| {
            let (name, dims) = names.0.get(&place.id)?.clone();
            let range = place.range;
            Some(NamedTensor { name, dims, range })
        })
        .collect();
    tensors.sort_by_key(|tensor| tensor.range.start);
    Ok((weights, tensors.into()))
}

/// The first name of each tensor, and its dimensions.
struct Names(HashMap<UniqueId, (String, Vec<usize>)>);

impl<E: Element, D: Backend<E>> TensorVisitor<E, D> for Names {
    type Viewer = (ViewTensorRef, ViewTensorName);
    type Err = Infallible;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, E, D>,
        (tensor, name): (&Tensor<S, E, D>, String),
    ) -> Result<Option<Tensor<S, E, D>>, Infallible> {
        let dims = tensor.shape().concrete().into();
        self.0.entry(id_of(tensor)).or_insert((name, dims));
        Ok(None)
    }
}
