//! The Transformer of Vaswani et al. 2017: norms after the sums, one table for both languages and for the output. It is compared
//! with the declared one.

use super::{
    ByName,
    attention::{Attention, AttentionMask, AttentionSaved},
    layers::{Embedding, FeedForward, FeedForwardSaved, LayerNorm, Linear, RELU},
    loss::CrossEntropy,
    sum, zeros,
};
use crate::{
    encoder_decoder::{
        BATCH, Batch, D_MODEL, HEADS, HIDDEN, IGNORED, LAYERS, SCALE, SMOOTHING, VOCAB, declared,
        loss,
    },
    steps,
};
use support::waves::waves;

struct Transformer {
    embedding: Embedding,
    encoder: Vec<EncoderLayer>,
    decoder: Vec<DecoderLayer>,
    output: Linear,
}

impl Transformer {
    fn new() -> Self {
        Self {
            embedding: Embedding::new("embedding", D_MODEL),
            encoder: (0..LAYERS).map(EncoderLayer::new).collect(),
            decoder: (0..LAYERS).map(DecoderLayer::new).collect(),
            output: Linear::unbiased("embedding", D_MODEL, VOCAB),
        }
    }

    /// The loss, and its gradient with respect to every parameter.
    fn train(&self, parameters: &ByName, batch: &Batch) -> (f64, ByName) {
        let padding = AttentionMask::Padding(&batch.lens);
        let mut memory = self.embed(parameters, &batch.source);
        let mut encoded = Vec::new();
        for layer in &self.encoder {
            let (next, saved) = layer.forward(parameters, &memory, padding);
            encoded.push(saved);
            memory = next;
        }
        let mut y = self.embed(parameters, &batch.target);
        let mut decoded = Vec::new();
        for layer in &self.decoder {
            let (next, saved) = layer.forward(parameters, &y, &memory, padding);
            decoded.push(saved);
            y = next;
        }
        let logits = self.output.forward(parameters, &y);
        let (loss, d_logits) = LOSS.with_gradient(&logits, &batch.next);

        let mut gradients = zeros(parameters);
        let mut d_y = self
            .output
            .backward(parameters, &y, &d_logits, &mut gradients);
        // Every layer of the decoder attends to the memory.
        let mut d_memory = vec![0.0; memory.len()];
        for (layer, saved) in self.decoder.iter().zip(&decoded).rev() {
            let (d_before, d_context) = layer.backward(parameters, saved, &d_y, &mut gradients);
            d_y = d_before;
            d_memory = sum(&d_memory, &d_context);
        }
        for (layer, saved) in self.encoder.iter().zip(&encoded).rev() {
            d_memory = layer.backward(parameters, saved, &d_memory, &mut gradients);
        }
        self.embedding
            .backward(&batch.target, &scaled(&d_y), &mut gradients);
        self.embedding
            .backward(&batch.source, &scaled(&d_memory), &mut gradients);
        (loss, gradients)
    }

    fn embed(&self, parameters: &ByName, ids: &[usize]) -> Vec<f64> {
        let embedded = scaled(&self.embedding.forward(parameters, ids));
        let waves = waves(ids.len() / BATCH, D_MODEL);
        sum(&embedded, &waves.repeat(BATCH))
    }
}

const LOSS: CrossEntropy = CrossEntropy {
    classes: VOCAB,
    smoothing: SMOOTHING,
    ignored: Some(IGNORED),
};

fn scaled(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| SCALE * x).collect()
}

struct EncoderLayer {
    attention: AttentionSublayer,
    feed_forward: FeedForwardSublayer,
}

struct EncoderSaved {
    attention: AttentionSublayerSaved,
    feed_forward: FeedForwardSublayerSaved,
}

impl EncoderLayer {
    fn new(index: usize) -> Self {
        let name = format!("encoder.{index}");
        Self {
            attention: AttentionSublayer::new(&name, "attention", "layer_norm"),
            feed_forward: FeedForwardSublayer::new(&name, "layer_norm_2"),
        }
    }

    fn forward(
        &self,
        parameters: &ByName,
        x: &[f64],
        mask: AttentionMask<'_>,
    ) -> (Vec<f64>, EncoderSaved) {
        let (x, attention) = self.attention.forward(parameters, x, x, mask);
        let (y, feed_forward) = self.feed_forward.forward(parameters, &x);
        let saved = EncoderSaved {
            attention,
            feed_forward,
        };
        (y, saved)
    }

