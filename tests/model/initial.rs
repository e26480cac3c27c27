//! The initial distribution of a model's layers is that of `init`, or PyTorch's without it.

use attn::{
    dfdx::prelude::*,
    model,
    ops::{CrossEntropyOptions, cross_entropy},
    train::{AdamW, AdamWConfig, ParameterInfo},
};
use support::{
    initial::{
        ONE, Start, ZERO, assert_orthogonal, assert_starts, kaiming, linear, normal, truncated,
        uniform, xavier,
    },
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

model! {
    /// Every distribution, of the weights of layers and of learned tensors.
    struct Distributions<d = 48>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param number: [d] = -0.5;
        param constant: [] = STD;
        param zero: [d] = zeros;
        param one: [1, d] = ones;
        param normal: [64, d] = normal(0.02);
        param truncated: [64, d] = truncated_normal(STD);
        param uniform: [64, d] = uniform(bound = 0.1);
        param xavier: [64, d] = xavier_uniform;
        param xavier_normal: [64, d] = xavier_normal;
        param kaiming: [64, d] = kaiming_uniform;
        param kaiming_normal: [64, d] = kaiming_normal;
        param filters: [64, d, 5] = kaiming_uniform;
        let tables = normal + truncated + uniform + xavier + xavier_normal + kaiming + kaiming_normal;
        let mut x = x * number + constant + zero + one[1 = 0] + tables[64 = 0] + filters[64 = 0, 5 = 0];
        repeat 2 {
            param gate: [96] = uniform(0.2);
            x += linear::<d, init = truncated_normal(0.02)>(gate * linear::<96, init = uniform(0.3)>(x));
            x += feed_forward::<80, init = xavier_normal>(x);
            x += feed_forward::<80, init = kaiming_normal>(x);
            x += attention::<heads = 4, init = truncated_normal(0.5)>(x);
            x += linear::<d, bias = false, init = zeros, name = nothing>(x);
        }
        x
    }
}

/// The names under which learned tensors are saved, and how they begin.
fn starts_of_distributions() -> Vec<(String, Start)> {
    let tensors = [
        ("number", Start::Constant(-0.5)),
        ("constant", Start::Constant(0.25)),
        ("zero", ZERO),
        ("one", ONE),
        ("normal", normal(0.02)),
        ("truncated", truncated(0.25)),
        ("uniform", uniform(0.1)),
        ("xavier", xavier(48, 64)),
        ("xavier_normal", normal((2.0 / 112_f64).sqrt())),
        ("kaiming", kaiming(48)),
        ("kaiming_normal", normal((2.0 / 48_f64).sqrt())),
        // The fans of PyTorch: [out, in, ..] has `in` times the rest.
        ("filters", kaiming(48 * 5)),
    ];
    let weight = |name: &str| format!("{name}.weight");
    let mut all = tensors.map(|(name, start)| (weight(name), start)).to_vec();
    let projections = ["q", "k", "v", "o"].map(|projection| format!("attention.{projection}_proj"));
    for round in ["blocks.0", "blocks.1"] {
        let mut push = |name: &str, start| all.push((weight(&format!("{round}.{name}")), start));
        push("gate", uniform(0.2));
        push("linear", uniform(0.3));
        push("linear_2", truncated(0.02));
        for layer in ["feed_forward.up_proj", "feed_forward.down_proj"] {
            push(layer, normal((2.0 / 128_f64).sqrt()));
        }
        push("feed_forward_2.up_proj", normal((2.0 / 48_f64).sqrt()));
        push("feed_forward_2.down_proj", normal((2.0 / 80_f64).sqrt()));
        for name in &projections {
            push(name, truncated(0.5));
        }
        push("nothing", ZERO);
    }
    all
}

#[test]
fn every_distribution_is_that_of_layers_and_of_learned_tensors() {
    let model = Cpu::seed_from_u64(3).build_module::<Distributions, f64>();
    let found = parameters(&model);
    let weights: Vec<_> = found
        .iter()
        .filter(|p| p.name.ends_with(".weight"))
        .collect();
    let expected = starts_of_distributions();
    let names = weights.iter().map(|parameter| &parameter.name);
    assert_eq!(
        names.collect::<Vec<_>>(),
        expected.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    for (parameter, (name, start)) in weights.iter().zip(expected) {
        assert_starts(&name, &parameter.values, start);
    }
    let count: usize = found.iter().map(|parameter| parameter.values.len()).sum();
    assert_eq!(count, Distributions::PARAMS);
}

model! {
    struct Orthogonal<d = 12>;

    fn forward(x: [batch, d]) -> [batch, 30] {
        param wide: [5, d] = orthogonal;
        param tall: [d, 5] = orthogonal;
        param cube: [7, 3, d] = orthogonal;
        let x = x * wide[5 = 0] + tall[5 = 0] + cube[7 = 0, 3 = 0];
        linear::<30, init = orthogonal>(feed_forward::<16, init = orthogonal>(x))
    }
}

#[test]
fn orthogonal_matrices_have_perpendicular_rows_or_columns() {
    let model = Cpu::seed_from_u64(4).build_module::<Orthogonal, f64>();
    let found = parameters(&model);
    let weights: Vec<_> = found
        .iter()
        .filter(|p| p.name.ends_with(".weight"))
        .collect();
    assert_eq!(weights.len(), 6);
    for parameter in weights {
        assert_orthogonal(&parameter.name, &parameter.dims, &parameter.values);
    }
}

#[test]
fn learned_tensors_are_saved_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.safetensors");
    let saved = Cpu::seed_from_u64(1).build_module::<Distributions, f32>();
    saved.save_safetensors(&file).unwrap();
    let mut loaded = Cpu::seed_from_u64(2).build_module::<Distributions, f32>();
    assert_ne!(parameters(&loaded), parameters(&saved));
    loaded.load_safetensors(&file).unwrap();
    assert_eq!(parameters(&loaded), parameters(&saved));
}

model! {
    struct Decaying<d = 4>;

    fn forward(x: [batch, d]) -> [batch, d] {
        param matrix: [3, d] = ones;
        param vector: [d] = ones;
        param number: [] = 1;
        param key_bias: [3, d] = ones;
        let y = matrix[3 = 0] + key_bias[3 = 0];
        number * (x * vector + y)
    }
}

/// The rule is that of other tensors: a vector and a bias do not decay.
#[test]
fn learned_tensors_with_two_axes_decay() {
    let mut model = Cpu::default().build_module::<Decaying, f64>();
    let x: Tensor<Rank2<2, 4>, f64, _> = Cpu::default().zeros();
    let y = model.forward_mut(x.leaky_traced());
    // The gradients are 0, so what changes decays.
    let mut gradients = (y * 0.0).sum().backward();
    let settings = AdamWConfig {
        lr: 0.1,
        weight_decay: 0.5,
        ..AdamWConfig::default()
    };
    AdamW::new(settings)
        .update(&mut model, &mut gradients)
        .unwrap();
    for parameter in parameters(&model) {
        let decayed = if parameter.name == "matrix.weight" {
            1.0 - 0.1 * 0.5
        } else {
            1.0
        };
        assert!(
            parameter.values.iter().all(|value| *value == decayed),
            "{parameter:?}"
        );
    }
}
