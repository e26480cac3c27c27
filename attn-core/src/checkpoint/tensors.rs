//! The tensors of a model, under the names that dfdx saves.

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
use safetensors::Dtype;

use super::{
    TensorType,
    archive::Expected,
    number::{dtype_of, encode},
    write::Stored,
};
use crate::Element;

/// The tensors of a model and their bytes.
pub(super) fn stored<M, E, D>(model: &M) -> Vec<Stored>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let mut tensors = Vec::new();
    for_each(model, |slot| {
        tensors.push(Stored {
            bytes: (slot.bytes)(),
            name: slot.name,
            described: slot.described,
        });
    });
    tensors
}

/// The tensors that a file of this model must have.
pub(super) fn expected<M, E, D>(model: &M) -> Vec<Expected>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let mut expected = Vec::new();
    for_each(model, |slot| {
        expected.push(Expected {
            name: slot.name,
            described: slot.described,
            optional: slot.kind == TensorKind::Scalar,
        });
    });
    expected
}

/// A tensor of a model, or a number beside the tensors.
pub(super) struct ModelTensor<'a> {
    pub(super) name: String,
    pub(super) described: TensorType,
    pub(super) kind: TensorKind,
    pub(super) bytes: &'a dyn Fn() -> Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TensorKind {
    /// A tensor that training updates.
    Parameter,
    /// A tensor that training does not update, such as the running mean of a norm.
    Buffer,
    Scalar,
}

/// Calls `f` with everything that dfdx saves of a model, in the order of the model.
pub(super) fn for_each<M, E, D>(model: &M, f: impl FnMut(ModelTensor<'_>))
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

impl<E: Element, D: Device<E>, F: FnMut(ModelTensor<'_>)> TensorVisitor<E, D> for Visit<F> {
    type Viewer = (ViewTensorRef, ViewTensorName);
    type Err = Infallible;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        options: TensorOptions<S, E, D>,
        (tensor, name): (&Tensor<S, E, D>, String),
    ) -> Result<Option<Tensor<S, E, D>>, Infallible> {
        (self.0)(ModelTensor {
            name,
            described: TensorType {
                dtype: dtype_of::<E>(),
                shape: tensor.shape().concrete().into(),
            },
            kind: if options.do_gradient_update {
                TensorKind::Parameter
            } else {
                TensorKind::Buffer
            },
            bytes: &|| match tensor.shape().num_elements() {
                // dfdx cannot list the numbers of an empty tensor.
                0 => Vec::new(),
                _ => encode(&tensor.as_vec()),
            },
        });
        Ok(None)
    }

    fn visit_scalar<N: NumCast>(
        &mut self,
        _: ScalarOptions<N>,
        (number, name): (&N, String),
    ) -> Result<Option<N>, Infallible> {
        (self.0)(ModelTensor {
            name,
            described: TensorType {
                dtype: Dtype::F64,
                shape: Vec::new(),
            },
            kind: TensorKind::Scalar,
            bytes: &|| encode(&[number.to_f64().unwrap_or(f64::NAN)]),
        });
        Ok(None)
    }
}
