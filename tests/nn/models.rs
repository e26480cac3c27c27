//! The layers in models: in dfdx's tuples and containers, trained, converted, saved and loaded.

use super::*;
use attn::{
    attention,
    nn::{
        Dropout, Embedding, FeedForward, GatedFeedForward, Gelu, GeluTanh, LayerNorm,
        LearnedPosition, Linear, Residual, RmsNorm, Silu, SwiGlu, UnbiasedLinear,
    },
    ops::{CrossEntropyOptions, cross_entropy},
    testing::{Compare, Tolerance},
    train::{AdamW, AdamWConfig, clip_grad_norm},
};
use dfdx::nn::builders;
use support::tensors::{flat, parameters};

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal>;
}

const VOCAB: usize = 11;

type Block = (
    Residual<(LayerNorm<8>, Causal, Dropout)>,
    Residual<(LayerNorm<8>, FeedForward<8, 32, GeluTanh>)>,
);

type Gpt = (
    Embedding<VOCAB, 8>,
    LearnedPosition<16, 8>,
    Repeated<Block, 2>,
    LayerNorm<8>,
    UnbiasedLinear<8, VOCAB>,
);

/// The same model of dfdx's layers.
type Theirs = (
    builders::Embedding<VOCAB, 8>,
    LearnedPosition<16, 8>,
    Repeated<
        (
            builders::Residual<(LayerNorm1D<8>, Causal)>,
            builders::Residual<(
                LayerNorm1D<8>,
                (builders::Linear<8, 32>, FastGeLU, builders::Linear<32, 8>),
            )>,
        ),
        2,
    >,
    LayerNorm1D<8>,
    builders::UnbiasedLinear<8, VOCAB>,
);

fn tokens(seed: usize) -> Tensor<(usize, usize), usize, Cpu> {
    let tokens = (0..24).map(|i| (i * i + seed) % VOCAB).collect();
    Cpu::default().tensor_from_vec(tokens, (2, 12))
}

#[test]
fn a_model_equals_one_of_dfdx_layers() {
    let dev = Cpu::default();
    let mut ours = dev.build_module::<Gpt, f64>();
    support::tensors::fill(&mut ours, |name, values| {
        let numbers = scattered(name, values.len());
        numbers.iter().map(|v| 0.5 * v).collect()
    });
    let theirs = dev.build_module::<Theirs, f64>();
    // Sums over the two sequences, of what two blocks have rounded.
    let tolerance = 100.0 * tolerance::<f64>();
    let compared = Compare::default().tolerance(Tolerance {
        rtol: tolerance,
        atol: tolerance,
    });
    let report = compared.run(&ours, &theirs, tokens(1));
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.tensors.len(), 1 + parameters(&ours).len());
}

#[test]
fn a_model_learns_to_repeat() {
    let dev = Cpu::seed_from_u64(2);
    let mut model = dev.build_module::<Gpt, f32>();
    let config = AdamWConfig {
        lr: 0.01,
        ..Default::default()
    };
    let mut optimizer = AdamW::new(config);
    let mut gradients = model.alloc_grads();
    let mut losses = Vec::new();
    for _ in 0..60 {
        let ids = tokens(0);
        let targets = tokens(0);
        let logits = model.forward_mut(ids.traced(gradients));
        let loss = cross_entropy(logits, &targets, CrossEntropyOptions::default());
        losses.push(loss.array());
        gradients = loss.backward();
        clip_grad_norm(&model, &mut gradients, 1.0).unwrap();
        optimizer.update(&mut model, &mut gradients).unwrap();
        model.zero_grads(&mut gradients);
    }
    // It starts at about ln 11 = 2.4 and more.
    assert!(losses[0] > 1.5 && losses[59] < 0.3, "{losses:?}");
}

