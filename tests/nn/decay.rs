//! The parameters that decay.

use super::*;
use attn::{
    attention, model,
    nn::{
        Embedding, FeedForward, LayerNorm, LearnedPosition, Linear, Relu, RmsNorm, UnbiasedLinear,
    },
    train::{AdamW, AdamWConfig},
};
use dfdx::nn::{builders, modules};
use support::tensors::{fill, parameters};

/// A step without gradients only decays: it halves a parameter, or leaves it unchanged.
fn optimizer() -> AdamW<f64> {
    AdamW::new(AdamWConfig {
        lr: 1.0,
        weight_decay: 0.5,
        ..Default::default()
    })
}

/// The names of the parameters that decay.
fn decaying_with<M: TensorCollection<f64, Cpu>>(
    mut optimizer: AdamW<f64>,
    model: &mut M,
) -> Vec<String> {
    fill(model, |_, values| vec![1.0; values.len()]);
    let mut gradients = model.alloc_grads();
    optimizer.update(model, &mut gradients).unwrap();
    let decayed = parameters(model).into_iter().filter(|parameter| {
        let halved = parameter.values[0] == 0.5;
        let expected = if halved { 0.5 } else { 1.0 };
        assert!(
            parameter.values.iter().all(|&x| x == expected),
            "{parameter:?}"
        );
        halved
    });
    decayed.map(|parameter| parameter.name).collect()
}

fn decaying<M: BuildOnDevice<Cpu, f64>>() -> Vec<String>
where
    M::Built: TensorCollection<f64, Cpu>,
{
    decaying_with(optimizer(), &mut Cpu::default().build_module::<M, f64>())
}

#[test]
fn matrices_of_our_layers_decay() {
    type Layers = (
        (Embedding<7, 4>, LearnedPosition<9, 4>),
        Repeated<LearnedPosition<9, 4>, 2>,
        (LayerNorm<4>, RmsNorm<4>),
        Linear<4, 4>,
        UnbiasedLinear<4, 1>,
        FeedForward<4, 8, Relu>,
    );
    let expected = [
        "3.weight",
        "4.weight",
        "5.up_proj.weight",
        "5.down_proj.weight",
    ];
    assert_eq!(decaying::<Layers>(), expected);
    // A model that is a table.
    assert_eq!(decaying::<Embedding<7, 4>>(), [""; 0]);
}

#[test]
fn matrices_of_dfdx_layers_decay() {
    type Layers = (
        builders::Embedding<7, 4>,
        LayerNorm1D<4>,
        BatchNorm1D<4>,
        Residual<(builders::Linear<4, 4>, builders::Embedding<7, 4>)>,
        MultiHeadAttention<4, 2>,
    );
    let expected = [
        "3.0.0.weight",
        "4.w_q.weight",
        "4.w_k.weight",
        "4.w_v.weight",
        "4.w_o.weight",
    ];
    assert_eq!(decaying::<Layers>(), expected);
}

attention! {
    struct Attention<heads = 2, d_model = 4, position = rel_pos_bias, qk_norm = rms> {
        param slope: [heads] = ones;
        param far_bias: [heads, 8] = ones;
        param table: [heads, 8] = ones;
        fn score(score, h, q_idx, kv_idx) {
            score * slope[h] + far_bias[h, min(abs(q_idx - kv_idx), 7)] + table[h, min(kv_idx, 7)]
        }
    }
}

#[test]
fn parameters_of_attention_decay_except_gains_and_biases() {
    let expected = [
        "q_proj.weight",
        "k_proj.weight",
        "v_proj.weight",
        "table.weight",
        "o_proj.weight",
    ];
    assert_eq!(decaying::<Attention>(), expected);
}

model! {
    struct Gpt<vocab = 7, d = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d, name = wte>(tokens) + learned_position::<9, d, name = wpe>(tokens);
        repeat 1 {
            x = x + attention::<2, d, name = attn>(layer_norm(x));
            x = x + linear::<d, name = embedding>(x);
        }
        let tied = linear::<tied = wte>(x);
        tied + linear::<vocab, name = head, bias = false>(x)
    }
}

#[test]
fn decay_in_a_model_depends_on_the_layer_and_not_its_name() {
    let expected = [
        "blocks.0.attn.q_proj.weight",
        "blocks.0.attn.k_proj.weight",
        "blocks.0.attn.v_proj.weight",
        "blocks.0.attn.o_proj.weight",
        "blocks.0.embedding.weight",
        "head.weight",
    ];
    assert_eq!(decaying::<Gpt>(), expected);
}

/// User layers with the names of those of `nn` are not tables.
mod of_that_name {
    attn::attention! {
        pub(super) struct Embedding<heads = 2, d_model = 4, bias = false>;
        pub(super) struct LearnedPosition<heads = 2, d_model = 4, bias = false>;
    }
}

#[test]
fn user_types_with_the_name_of_a_table_decay() {
    let decaying = decaying::<(of_that_name::Embedding, of_that_name::LearnedPosition)>();
    assert_eq!(decaying.len(), 8);
}

/// If one of them decayed, they would differ after the first step.
#[test]
fn parameters_that_share_a_table_do_not_decay() {
    let dev = Cpu::default();
    let table = dev.build_module::<Embedding<7, 4>, f64>();
    let theirs = modules::Embedding {
        weight: table.weight.clone(),
    };
    let output = UnbiasedLinear {
        weight: table.weight.clone(),
    };
    let alone = dev.build_module::<UnbiasedLinear<4, 7>, f64>();
    let mut before = (alone.clone(), table, output.clone());
    assert_eq!(decaying_with(optimizer(), &mut before), ["0.weight"]);
    let mut after = (output, alone, theirs);
    assert_eq!(decaying_with(optimizer(), &mut after), ["1.weight"]);
}

#[test]
fn decay_can_be_chosen_by_name_sizes_and_module() {
    type Model = (Embedding<7, 4>, Linear<4, 5>, LayerNorm<5>);
    let chosen = |optimizer| {
        let mut model = Cpu::default().build_module::<Model, f64>();
        decaying_with(optimizer, &mut model)
    };
    let all = ["0.weight", "1.weight", "1.bias", "2.weight", "2.bias"];
    assert_eq!(chosen(optimizer().decaying(|_| true)), all);
    assert_eq!(
        chosen(optimizer().decaying(|it| it.name == "1.bias")),
        ["1.bias"]
    );
    assert_eq!(
        chosen(optimizer().decaying(|it| it.dims == [7, 4])),
        ["0.weight"]
    );
    assert_eq!(
        chosen(optimizer().decaying(|it| it.module.contains("LayerNorm"))),
        ["2.weight", "2.bias"]
    );
    assert_eq!(
        chosen(optimizer().decaying(|it| it.decays_by_default() || it.name == "2.bias")),
        ["1.weight", "2.bias"]
    );
}
