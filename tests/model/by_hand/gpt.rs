//! A GPT: norms before the layers, learned positions (Radford et al. 2019). It is compared with the declared one.

use super::{
    ByName,
    attention::{Attention, AttentionMask, AttentionSaved},
    layers::{Embedding, FeedForward, FeedForwardSaved, GELU_TANH, LayerNorm, Linear},
    loss::CrossEntropy,
    sum, zeros,
};
use crate::{
    decoder::{BATCH, D_MODEL, HEADS, HIDDEN, LAYERS, VOCAB, data, declared, loss},
    steps,
};

struct Gpt {
    embedding: Embedding,
    position: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    output: Linear,
}

impl Gpt {
    fn new() -> Self {
        Self {
            embedding: Embedding::new("embedding", D_MODEL),
            position: Embedding::new("learned_position", D_MODEL),
            blocks: (0..LAYERS).map(Block::new).collect(),
            norm: LayerNorm::new("layer_norm", D_MODEL),
            output: Linear::unbiased("linear", D_MODEL, VOCAB),
        }
    }

    /// The loss, and its gradient with respect to every parameter.
    fn train(&self, parameters: &ByName, tokens: &[usize], next: &[usize]) -> (f64, ByName) {
        let length = tokens.len() / BATCH;
        let places: Vec<usize> = (0..tokens.len()).map(|row| row % length).collect();
        let embedded = self.embedding.forward(parameters, tokens);
        let mut x = sum(&embedded, &self.position.forward(parameters, &places));
        let mut saved = Vec::new();
        for block in &self.blocks {
            let (y, block_saved) = block.forward(parameters, x);
            saved.push(block_saved);
            x = y;
        }
        let normed = self.norm.forward(parameters, &x);
        let logits = self.output.forward(parameters, &normed);
        let (loss, d_logits) = LOSS.with_gradient(&logits, next);

        let mut gradients = zeros(parameters);
        let d_normed = self
            .output
            .backward(parameters, &normed, &d_logits, &mut gradients);
        let mut d_x = self
            .norm
            .backward(parameters, &x, &d_normed, &mut gradients);
        for (block, saved) in self.blocks.iter().zip(&saved).rev() {
            d_x = block.backward(parameters, saved, &d_x, &mut gradients);
        }
        self.embedding.backward(tokens, &d_x, &mut gradients);
        self.position.backward(&places, &d_x, &mut gradients);
        (loss, gradients)
    }
}

const LOSS: CrossEntropy = CrossEntropy {
    classes: VOCAB,
    smoothing: 0.0,
    ignored: None,
};

/// `m = x + attention(norm(x))`, `y = m + feed_forward(norm(m))`
struct Block {
    norm_1: LayerNorm,
    attention: Attention,
    norm_2: LayerNorm,
    feed_forward: FeedForward,
}

struct BlockSaved {
    x: Vec<f64>,
    attention: AttentionSaved,
    middle: Vec<f64>,
    feed_forward: FeedForwardSaved,
}

impl Block {
    fn new(index: usize) -> Self {
        let name = |layer| format!("blocks.{index}.{layer}");
        Self {
            norm_1: LayerNorm::new(&name("layer_norm"), D_MODEL),
            attention: Attention::new(&name("attention"), HEADS, D_MODEL),
            norm_2: LayerNorm::new(&name("layer_norm_2"), D_MODEL),
            feed_forward: FeedForward::new(&name("feed_forward"), D_MODEL, HIDDEN, GELU_TANH),
        }
    }

    fn forward(&self, parameters: &ByName, x: Vec<f64>) -> (Vec<f64>, BlockSaved) {
        let normed = self.norm_1.forward(parameters, &x);
        let (attended, attention) =
            self.attention
                .forward(parameters, &normed, &normed, BATCH, AttentionMask::Causal);
        let middle = sum(&x, &attended);
        let normed = self.norm_2.forward(parameters, &middle);
        let (fed, feed_forward) = self.feed_forward.forward(parameters, &normed);
        let y = sum(&middle, &fed);
        let saved = BlockSaved {
            x,
            attention,
            middle,
            feed_forward,
        };
        (y, saved)
    }

    fn backward(
        &self,
        parameters: &ByName,
        saved: &BlockSaved,
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> Vec<f64> {
        let d_normed = self
            .feed_forward
            .backward(parameters, &saved.feed_forward, d_y, gradients);
        let d_norm = self
            .norm_2
            .backward(parameters, &saved.middle, &d_normed, gradients);
        let d_middle = sum(d_y, &d_norm);
        let (by_queries, by_keys) =
            self.attention
                .backward(parameters, &saved.attention, &d_middle, gradients);
        let d_normed = sum(&by_queries, &by_keys);
        let d_norm = self
            .norm_1
            .backward(parameters, &saved.x, &d_normed, gradients);
        sum(&d_middle, &d_norm)
    }
}

#[test]
fn training_for_twenty_steps_is_the_same_as_by_hand() {
    let gpt = Gpt::new();
    steps::are_the_same(declared(), loss, |parameters, step| {
        let (tokens, next) = data(step);
        gpt.train(parameters, &tokens, &next)
    });
}
