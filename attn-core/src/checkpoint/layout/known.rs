//! The layouts of other libraries.
//!
//! The names on the left are those of a `model!` with the declaration in the documentation of the map.

use super::{Rule, WeightMap};

/// A map that only renames: `(ours, theirs)`.
fn renamed(names: &[(&str, &str)]) -> WeightMap {
    WeightMap::new(names.iter().map(|&(ours, theirs)| Rule::new(ours, theirs)))
        .metadata("format", "pt")
}

/// `torch.nn.MultiheadAttention(d_model, heads)`, with or without bias.
///
/// The three input projections are stacked in one tensor, `in_proj_weight`, queries first.
///
/// ```text
/// attention! { struct SelfAttention<heads = 4, d_model = 32>; }
/// attention! { struct Cross<heads = 4, d_model = 32, d_context = 32>; }
/// attention! { struct QueryKeyValue<heads = 4, d_model = 32, d_context = 32, d_values = 32>; }
/// ```
///
/// Not covered: `add_bias_kv`, and `kdim` and `vdim`, for which there is [another map](torch_multihead_attention_apart).
/// `add_zero_attn` is `normalizer = softmax1`.
pub fn torch_multihead_attention() -> WeightMap {
    let projections = ["q", "k", "v"];
    let projections =
        projections.map(|name| Rule::new(format!("{name}_proj.*"), "in_proj_*").stacked());
    WeightMap::new(projections).and(renamed(&[("o_proj.*", "out_proj.*")]))
}

/// `torch.nn.MultiheadAttention(d_model, heads, kdim=d_context, vdim=d_values)`, where one of the two is not `d_model`, with or without
/// bias.
///
/// The weights of the input projections are separate tensors, their biases are one tensor.
///
/// ```text
/// attention! { struct Cross<heads = 4, d_model = 32, d_context = 24>; }
/// attention! { struct QueryKeyValue<heads = 4, d_model = 32, d_context = 24, d_values = 16>; }
/// ```
pub fn torch_multihead_attention_apart() -> WeightMap {
    let projections = ["q", "k", "v"].into_iter();
    let rules = projections.flat_map(|name| {
        let weight = Rule::new(format!("{name}_proj.weight"), format!("{name}_proj_weight"));
        let bias = Rule::new(format!("{name}_proj.bias"), "in_proj_bias");
        [weight, bias.stacked().optional()]
    });
    WeightMap::new(rules).and(renamed(&[("o_proj.*", "out_proj.*")]))
}

/// An attention whose heads are modules with matrices of their own, as tutorials write it:
///
/// ```text
/// class Head(nn.Module):                              class MultiHeadAttention(nn.Module):
///     self.query = nn.Linear(d_model, d_head)             self.heads = nn.ModuleList([Head() for _ in range(heads)])
///     self.key = nn.Linear(d_model, d_head)               self.proj = nn.Linear(heads * d_head, d_model)
///     self.value = nn.Linear(d_model, d_head)
/// ```
///
/// with or without biases. It fits
///
/// ```text
/// attention! { struct SelfAttention<heads = 4, d_model = 32>; }
/// ```
///
/// For other names, write the rules: those of [`per_head`](Rule::per_head).
pub fn heads_as_modules(heads: usize) -> WeightMap {
    let projections = [("q", "query"), ("k", "key"), ("v", "value")];
    let projections = projections.map(|(ours, theirs)| {
        Rule::new(
            format!("{ours}_proj.*"),
            format!("heads.{{head}}.{theirs}.*"),
        )
        .per_head(heads)
    });
    // The causal mask is a buffer of each head.
    WeightMap::new(projections)
        .and(renamed(&[("o_proj.*", "proj.*")]))
        .ignore("heads.{}.tril")
}

