//! DeepSeek-V2 (DeepSeek-AI 2024): keys and values are made of a latent for each token, and experts are chosen from some groups of them.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `deepseek-ai/DeepSeek-V2`: 236 billion parameters, of which a token reads 21 billion.
    pub struct DeepseekV2<
        vocab = 102400, d_model = 5120, heads = 128, q_rank = 1536, rank = 512, rot = 64, nope = 128, value = 128, dense = 1, layers = 60,
        hidden = 12288, experts = 160, groups = 8, best_groups = 3, chosen = 6, expert_hidden = 1536, shared = 2, routed_scale = 16.0,
        theta = 10000.0, factor = 40.0, original_max_len = 4096, mscale = 0.707,
    >;

    /// In training, each head has its keys and values.
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        deepseek_v2::<..>(tokens)
    }

    /// The same with queries that are brought to the latents: a session caches the latents alone.
    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        deepseek_v2::<absorbed = true, .., tied = deepseek_v2>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `DeepseekV2ForCausalLM` of `transformers`.
    pub block deepseek_v2(
        tokens: ids[batch, seq], vocab, d_model, heads, q_rank, rank, rot, nope, value, dense, layers, hidden, experts, groups, best_groups,
        chosen, expert_hidden, shared, routed_scale, theta, factor, original_max_len, mscale, absorbed = false,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat dense, name = dense {
            x += mla::<..>(rms_norm(x));
            x += feed_forward::<hidden, activation = swiglu>(rms_norm(x));
        }
        repeat { layers - dense } {
            x += mla::<..>(rms_norm(x));
            let y = rms_norm(x);
            let routed = moe::<hidden = expert_hidden, ..>(y);
            x += routed_scale * routed + feed_forward::<{ shared * expert_hidden }, activation = swiglu>(y);
        }
        linear::<vocab, bias = false>(rms_norm(x))
    }

    block mla(
        x: [batch, seq, n], heads, q_rank, rank, rot, nope, value, theta, factor, original_max_len, mscale, absorbed,
        all_nope = { heads * nope }, all_value = { heads * value },
    ) -> [batch, seq, n] {
        let q = rms_norm::<name = q_norm>(linear::<q_rank, bias = false, name = q_down>(x));
        // The scale of the scores, which is larger for long texts.
        let q = pow(0.1 * mscale * ln(factor) + 1, 2) / sqrt(rot + nope) * q;
        let rotated = linear::<{ heads * rot }, bias = false, name = q_rotated>(q);
        let rotated = rearrange::<[batch, seq, (heads, rot)] -> [batch, seq, heads, rot]>(rotated);
        let rotated = rope::<
            seq, theta = theta, interleaved = true, scaling = yarn(factor, original_max_len, attention_factor = 1.0),
        >(rotated);
        let content = linear::<{ heads * nope }, bias = false, name = q_content>(q);
        let content = rearrange::<[batch, seq, (heads, nope)] -> [batch, seq, heads, nope]>(content);
        let latent = rms_norm::<name = kv_norm>(linear::<rank, bias = false, name = kv_down>(x));
        let key = rope::<
            seq, theta = theta, interleaved = true, scaling = yarn(factor, original_max_len, attention_factor = 1.0),
        >(linear::<rot, bias = false, name = k_rotated>(x));
        param up_k: [all_nope, rank] = xavier_uniform;
        param up_v: [all_value, rank] = xavier_uniform;
        let up_k = rearrange::<[(heads, nope), rank] -> [heads, nope, rank]>(up_k);
        let up_v = rearrange::<[(heads, value), rank] -> [heads, value, rank]>(up_v);
        let y = if absorbed {
            einsum::<[batch, seq, heads, value]>(
                attend::<mask = causal, scale = 1>(
                    concat(rotated, einsum::<[batch, seq, heads, rank]>(content, up_k)), concat(key, latent), latent,
                ),
                up_v,
            )
        } else {
            attend::<mask = causal, scale = 1>(
                concat(rotated, content),
                concat(expand::<[batch, seq, heads, rot]>(key), einsum::<[batch, seq, heads, nope]>(latent, up_k)),
                einsum::<[batch, seq, heads, value]>(latent, up_v),
            )
        };
        linear::<n, bias = false, name = output>(rearrange::<[batch, seq, (heads, value)]>(y))
    }

    /// The experts that a router prefers, from the groups whose best experts it prefers, with its preference.
    block moe(x: [batch, seq, n], experts, groups, best_groups, chosen, hidden, each = { experts / groups }) -> [batch, seq, n] {
        let chances = softmax(linear::<experts, bias = false, name = gate>(x));
        let chances = rearrange::<[batch, seq, (groups, each)] -> [batch, seq, groups, each]>(chances);
        let (_best, ids) = top_k::<groups, k = best_groups>(max::<each>(chances));
        let chances = chances * sum::<best_groups>(one_hot::<groups>(ids));
        let (best, ids) = top_k::<experts, k = chosen>(rearrange::<[batch, seq, experts = (groups, each)]>(chances));
        let h = silu(grouped_linear::<hidden, experts, bias = false, name = gate_proj>(x, ids));
        let h = h * grouped_linear::<hidden, experts, bias = false, name = up_proj>(x, ids);
        sum::<chosen>(best * grouped_linear::<n, experts, bias = false, name = down_proj>(h, ids))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("deepseek_v2")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("q_lora_rank", "q_rank"),
            ("kv_lora_rank", "rank"),
            ("qk_rope_head_dim", "rot"),
            ("qk_nope_head_dim", "nope"),
            ("v_head_dim", "value"),
            ("first_k_dense_replace", "dense"),
            ("num_hidden_layers", "layers"),
            ("intermediate_size", "hidden"),
            ("n_routed_experts", "experts"),
            ("n_group", "groups"),
            ("topk_group", "best_groups"),
            ("num_experts_per_tok", "chosen"),
            ("moe_intermediate_size", "expert_hidden"),
            ("n_shared_experts", "shared"),
            ("routed_scaling_factor", "routed_scale"),
            ("rope_parameters.rope_theta", "theta"),
            ("rope_parameters.factor", "factor"),
            (
                "rope_parameters.original_max_position_embeddings",
                "original_max_len",
            ),
            ("rope_parameters.mscale", "mscale"),
            ("rope_parameters.mscale_all_dim", "mscale"),
        ])
        .value("rope_parameters.rope_type", "yarn")
        .value("rope_parameters.beta_fast", 32.0)
        .value("rope_parameters.beta_slow", 1.0)
        .value("topk_method", "group_limited_greedy")
        .value("norm_topk_prob", false)
        .value("hidden_act", "silu")
        .value("attention_bias", false)
        .value("rms_norm_eps", 1e-6)
        .value("tie_word_embeddings", false)
        .optional(["attention_bias"])
}

