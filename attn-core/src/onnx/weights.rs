//! The weights of a model, under the names that dfdx saves.

use std::convert::Infallible;

use dfdx::{
    nn::tensor_collection::{
        RecursiveWalker, ScalarOptions, TensorCollection, TensorOptions, TensorVisitor,
        ViewTensorName, ViewTensorRef,
    },
    shapes::{HasShape, Shape},
    tensor::Tensor,
    tensor_ops::Device,
};
use num_traits::NumCast;

use crate::Element;

/// Calls `f` with each tensor: its name, its shape, and its bytes, which are made on request.
pub(super) fn for_each<M, E, D>(model: &M, f: impl FnMut(&str, &[usize], &dyn Fn() -> Vec<u8>))
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let Ok(_) = M::iter_tensors(&mut RecursiveWalker {
        m: (model, String::new()),
        f: &mut Visit(f),
    });
}

struct Visit<F>(F);

impl<E, D, F> TensorVisitor<E, D> for Visit<F>
where
    E: Element,
    D: Device<E>,
    F: FnMut(&str, &[usize], &dyn Fn() -> Vec<u8>),
{
    type Viewer = (ViewTensorRef, ViewTensorName);
    type Err = Infallible;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, E, D>,
        (tensor, name): (&Tensor<S, E, D>, String),
    ) -> Result<Option<Tensor<S, E, D>>, Infallible> {
        let shape: Vec<usize> = tensor.shape().concrete().into();
        (self.0)(&name, &shape, &|| {
            let mut bytes = Vec::new();
            // dfdx cannot list the numbers of an empty tensor.
            if tensor.shape().num_elements() > 0 {
                E::write_bytes(&tensor.as_vec(), &mut bytes);
            }
            bytes
        });
        Ok(None)
    }

    fn visit_scalar<N: NumCast>(
        &mut self,
        _: ScalarOptions<N>,
        _: (&N, String),
    ) -> Result<Option<N>, Infallible> {
        Ok(None)
    }
}