#[test]
fn names_are_those_of_pytorch() {
    type All = (
        Linear<3, 4>,
        UnbiasedLinear<4, 6>,
        SwiGlu<3>,
        (LayerNorm<3>, RmsNorm<3>),
        Residual<(FeedForward<3, 5>, Dropout, GatedFeedForward<3, 7>)>,
    );
    let names: Vec<_> = parameters(&Cpu::default().build_module::<All, f32>())
        .into_iter()
        .map(|p| (p.name, p.dims))
        .collect();
    let expected: [(&str, &[usize]); 13] = [
        ("0.weight", &[4, 3]),
        ("0.bias", &[4]),
        ("1.weight", &[6, 4]),
        ("3.0.weight", &[3]),
        ("3.0.bias", &[3]),
        ("3.1.weight", &[3]),
        ("4.0.0.up_proj.weight", &[5, 3]),
        ("4.0.0.up_proj.bias", &[5]),
        ("4.0.0.down_proj.weight", &[3, 5]),
        ("4.0.0.down_proj.bias", &[3]),
        ("4.0.2.gate_proj.weight", &[7, 3]),
        ("4.0.2.up_proj.weight", &[7, 3]),
        ("4.0.2.down_proj.weight", &[3, 7]),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(name, dims)| (name.to_owned(), dims.to_vec()))
        .collect();
    assert_eq!(names, expected);
}

#[test]
fn files_hold_only_the_parameters() {
    let dir = tempfile::tempdir().expect("a place for files");
    let file = dir.path().join("m.safetensors");
    let archive = dir.path().join("m.npz");
    let saved = Cpu::seed_from_u64(1).build_module::<Gpt, f32>();
    saved.save_safetensors(&file).expect("a file is written");
    saved.save(&archive).expect("a file is written");
    let bytes = std::fs::read(&file).expect("the file was written");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header = String::from_utf8_lossy(&bytes[8..8 + len]);
    for p in parameters(&saved) {
        let dims = format!("{:?}", p.dims).replace(' ', "");
        let entry = format!("\"{}\":{{\"dtype\":\"F32\",\"shape\":{dims},", p.name);
        assert!(header.contains(&entry), "{entry} in {header}");
    }
    assert_eq!(header.matches("dtype").count(), parameters(&saved).len());

    let mut loaded = Cpu::seed_from_u64(2).build_module::<Gpt, f32>();
    assert_ne!(parameters(&loaded), parameters(&saved));
    loaded.load_safetensors(&file).expect("the file is read");
    assert_eq!(parameters(&loaded), parameters(&saved));
    let mut loaded = Cpu::seed_from_u64(3).build_module::<Gpt, f32>();
    loaded.load(&archive).expect("the file is read");
    assert_eq!(parameters(&loaded), parameters(&saved));
    let a = loaded.forward(tokens(3));
    let b = saved.forward(tokens(3));
    assert_eq!(a.as_vec(), b.as_vec());
}

#[test]
fn models_are_converted_reset_and_counted() {
    let mut model = Cpu::seed_from_u64(1).build_module::<Gpt, f32>();
    let block = 2 * LayerNorm::<8>::PARAMS + Causal::PARAMS + FeedForward::<8, 32>::PARAMS;
    let all = Embedding::<VOCAB, 8>::PARAMS
        + LearnedPosition::<16, 8>::PARAMS
        + 2 * block
        + LayerNorm::<8>::PARAMS
        + UnbiasedLinear::<8, VOCAB>::PARAMS;
    assert_eq!(model.num_trainable_params(), all);
    let double = model.to_dtype::<f64>();
    for (single, double) in parameters(&model).iter().zip(parameters(&double)) {
        assert_eq!(single.values, double.values, "{}", single.name);
    }
    let before = parameters(&model);
    model.reset_params();
    for (before, after) in before.iter().zip(parameters(&model)) {
        // The norms, and the biases of attention.
        let constant = before.values.iter().all(|&value| value == before.values[0]);
        assert_eq!(before.values == after.values, constant, "{}", before.name);
    }
}