/// The `GPTLanguageModel` of Andrej Karpathy's lecture "Let's build GPT", whose attention is that of [`heads_as_modules`], with this number
/// of heads.
///
/// ```text
/// model! {
///     struct Gpt<vocab = 65, d_model = 384, heads = 6, layers = 6, max_len = 256>;
///
///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
///         let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
///         repeat layers {
///             x = x + attention::<heads, mask = causal, bias = [o]>(layer_norm(x));
///             x = x + feed_forward::<{ 4 * d_model }, activation = relu>(layer_norm(x));
///         }
///         linear::<vocab>(layer_norm(x))
///     }
/// }
/// ```
///
/// Its dropout is `attention::<.., dropout = 0.2>`, and `dropout::<0.2>(..)` around the attention and the feed-forward layer.
pub fn lecture_gpt(heads: usize) -> WeightMap {
    let layer = renamed(&[
        ("layer_norm.*", "ln1.*"),
        ("layer_norm_2.*", "ln2.*"),
        ("feed_forward.up_proj.*", "ffwd.net.0.*"),
        ("feed_forward.down_proj.*", "ffwd.net.2.*"),
    ]);
    let layer = layer.and(heads_as_modules(heads).under("attention.", "sa."));
    let ends = renamed(&[
        ("embedding.weight", "token_embedding_table.weight"),
        ("learned_position.weight", "position_embedding_table.weight"),
        ("layer_norm.*", "ln_f.*"),
        ("linear.*", "lm_head.*"),
    ]);
    layer.under("blocks.{}.", "blocks.{}.").and(ends)
}

/// `torch.nn.TransformerEncoderLayer(d_model, heads, dim_feedforward)`, with any `norm_first` and `activation`.
///
/// ```text
/// model! {
///     struct Layer<heads = 4, d_model = 32, hidden = 64>;
///
///     fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> [batch, seq, d_model] {
///         let x = layer_norm(x + attention::<heads, mask = padding>(x, padding = lens));
///         layer_norm(x + feed_forward::<hidden, activation = relu>(x))
///     }
/// }
/// ```
///
/// With `norm_first=True` the two lines are `let x = x + attention::<heads>(layer_norm(x));` and
/// `x + feed_forward::<hidden, activation = relu>(layer_norm(x))`. `src_key_padding_mask` is `mask = padding`.
///
/// For a `torch.nn.TransformerEncoder`, use this map
/// `.under("blocks.{}.", "layers.{}.")`, with the layer in a `repeat`.
pub fn torch_transformer_encoder_layer() -> WeightMap {
    let attention = torch_multihead_attention().under("attention.", "self_attn.");
    attention.and(renamed(&[
        ("feed_forward.up_proj.*", "linear1.*"),
        ("feed_forward.down_proj.*", "linear2.*"),
        ("layer_norm.*", "norm1.*"),
        ("layer_norm_2.*", "norm2.*"),
    ]))
}

/// `BertModel` of Hugging Face, with or without its pooler. For a model with a head, such as `BertForSequenceClassification`, use
/// this map `.under("", "bert.")`.
///
/// ```text
/// model! {
///     struct Bert<vocab = 30522, d_model = 768, heads = 12, layers = 12, hidden = 3072, max_len = 512>;
///
///     fn forward(tokens: ids[batch, seq], segments: ids[batch, seq], lens: lens[batch], first: lens[batch])
///         -> ([batch, seq, d_model], [batch, d_model])
///     {
///         let x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
///         let mut x = layer_norm::<epsilon = 1e-12>(x + embedding::<2, d_model, name = token_types>(segments));
///         repeat layers {
///             x = layer_norm::<epsilon = 1e-12>(x + attention::<heads, mask = padding>(x, padding = lens));
///             x = layer_norm::<epsilon = 1e-12>(x + feed_forward::<hidden, activation = gelu>(x));
///         }
///         let pooled = tanh(linear::<d_model, name = pooler>(mean_pool(x, first)));
///         (x, pooled)
///     }
/// }
/// ```
///
/// The pooler reads the first token: `first` is 1 for every sequence. To load a file with a pooler into a model without one, add
/// `.ignore("pooler.*")`.
///
/// A head for a new task, `linear::<labels, name = classifier>(pooled)`, is not in a pretrained file: add `.fresh("classifier.*")`
/// to keep its initial values.
///
/// The epsilon of the norms, `layer_norm_eps`, is in the config, not in the file. Its default is 1e-12; without the key, ours is 1e-5.
/// Padding is at the end of a sequence. Not covered: relative positions, and files from before 2020, whose norms have a `gamma` and a
/// `beta`.
pub fn hugging_face_bert() -> WeightMap {
    let layer = renamed(&[
        ("attention.q_proj.*", "attention.self.query.*"),
        ("attention.k_proj.*", "attention.self.key.*"),
        ("attention.v_proj.*", "attention.self.value.*"),
        ("attention.o_proj.*", "attention.output.dense.*"),
        ("layer_norm.*", "attention.output.LayerNorm.*"),
        ("feed_forward.up_proj.*", "intermediate.dense.*"),
        ("feed_forward.down_proj.*", "output.dense.*"),
        ("layer_norm_2.*", "output.LayerNorm.*"),
    ]);
    let embeddings = renamed(&[
        ("embedding.weight", "word_embeddings.weight"),
        ("learned_position.weight", "position_embeddings.weight"),
        ("token_types.weight", "token_type_embeddings.weight"),
        ("layer_norm.*", "LayerNorm.*"),
    ]);
    let pooler = Rule::new("pooler.*", "pooler.dense.*").optional();
    layer
        .under("blocks.{}.", "encoder.layer.{}.")
        .and(embeddings.ignore("position_ids").under("", "embeddings."))
        .and(WeightMap::new([pooler]))
}

