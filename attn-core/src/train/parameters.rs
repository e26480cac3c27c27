//! Iteration over the trainable parameters of a model and their gradients.

use std::any::{Any, type_name};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use dfdx::{
    nn::tensor_collection::{
        RecursiveWalker, TensorCollection, TensorOptions, TensorViewer, TensorVisitor,
        ViewTensorMut, ViewTensorName, ViewTensorRef,
    },
    shapes::{HasShape, Shape},
    tensor::{Gradients, Tensor, UniqueId},
};

use super::{ParameterInfo, UpdateError};
use crate::{
    Backend, Element,
    composed::contiguous,
    fused::{id_of, merge},
};

/// Tensors by the ids of those that they were made of.
pub(super) type Made = BTreeMap<UniqueId, Box<dyn Any>>;

/// A parameter of any shape.
pub(crate) trait Parameter<E: Element, D: Backend<E>> {
    /// The id. Clones share it, and with it their gradient.
    fn id(&self) -> UniqueId;
    fn dims(&self) -> Vec<usize>;
    fn device(&self) -> &D;
    /// The elements, in the order of its gradient.
    fn read(&self, to: &mut [E]);
    fn write(&mut self, from: &[E]);
    /// Makes it row-major. It keeps its id if it is already. If not, its clones become clones of each other again, by what was `made` of
    /// tensors with these ids.
    fn make_contiguous(&mut self, made: &mut Made) -> Result<(), D::Err>;
    /// Its gradient, or zeros if it has none yet.
    fn gradient<'a>(&self, gradients: &'a mut Gradients<E, D>) -> Result<&'a mut Vec<E>, D::Err>;
}

impl<S: Shape, E: Element, D: Backend<E>> Parameter<E, D> for Tensor<S, E, D> {
    fn id(&self) -> UniqueId {
        id_of(self)
    }

    fn dims(&self) -> Vec<usize> {
        self.shape().concrete().into()
    }

    fn device(&self) -> &D {
        Tensor::device(self)
    }

    fn read(&self, to: &mut [E]) {
        self.copy_into(to);
    }

    fn write(&mut self, from: &[E]) {
        self.copy_from(from);
    }

    fn make_contiguous(&mut self, made: &mut Made) -> Result<(), D::Err> {
        let id = self.id();
        let known = made.get(&id).and_then(|made| made.downcast_ref::<Self>());
        *self = match known {
            Some(known) => known.clone(),
            None => contiguous(self.clone())?,
        };
        made.entry(id).or_insert_with(|| Box::new(self.clone()));
        Ok(())
    }

    fn gradient<'a>(&self, gradients: &'a mut Gradients<E, D>) -> Result<&'a mut Vec<E>, D::Err> {
        Ok(D::host(gradients.get_or_alloc_mut(self)?))
    }
}

/// The location of a parameter in a model.
#[derive(Debug, Default)]
pub(crate) struct ParamPath {
    /// The name under which dfdx saves it.
    pub(crate) name: String,
    /// The type of the module that has it as a field.
    pub(super) module: &'static str,
}

impl ParamPath {
    /// The properties of a parameter of these sizes here.
    pub(super) fn info<'a>(&'a self, dims: &'a [usize]) -> ParameterInfo<'a> {
        ParameterInfo {
            name: &self.name,
            dims,
            module: self.module,
        }
    }
}

/// Views parameters as their [`ParamPath`].
enum ViewPath {}

impl TensorViewer for ViewPath {
    type View<'a, Mod: 'a> = ParamPath;

    fn view_field<Mod, Field, GetRef, GetMut>(
        module: &mut ParamPath,
        field: &str,
        get_ref: &mut GetRef,
        get_mut: &mut GetMut,
    ) -> ParamPath
    where
        GetRef: FnMut(&Mod) -> &Field,
        GetMut: FnMut(&mut Mod) -> &mut Field,
    {
        ParamPath {
            name: ViewTensorName::view_field(&mut module.name, field, get_ref, get_mut),
            module: type_name::<Mod>(),
        }
    }
}

/// Calls `f` with every parameter and its path, in the order of the model.
pub(crate) fn for_each<M, E: Element, D: Backend<E>, Error>(
    model: &M,
    f: impl FnMut(ParamPath, &dyn Parameter<E, D>) -> Result<(), Error>,
) -> Result<(), Error>
where
    M: TensorCollection<E, D>,
{
    let mut visitor = Shared(f, std::marker::PhantomData);
    M::iter_tensors(&mut RecursiveWalker {
        m: (model, ParamPath::default()),
        f: &mut visitor,
    })?;
    Ok(())
}

/// [`for_each`] with mutable parameters.
pub(crate) fn for_each_mut<M, E: Element, D: Backend<E>, Error>(
    model: &mut M,
    f: impl FnMut(ParamPath, &mut dyn Parameter<E, D>) -> Result<(), Error>,
) -> Result<(), Error>
where
    M: TensorCollection<E, D>,
{
    let mut visitor = Exclusive(f, std::marker::PhantomData);
    M::iter_tensors(&mut RecursiveWalker {
        m: (model, ParamPath::default()),
        f: &mut visitor,
    })?;
    Ok(())
}

