//! Models for tests, with the sizes of their axes, and inputs of these sizes.
//!
//! `name { the model } (axis: size, ..) (inputs: the first is traced) reads the first, if it is of floats`

use crate::{reference::parameters::scattered, tensors};
use dfdx::prelude::*;

/// Ids below `vocab`.
pub fn ids<S: Shape>(shape: S, vocab: usize) -> Tensor<S, usize, Cpu> {
    let ids = (0..shape.num_elements()).map(|i| (i * i + 3 * i + 1) % vocab);
    Cpu::default().tensor_from_vec(ids.collect(), shape)
}

/// Lengths of sequences of at most `most` tokens: all of them, half of them, none, and so on.
pub fn lens_up_to(batch: usize, most: usize) -> Tensor<(usize,), usize, Cpu> {
    let lens = (0..batch).map(|sequence| [most, most / 2, 0][sequence % 3]);
    Cpu::default().tensor_from_vec(lens.collect(), (batch,))
}

/// Lengths of at most `most`: 0, 1, 2, and so on.
pub fn lens_of<S: Shape>(shape: S, most: usize) -> Tensor<S, usize, Cpu> {
    let lens = (0..shape.num_elements()).map(|place| place % (most + 1));
    Cpu::default().tensor_from_vec(lens.collect(), shape)
}

/// Marks of the sequences of a batch: with holes and from a later token on, none, all, and so on.
pub fn marks<S: Shape>(shape: S) -> Tensor<S, bool, Cpu> {
    let dims: Vec<usize> = shape.concrete().into_iter().collect();
    let keys = dims[dims.len() - 1];
    let mark = |place: usize| match place / keys % 3 {
        0 => !place.is_multiple_of(keys) && place % keys % 3 != 2,
        1 => false,
        _ => true,
    };
    Cpu::default().tensor_from_vec((0..shape.num_elements()).map(mark).collect(), shape)
}

/// Sets every parameter to numbers that depend on its name: gains around 1, the others around 0.
pub fn scatter<E: Dtype, M: TensorCollection<E, Cpu>>(model: &mut M)
where
    Cpu: Device<E>,
{
    tensors::fill(model, |name, values| {
        let is_gain = name.contains("norm") && name.ends_with("weight");
        let numbers = scattered(name, values.len());
        let numbers = numbers.into_iter();
        numbers
            .map(|number| {
                if is_gain {
                    1.0 + 0.5 * number
                } else {
                    0.6 * number
                }
            })
            .collect()
    });
}

/// A tensor of numbers between -1 and 1 that depend on the name.
pub fn tensor<S: Shape, E: Dtype>(name: &str, shape: S) -> Tensor<S, E, Cpu>
where
    Cpu: Device<E>,
{
    let numbers = scattered(name, shape.num_elements());
    let numbers = numbers.into_iter().map(|x| E::from_f64(x).unwrap());
    Cpu::default().tensor_from_vec(numbers.collect(), shape)
}

/// `ids` or `lens` of one axis.
pub fn lens<const N: usize>(lens: [usize; N]) -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(lens.to_vec(), (N,))
}

