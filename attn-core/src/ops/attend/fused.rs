//! The fused form: one operation on slices.

use dfdx::tensor::{SplitTape, Tape};

use super::{Call, Inputs, Results, Wanted};
use crate::{
    Backend, Element, entry,
    fused::{
        Array, Beside, BesideArrays, BesideGradients, Gradients as TapeGradients, Operand,
        Operation, Output,
    },
    kernel::{
        Dtype, Matrix,
        attention::{
            Attention, Gradients, HeadTransform, Heads, OutputGradients, Outputs, PairGradients,
            PairScore, PairTensor, Similarity, Sizes, TalkingHeads,
        },
    },
};

/// The tensors of the forward pass.
struct Saved<E: Element> {
    call: Call<E>,
    q: Operand<E>,
    k: Operand<E>,
    v: Operand<E>,
    bias: Option<(Operand<E>, [usize; 4])>,
    out: Array<E>,
    lse: Array<E>,
}

/// [`Attend::run`](super::Attend::run)
///
/// # Errors
/// If dfdx fails.
pub(super) fn attend<E, D, T>(
    call: Call<E>,
    wanted: Wanted,
    Inputs { q, k, v, bias }: Inputs<E, D, T>,
) -> Result<Results<E, D, T>, D::Err>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let device = q.device().clone();
    let Sizes {
        batch,
        heads,
        query,
        key,
        value_width,
        ..
    } = call.sizes;
    let rows = batch * heads * query;
    let mut operation = Operation::default();
    let mut saved = Saved {
        q: operation.read(q)?,
        k: operation.read(k)?,
        v: operation.read(v)?,
        bias: match bias {
            Some((bias, sizes)) => Some((operation.read(bias)?, sizes)),
            None => None,
        },
        out: Array::uninit(rows, [value_width]),
        lse: Array::uninit(rows, [1]),
        call,
    };
    let beside = entry::Wanted {
        weights: wanted == Wanted::Weights,
        lse: wanted == Wanted::Lse,
    };
    let mut beside = BesideArrays::of([beside.weights, beside.lse], saved.call.sizes);
    saved.forward(beside.view_mut());
    let mut output = Output::zeros(rows, value_width);
    output.as_mut_slice().copy_from_slice(saved.out.as_slice());
    let output = (output, (batch, heads, query, value_width));
    let shapes = ((rows * key,), (rows,));
    let backward = move |d_out: Matrix<'_, E>,
                         beside: BesideGradients<'_, E>,
                         gradients: &mut TapeGradients<E>| {
        saved.backward(d_out, beside, gradients);
    };
    let (y, weights, lse) =
        operation.finish_attention(&device, output, beside, shapes, backward)?;
    let (y, tape) = y.split_tape();
    let other = match (weights, lse) {
        (Some(weights), _) => weights,
        (_, Some(lse)) => lse.split_tape().0,
        _ => device.try_tensor_from_vec(Vec::new(), (0,))?,
    };
    Ok(Results { y, other, tape })
}

impl<E: Element> Saved<E> {
    fn forward(&mut self, beside: Beside<'_, E>) {
        let Self {
            call,
            q,
            k,
            v,
            bias,
            out,
            lse,
        } = self;
        let score = PairScore {
            function: call.function.as_deref(),
            bias: bias
                .as_ref()
                .map(|(bias, sizes)| PairTensor::new(bias.values(), *sizes)),
            d_bias: None,
        };
        let to = Outputs {
            out: Heads::head_major(out.view_mut()),
            weights: beside.weights,
        };
        let [q, k, v] = [&*q, &*k, &*v].map(|x| Heads::head_major(x.matrix()));
        call.attention(&score)
            .forward(q, k, v, to, lse.as_mut_slice());
        if let Some(result) = beside.lse {
            result.copy_from_slice(lse.as_slice());
        }
    }

    fn backward(
        &self,
        d_out: Matrix<'_, E>,
        beside: BesideGradients<'_, E>,
        gradients: &mut TapeGradients<E>,
    ) {
        let sizes = self.call.sizes;
        let rows = sizes.batch * sizes.heads * sizes.query;
        let pairs = self.bias.as_ref().map_or(0, |_| rows * sizes.key);
        let mut d_scores = Array::zeros(pairs, [1]);
        let score = PairScore {
            function: self.call.function.as_deref(),
            bias: self
                .bias
                .as_ref()
                .map(|(bias, sizes)| PairTensor::new(bias.values(), *sizes)),
            d_bias: self
                .bias
                .as_ref()
                .map(|_| PairGradients::new(d_scores.as_mut_slice(), sizes)),
        };
        let [mut d_q, mut d_k, mut d_v] = [&self.q, &self.k, &self.v].map(|x| {
            let of = x.matrix();
            Array::uninit(of.rows(), [of.cols()])
        });
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|x| Heads::head_major(x.matrix()));
        let of_results = OutputGradients {
            out: Heads::head_major(d_out),
            lse: beside.lse,
            weights: beside.weights,
        };
        let out = Heads::head_major(self.out.view());
        let d = Gradients {
            q: d_q.view_mut(),
            k: d_k.view_mut(),
            v: d_v.view_mut(),
            score: None,
            query_gain: None,
            key_gain: None,
            w: None,
            sink: None,
            mix_scores: None,
            mix_weights: None,
        };
        let attention = self.call.attention(&score);
        attention.backward(q, k, v, out, self.lse.as_slice(), of_results, d);
        drop(score);
        for (x, d) in [(&self.q, d_q), (&self.k, d_k), (&self.v, d_v)] {
            x.target().add(1.0, d.as_slice(), gradients);
        }
        if let Some((bias, of_bias)) = &self.bias {
            add_repeated(
                d_scores.as_slice(),
                sizes,
                *of_bias,
                bias.gradient(gradients),
            );
        }
    }
}

impl<E: Element> Call<E> {
    fn attention<'a>(&'a self, score: &'a PairScore<'_, E>) -> Attention<'a, E> {
        let has_score = score.function.is_some() || score.bias.is_some();
        Attention {
            sizes: self.sizes,
            query: HeadTransform::default(),
            key: HeadTransform::default(),
            value: HeadTransform::default(),
            similarity: Similarity::Dot {
                scale: E::of(self.scale),
            },
            score: has_score.then(|| E::tile_score(score)),
            mask: &self.mask,
            normalizer: self.normalizer.of_kernel(),
            talking: TalkingHeads::default(),
            dropout: self.dropout,
            dtype: Dtype::Model,
        }
    }
}

/// Adds the gradients of all pairs, `[batch, heads, query, key]`, to those of numbers that are repeated along axes of size 1.
fn add_repeated<E: Element>(d: &[E], sizes: Sizes, of: [usize; 4], to: &mut [E]) {
    if sizes.key == 0 {
        return;
    }
    for (row, d) in d.chunks(sizes.key).enumerate() {
        let [q, head] = [row % sizes.query, row / sizes.query];
        let [h, b] = [head % sizes.heads, head / sizes.heads];
        let place = [b, h, q].into_iter().zip(of);
        // An axis of size 1 has the index 0 only.
        let row = place.fold(0, |row, (index, size)| {
            row * size + if size == 1 { 0 } else { index }
        });
        let to = &mut to[row * of[3]..][..of[3]];
        match to {
            [one] => *one = d.iter().fold(*one, |sum, &d| sum + d),
            each => each.iter_mut().zip(d).for_each(|(to, &d)| *to += d),
        }
    }
}