#[test]
fn parameters_start_as_in_pytorch() {
    let dev = Cpu::seed_from_u64(4);
    let linear = dev.build_module::<Linear<64, 500>, f64>();
    // Uniform: all within the bound, and the variance a third of its square, up to five standard errors.
    let weight = flat(&linear.weight);
    assert!(
        weight
            .iter()
            .chain(&flat(&linear.bias))
            .all(|w| w.abs() <= 0.125 && *w != 0.0)
    );
    let variance = weight.iter().map(|w| w * w).sum::<f64>() / weight.len() as f64;
    assert!(
        (variance / (0.125 * 0.125 / 3.0) - 1.0).abs() < 0.03,
        "{variance}"
    );
    let embedding = dev.build_module::<Embedding<500, 64>, f64>();
    let weight = flat(&embedding.weight);
    let variance = weight.iter().map(|w| w * w).sum::<f64>() / weight.len() as f64;
    assert!((variance - 1.0).abs() < 0.04, "{variance}");
    assert!(weight.iter().any(|w| w.abs() > 3.0));
    let norm = dev.build_module::<LayerNorm<3>, f32>();
    assert_eq!(
        (norm.weight.array(), norm.bias.array()),
        ([1.0; 3], [0.0; 3])
    );
}

/// A layer adds to the gradient of its input.
#[test]
fn an_input_may_be_used_again() {
    type X = Tensor<Rank2<3, 8>, f64, Cpu>;
    type Y = Traced<Rank2<3, 8>, f64>;
    fn check<L>()
    where
        L: BuildModule<Cpu, f64> + Module<Y, Output = Y, Error = <Cpu as HasErr>::Err>,
    {
        let layer = L::build(&Cpu::default());
        let x: X = tensor("x", Default::default());
        let once = backpropagate(layer.forward(x.leaky_trace())).input("x", &x);
        let once = once.parameters(&());
        let again = backpropagate(Residual(layer).forward(x.leaky_trace())).input("x", &x);
        let weights = scattered("factors of the loss", 24);
        let expected: Vec<f64> = std::iter::zip(once.gradient("x"), weights)
            .map(|(gradient, weight)| gradient + weight)
            .collect();
        let again = again.parameters(&());
        let what = std::any::type_name::<L>();
        compare::assert_close(what, again.gradient("x"), &expected, tolerance::<f64>());
    }
    check::<Linear<8, 8, f64, Cpu>>();
    check::<FeedForward<8, 8, Gelu, f64, Cpu>>();
    check::<GatedFeedForward<8, 8, Silu, f64, Cpu>>();
    check::<LayerNorm<8, f64, Cpu>>();
    check::<RmsNorm<8, f64, Cpu>>();
    check::<Gelu>();
    check::<(Linear<8, 16, f64, Cpu>, SwiGlu<8>)>();
}

#[test]
fn a_block_of_such_layers_is_a_short_tape() {
    let dev = Cpu::default();
    let block = dev.build_module::<Block, f32>();
    let x: Tensor<Rank3<2, 5, 8>, f32, _> = tensor("x", Default::default());
    // Norm, attention, sum; norm, feed-forward, sum.
    assert_eq!(operations(block.forward(x.leaky_trace())), 6);
}

#[test]
fn layers_stand_in_dfdx_containers() {
    type Model = (
        builders::Residual<(RmsNorm<6>, FeedForward<6, 8>)>,
        Repeated<Residual<Linear<6, 6>>, 3>,
        (Gelu, SwiGlu<3>),
    );
    let model = Cpu::default().build_module::<Model, f64>();
    let x: Tensor<(usize, usize, Const<6>), f64, _> = tensor("x", (2, 3, Const));
    let y: Tensor<(usize, usize, Const<3>), f64, _> = model.forward(x);
    assert_eq!(y.shape().concrete(), [2, 3, 3]);
}