/// `GPT2LMHeadModel` of Hugging Face.
///
/// Its `Conv1D` stores the transposed weight, and queries, keys and values are stacked in one tensor.
///
/// ```text
/// model! {
///     struct Gpt2<vocab = 50257, d_model = 768, heads = 12, layers = 12, max_len = 1024>;
///
///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
///         let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
///         repeat layers {
///             x = x + attention::<heads, mask = causal>(layer_norm(x));
///             x = x + feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
///         }
///         linear::<tied = embedding>(layer_norm(x))
///     }
/// }
/// ```
///
/// An untied head, `linear::<vocab, bias = false>(..)`, is `lm_head.weight`. For a file of the bare model, such as that of
/// `openai-community/gpt2`, use [`hugging_face_gpt2_model`]. Not covered: `scale_attn_by_inverse_layer_idx`.
///
/// nanoGPT has these names, but does not transpose: copy the map without [`transposed`](Rule::transposed).
pub fn hugging_face_gpt2() -> WeightMap {
    let model = hugging_face_gpt2_model().under("", "transformer.");
    model.and(head("lm_head", "transformer.wte.weight"))
}

/// `GPT2Model` of Hugging Face: [`hugging_face_gpt2`] without the prefix `transformer.` and without an untied head.
pub fn hugging_face_gpt2_model() -> WeightMap {
    let packed = ["q", "k", "v"].map(|name| {
        let ours = format!("blocks.{{}}.attention.{name}_proj.*");
        Rule::new(ours, "h.{}.attn.c_attn.*").transposed().stacked()
    });
    let transposed = [
        ("blocks.{}.attention.o_proj.*", "h.{}.attn.c_proj.*"),
        ("blocks.{}.feed_forward.up_proj.*", "h.{}.mlp.c_fc.*"),
        ("blocks.{}.feed_forward.down_proj.*", "h.{}.mlp.c_proj.*"),
    ];
    let transposed = transposed.map(|(ours, theirs)| Rule::new(ours, theirs).transposed());
    let named = renamed(&[
        ("embedding.weight", "wte.weight"),
        ("learned_position.weight", "wpe.weight"),
        ("blocks.{}.layer_norm.*", "h.{}.ln_1.*"),
        ("blocks.{}.layer_norm_2.*", "h.{}.ln_2.*"),
        ("layer_norm.*", "ln_f.*"),
    ]);
    // Old versions saved the causal mask.
    let named = named
        .ignore("h.{}.attn.bias")
        .ignore("h.{}.attn.masked_bias");
    WeightMap::new(packed.into_iter().chain(transposed)).and(named)
}