    fn backward(
        &self,
        parameters: &ByName,
        saved: &EncoderSaved,
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> Vec<f64> {
        let d_x = self
            .feed_forward
            .backward(parameters, &saved.feed_forward, d_y, gradients);
        let (d_x, d_context) =
            self.attention
                .backward(parameters, &saved.attention, &d_x, gradients);
        sum(&d_x, &d_context)
    }
}

struct DecoderLayer {
    attention: AttentionSublayer,
    cross: AttentionSublayer,
    feed_forward: FeedForwardSublayer,
}

struct DecoderSaved {
    attention: AttentionSublayerSaved,
    cross: AttentionSublayerSaved,
    feed_forward: FeedForwardSublayerSaved,
}

impl DecoderLayer {
    fn new(index: usize) -> Self {
        let name = format!("decoder.{index}");
        Self {
            attention: AttentionSublayer::new(&name, "attention", "layer_norm"),
            cross: AttentionSublayer::new(&name, "cross", "layer_norm_2"),
            feed_forward: FeedForwardSublayer::new(&name, "layer_norm_3"),
        }
    }

    fn forward(
        &self,
        parameters: &ByName,
        x: &[f64],
        memory: &[f64],
        padding: AttentionMask<'_>,
    ) -> (Vec<f64>, DecoderSaved) {
        let (x, attention) = self
            .attention
            .forward(parameters, x, x, AttentionMask::Causal);
        let (x, cross) = self.cross.forward(parameters, &x, memory, padding);
        let (y, feed_forward) = self.feed_forward.forward(parameters, &x);
        let saved = DecoderSaved {
            attention,
            cross,
            feed_forward,
        };
        (y, saved)
    }

    /// The gradients of `x` and of the memory.
    fn backward(
        &self,
        parameters: &ByName,
        saved: &DecoderSaved,
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> (Vec<f64>, Vec<f64>) {
        let d_x = self
            .feed_forward
            .backward(parameters, &saved.feed_forward, d_y, gradients);
        let (d_x, d_memory) = self
            .cross
            .backward(parameters, &saved.cross, &d_x, gradients);
        let (d_x, d_context) =
            self.attention
                .backward(parameters, &saved.attention, &d_x, gradients);
        (sum(&d_x, &d_context), d_memory)
    }
}

/// `y = norm(x + attention(x, context))`
struct AttentionSublayer {
    attention: Attention,
    norm: LayerNorm,
}

struct AttentionSublayerSaved {
    attention: AttentionSaved,
    sum: Vec<f64>,
}

impl AttentionSublayer {
    fn new(layer: &str, attention: &str, norm: &str) -> Self {
        Self {
            attention: Attention::new(&format!("{layer}.{attention}"), HEADS, D_MODEL),
            norm: LayerNorm::new(&format!("{layer}.{norm}"), D_MODEL),
        }
    }

    fn forward(
        &self,
        parameters: &ByName,
        x: &[f64],
        context: &[f64],
        mask: AttentionMask<'_>,
    ) -> (Vec<f64>, AttentionSublayerSaved) {
        let (attended, attention) = self.attention.forward(parameters, x, context, BATCH, mask);
        let sum = sum(x, &attended);
        let y = self.norm.forward(parameters, &sum);
        (y, AttentionSublayerSaved { attention, sum })
    }

    /// The gradients of `x` and of the context.
    fn backward(
        &self,
        parameters: &ByName,
        saved: &AttentionSublayerSaved,
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> (Vec<f64>, Vec<f64>) {
        let d_sum = self.norm.backward(parameters, &saved.sum, d_y, gradients);
        let (d_x, d_context) =
            self.attention
                .backward(parameters, &saved.attention, &d_sum, gradients);
        (sum(&d_sum, &d_x), d_context)
    }
}

/// `y = norm(x + feed_forward(x))`
struct FeedForwardSublayer {
    feed_forward: FeedForward,
    norm: LayerNorm,
}

struct FeedForwardSublayerSaved {
    feed_forward: FeedForwardSaved,
    sum: Vec<f64>,
}

impl FeedForwardSublayer {
    fn new(layer: &str, norm: &str) -> Self {
        let name = format!("{layer}.feed_forward");
        Self {
            feed_forward: FeedForward::new(&name, D_MODEL, HIDDEN, RELU),
            norm: LayerNorm::new(&format!("{layer}.{norm}"), D_MODEL),
        }
    }

    fn forward(&self, parameters: &ByName, x: &[f64]) -> (Vec<f64>, FeedForwardSublayerSaved) {
        let (fed, feed_forward) = self.feed_forward.forward(parameters, x);
        let sum = sum(x, &fed);
        let y = self.norm.forward(parameters, &sum);
        (y, FeedForwardSublayerSaved { feed_forward, sum })
    }

    fn backward(
        &self,
        parameters: &ByName,
        saved: &FeedForwardSublayerSaved,
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> Vec<f64> {
        let d_sum = self.norm.backward(parameters, &saved.sum, d_y, gradients);
        let d_x = self
            .feed_forward
            .backward(parameters, &saved.feed_forward, &d_sum, gradients);
        sum(&d_sum, &d_x)
    }
}

#[test]
fn training_for_twenty_steps_is_the_same_as_by_hand() {
    let transformer = Transformer::new();
    steps::are_the_same(declared(), loss, |parameters, step| {
        transformer.train(parameters, &Batch::of_step(step))
    });
}
