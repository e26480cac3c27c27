//! Iteration over the trainable parameters of a model.

use std::any::{Any, type_name};
use std::collections::BTreeMap;

use dfdx::{
    nn::tensor_collection::{
        RecursiveWalker, TensorCollection, TensorOptions, TensorViewer, TensorVisitor,
        ViewTensorMut, ViewTensorName, ViewTensorRef,
    },
    shapes::{HasShape, Shape},
    tensor::{Gradients, Tensor, UniqueId},
};

use crate::{Backend, Element, composed::contiguous, fused::id_of};

/// Tensors by the ids of those that they were made of.
pub(crate) type Made = BTreeMap<UniqueId, Box<dyn Any>>;

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
    pub(crate) module: &'static str,
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