/// `LlamaForCausalLM` of Hugging Face, and models with the same names: Mistral, Qwen2 (`bias = [q, k, v]`), Qwen3 (`qk_norm = rms`,
/// `bias = false`).
///
/// ```text
/// model! {
///     struct Llama<vocab = 32000, d_model = 4096, heads = 32, kv_heads = 8, layers = 32, hidden = 14336>;
///
///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
///         let mut x = embedding::<vocab, d_model>(tokens);
///         repeat layers {
///             x = x + attention::<heads, kv_heads = kv_heads, mask = causal, position = rope, bias = false>(rms_norm(x));
///             x = x + feed_forward::<hidden, activation = swiglu>(rms_norm(x));
///         }
///         linear::<vocab, bias = false>(rms_norm(x))
///     }
/// }
/// ```
///
/// A tied head is `linear::<tied = embedding>(..)`. `rope_theta` is `position = rope(500000.0)`. The rotary embedding rotates the two
/// halves of a head, as ours does; for files with interleaved pairs use [`meta_llama`].
///
/// `rms_norm_eps` is in the config, not in the file. Our default is 1e-6, as in Llama 1; for another value write
/// `rms_norm::<epsilon = 1e-5>(..)`. So is `rope_scaling`: that of Llama 3.1 is
/// `position = rope(500000.0, scaling = llama3(factor = 8, low_freq_factor = 1, high_freq_factor = 4, original_max_len = 8192))`.
pub fn hugging_face_llama() -> WeightMap {
    let model = renamed(&[
        ("embedding.weight", "embed_tokens.weight"),
        ("blocks.{}.attention.*", "layers.{}.self_attn.*"),
        ("blocks.{}.feed_forward.*", "layers.{}.mlp.*"),
        ("blocks.{}.rms_norm.*", "layers.{}.input_layernorm.*"),
        (
            "blocks.{}.rms_norm_2.*",
            "layers.{}.post_attention_layernorm.*",
        ),
        ("rms_norm.*", "norm.*"),
    ]);
    let model = model.ignore("layers.{}.self_attn.rotary_emb.inv_freq");
    let model = model.under("", "model.");
    model.and(head("lm_head", "model.embed_tokens.weight"))
}

/// The files of Meta's Llama, for the model that [`hugging_face_llama`] shows, with these numbers of heads. Their rotary embedding
/// rotates interleaved pairs.
pub fn meta_llama(heads: usize, kv_heads: usize) -> WeightMap {
    let rotary = [
        Rule::new("blocks.{}.attention.q_proj.*", "layers.{}.attention.wq.*").interleaved(heads),
        Rule::new("blocks.{}.attention.k_proj.*", "layers.{}.attention.wk.*").interleaved(kv_heads),
    ];
    let model = renamed(&[
        ("embedding.weight", "tok_embeddings.weight"),
        ("blocks.{}.attention.v_proj.*", "layers.{}.attention.wv.*"),
        ("blocks.{}.attention.o_proj.*", "layers.{}.attention.wo.*"),
        (
            "blocks.{}.feed_forward.gate_proj.*",
            "layers.{}.feed_forward.w1.*",
        ),
        (
            "blocks.{}.feed_forward.down_proj.*",
            "layers.{}.feed_forward.w2.*",
        ),
        (
            "blocks.{}.feed_forward.up_proj.*",
            "layers.{}.feed_forward.w3.*",
        ),
        ("blocks.{}.rms_norm.*", "layers.{}.attention_norm.*"),
        ("blocks.{}.rms_norm_2.*", "layers.{}.ffn_norm.*"),
        ("rms_norm.*", "norm.*"),
    ]);
    let model = WeightMap::new(rotary).and(model).ignore("rope.freqs");
    model.and(head("output", "tok_embeddings.weight"))
}

/// A head that may be tied to an embedding.
fn head(name: &str, embedding: &str) -> WeightMap {
    let rule = Rule::new("linear.*", format!("{name}.*")).optional();
    WeightMap::new([rule]).tied(format!("{name}.weight"), embedding)
}