/// Its files, of a model with these numbers of heads, of layers without experts, of all layers, and of experts.
pub fn weights(heads: usize, dense: usize, layers: usize, experts: usize) -> WeightMap {
    let named = |(ours, theirs): (&str, &str)| Rule::new(ours, theirs);
    let attention = [
        ("q_down.*", "q_a_proj.*"),
        ("q_norm.*", "q_a_layernorm.*"),
        ("kv_norm.*", "kv_a_layernorm.*"),
        ("output.*", "o_proj.*"),
    ];
    let stacked = [
        ("kv_down.*", "kv_a_proj_with_mqa.*"),
        ("k_rotated.*", "kv_a_proj_with_mqa.*"),
    ];
    let of_heads = [
        ("q_content.*", "q_b_proj.*"),
        ("q_rotated.*", "q_b_proj.*"),
        ("up_k.*", "kv_b_proj.*"),
        ("up_v.*", "kv_b_proj.*"),
    ];
    let rules = attention.map(named).into_iter();
    let rules = rules.chain(stacked.map(|rule| named(rule).stacked()));
    let rules = rules.chain(of_heads.map(|rule| named(rule).stacked_in_groups(heads)));
    let layer = WeightMap::new(rules)
        .under("mla.", "self_attn.")
        .and(WeightMap::new(
            [
                ("rms_norm.*", "input_layernorm.*"),
                ("rms_norm_2.*", "post_attention_layernorm.*"),
            ]
            .map(named),
        ));
    let of_experts = ["gate_proj", "up_proj", "down_proj"].map(|name| {
        let theirs = format!("mlp.experts.{{expert}}.{name}.*");
        Rule::new(format!("moe.{name}.*"), theirs).per_expert(experts)
    });
    let shared = [
        ("moe.gate.*", "mlp.gate.*"),
        ("feed_forward.*", "mlp.shared_experts.*"),
    ];
    let mixture = WeightMap::new(of_experts.into_iter().chain(shared.map(named)));
    let mixture = layer.clone().and(mixture);
    let layer = layer.and(WeightMap::new([named(("feed_forward.*", "mlp.*"))]));
    let layers = (0..layers).map(|index| {
        let theirs = format!("model.layers.{index}.");
        match index.checked_sub(dense) {
            None => layer.clone().under(&format!("dense.{index}."), &theirs),
            Some(round) => mixture.clone().under(&format!("blocks.{round}."), &theirs),
        }
    });
    let ends = [
        ("embedding.*", "model.embed_tokens.*"),
        ("rms_norm.*", "model.norm.*"),
        ("linear.*", "lm_head.*"),
    ];
    layers
        .fold(WeightMap::new(ends.map(named)), WeightMap::and)
        .under("deepseek_v2.", "")
        .metadata("format", "pt")
}