/// Every operation.
#[macro_export]
macro_rules! operations {
    ($claim:ident) => {
        $claim! {
            embeddings {
                struct M<vocab = 7, d = 6>;
                fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
                    embedding::<vocab, d>(tokens) + learned_position::<9, d>(tokens) - sinusoidal_position::<d>(tokens)
                }
            } (batch: 2, seq: 5) (tokens: ids((batch, seq), 7));

            embeddings_of_one_sequence {
                struct M<vocab = 7, d = 5>;
                fn forward(tokens: ids[seq]) -> [seq, d] {
                    embedding::<vocab, d>(tokens) * learned_position::<9, d>(tokens) + sinusoidal_position::<d>(tokens)
                }
            } (seq: 4) (tokens: ids((seq,), 7));

            positions_of_floats {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x * learned_position::<9, d>(x) + sinusoidal_position::<d>(x);
                    repeat 2 { x += gelu(linear::<d>(x)) * learned_position::<12, d, offset = 3>(x); }
                    x
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            positions_of_floats_of_one_sequence {
                struct M<d = 4>;
                fn forward(x: [seq, d]) -> [seq, d] { x * learned_position::<9, d>(x) + sinusoidal_position::<d>(x) }
            } (seq: 7) (x: tensor::<_, E>("x", (seq, Const::<4>))) reads x;

            tied {
                struct M<vocab = 7, d = 6>;
                fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
                    let x = embedding::<vocab, d, name = table>(tokens);
                    linear::<tied = table>(gelu(x) + embedding::<tied = table>(tokens))
                }
            } (batch: 2, seq: 5) (tokens: ids((batch, seq), 7));

            tied_in_every_round {
                struct M<vocab = 7, d = 6>;
                fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
                    let mut x = embedding::<vocab, d>(tokens);
                    repeat 2, name = outer {
                        x = x + embedding::<vocab, d, name = table>(tokens);
                        repeat 2, name = inner {
                            let y = linear::<tied = table>(tanh(x)) * linear::<tied = embedding>(x);
                            x = x + linear::<d>(softmax(y)) + embedding::<tied = table>(tokens);
                        }
                    }
                    linear::<tied = embedding, bias = false>(x)
                }
            } (batch: 2, seq: 3) (tokens: ids((batch, seq), 7));

            linears {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, 4] {
                    linear::<4, bias = false>(linear::<9>(x))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            linear_of_four_axes {
                struct M<d = 6>;
                fn forward(x: [a, b, c, d]) -> [a, b, c, 4] { linear::<4>(x) }
            } (a: 2, b: 1, c: 3) (x: tensor::<_, E>("x", (a, b, c, Const::<6>))) reads x;

            elementwise_expressions {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    // One expression of four operands, one of them three times; a gate; a modulation; a scaled residual.
                    let scale = linear::<d>(x);
                    let shift = linear::<d>(x);
                    let y = x * (1 + scale) + shift;
                    let gated = silu(y) * linear::<d>(y);
                    let long = 2 * y - gated * sigmoid(y) + y * y / 4 - gelu(gated - x);
                    let short = (long - 1) * (3 - long);
                    x + 0.5 * tanh(short) * long - gated
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            elementwise_expressions_in_a_loop {
                struct M<d = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let kept = sigmoid(linear::<d>(x));
                    let mut x = x;
                    let mut sum = 0.5 * x;
                    repeat 3, name = blocks {
                        let y = rms_norm(x * kept + sum);
                        x = layer_norm(x - relu_squared(y) * linear::<d>(y));
                        sum = sum + x * x;
                    }
                    x * sum - kept
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<5>))) reads x;

            feed_forwards {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = feed_forward::<24, activation = gelu_tanh>(x);
                    let b = feed_forward::<hidden = 16, activation = swiglu>(x) + feed_forward::<5, activation = geglu>(x);
                    a * b + feed_forward::<7, activation = relu_squared>(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            other_feed_forwards {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = feed_forward::<9, activation = relu>(x) * feed_forward::<7, activation = silu>(x);
                    let b = feed_forward::<5, activation = sigmoid>(x) - feed_forward::<8, activation = tanh>(a);
                    feed_forward::<7, activation = reglu>(x) + feed_forward::<7, activation = gelu>(b)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            norms {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] { layer_norm(x) * rms_norm(x) }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            operations_on_rows_between_loops {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d], c: [batch, seq, d]) -> [batch, seq, d] {
                    let scale = linear::<d>(c);
                    let shift = linear::<d>(c);
                    // Of a sum, and over an operand; over the rows; in new memory, as others read the rows.
                    let y = layer_norm(x + c) * (1 + scale) + shift;
                    let z = c - rms_norm(y);
                    let unit = l2_norm(z * scale);
                    let mut w = gelu(unit) - c;
                    repeat 2 { w = softmax(2 * w + unit) * z; }
                    w + linear::<d>(unit)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)), tensor::<_, E>("c", (batch, seq, Const::<6>))) reads x;

            activations {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    gelu(x) + gelu_tanh(x) - relu(x) * relu_squared(x) + silu(x) * sigmoid(x) - tanh(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            numbers {
                struct M<d = 6>;
                fn forward(x: [seq, d]) -> [seq, d] {
                    let y = 2 * x - 1 / 4.0;
                    (1 - y) * { 0.5 * 3.0 } + -x / d
                }
            } (seq: 3) (x: tensor::<_, E>("x", (seq, Const::<6>))) reads x;

            softmax_of_rows {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] { softmax(3 * x) * x }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            concatenation {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, 17] { concat(x, linear::<5>(x), x) }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            pooled {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, d] { mean_pool(x, lens) + 2 * mean_pool(x) }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)), lens_up_to(batch, seq)) reads x;

            maxima {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq]) -> [batch, d] {
                    let x = linear::<d>(x);
                    max_pool(x, lens) + max_pool(x, keep) * max_pool(x)
                }
            } (batch: 3, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)), lens_up_to(batch, seq), marks((batch, seq))) reads x;

            unit_vectors {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = l2_norm(x);
                    l2_norm::<epsilon = 100.0>(linear::<d>(y)) + y
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            broadcast {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d], y: [1, seq, 1]) -> [batch, seq, d] { (x + y) * y - y }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)), tensor::<_, E>("y", (Const::<1>, seq, Const::<1>))) reads x;

            broadcast_to_what_rustc_knows {
                struct M<d = { "abcdef".len() }, one = { "a".len() }>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let gate = sigmoid(linear::<1>(x));
                    let z = gate * linear::<one>(x) - gate;
                    x * gate - gate * linear::<d>(z)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            attentions {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] {
                    let x = x + attention::<2, d, mask = causal, position = alibi>(x);
                    let x = x + attention::<heads = 4, kv_heads = 2, mask = padding, name = padded>(x, padding = lens);
                    x + attention::<2>(x) {
                        param slope: [heads] = ones;
                        fn score(score, h, q_idx, kv_idx) { score - slope[h] * abs(q_idx - kv_idx) as f32 }
                    }
                }
            } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)), lens_up_to(batch, seq)) reads x;

            cross_attention {
                struct M<d = 8>;
                fn forward(x: [batch, q, d], y: [batch, k, 6], lens: lens[batch]) -> [batch, q, d] {
                    x + attention::<2, mask = padding>(x, context = y, padding = lens)
                }
            } (batch: 2, q: 5, k: 3) (x: tensor::<_, E>("x", (batch, q, Const::<8>)), tensor::<_, E>("y", (batch, k, Const::<6>)), lens_up_to(batch, k)) reads x;

            key_masks {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d], keep: bool[batch, seq]) -> [batch, d] {
                    let x = x + attention::<2, mask = causal & padding>(x, padding = keep);
                    let x = x + attention::<4, mask = !padding, normalizer = softmax1>(x, padding = keep);
                    mean_pool(x, keep) - mean_pool(x)
                }
            } (batch: 4, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)), marks((batch, seq))) reads x;

            key_masks_of_a_context {
                struct M<d = 8>;
                fn forward(x: [batch, q, d], y: [batch, k, 6], keep: bool[batch, k], a: ids[batch, q], b: ids[batch, k]) -> [batch, q, d] {
                    let z = attention::<2, mask = padding & document>(x, context = y, padding = keep, document = (a, b));
                    x + attention::<2>(z, context = y, keep = keep, place = b) {
                        data keep: bool[batch, kv_len];
                        data place: ids[batch, kv_len];
                        fn mask(b, kv_idx) { keep[b, kv_idx] }
                        fn score(score, b, q_idx, kv_idx) { if keep[b, kv_idx] && place[b, kv_idx] == q_idx { score } else { score / 2.0 } }
                    }
                }
            } (batch: 3, q: 5, k: 4) (
                x: tensor::<_, E>("x", (batch, q, Const::<8>)), tensor::<_, E>("y", (batch, k, Const::<6>)),
                marks((batch, k)), ids((batch, q), 2), ids((batch, k), 2)
            ) reads x;

            key_masks_of_one_sequence {
                struct M<d = 8>;
                fn forward(x: [seq, d], y: [k, d], keep: bool[k], lens: lens[seq], pairs: bool[seq, k]) -> [seq, d] {
                    let x = x + attention::<2, mask = padding>(x, context = y, padding = keep);
                    let x = x + attention::<2, mask = padding, name = per_query>(x, padding = lens);
                    x + attention::<2>(x, context = y, pairs = pairs) {
                        data pairs: bool[q_len, kv_len];
                        fn mask(q_idx, kv_idx) { pairs[q_idx, kv_idx] }
                    }
                }
            } (seq: 4, k: 6) (
                x: tensor::<_, E>("x", (seq, Const::<8>)), tensor::<_, E>("y", (k, Const::<8>)),
                marks((k,)), lens_up_to(seq, seq), marks((seq, k))
            ) reads x;

            documents {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d], ids: ids[batch, seq]) -> [batch, seq, d] {
                    let a = attention::<2, mask = document & causal>(x, document = ids);
                    a + attention::<2>(x, kind = ids) {
                        data kind: ids[batch, kv_len];
                        fn mask(b, kv_idx) { kind[b, kv_idx] != 2 }
                    }
                }
            } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)), ids((batch, seq), 3)) reads x;

            rounds {
                struct M<d = 6, n = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    let mut y = gelu(x);
                    repeat n, name = outer {
                        repeat 2, share = true, name = inner {
                            x += linear::<d>(y) / 4;
                        }
                        y = layer_norm(x) * y;
                    }
                    x - y
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;
        }
    };
}

