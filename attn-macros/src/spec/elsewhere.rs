//! The one table of names from other libraries and languages: suggestions of both macros read it.

mod operations;

/// The place of an unknown name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum NamePosition {
    /// A key of a layer, in `attention!` and in `model!`.
    Key,
    /// An operation of `model!`.
    Operation,
    /// A name in a function of a body.
    Function,
    /// The name of an operand of an attention in `model!`.
    Operand,
}

/// Names whose meaning has another notation here.
struct Form {
    place: NamePosition,
    names: &'static [&'static str],
    /// The words of a help: what to write.
    write: &'static str,
}

const fn key(names: &'static [&'static str], write: &'static str) -> Form {
    Form {
        place: NamePosition::Key,
        names,
        write,
    }
}

const fn function(names: &'static [&'static str], write: &'static str) -> Form {
    Form {
        place: NamePosition::Function,
        names,
        write,
    }
}

const fn operand(names: &'static [&'static str], write: &'static str) -> Form {
    Form {
        place: NamePosition::Operand,
        names,
        write,
    }
}

fn all() -> impl Iterator<Item = &'static Form> {
    FORMS.iter().chain(operations::FORMS)
}

/// The words to write in place of the name `found`.
pub(crate) fn instead_of(found: &str, place: NamePosition) -> Option<&'static str> {
    let found = plain(found);
    let is_found = |name: &str| plain(name) == found;
    let mut forms = all().filter(|form| form.place == place);
    forms
        .find(|form| form.names.iter().any(|name| is_found(name)))
        .map(|form| form.write)
}

/// Whether what is called `name` here is called `found` elsewhere.
pub(crate) fn is_alias(found: &str, name: &str) -> bool {
    let found = plain(found);
    let mut aliases = ALIASES.iter().filter(|(_, here)| *here == name);
    aliases.any(|(alias, _)| plain(alias) == found)
}

/// Every name that has another form here, with its place.
#[cfg(test)]
pub(crate) fn forms() -> impl Iterator<Item = (NamePosition, &'static str)> {
    all().flat_map(|form| form.names.iter().map(|name| (form.place, *name)))
}

/// Every name that is only spelt differently here, and the name here.
#[cfg(test)]
pub(crate) fn aliases() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALIASES.iter().copied()
}

/// `LayerNorm`, `layer_norm` and `layernorm` are one name.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| *letter != '_');
    letters.flat_map(char::to_lowercase).collect()
}

