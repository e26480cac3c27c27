//! The initial distribution of a model's layers is that of `init`, or PyTorch's without it.

use attn::{
    dfdx::prelude::*,
    model,
    ops::{CrossEntropyOptions, cross_entropy},
    train::{AdamW, ParameterInfo},
};
use support::{
    initial::{ONE, Start, ZERO, assert_starts, kaiming, linear, normal, xavier},
    tensors::{fill, parameters},
};

const STD: f32 = 0.25;

model! {
    struct Asked<d = 48>;

    fn forward(ids: ids[batch, seq]) -> [batch, seq, 40] {
        let mut x = embedding::<40, d, init = normal(0.02)>(ids) + learned_position::<64, d, init = normal(STD)>(ids);
        repeat 2 {
            x += attention::<heads = 4, init = normal(0.5)>(layer_norm(x));
            x += feed_forward::<96, init = xavier_uniform>(x);
            x += feed_forward::<80, activation = swiglu, init = kaiming_uniform>(x);
            x += feed_forward::<64>(x);
        }
        x += embedding::<56, d>(ids) + learned_position::<72, d>(ids) + embedding::<24, d, init = xavier_uniform>(ids);
        x += linear::<d, init = normal(std = { 2.0 * 0.01 })>(x) + linear::<d, bias = false, init = kaiming_uniform>(x);
        linear::<40>(x) + linear::<tied = embedding>(x)
    }
}

/// The initial distribution of every parameter, in the order of the model.
fn expected() -> Vec<(String, Start)> {
    let mut all = vec![("embedding.weight".to_owned(), normal(0.02))];
    let mut push = |name: &str, start| all.push((name.to_owned(), start));
    push("learned_position.weight", normal(0.25));
    for round in ["blocks.0", "blocks.1"] {
        push(&format!("{round}.layer_norm.weight"), ONE);
        push(&format!("{round}.layer_norm.bias"), ZERO);
        for projection in ["q", "k", "v", "o"] {
            push(
                &format!("{round}.attention.{projection}_proj.weight"),
                normal(0.5),
            );
            push(&format!("{round}.attention.{projection}_proj.bias"), ZERO);
        }
        push(
            &format!("{round}.feed_forward.up_proj.weight"),
            xavier(48, 96),
        );
        push(&format!("{round}.feed_forward.up_proj.bias"), linear(48));
        push(
            &format!("{round}.feed_forward.down_proj.weight"),
            xavier(96, 48),
        );
        push(&format!("{round}.feed_forward.down_proj.bias"), linear(96));
        push(
            &format!("{round}.feed_forward_2.gate_proj.weight"),
            kaiming(48),
        );
        push(
            &format!("{round}.feed_forward_2.up_proj.weight"),
            kaiming(48),
        );
        push(
            &format!("{round}.feed_forward_2.down_proj.weight"),
            kaiming(80),
        );
        push(
            &format!("{round}.feed_forward_3.up_proj.weight"),
            linear(48),
        );
        push(&format!("{round}.feed_forward_3.up_proj.bias"), linear(48));
        push(
            &format!("{round}.feed_forward_3.down_proj.weight"),
            linear(64),
        );
        push(
            &format!("{round}.feed_forward_3.down_proj.bias"),
            linear(64),
        );
    }
    push("embedding_2.weight", normal(1.0));
    push("learned_position_2.weight", normal(0.02));
    push("embedding_3.weight", xavier(48, 24));
    push("linear.weight", normal(0.02));
    push("linear.bias", linear(48));
    push("linear_2.weight", kaiming(48));
    push("linear_3.weight", linear(48));
    push("linear_3.bias", linear(48));
    all
}

#[track_caller]
fn check<E: Dtype, M: TensorCollection<E, Cpu>>(model: &M)
where
    Cpu: Device<E>,
{
    let found = parameters(model);
    let expected = expected();
    let names = found.iter().map(|parameter| &parameter.name);
    assert!(names.eq(expected.iter().map(|(name, _)| name)));
    for (parameter, (name, start)) in found.iter().zip(expected) {
        assert_starts(&name, &parameter.values, start);
    }
}

