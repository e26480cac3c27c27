//! Builds a layer with numbers by name, in one visit of its parameters.
//!
//! dfdx compiles a visit again for every layer and every action, which would take longer than compiling the layers.

use crate::compare::{Backpropagated, Outcome};
use crate::reference::{
    State, number,
    parameters::{Values, scattered},
};
use dfdx::prelude::*;

/// A parameter of a layer that was built here.
pub struct Parameter<E: Dtype>
where
    Cpu: Device<E>,
{
    name: String,
    values: Values,
    add_gradient: Box<dyn Fn(Backpropagated<E>) -> Backpropagated<E>>,
}

impl<E: Dtype> Parameter<E>
where
    Cpu: Device<E>,
{
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The layer with these parameters. A parameter that is not in the state gets numbers by its name.
pub fn make<L, E>(state: &State) -> (L, Vec<Parameter<E>>)
where
    L: TensorCollection<E, Cpu, To<E, Cpu> = L>,
    E: Dtype,
    Cpu: Device<E>,
{
    let mut make = Make {
        state,
        parameters: Vec::new(),
    };
    let layer = L::iter_tensors(&mut RecursiveWalker {
        m: String::new(),
        f: &mut make,
    });
    let layer = layer.expect("there is memory");
    (layer.expect("every parameter was made"), make.parameters)
}

/// Numbers for all parameters of a layer.
pub fn state<L, E>() -> State
where
    L: TensorCollection<E, Cpu, To<E, Cpu> = L>,
    E: Dtype,
    Cpu: Device<E>,
{
    let (_, parameters) = make::<L, E>(&State::default());
    let values = parameters.into_iter().map(|p| (p.name, p.values));
    State {
        values: values.collect(),
    }
}

/// Adds the gradients of all parameters.
pub fn add_gradients<E: Dtype>(ran: Backpropagated<E>, parameters: &[Parameter<E>]) -> Outcome
where
    Cpu: Device<E>,
{
    let ran = parameters
        .iter()
        .fold(ran, |ran, parameter| (parameter.add_gradient)(ran));
    ran.outcome()
}

/// Gains are around 1, the others around 0: both far from their initial values.
fn numbers(name: &str, dims: Vec<usize>) -> Values {
    let gain = name.contains("norm");
    let flat = scattered(name, dims.iter().product()).into_iter();
    let flat = flat.map(|value| if gain { 1.0 + 0.5 * value } else { 0.7 * value });
    Values {
        flat: flat.collect(),
        dims,
    }
}

/// The visitor that dfdx calls for each parameter.
struct Make<'a, E: Dtype>
where
    Cpu: Device<E>,
{
    state: &'a State,
    parameters: Vec<Parameter<E>>,
}

impl<E: Dtype> TensorVisitor<E, Cpu> for Make<'_, E>
where
    Cpu: Device<E>,
{
    type Viewer = ViewTensorName;
    type Err = <Cpu as HasErr>::Err;
    type E2 = E;
    type D2 = Cpu;

    fn visit<S: Shape>(
        &mut self,
        options: TensorOptions<S, E, Cpu>,
        name: String,
    ) -> Result<Option<Tensor<S, E, Cpu>>, Self::Err> {
        let dims: Vec<_> = options.shape.concrete().into_iter().collect();
        let values = match self.state.values.get(&name) {
            Some(values) => values.clone(),
            None => numbers(&name, dims.clone()),
        };
        assert_eq!(values.dims, dims, "the axes of {name}");
        let flat = values.flat.iter().map(|&v| number(v)).collect();
        let tensor = Cpu::default().tensor_from_vec(flat, options.shape);
        let add_gradient = {
            let name = name.clone();
            let tensor = tensor.clone();
            Box::new(move |ran: Backpropagated<E>| ran.input(&name, &tensor))
        };
        self.parameters.push(Parameter {
            name,
            values,
            add_gradient,
        });
        Ok(Some(tensor))
    }
}