struct Shared<F, Error>(F, std::marker::PhantomData<Error>);

impl<E, D, F, Error> TensorVisitor<E, D> for Shared<F, Error>
where
    E: Element,
    D: Backend<E>,
    F: FnMut(ParamPath, &dyn Parameter<E, D>) -> Result<(), Error>,
{
    type Viewer = (ViewTensorRef, ViewPath);
    type Err = Error;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        options: TensorOptions<S, E, D>,
        (parameter, path): (&Tensor<S, E, D>, ParamPath),
    ) -> Result<Option<Tensor<S, E, D>>, Error> {
        if options.do_gradient_update {
            (self.0)(path, parameter)?;
        }
        Ok(None)
    }
}

struct Exclusive<F, Error>(F, std::marker::PhantomData<Error>);

impl<E, D, F, Error> TensorVisitor<E, D> for Exclusive<F, Error>
where
    E: Element,
    D: Backend<E>,
    F: FnMut(ParamPath, &mut dyn Parameter<E, D>) -> Result<(), Error>,
{
    type Viewer = (ViewTensorMut, ViewPath);
    type Err = Error;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        options: TensorOptions<S, E, D>,
        (parameter, path): (&mut Tensor<S, E, D>, ParamPath),
    ) -> Result<Option<Tensor<S, E, D>>, Error> {
        if options.do_gradient_update {
            (self.0)(path, parameter)?;
        }
        Ok(None)
    }
}

/// Whether every parameter that needs one has a gradient.
pub(super) fn check_gradients<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
    is_needed: impl Fn(UniqueId) -> bool,
) -> Result<(), UpdateError<D::Err>> {
    let missing = without_gradient(model, gradients)?.into_iter();
    let missing = missing.filter(|(_, id)| is_needed(*id));
    let names: Vec<_> = missing.map(|(name, _)| name).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(UpdateError::NoGradient { names })
}

/// The parameters without a gradient. Afterwards they have a gradient of zeros.
///
/// dfdx does not tell whether a gradient exists, since access creates it. But when tapes are merged, the gradients of the second tape
/// replace those of the first. So the first tape has an empty gradient for every parameter, and a gradient that is still empty after
/// the merge was missing.
pub(super) fn without_gradient<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
) -> Result<Vec<(String, UniqueId)>, D::Err> {
    let mut device = None;
    let mut ids = Vec::new();
    let Ok(()) = for_each(model, |_, parameter| {
        device.get_or_insert_with(|| parameter.device().clone());
        ids.push(parameter.id());
        Ok::<_, Infallible>(())
    });
    let Some(device) = device else {
        return Ok(Vec::new());
    };
    let EmptyGradients {
        lens,
        gradients: empty,
        ..
    } = EmptyGradients::of(model, ids)?;
    let given = std::mem::replace(gradients, Gradients::leaky());
    *gradients = merge(&device, empty, given)?;
    let mut missing = Vec::new();
    let mut lens = lens.into_iter();
    for_each(model, |path, parameter| {
        let gradient = parameter.gradient(gradients)?;
        // The first of the parameters that share a gradient has its length.
        let len = lens.next().unwrap_or_default();
        if gradient.len() < len {
            gradient.resize(len, E::zero());
            missing.push((path.name, parameter.id()));
        }
        Ok::<_, D::Err>(())
    })?;
    Ok(missing)
}

/// Empty gradients for the parameters of a model.
#[derive(Clone)]
struct EmptyGradients<E: Element, D: Backend<E>> {
    ids: Vec<UniqueId>,
    /// The lengths of the gradients, or 0 if an earlier parameter has the same gradient.
    lens: Vec<usize>,
    gradients: Gradients<E, D>,
}

thread_local! {
    /// The [`EmptyGradients`] of the last model. dfdx must allocate a gradient before it can be emptied, which would take as much memory
    /// as the parameters in every step.
    static LAST: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

impl<E: Element, D: Backend<E>> EmptyGradients<E, D> {
    /// The empty gradients of the parameters with these ids.
    fn of<M: TensorCollection<E, D>>(model: &M, ids: Vec<UniqueId>) -> Result<Self, D::Err> {
        let last = LAST.take();
        let last = last.and_then(|last| last.downcast::<Self>().ok());
        let empty = match last.filter(|last| last.ids == ids) {
            Some(last) => last,
            None => Box::new(Self::new(model, ids)?),
        };
        let found = Self::clone(&empty);
        LAST.set(Some(empty));
        Ok(found)
    }

    fn new<M: TensorCollection<E, D>>(model: &M, ids: Vec<UniqueId>) -> Result<Self, D::Err> {
        let mut lens = Vec::new();
        let mut gradients = Gradients::leaky();
        for_each(model, |_, parameter| {
            lens.push(std::mem::take(parameter.gradient(&mut gradients)?).len());
            Ok::<_, D::Err>(())
        })?;
        Ok(Self {
            ids,
            lens,
            gradients,
        })
    }
}
