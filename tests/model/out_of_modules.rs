//! Helpers of the networks of dfdx's modules: types, an attention of dfdx's operations (its own has no mask), loss and gradients.
//! No part of `attn` is used here.

use super::*;
use attn::dfdx::nn::modules::{LayerNorm1D, Linear};
use steps::ByName;
use support::reference::{Heads, Traced};

pub(super) type Map<const I: usize, const O: usize> = Linear<I, O, f64, Cpu>;
pub(super) type Norm<const D: usize> = LayerNorm1D<D, f64, Cpu>;

/// `[batch, length, D]` without a tape: every use starts a new one.
pub(super) type Input<const D: usize> = Tensor<(usize, usize, Const<D>), f64, Cpu>;
pub(super) type Sequences<const D: usize> = Traced<(usize, usize, Const<D>), f64>;

/// The projections of queries, keys, values, and of the output.
pub(super) type Projections<const D: usize> = (Map<D, D>, Map<D, D>, Map<D, D>, Map<D, D>);

/// The queries of `x` attend to the keys and values of `context`.
pub(super) fn attend<const D: usize>(
    (q, k, v, o): &Projections<D>,
    heads: usize,
    [x, context]: [&Input<D>; 2],
    normalize: impl FnOnce(Heads<f64>) -> Heads<f64>,
) -> Sequences<D> {
    let split = |x: Sequences<D>| -> Heads<f64> {
        let (batch, length, _) = *x.shape();
        x.reshape_like(&(batch, length, heads, D / heads))
            .permute::<_, Axes4<0, 2, 1, 3>>()
    };
    let q = split(q.forward(x.leaky_trace()));
    let k = split(k.forward(context.leaky_trace()));
    let v = split(v.forward(context.leaky_trace()));
    let scores: Heads<f64> = q.matmul(k.permute::<_, Axes4<0, 1, 3, 2>>());
    let weights = normalize(scores / ((D / heads) as f64).sqrt());
    let attended: Heads<f64> = weights.matmul(v);
    let joined = attended.permute::<_, Axes4<0, 2, 1, 3>>();
    o.forward(joined.reshape_like(x.shape()))
}

/// The loss and the gradients of modules with the parameters of a declared network, in the order of its `names`.
pub(super) fn train<M>(
    names: &[String],
    parameters: &ByName,
    loss: impl FnOnce(&M) -> Traced<Rank0, f64>,
) -> (f64, ByName)
where
    M: TensorCollection<f64, Cpu> + BuildModule<Cpu, f64>,
{
    let mut modules = M::build(&Cpu::default());
    let mut next = names.iter();
    tensors::fill(&mut modules, |_, _| {
        parameters[next.next().unwrap()].clone()
    });
    assert_eq!(next.next(), None);
    let loss = loss(&modules);
    let value = loss.array();
    let gradients = tensors::gradients(&modules, &loss.backward());
    let gradients = gradients.into_iter().map(|gradient| gradient.values);
    (value, names.iter().cloned().zip(gradients).collect())
}

/// The names of the parameters of a declared network, in order.
pub(super) fn names<M: TensorCollection<f64, Cpu>>(declared: &M) -> Vec<String> {
    let parameters = tensors::parameters(declared).into_iter();
    parameters.map(|parameter| parameter.name).collect()
}
