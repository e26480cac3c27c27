//! Attention as nested loops over `f64`: no tensor, no broadcast, no batched product. It is slow and simple.

use super::State;

/// The score of a transformed query and key of a head.
type Score<'a> = dyn Fn(usize, &[f64], &[f64]) -> f64 + 'a;

/// The parts that differ between layers, as functions of a head, a query and a key.
pub struct Naive<'a> {
    pub heads: usize,
    pub kv_heads: usize,
    /// The transform of a projected query or key of one head at a position.
    pub prepare: &'a dyn Fn(usize, &[f64]) -> Vec<f64>,
    /// The score of a transformed query and key of a head.
    pub score: &'a Score<'a>,
    /// The score after the parts that depend on head, query and key.
    pub adjust: &'a dyn Fn(f64, usize, usize, usize) -> f64,
    /// Whether a sequence's query attends to a key.
    pub attends: &'a dyn Fn(usize, usize, usize) -> bool,
    /// The weights, from the scores of unmasked keys.
    pub normalize: fn(&[f64]) -> Vec<f64>,
}

impl Default for Naive<'_> {
    /// Two heads, scaled dot product, no mask, softmax.
    fn default() -> Self {
        Self {
            heads: 2,
            kv_heads: 2,
            prepare: &|_, row| row.to_vec(),
            score: &|_, q, k| dot(q, k) / (q.len() as f64).sqrt(),
            adjust: &|score, _, _, _| score,
            attends: &|_, _, _| true,
            normalize: softmax,
        }
    }
}

impl Naive<'_> {
    /// The output `[batch, query, d_model]` and the weights `[batch, heads, query, key]`, flat. `context` is the name of the
    /// input of keys and values.
    pub fn forward(&self, state: &State, context: &str) -> (Vec<f64>, Vec<f64>) {
        let batch = state.get("x").dims[0];
        let queries = state.get("x").dims[1];
        let keys = state.get(context).dims[1];
        let mut output = Vec::new();
        let mut weights = vec![0.0; batch * self.heads * queries * keys];
        for b in 0..batch {
            for i in 0..queries {
                let mut joined = Vec::new();
                for h in 0..self.heads {
                    let g = h / (self.heads / self.kv_heads);
                    let q = self.head_row(state, "q_proj", "x", b, i, (h, self.heads));
                    let q = (self.prepare)(i, &q);

                    let seen: Vec<usize> = (0..keys).filter(|&j| (self.attends)(b, i, j)).collect();
                    let scores: Vec<f64> = seen
                        .iter()
                        .map(|&j| {
                            let k =
                                self.head_row(state, "k_proj", context, b, j, (g, self.kv_heads));
                            let k = (self.prepare)(j, &k);
                            (self.adjust)((self.score)(h, &q, &k), h, i, j)
                        })
                        .collect();

                    let width = state.get("v_proj.weight").dims[0] / self.kv_heads;
                    let mut mixed = vec![0.0; width];
                    for (&j, weight) in seen.iter().zip((self.normalize)(&scores)) {
                        weights[((b * self.heads + h) * queries + i) * keys + j] = weight;
                        let v = self.head_row(state, "v_proj", context, b, j, (g, self.kv_heads));
                        for (sum, v) in mixed.iter_mut().zip(v) {
                            *sum += weight * v;
                        }
                    }
                    joined.extend(mixed);
                }
                output.extend(affine(state, "o_proj", &joined));
            }
        }
        (output, weights)
    }

    /// One head's part of the projection of one row of an input.
    fn head_row(
        &self,
        state: &State,
        projection: &str,
        input: &str,
        batch: usize,
        row: usize,
        (head, heads): (usize, usize),
    ) -> Vec<f64> {
        let input = state.get(input);
        let length = input.dims[1];
        let width = input.dims[2];
        let first = (batch * length + row) * width;
        let projected = affine(state, projection, &input.flat[first..first + width]);
        let width = projected.len() / heads;
        projected[head * width..][..width].to_vec()
    }
}

/// `W x + b`
fn affine(state: &State, name: &str, x: &[f64]) -> Vec<f64> {
    let weight = state.get(&format!("{name}.weight"));
    let bias = state.values.get(&format!("{name}.bias"));
    let rows = weight.flat.chunks(weight.dims[1]).enumerate();
    rows.map(|(i, row)| dot(row, x) + bias.map_or(0.0, |bias| bias.flat[i]))
        .collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn softmax(scores: &[f64]) -> Vec<f64> {
    let sum: f64 = scores.iter().map(|s| s.exp()).sum();
    scores.iter().map(|s| s.exp() / sum).collect()
}

pub fn softmax1(scores: &[f64]) -> Vec<f64> {
    let sum: f64 = scores.iter().map(|s| s.exp()).sum();
    scores.iter().map(|s| s.exp() / (1.0 + sum)).collect()
}

pub fn sigmoid(scores: &[f64]) -> Vec<f64> {
    scores.iter().map(|s| 1.0 / (1.0 + (-s).exp())).collect()
}