#[test]
fn init_is_the_distribution_of_built_and_reset_models() {
    let mut model = Cpu::seed_from_u64(1).build_module::<Asked, f64>();
    check(&model);
    fill(&mut model, |_, values| vec![9.0; values.len()]);
    model.reset_params();
    check(&model);
}

#[test]
fn initial_values_depend_on_the_seed_of_the_device() {
    let built = |seed| parameters(&Cpu::seed_from_u64(seed).build_module::<Asked, f32>());
    assert_eq!(built(1), built(1));
    assert_ne!(built(1), built(2));
}

#[test]
fn a_table_that_begins_otherwise_is_a_table_still() {
    fn decays(parameter: &ParameterInfo<'_>) -> bool {
        let is_table = parameter.name.contains("embedding") || parameter.name.contains("position");
        let is_matrix = parameter.dims.len() == 2 && !is_table;
        assert_eq!(parameter.decays_by_default(), is_matrix, "{parameter:?}");
        is_matrix
    }
    let mut model = Cpu::default().build_module::<Asked, f32>();
    let ids: Tensor<Rank2<1, 3>, usize, Cpu> = Cpu::default().tensor([[3, 1, 4]]);
    let mut gradients = model.forward_mut(ids.leaky_traced()).sum().backward();
    let mut optimizer = AdamW::<f32>::new(Default::default()).decaying(decays);
    optimizer.update(&mut model, &mut gradients).unwrap();
}

/// A GPT whose table is tied to its output: with the initial distribution of nanoGPT, and with that of `torch.nn.Embedding`.
macro_rules! tied {
    ($Gpt:ident $($init:tt)*) => {
        model! {
            struct $Gpt<vocab = 65, d_model = 128>;

            fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
                let mut x = embedding::<vocab, d_model $($init)*>(tokens)
                    + learned_position::<32, d_model>(tokens);
                repeat 2 {
                    x += attention::<heads = 4, mask = causal, init = normal(0.02)>(layer_norm(x));
                    x += feed_forward::<512, init = normal(0.02)>(layer_norm(x));
                }
                linear::<tied = embedding>(layer_norm(x))
            }
        }
    };
}
tied!(Small, init = normal(0.02));
tied!(Large);

/// Eight rows of 32 characters of an unpredictable text, from this one on.
fn rows(from: usize) -> Tensor<Rank2<8, 32>, usize, Cpu> {
    let text = (0..8_usize).flat_map(|row| (0..32).map(move |column| 33 * row + column + from));
    let text: Vec<usize> = text.map(|i| i * i * 7919 / 31 % 65).collect();
    Cpu::default().tensor(text)
}

/// The loss before training, in both forms.
macro_rules! initial_losses {
    ($Gpt:ident) => {{
        let model = Cpu::seed_from_u64(5).build_module::<$Gpt, f32>();
        [model.forward(rows(0)), model.composed().forward(rows(0))]
            .map(|logits| cross_entropy(logits, &rows(1), CrossEntropyOptions::default()).array())
    }};
}

#[test]
fn a_tied_gpt_of_a_small_table_begins_with_the_loss_of_a_guess() {
    let guess = 65_f32.ln();
    // A logit is a sum of 128 products of about 1 and 0.02. Its deviation is 0.02 sqrt(128) = 0.23. The loss exceeds that of a
    // guess by half the square, 0.026. The table of `torch.nn.Embedding` is 50 times as large.
    for loss in initial_losses!(Small) {
        assert!(
            (loss / guess - 1.0).abs() < 0.03,
            "{loss} instead of {guess}"
        );
    }
    for loss in initial_losses!(Large) {
        assert!(loss > 5.0 * guess, "{loss}");
    }
}
