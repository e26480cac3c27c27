//! Reads and writes all tensors of a layer, by the names under which dfdx saves them.

use crate::reference::number;
use dfdx::prelude::*;

/// A parameter, or its gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub name: String,
    pub dims: Vec<usize>,
    pub values: Vec<f64>,
}

/// The elements in logical order. An empty tensor has none, where dfdx's `as_vec` panics.
pub fn flat<S: Shape, E: Dtype, T>(tensor: &Tensor<S, E, Cpu, T>) -> Vec<f64>
where
    Cpu: Device<E>,
{
    if tensor.shape().num_elements() == 0 {
        return Vec::new();
    }
    let numbers = tensor.as_vec().into_iter();
    numbers.map(|v| v.to_f64().expect("a float")).collect()
}

/// The parameters, in the order in which dfdx visits them.
pub fn parameters<L: TensorCollection<E, Cpu>, E: Dtype>(layer: &L) -> Vec<Named>
where
    Cpu: Device<E>,
{
    read(layer, None)
}

/// The gradient of every parameter. Panics if one has none.
pub fn gradients<L: TensorCollection<E, Cpu>, E: Dtype>(
    layer: &L,
    gradients: &Gradients<E, Cpu>,
) -> Vec<Named>
where
    Cpu: Device<E>,
{
    read(layer, Some(gradients))
}

/// Gives every parameter new values, from its name and its old values.
pub fn fill<L: TensorCollection<E, Cpu>, E: Dtype>(
    layer: &mut L,
    mut values: impl FnMut(&str, Vec<f64>) -> Vec<f64>,
) where
    Cpu: Device<E>,
{
    // One type of visitor for all closures: dfdx compiles a visit again for each.
    let mut fill = Fill(&mut values);
    L::iter_tensors(&mut RecursiveWalker {
        m: (layer, String::new()),
        f: &mut fill,
    })
    .expect("filling does not fail");
}

fn read<L: TensorCollection<E, Cpu>, E: Dtype>(
    layer: &L,
    gradients: Option<&Gradients<E, Cpu>>,
) -> Vec<Named>
where
    Cpu: Device<E>,
{
    let mut read = Read {
        gradients,
        found: Vec::new(),
    };
    L::iter_tensors(&mut RecursiveWalker {
        m: (layer, String::new()),
        f: &mut read,
    })
    .expect("reading does not fail");
    read.found
}

struct Read<'a, E: Dtype>
where
    Cpu: Device<E>,
{
    gradients: Option<&'a Gradients<E, Cpu>>,
    found: Vec<Named>,
}

impl<E: Dtype> TensorVisitor<E, Cpu> for Read<'_, E>
where
    Cpu: Device<E>,
{
    type Viewer = (ViewTensorRef, ViewTensorName);
    type Err = <Cpu as HasErr>::Err;
    type E2 = E;
    type D2 = Cpu;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, E, Cpu>,
        (parameter, name): (&Tensor<S, E, Cpu>, String),
    ) -> Result<Option<Tensor<S, E, Cpu>>, Self::Err> {
        let values = match self.gradients {
            Some(gradients) => flat(&gradients.get(parameter)),
            None => flat(parameter),
        };
        let dims = parameter.shape().concrete().into_iter().collect();
        self.found.push(Named { name, dims, values });
        Ok(None)
    }
}

struct Fill<'a>(&'a mut dyn FnMut(&str, Vec<f64>) -> Vec<f64>);

impl<E: Dtype> TensorVisitor<E, Cpu> for Fill<'_>
where
    Cpu: Device<E>,
{
    type Viewer = (ViewTensorMut, ViewTensorName);
    type Err = <Cpu as HasErr>::Err;
    type E2 = E;
    type D2 = Cpu;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, E, Cpu>,
        (parameter, name): (&mut Tensor<S, E, Cpu>, String),
    ) -> Result<Option<Tensor<S, E, Cpu>>, Self::Err> {
        let values: Vec<E> = (self.0)(&name, flat(parameter))
            .into_iter()
            .map(number)
            .collect();
        parameter.copy_from(&values);
        Ok(None)
    }
}
