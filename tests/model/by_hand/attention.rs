//! Multi-head attention with explicit weight matrices.

use super::{ByName, layers::Linear, sum};
use support::reference::naive::{dot, softmax};

/// The keys that a query attends to.
#[derive(Clone, Copy)]
pub(super) enum AttentionMask<'a> {
    /// The keys up to its own position.
    Causal,
    /// The first keys, with this number for each sequence.
    Padding(&'a [usize]),
}

impl AttentionMask<'_> {
    fn shows(self, b: usize, query: usize, key: usize) -> bool {
        match self {
            AttentionMask::Causal => key <= query,
            AttentionMask::Padding(lens) => key < lens[b],
        }
    }
}

/// Vaswani et al. 2017, section 3.2.2.
pub(super) struct Attention {
    heads: usize,
    d_model: usize,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
}

/// The saved values of attention.
pub(super) struct AttentionSaved {
    sizes: Sizes,
    x: Vec<f64>,
    context: Vec<f64>,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    /// `[batch, heads, query, key]`
    weights: Vec<f64>,
    /// The weighted sums of the values, heads side by side.
    mixed: Vec<f64>,
}

impl Attention {
    pub(super) fn new(name: &str, heads: usize, d_model: usize) -> Self {
        let projection = |which| Linear::new(&format!("{name}.{which}"), d_model, d_model);
        Self {
            heads,
            d_model,
            q_proj: projection("q_proj"),
            k_proj: projection("k_proj"),
            v_proj: projection("v_proj"),
            o_proj: projection("o_proj"),
        }
    }

    /// Queries come from `x`, keys and values from `context`. A query that attends to no key gets zeros.
    pub(super) fn forward(
        &self,
        parameters: &ByName,
        x: &[f64],
        context: &[f64],
        batch: usize,
        mask: AttentionMask<'_>,
    ) -> (Vec<f64>, AttentionSaved) {
        let sizes = Sizes {
            batch,
            heads: self.heads,
            queries: x.len() / self.d_model / batch,
            keys: context.len() / self.d_model / batch,
            width: self.d_model / self.heads,
        };
        let q = self.q_proj.forward(parameters, x);
        let k = self.k_proj.forward(parameters, context);
        let v = self.v_proj.forward(parameters, context);
        let (weights, mixed) = mix(sizes, [&q, &k, &v], mask);
        let y = self.o_proj.forward(parameters, &mixed);
        let saved = AttentionSaved {
            sizes,
            x: x.to_vec(),
            context: context.to_vec(),
            q,
            k,
            v,
            weights,
            mixed,
        };
        (y, saved)
    }

    /// The gradients of `x` and of `context`.
    pub(super) fn backward(
        &self,
        parameters: &ByName,
        saved: &AttentionSaved,
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> (Vec<f64>, Vec<f64>) {
        let AttentionSaved { x, context, .. } = saved;
        let d_mixed = self
            .o_proj
            .backward(parameters, &saved.mixed, d_y, gradients);
        let [d_q, d_k, d_v] = unmix(saved, &d_mixed);
        let d_x = self.q_proj.backward(parameters, x, &d_q, gradients);
        let by_keys = self.k_proj.backward(parameters, context, &d_k, gradients);
        let by_values = self.v_proj.backward(parameters, context, &d_v, gradients);
        (d_x, sum(&by_keys, &by_values))
    }
}

/// The weights `w_j = softmax_j(q · k_j / √width)` of every query, and the weighted sums of the values, `Σ_j w_j v_j`.
fn mix(sizes: Sizes, [q, k, v]: [&[f64]; 3], mask: AttentionMask<'_>) -> (Vec<f64>, Vec<f64>) {
    let mut weights = vec![0.0; sizes.all_queries() * sizes.keys];
    let mut mixed = vec![0.0; q.len()];
    for (b, h, i) in sizes.queries() {
        let query = sizes.query(b, h, i);
        let shown: Vec<usize> = (0..sizes.keys).filter(|&j| mask.shows(b, i, j)).collect();
        let score = |&j: &usize| {
            let key = sizes.key(b, h, j);
            dot(&q[query..][..sizes.width], &k[key..][..sizes.width]) / sizes.root()
        };
        let scores: Vec<f64> = shown.iter().map(score).collect();
        for (j, weight) in shown.into_iter().zip(softmax(&scores)) {
            weights[sizes.weights(b, h, i) + j] = weight;
            let value = sizes.key(b, h, j);
            for c in 0..sizes.width {
                mixed[query + c] += weight * v[value + c];
            }
        }
    }
    (weights, mixed)
}

/// The gradients of queries, keys and values.
///
/// The gradient of a weight is `d_w_j = d_mixed · v_j`. That of the score `s_j` is `d_s_j = w_j (d_w_j - Σ_l w_l d_w_l)`, by the
/// softmax. A masked key has `w_j = 0`, and so the gradient 0.
fn unmix(saved: &AttentionSaved, d_mixed: &[f64]) -> [Vec<f64>; 3] {
    let AttentionSaved { sizes, q, k, v, .. } = saved;
    let [mut d_q, mut d_k, mut d_v] = [q, k, v].map(|of| vec![0.0; of.len()]);
    for (b, h, i) in sizes.queries() {
        let query = sizes.query(b, h, i);
        let weights = &saved.weights[sizes.weights(b, h, i)..][..sizes.keys];
        let d_weight = |j| {
            let value = sizes.key(b, h, j);
            dot(&d_mixed[query..][..sizes.width], &v[value..][..sizes.width])
        };
        let d_weights: Vec<f64> = (0..sizes.keys).map(d_weight).collect();
        let common = dot(weights, &d_weights);
        for (j, weight) in weights.iter().enumerate() {
            let d_score = weight * (d_weights[j] - common) / sizes.root();
            let key = sizes.key(b, h, j);
            for c in 0..sizes.width {
                d_q[query + c] += d_score * k[key + c];
                d_k[key + c] += d_score * q[query + c];
                d_v[key + c] += weight * d_mixed[query + c];
            }
        }
    }
    [d_q, d_k, d_v]
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    /// The width of one head.
    width: usize,
}

impl Sizes {
    /// Every sequence, head and query.
    fn queries(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let of_sequence = move |b| (0..self.heads).map(move |h| (b, h));
        let heads = (0..self.batch).flat_map(of_sequence);
        heads.flat_map(move |(b, h)| (0..self.queries).map(move |i| (b, h, i)))
    }

    fn all_queries(self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// The offset of a head's part of a query.
    fn query(self, b: usize, h: usize, i: usize) -> usize {
        ((b * self.queries + i) * self.heads + h) * self.width
    }

    /// The offset of a head's part of a key, and of the value.
    fn key(self, b: usize, h: usize, j: usize) -> usize {
        ((b * self.keys + j) * self.heads + h) * self.width
    }

    /// The offset of the weights of a query.
    fn weights(self, b: usize, h: usize, i: usize) -> usize {
        ((b * self.heads + h) * self.queries + i) * self.keys
    }

    fn root(self) -> f64 {
        (self.width as f64).sqrt()
    }
}