/// Names from elsewhere with another notation here.
static FORMS: &[Form] = &[
    key(
        &[
            "rope_theta",
            "rope_base",
            "rotary_base",
            "rotary_emb_base",
            "theta",
        ],
        "it is an argument of the rotary positions: `position = rope(theta = 10000.0)`",
    ),
    key(
        &[
            "rotary_pos_emb",
            "rotary_emb",
            "rotary_embedding",
            "rotary_position_embedding",
            "use_rope",
            "use_rotary",
        ],
        "rotary positions are `position = rope`",
    ),
    key(
        &["rope_scaling", "rope_parameters", "rope_type"],
        "it is an argument of the rotary positions: `position = rope(scaling = linear(2.0))`, or `ntk`, `dynamic_ntk`, `llama3`, `yarn`, `longrope`",
    ),
    key(
        &[
            "rotary_dim",
            "rotary_ndims",
            "rotary_pct",
            "partial_rotary_factor",
        ],
        "it is an argument of the rotary positions, the number of coordinates of a head that are rotated: `position = rope(dims = 16)`",
    ),
    key(
        &[
            "pos_emb",
            "pos_encoding",
            "position_embedding_type",
            "positional_encoding",
            "rel_pos",
        ],
        "positions are `position = rope`, `alibi` or `rel_pos_bias`",
    ),
    key(
        &[
            "relative_attention_num_buckets",
            "num_buckets",
            "max_distance",
        ],
        "it is an argument of a learned bias per distance: `position = rel_pos_bias(num_buckets = 32, max_distance = 128)`",
    ),
    key(
        &["use_alibi", "alibi_slopes"],
        "slopes of distances are `position = alibi`",
    ),
    key(
        &[
            "window",
            "window_size",
            "sliding_window_size",
            "local_window_size",
            "attention_window",
        ],
        "a window is a mask: `mask = sliding_window(n)`",
    ),
    key(
        &["attention_mask", "use_padding", "padding_mask"],
        "padding is a mask: `mask = padding`, and the call takes lengths or a mask of `bool`",
    ),
    key(
        &[
            "key_padding_mask",
            "src_key_padding_mask",
            "tgt_key_padding_mask",
            "memory_key_padding_mask",
        ],
        "padding is a mask: `mask = padding`, and the call takes lengths, or marks that are `true` for valid keys: the opposite of PyTorch's",
    ),
    key(
        &["attn_mask", "src_mask", "tgt_mask", "memory_mask"],
        "a mask of all pairs is data of the call, `true` where a query attends: `data keep: bool[q_len, kv_len];` in the body, and `fn mask(q_idx, kv_idx) { keep[q_idx, kv_idx] }`; floats are added to the score, `fn score(score, q_idx, kv_idx) { score + bias[q_idx, kv_idx] }`",
    ),
    key(
        &["is_decoder", "unidirectional", "autoregressive"],
        "a decoder looks back only: `mask = causal`",
    ),
    key(
        &["multi_query", "multi_query_attention", "mqa", "use_mqa"],
        "multi-query attention is `kv_heads = 1`",
    ),
    key(
        &[
            "gqa",
            "enable_gqa",
            "grouped_query",
            "num_query_groups",
            "num_groups",
            "kv_groups",
        ],
        "grouped-query attention is `kv_heads = n`, which divides `heads`",
    ),
    key(
        &[
            "cross_attend",
            "cross_attention",
            "is_cross",
            "is_cross_attention",
            "add_cross_attention",
            "cross",
        ],
        "cross-attention is declared by the width of its second input, `d_context = 512`; its `forward` takes `(x, context)`, and with `d_values = 512` `(query, key, value)`",
    ),
    key(
        &["kdim"],
        "the input that gives the keys is the second one: `d_context` is its width, and `head_dim` that of a key per head",
    ),
    key(
        &["vdim"],
        "values of an input of their own are `d_values = 512`, beside `d_context`; `value_head_dim` is the width of a value per head",
    ),
    key(
        &["add_zero_attn"],
        "a key whose score is 0 and whose value is 0 is in `normalizer = softmax1`",
    ),
    key(
        &["add_bias_kv"],
        "a learned key and value are those of a learned token, which a `model!` puts behind the others: `context = concat::<seq, to = keys>(x, expand::<[batch, 1, d_model]>(token))`; a learned score without a value is `normalizer = sink`",
    ),
    key(
        &[
            "qkv_bias",
            "attention_bias",
            "use_bias",
            "out_bias",
            "add_bias",
        ],
        "biases are `bias = true`, `false`, or those of some projections: `bias = [q, k, v]`",
    ),
    key(
        &["temperature"],
        "a temperature is a factor on the scores: `scale = 0.125`",
    ),
    key(
        &["use_qk_norm", "query_key_norm", "qk_layernorm"],
        "queries and keys are normalised by `qk_norm = rms` or `l2`",
    ),
    key(
        &["batch_first"],
        "leave it out: inputs are `[batch, seq, d_model]` or `[seq, d_model]`",
    ),
    key(
        &["need_weights", "average_attn_weights", "output_attentions"],
        "leave it out: `forward_with_weights(x)` returns the weights of each head, and `weights.mean::<_, Axis<1>>()` is their average; in a model `let (y, weights) = attention::<..>(x);`",
    ),
    key(
        &["pre_talking_heads", "proj_l"],
        "the scores of all heads are mixed by `talking_heads = before`, and the weights, too, by `talking_heads = both`",
    ),
    key(
        &["post_talking_heads", "proj_w"],
        "the weights of all heads are mixed by `talking_heads = after`, and the scores, too, by `talking_heads = both`",
    ),
    key(
        &["dtype", "device"],
        "leave it out: `device.build_module::<Layer, f32>()` says both",
    ),
    key(
        &[
            "max_len",
            "max_seq_len",
            "max_position_embeddings",
            "block_size",
            "seq_len",
            "context_length",
            "n_ctx",
        ],
        "leave it out: a layer takes sequences of every length",
    ),
    key(
        &[
            "flash",
            "use_flash",
            "use_flash_attention",
            "attn_implementation",
            "sdpa",
        ],
        "leave it out: `forward` runs a fused kernel that stores no scores",
    ),
    function(
        &["relu"],
        "write `max(x, 0.0)`; `fn normalize { relu(2) }` is the normalizer of that name",
    ),
    function(&["relu_squared"], "write `pow(max(x, 0.0), 2)`"),
    function(&["leaky_relu"], "write `max(x, 0.01 * x)`"),
    function(&["silu", "swish"], "write `x * sigmoid(x)`"),
    function(&["softplus"], "write `ln(1.0 + exp(x))`"),
    function(&["square"], "write `pow(x, 2)`"),
    function(&["rsqrt"], "write `1.0 / sqrt(x)`"),
    function(&["log2"], "write `ln(x) / 0.6931472`"),
    function(&["log10"], "write `ln(x) / 2.3025851`"),
    function(&["exp2"], "write `exp(0.6931472 * x)`"),
    function(&["ceil"], "write `-floor(-x)`"),
    function(&["round"], "write `floor(x + 0.5)`"),
    function(
        &["sign", "signum"],
        "write `if x > 0.0 { 1.0 } else { -1.0 }`",
    ),
    function(&["float", "f32", "f64"], "write `x as f32`"),
    function(&["int", "i64", "usize"], "write `x as i64`"),
    function(
        &["softmax", "log_softmax", "sparsemax", "normalize"],
        "a function of the score sees one score; weights are made of all by `fn normalize { softmax }`",
    ),
    function(
        &[
            "sum",
            "mean",
            "max_score",
            "cumsum",
            "sort",
            "topk",
            "argmax",
        ],
        "a function is computed for every query and key by itself, and sees no others",
    ),
    function(
        &["matmul", "einsum"],
        "a function reads numbers. In `attend` of `model!`, `dot(q, table[i])` is the product of a query and a row of a table",
    ),
    function(
        &["q", "k", "v", "query", "key", "value"],
        "a function of the score reads no vectors: `score` is what the header makes of a query and a key. In `attend` of `model!`, \
         `dot(q, table[i])` is the product of a query and a row of a table",
    ),
    function(
        &["x", "hidden", "context", "embedding", "tokens"],
        "a function reads places, the score and what the body declares; of the inputs, what the call passes as `data`",
    ),
    function(
        &["rand", "random", "dropout", "bernoulli"],
        "nothing is random here; weights are dropped by `dropout = 0.1` in the header",
    ),
    function(
        &["tan", "erf"],
        "there is no such function; what depends on places alone can be passed as `data`",
    ),
    function(
        &[
            "padding",
            "padding_mask",
            "key_padding_mask",
            "lens",
            "lengths",
            "seq_lens",
            "valid_lens",
        ],
        "padding is `mask = padding` in the header, or data of the call: `data lens: ids[batch];`",
    ),
    function(
        &[
            "document",
            "documents",
            "doc",
            "doc_id",
            "doc_ids",
            "document_id",
            "segment_ids",
        ],
        "documents are `mask = document` in the header, or data of the call: `data doc: ids[batch, kv_len];`",
    ),
    function(
        &["mask", "attn_mask", "attention_mask"],
        "a mask of all pairs is data of the call: `data keep: bool[batch, q_len, kv_len];`",
    ),
    function(
        &["len", "seq_len"],
        "lengths are the arguments `q_len` and `kv_len`",
    ),
    operand(
        &["query", "q", "tgt", "hidden_states"],
        "the sequence that gives the queries stands first, without a name: `attention::<..>(x, context = y)`",
    ),
    operand(
        &["key", "keys", "k", "memory", "kv", "encoder_hidden_states"],
        "the sequence that gives the keys, and the values if no other does, is `context = ..`",
    ),
    operand(
        &["value", "v"],
        "the sequence that gives the values is `values = ..`, beside `context = ..`",
    ),
    operand(
        &[
            "attention_mask",
            "key_padding_mask",
            "src_key_padding_mask",
            "memory_key_padding_mask",
            "padding_mask",
            "lens",
            "lengths",
        ],
        "padding is the key `mask = padding`, and the operand `padding = ..` behind the others, with lengths, or marks that are `true` for valid keys",
    ),
    operand(
        &["attn_mask", "attn_bias", "src_mask", "tgt_mask"],
        "a mask of all pairs is data of a body, `true` where a query attends: `attention::<..>(x, keep = keep) { data keep: bool[q_len, kv_len]; fn mask(q_idx, kv_idx) { keep[q_idx, kv_idx] } }`; floats are added to the score",
    ),
    operand(
        &["need_weights", "average_attn_weights", "is_causal"],
        "it is no operand: `let (y, weights) = attention::<..>(x);` has the weights beside the result, `attention_maps(x)` of the model returns those of all attentions, and `mask = causal` is a key",
    ),
];

