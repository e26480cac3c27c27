//! Values by name: the arguments of a layer, and the keys of its gradients.

use super::{Sequence, Traced, number};
pub use crate::numbers::scattered;
use dfdx::{nn::modules::Linear, prelude::*};
use std::{cell::RefCell, collections::BTreeMap};

/// Flat values with their dimensions.
#[derive(Clone, Debug)]
pub struct Values {
    pub dims: Vec<usize>,
    pub flat: Vec<f64>,
}

/// All arguments of a layer, by name: its inputs (`x`, `context`) and its parameters (`q_proj.weight`, ...). A layer in `f32`
/// rounds them.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub values: BTreeMap<String, Values>,
}

impl State {
    pub fn insert(&mut self, name: &str, dims: &[usize]) {
        let values = Values {
            dims: dims.to_vec(),
            flat: scattered(name, dims.iter().product()),
        };
        self.values.insert(name.to_owned(), values);
    }

    pub fn get(&self, name: &str) -> &Values {
        self.values
            .get(name)
            .unwrap_or_else(|| panic!("no value is called {name}"))
    }

    pub fn flat_mut(&mut self, name: &str) -> &mut Vec<f64> {
        match self.values.get_mut(name) {
            Some(values) => &mut values.flat,
            None => panic!("no value is called {name}"),
        }
    }

    /// The named values as a tensor of another dtype, with compile-time dimensions chosen by the caller.
    pub fn tensor<S: Shape, E: Dtype>(&self, name: &str, shape: S) -> Tensor<S, E, Cpu>
    where
        Cpu: Device<E>,
    {
        let flat = self.get(name).flat.iter().map(|&v| number(v)).collect();
        Cpu::default().tensor_from_vec(flat, shape)
    }
}

type ReadGradient<E> = Box<dyn Fn(&Gradients<E, Cpu>) -> Vec<E>>;

/// Name, offset of the first element, and a reader of the gradient.
type Taken<E> = (String, usize, ReadGradient<E>);

/// Gives parameters to a hand-written layer by name, and collects their gradients under the same names.
pub struct Parameters<'a, E: Dtype>
where
    Cpu: Device<E>,
{
    state: &'a State,
    taken: RefCell<Vec<Taken<E>>>,
}

impl<'a, E: Dtype> Parameters<'a, E>
where
    Cpu: Device<E>,
{
    pub fn new(state: &'a State) -> Self {
        Self {
            state,
            taken: RefCell::default(),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.state.values.contains_key(name)
    }

    pub fn dims(&self, name: &str) -> &[usize] {
        &self.state.get(name).dims
    }

    /// The whole parameter.
    pub fn tensor<S: Shape>(&self, name: &str, shape: S) -> Tensor<S, E, Cpu> {
        assert_eq!(
            self.dims(name),
            shape.concrete().into_iter().collect::<Vec<_>>(),
            "the shape of {name}"
        );
        self.part(name, 0, shape)
    }

    /// A part of a parameter: the elements from `first` on that fill `shape`.
    pub fn part<S: Shape>(&self, name: &str, first: usize, shape: S) -> Tensor<S, E, Cpu> {
        let flat = &self.state.get(name).flat[first..first + shape.num_elements()];
        let flat = flat.iter().map(|&v| number(v)).collect();
        let tensor = Cpu::default().tensor_from_vec(flat, shape);
        let kept = tensor.clone();
        self.taken.borrow_mut().push((
            name.to_owned(),
            first,
            Box::new(move |gradients| gradients.get(&kept).as_vec()),
        ));
        tensor
    }

    /// A projection as dfdx's own module.
    pub fn linear<const I: usize, const O: usize>(&self, name: &str) -> Linear<I, O, E, Cpu> {
        assert_eq!(self.dims(&format!("{name}.weight")), [O, I]);
        self.linear_rows(name, 0)
    }

    /// The projection onto `O` outputs from `first` on: the part of one head.
    pub fn linear_rows<const I: usize, const O: usize>(
        &self,
        name: &str,
        first: usize,
    ) -> Linear<I, O, E, Cpu> {
        Linear {
            weight: self.part(&format!("{name}.weight"), first * I, (Const, Const)),
            bias: self.part(&format!("{name}.bias"), first, (Const,)),
        }
    }

    /// `x Wᵀ + b`, or `x Wᵀ` if the layer has no such bias.
    pub fn project(&self, name: &str, x: Sequence<E>) -> Sequence<E> {
        let weight = format!("{name}.weight");
        let bias = format!("{name}.bias");
        let (outputs, inputs) = match *self.dims(&weight) {
            [outputs, inputs] => (outputs, inputs),
            ref dims => panic!("{weight} is a matrix, found {dims:?}"),
        };
        let weight: Traced<(usize, usize), E> =
            self.tensor(&weight, (outputs, inputs)).leaky_trace();
        let y = x.matmul(weight.permute::<(usize, usize), Axes2<1, 0>>());
        if !self.has(&bias) {
            return y;
        }
        let shape = *y.shape();
        y + self
            .tensor(&bias, (outputs,))
            .leaky_trace()
            .broadcast_like::<_, Axes2<0, 1>>(&shape)
    }

    /// The gradients of all parameters. Those of parts are joined.
    pub fn gradients(&self, gradients: &Gradients<E, Cpu>) -> BTreeMap<String, Vec<f64>> {
        let mut all = BTreeMap::<String, Vec<f64>>::new();
        for (name, first, read) in self.taken.borrow().iter() {
            let whole = all
                .entry(name.clone())
                .or_insert_with(|| vec![0.0; self.state.get(name).flat.len()]);
            for (sum, part) in whole[*first..].iter_mut().zip(read(gradients)) {
                *sum += part.to_f64().expect("a finite float");
            }
        }
        all
    }
}
