//! The models that are predicted, and the sizes of their parameters. They are declared, and never built.

use attn::model;

use crate::sizes::{Size, VOCAB};

/// The tokens of GPT-2.
const GPT2_VOCAB: usize = 50_257;
/// The longest text of GPT-2.
pub(crate) const GPT2_LENGTH: usize = 1024;

/// Declares a model of the sizes of GPT-2, whose output layer shares the table of tokens.
macro_rules! gpt2 {
    ($Name:ident, layers = $layers:literal, width = $width:literal, heads = $heads:literal) => {
        model! {
            #[allow(dead_code, reason = "it is never built")]
            struct $Name<d_model = $width, layers = $layers>;

            fn forward(tokens: ids[batch, seq]) -> [batch, seq, GPT2_VOCAB] {
                let mut x = embedding::<GPT2_VOCAB, d_model>(tokens) + learned_position::<GPT2_LENGTH, d_model>(tokens);
                repeat layers {
                    x += attention::<$heads, d_model, mask = causal>(layer_norm(x));
                    x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
                }
                linear::<tied = embedding>(layer_norm(x))
            }
        }
    };
}

gpt2!(Gpt2, layers = 12, width = 768, heads = 12);
gpt2!(Gpt2Xl, layers = 48, width = 1600, heads = 25);

/// A model to predict.
pub(crate) struct Predicted {
    pub(crate) name: &'static str,
    /// The numbers of each parameter.
    pub(crate) lens: Vec<usize>,
    /// The operations of a training step with so many sequences.
    pub(crate) work: fn(sequences: usize) -> f64,
}

pub(crate) fn predicted() -> [Predicted; 2] {
    const fn size(name: &'static str, layers: usize, d_model: usize, batch: usize) -> Size {
        Size {
            name,
            layers,
            d_model,
            length: GPT2_LENGTH,
            batch,
        }
    }
    [
        Predicted {
            name: "124 M",
            lens: lens_of_gpt(&size("", 12, 768, 1), GPT2_VOCAB, true),
            work: |sequences| {
                size("", 12, 768, sequences).work(Gpt2::flops(sequences, GPT2_LENGTH))
            },
        },
        Predicted {
            name: "1.5 B",
            lens: lens_of_gpt(&size("", 48, 1600, 1), GPT2_VOCAB, true),
            work: |sequences| {
                size("", 48, 1600, sequences).work(Gpt2Xl::flops(sequences, GPT2_LENGTH))
            },
        },
    ]
}

/// The numbers of each parameter of a GPT, in the order of the model.
pub(crate) fn lens_of_gpt(size: &Size, vocab: usize, is_tied: bool) -> Vec<usize> {
    let d = size.d_model;
    let map = |input: usize, outputs: usize| [input * outputs, outputs];
    let norm = [d, d];
    let mut lens = vec![vocab * d, size.length * d];
    for _ in 0..size.layers {
        lens.extend(norm);
        (0..4).for_each(|_| lens.extend(map(d, d)));
        lens.extend(norm);
        lens.extend(map(d, 4 * d));
        lens.extend(map(4 * d, d));
    }
    lens.extend(norm);
    if !is_tied {
        lens.extend(map(d, vocab));
    }
    lens
}

/// The same of the models that are measured.
pub(crate) fn lens_of_size(size: &Size) -> Vec<usize> {
    lens_of_gpt(size, VOCAB, false)
}

#[cfg(test)]
mod tests {
    use attn::{dfdx::prelude::*, train::AdamWConfig};

    use super::*;
    use crate::sizes::{MEDIUM, Medium, SMALL, Small};

    #[test]
    fn parameters_of_predicted_models_are_those_that_are_declared() {
        let [small, large] = predicted().map(|model| model.lens.iter().sum::<usize>());
        assert_eq!([small, large], [Gpt2::PARAMS, Gpt2Xl::PARAMS]);
        assert_eq!(Gpt2::PARAMS, 124_439_808);
        assert_eq!(Gpt2Xl::PARAMS, 1_557_611_200);
        assert_eq!(lens_of_size(&MEDIUM).iter().sum::<usize>(), Medium::PARAMS);
    }

    #[test]
    fn parameters_of_a_measured_model_are_those_of_its_trainer() {
        let model = Cpu::default().build_module::<Small, f32>();
        let parameters = model.trainer(AdamWConfig::default()).parameters();
        let found = parameters
            .iter()
            .map(|of| of.dims.iter().product::<usize>());
        assert_eq!(found.collect::<Vec<_>>(), lens_of_size(&SMALL));
    }

    #[test]
    fn work_of_a_step_is_six_operations_for_each_token_and_weight() {
        let [small, _] = predicted();
        let tokens = (2 * GPT2_LENGTH) as f64;
        // The table of tokens is the output layer; positions, biases and norms have no product.
        let weights = 50_257 * 768 + 12 * 12 * 768 * 768;
        // A causal score: half of the square, 2 x 2 operations per number forward, and 2.5 times as many backward.
        let scores = 3.5 * 4.0 * 0.5 * tokens * (GPT2_LENGTH * 12 * 768) as f64;
        let expected = 6.0 * tokens * f64::from(weights) + scores;
        assert!(((small.work)(2) / expected - 1.0).abs() < 1e-12);
    }
}
