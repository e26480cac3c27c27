//! The tensors of a model, by the names under which dfdx saves them.

use std::{any::type_name, convert::Infallible, path::Path};

use dfdx::{
    nn::tensor_collection::{
        RecursiveWalker, ScalarOptions, TensorCollection, TensorOptions, TensorVisitor,
        ViewTensorMut, ViewTensorName, ViewTensorRef,
    },
    shapes::{HasShape, Shape},
    tensor::Tensor,
    tensor_ops::Device,
};
use num_traits::NumCast;
use safetensors::Dtype;

use super::{
    Archive, CheckpointError, LoadOptions, Problem, TensorType,
    archive::Expected,
    layout::Mapped,
    number::{dtype_of, encode},
    write::{Metadata, Stored, write},
};
use crate::{Element, disk};

/// Writes all tensors of a model to a safetensors file, which takes the place of the one before at once.
///
/// The method `model.save(path)` is dfdx's, and writes an npz archive. dfdx's `load_safetensors` and Python's `safetensors` read this file. Names are those that dfdx gives: `0.weight`. Numbers that
/// dfdx keeps beside the tensors, the `epsilon` of its norms, are in it as tensors without axes.
///
/// PyTorch: `safetensors.torch.save_file(model.state_dict(), path)`.
///
/// # Errors
/// [`CheckpointError`] if the system refuses; then the file at `path` is what it was before.
#[doc(alias("save_file", "state_dict"))]
pub fn save<M, E, D>(model: &M, path: impl AsRef<Path>) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let tensors = stored(model);
    let path = path.as_ref();
    disk::replace(path, |file| {
        write(file, Metadata::new(), &tensors).map_err(|problem| problem.at(path))
    })
}

/// Reads all tensors of a model from a safetensors file.
///
/// Everything is checked before the first tensor of the model is touched: the file's names, types and shapes must be those
/// of the model, all of them, and its numbers must be the ones that [`save`] wrote, if it was `save` that wrote them. The
/// [options](LoadOptions) say what else is refused.
///
/// Numbers without axes, as the `epsilon` of dfdx's norms, may be missing: other libraries do not save them. The model then
/// keeps its own.
///
/// PyTorch: `model.load_state_dict(safetensors.torch.load_file(path), strict=True)`.
///
/// # Errors
/// [`CheckpointError`] with [`Problem::Mismatch`], which lists everything that is missing, extra or different; with
/// [`Problem::Nan`]; or with what is wrong with the file itself. The model is then what it was before.
#[doc(alias("load_file", "load_state_dict"))]
pub fn load<M, E, D>(
    model: &mut M,
    path: impl AsRef<Path>,
    options: LoadOptions,
) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    Archive::open(path)?.load(model, options)
}

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

/// The tensors that a file of this model has.
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
            optional: slot.kind == Kind::Scalar,
        });
    });
    expected
}

/// A tensor of a model, or a number beside the tensors.
pub(super) struct Slot<'a> {
    pub(super) name: String,
    pub(super) described: TensorType,
    pub(super) kind: Kind,
    pub(super) bytes: &'a dyn Fn() -> Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A tensor that training changes.
    Parameter,
    /// A tensor that it does not change, as the running mean of a norm.
    Constant,
    Scalar,
}

/// Hands everything that dfdx saves of a model to `f`, in the order of the model.
pub(super) fn for_each<M, E, D>(model: &M, f: impl FnMut(Slot<'_>))
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

impl<E: Element, D: Device<E>, F: FnMut(Slot<'_>)> TensorVisitor<E, D> for Visit<F> {
    type Viewer = (ViewTensorRef, ViewTensorName);
    type Err = Infallible;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        options: TensorOptions<S, E, D>,
        (tensor, name): (&Tensor<S, E, D>, String),
    ) -> Result<Option<Tensor<S, E, D>>, Infallible> {
        (self.0)(Slot {
            name,
            described: TensorType {
                dtype: dtype_of::<E>(),
                shape: tensor.shape().concrete().into(),
            },
            kind: if options.do_gradient_update {
                Kind::Parameter
            } else {
                Kind::Constant
            },
            bytes: &|| match tensor.shape().num_elements() {
                // dfdx cannot list what is in a tensor without numbers.
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
        (self.0)(Slot {
            name,
            described: TensorType {
                dtype: Dtype::F64,
                shape: Vec::new(),
            },
            kind: Kind::Scalar,
            bytes: &|| encode(&[number.to_f64().unwrap_or(f64::NAN)]),
        });
        Ok(None)
    }
}

/// Copies the values into the model, if all of them can be.
pub(super) fn fill<M, E, D>(model: &mut M, values: &Mapped<'_>) -> Result<(), Problem>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    for dry in [true, false] {
        M::iter_tensors(&mut RecursiveWalker {
            m: (&mut *model, String::new()),
            f: &mut Fill { values, dry },
        })?;
    }
    Ok(())
}

struct Fill<'a> {
    values: &'a Mapped<'a>,
    /// Whether this is only a trial.
    dry: bool,
}

impl<E: Element, D: Device<E>> TensorVisitor<E, D> for Fill<'_> {
    type Viewer = (ViewTensorMut, ViewTensorName);
    type Err = Problem;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, E, D>,
        (tensor, name): (&mut Tensor<S, E, D>, String),
    ) -> Result<Option<Tensor<S, E, D>>, Problem> {
        if !self.dry
            && let Some(numbers) = self.values.numbers(&name)
        {
            tensor.copy_from(&numbers);
        }
        Ok(None)
    }

    fn visit_scalar<N: NumCast>(
        &mut self,
        _: ScalarOptions<N>,
        (number, name): (&mut N, String),
    ) -> Result<Option<N>, Problem> {
        let Some(value) = self.values.scalar(&name) else {
            return Ok(None);
        };
        let expected = type_name::<N>();
        let read = N::from(value).ok_or(Problem::Scalar {
            name,
            value,
            expected,
        })?;
        if !self.dry {
            *number = read;
        }
        Ok(None)
    }
}
