//! Sessions of decoders that read a memory: it is given when a session starts, and its keys and values are computed once.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod generating;
mod sessions;

use attn::dfdx::prelude::*;
use attn::model;

const VOCAB: usize = 11;

model! {
    /// "Attention is all you need", with an encoder of its own.
    pub struct Translator<vocab = 11, d_model = 16, layers = 2>;

    fn encode(source: ids[batch, src], lens: lens[batch]) -> [batch, src, d_model] {
        let mut x = embedding::<vocab, d_model, name = source>(source) + sinusoidal_position::<d_model>(source);
        repeat layers, name = encoder {
            x += attention::<heads = 2, mask = padding>(layer_norm(x), padding = lens);
            x += feed_forward::<24, activation = relu>(layer_norm(x));
        }
        layer_norm(x)
    }

    fn decode(tokens: ids[batch, seq], memory: [batch, src, d_model], lens: lens[batch]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, name = target>(tokens) + sinusoidal_position::<d_model>(tokens);
        repeat layers, name = decoder {
            x += attention::<heads = 4, kv_heads = 2, mask = causal, position = rope>(layer_norm(x));
            x += attention::<heads = 2, mask = padding, dropout = 0.1, name = cross>(layer_norm(x), context = memory, padding = lens);
            x += feed_forward::<24, activation = relu>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }

    fn forward(source: ids[batch, src], tokens: ids[batch, seq], lens: lens[batch]) -> [batch, seq, vocab] {
        decode(tokens, encode(source, lens), lens)
    }
}

/// Tokens of a sequence, different for every number.
fn text(number: usize, len: usize) -> Vec<usize> {
    (0..len)
        .map(|i| (i * i + (3 + number) * i + number) % VOCAB)
        .collect()
}

fn ids(sequences: &[Vec<usize>]) -> Tensor<(usize, usize), usize, Cpu> {
    let shape = (sequences.len(), sequences[0].len());
    Cpu::default().tensor_from_vec(sequences.concat(), shape)
}

fn lens(lens: &[usize]) -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(lens.to_vec(), (lens.len(),))
}

/// Sums of up to 150 terms of order 1, on about eight levels, rounded in another order: √1200 ε / 2 < 20 ε, and ten times that, as norms
/// amplify small differences.
fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let difference = (found - expected).abs();
        let most = 200.0 * f64::EPSILON * expected.abs().max(1.0);
        assert!(difference <= most, "{what}: {found} is not {expected}");
    }
}