/// Dropout beside every operation that it is fused with, and beside others.
#[macro_export]
macro_rules! dropouts {
    ($claim:ident) => {
        $claim! {
            residual_streams {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 2, name = blocks {
                        x = x + dropout::<0.3>(linear::<d>(layer_norm(x)));
                        x = dropout::<0.2>(feed_forward::<9>(rms_norm(x))) + x;
                    }
                    repeat 3, share = true, name = rounds {
                        x = rms_norm(x + dropout::<0.4>(linear::<d>(x)));
                    }
                    layer_norm(dropout::<0.1>(x) + linear::<d>(x))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            expressions_with_dropout {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    // Operands that the derivative reads, and that it does not.
                    let a = dropout::<0.2>(x) * y - dropout::<0.3>(2 * y);
                    let b = layer_norm(a * sigmoid(y) + 3 * dropout::<0.4>(a));
                    dropout::<0.5>(b * b - dropout::<0.1>(y) + x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            embeddings_that_fall {
                struct M<vocab = 7, d = 6>;
                fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
                    let x = embedding::<vocab, d>(tokens) + learned_position::<9, d>(tokens);
                    let x = layer_norm(dropout::<0.25>(x));
                    x + linear::<d>(x)
                }
            } (batch: 2, seq: 5) (tokens: ids((batch, seq), 7));

            dropout_of_both_terms_and_the_sum {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    let a = rms_norm(dropout::<0.1>(dropout::<0.2>(x) + dropout::<0.3>(y)));
                    dropout::<0.4>(dropout::<0.5>(a * y) + dropout::<0.6>(gelu(x)))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            dropout_of_a_shared_term {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = tanh(x);
                    let z = dropout::<0.3>(y) + x;
                    let w = dropout::<0.3>(z * y) + z;
                    layer_norm(w + dropout::<0.2>(w)) * z
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            keys_between_a_dropout_and_its_sum {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = dropout::<0.3>(tanh(x));
                    let z = dropout::<0.4>(gelu(x)) * attention::<2, dropout = 0.5>(x);
                    z + y
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<8>))) reads x;

            dropout_behind_norms {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<d>(x);
                    // Over the rows, over an operand, and in new memory; of an operand, and of the result.
                    let z = dropout::<0.1>(dropout::<0.2>(x) + layer_norm(y));
                    let w = dropout::<0.3>(linear::<d>(z));
                    let w = dropout::<0.4>(rms_norm(dropout::<0.5>(x + z)) * y + w);
                    dropout::<0.1>(gelu(l2_norm(w)))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            dropout_of_activations {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = linear::<9>(dropout::<0.3>(gelu(linear::<7>(x))));
                    let y = linear::<d>(dropout::<0.4>(tanh(y)));
                    y + dropout::<0.2>(relu(y) * 2) * dropout::<0.2>(silu(x))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            separate_dropouts {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = dropout::<0.3>(x * x);
                    let z = dropout::<0.2>(linear::<d>(y));
                    let mut w = y + z * y;
                    repeat 2, name = outer { w = w + z; }
                    repeat 2, name = inner { w = dropout::<0.3>(linear::<d>(w)); }
                    (w - dropout::<0.3>(z)) * (z + z)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            dropout_of_a_shared_sum {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let s = x + tanh(x);
                    let t = gelu(x);
                    dropout::<0.3>(s) * s + dropout::<0.4>(t) * t
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            dropout_of_a_loop_variable {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    let mut w = tanh(x);
                    repeat 2, name = terms {
                        let z = dropout::<0.3>(linear::<d>(x));
                        w = w + z;
                        x = z;
                    }
                    repeat 2, share = true, name = sums {
                        x = x + w;
                        w = dropout::<0.4>(x);
                    }
                    x * w
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            dropout_of_a_broadcast_row {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d], y: [1, seq, 1]) -> [batch, seq, d] {
                    let z = dropout::<0.3>(tanh(y));
                    dropout::<0.4>(x + z)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>)), tensor::<_, E>("y", (Const::<1>, seq, Const::<1>))) reads x;

            dropout_of_a_result {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    dropout::<0.5>(linear::<d>(x) + x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;
        }
    };
}