/// Names from elsewhere that are only spelt differently here.
static ALIASES: &[(&str, &str)] = &[
    ("n_head", "heads"),
    ("n_heads", "heads"),
    ("nhead", "heads"),
    ("num_attention_heads", "heads"),
    ("num_heads", "heads"),
    ("num_key_value_heads", "kv_heads"),
    ("n_kv_heads", "kv_heads"),
    ("num_kv_heads", "kv_heads"),
    ("dim", "d_model"),
    ("dim", "axis"),
    ("embed_dim", "d_model"),
    ("embedding_dim", "d_model"),
    ("hidden_size", "d_model"),
    ("n_embd", "d_model"),
    ("num_embeddings", "vocab"),
    ("vocab_size", "vocab"),
    ("num_positions", "max_len"),
    ("out_features", "out"),
    ("output_dim", "out"),
    ("units", "out"),
    ("d_ff", "hidden"),
    ("dim_feedforward", "hidden"),
    ("ffn_dim", "hidden"),
    ("hidden_dim", "hidden"),
    ("intermediate_size", "hidden"),
    ("act", "activation"),
    ("act_fn", "activation"),
    ("hidden_act", "activation"),
    ("eps", "epsilon"),
    ("layer_norm_eps", "epsilon"),
    ("rms_norm_eps", "epsilon"),
    ("prob", "p"),
    ("rate", "p"),
    ("dim_head", "head_dim"),
    ("attention_dropout", "dropout"),
    ("attn_dropout", "dropout"),
    ("attn_pdrop", "dropout"),
    ("dropout_p", "dropout"),
    ("softmax_scale", "scale"),
    ("attn_logit_softcapping", "softcap"),
    ("logit_softcap", "softcap"),
    ("is_causal", "causal"),
    ("local_window", "sliding_window"),
    ("natten", "neighborhood"),
    ("neighbourhood", "neighborhood"),
    ("neighborhood_attention", "neighborhood"),
    ("shifted_window", "window"),
    ("swin", "window"),
    ("axial", "same_row"),
    ("criss_cross", "same_row"),
    ("num_prefix_tokens", "prefix_tokens"),
    ("use_talking_heads", "talking_heads"),
    ("talking_head", "talking_heads"),
    ("attention_sink", "sink"),
    ("sinks", "sink"),
    ("entmax", "entmax15"),
    ("bahdanau", "additive"),
    ("general", "bilinear"),
    ("rotary", "rope"),
    ("t5", "rel_pos_bias"),
    ("log", "ln"),
    ("logistic", "sigmoid"),
    ("maximum", "max"),
    ("minimum", "min"),
    ("off_by_one", "softmax1"),
    ("powf", "pow"),
    ("powi", "pow"),
    ("rmsnorm", "rms"),
    ("q", "q_idx"),
    ("i", "q_idx"),
    ("q_index", "q_idx"),
    ("query", "q_idx"),
    ("query_idx", "q_idx"),
    ("k", "kv_idx"),
    ("j", "kv_idx"),
    ("k_idx", "kv_idx"),
    ("kv", "kv_idx"),
    ("key", "kv_idx"),
    ("key_idx", "kv_idx"),
    ("head", "h"),
    ("head_idx", "h"),
    ("batch", "b"),
    ("batch_idx", "b"),
    ("k_len", "kv_len"),
];
