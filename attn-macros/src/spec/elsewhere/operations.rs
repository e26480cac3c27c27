//! Names of operations of `model!`, as PyTorch, JAX and Keras have them.

use super::{Form, NamePosition};

const fn operation(names: &'static [&'static str], write: &'static str) -> Form {
    Form {
        place: NamePosition::Operation,
        names,
        write,
    }
}

const MODULE: &str =
    "another module is called by its type: `module::<Type, out = [batch, seq, d_model]>(x)`";

/// Operations from elsewhere, with what to write here.
pub(super) static FORMS: &[Form] = &[
    operation(
        &["cat", "concatenate", "hstack"],
        "write `concat(a, b)`, which puts values side by side along the last axis",
    ),
    operation(&["log"], "write `ln(x)`"),
    operation(&["rsqrt"], "write `1 / sqrt(x)`"),
    operation(&["square"], "write `x * x`"),
    operation(&["maximum"], "write `max(a, b)`"),
    operation(&["minimum"], "write `min(a, b)`"),
    operation(&["clip"], "write `clamp(x, lo, hi)`"),
    operation(&["div", "divide"], "values are divided by `/`"),
    operation(&["tan"], "write `sin(x) / cos(x)`"),
    operation(
        &["erf"],
        "there is no such function; `gelu(x)` is `x * (1 + erf(x / sqrt(2))) / 2`",
    ),
    operation(
        &["keepdim", "keepdims"],
        "leave it out: a value without an axis is combined with others by the names of the axes that it has",
    ),
    operation(
        &["activation"],
        "an activation is an operation of its own: `relu(linear::<out>(x))`",
    ),
    operation(
        &["shape", "size", "len", "numel", "ndim"],
        "sizes have names: `d_model` of the header is a number, and `batch` and `seq` are axes",
    ),
    operation(
        &[
            "clone",
            "contiguous",
            "to",
            "cuda",
            "cpu",
            "type_as",
            "copy",
        ],
        "leave it out: a value may be read any number of times",
    ),
    operation(
        &["T", "mT"],
        "write `permute::<[seq, batch, d_model]>(x)`; a product finds its axes by their names",
    ),
    operation(&["log2"], "write `ln(x) / 0.6931472`"),
    operation(&["log10"], "write `ln(x) / 2.3025851`"),
    operation(&["log1p"], "write `ln(1 + x)`"),
    operation(&["expm1"], "write `exp(x) - 1`"),
    operation(&["exp2"], "write `exp(0.6931472 * x)`"),
    operation(&["ceil"], "write `-floor(-x)`"),
    operation(&["round"], "write `floor(x + 0.5)`"),
    operation(
        &["sign", "signum"],
        "write `if x > 0 { 1 } else if x < 0 { -1 } else { 0 * x }`",
    ),
    operation(&["reciprocal"], "write `1 / x`"),
    operation(
        &["elu"],
        "write `if x > 0 { x } else { exp(x) - 1 }`, in a `block elu(x: [..]) -> [..] { .. }` if it is used often",
    ),
    operation(
        &["selu", "celu"],
        "write `if x > 0 { x } else { exp(x) - 1 }` with its factors",
    ),
    operation(
        &["leaky_relu", "PReLU", "rrelu"],
        "write `if x > 0 { x } else { 0.01 * x }`; a learned slope is a `param`",
    ),
    operation(&["relu6"], "write `clamp(x, 0, 6)`"),
    operation(&["hardtanh"], "write `clamp(x, -1, 1)`"),
    operation(&["hardsigmoid"], "write `clamp(x / 6 + 0.5, 0, 1)`"),
    operation(&["hardswish"], "write `x * clamp(x / 6 + 0.5, 0, 1)`"),
    operation(
        &["softplus"],
        "write `max(x, 0) + ln(1 + exp(-abs(x)))`, which is infinite for no `x`",
    ),
    operation(
        &["log_sigmoid"],
        "write `min(x, 0) - ln(1 + exp(-abs(x)))`, which is infinite for no `x`",
    ),
    operation(
        &["mish"],
        "write `x * tanh(max(x, 0) + ln(1 + exp(-abs(x))))`",
    ),
    operation(&["softsign"], "write `x / (1 + abs(x))`"),
    operation(
        &["glu"],
        "write `let (a, b) = split(x);` and `a * sigmoid(b)`",
    ),
    operation(
        &["swiglu", "geglu", "reglu"],
        "it is an activation of a feed-forward layer: `feed_forward::<hidden, activation = swiglu>(x)`",
    ),
    operation(
        &["masked_fill", "select_n", "cond"],
        "a choice is `if keep { x } else { 0 }`, element by element",
    ),
    operation(
        &[
            "tril",
            "triu",
            "causal_mask",
            "generate_square_subsequent_mask",
        ],
        "write `if arange::<seq>() >= arange::<seq>() as [kv = seq] { scores } else { -1e9 }`; an attention has `mask = causal`",
    ),
    operation(
        &[
            "zeros",
            "ones",
            "full",
            "empty",
            "zeros_like",
            "ones_like",
            "full_like",
        ],
        "a number is combined with any value, `1 - x`; `param bias: [d_model] = zeros;` is a learned tensor",
    ),
    operation(&["eye"], "write `one_hot::<d_model>(arange::<d_model>())`"),
    operation(
        &[
            "rand",
            "randn",
            "randn_like",
            "rand_like",
            "bernoulli",
            "normal",
            "multinomial",
        ],
        "nothing is random in a model but `dropout`; noise is an input: `fn forward(x: [batch, d], noise: [batch, d])`",
    ),
    operation(
        &["norm", "vector_norm", "cdist"],
        "a length is `sqrt(sum::<d_model>(x * x))`; the layer is `layer_norm(x)` or `rms_norm(x)`",
    ),
    operation(
        &["cosine_similarity"],
        "write `sum::<d_model>(l2_norm(a) * l2_norm(b))`",
    ),
    operation(
        &[
            "CrossEntropyLoss",
            "nll_loss",
            "softmax_cross_entropy",
            "sparse_categorical_crossentropy",
        ],
        "write `cross_entropy(logits, targets)` with `targets: ids[batch, seq]`; of what `forward` returns, it is `attn::train::cross_entropy`",
    ),
    operation(
        &["mse_loss", "MSELoss"],
        "write `mean::<d_model>(pow(x - y, 2))`, or compute the loss of what `forward` returns",
    ),
    operation(
        &[
            "binary_cross_entropy_with_logits",
            "bce_with_logits",
            "BCEWithLogitsLoss",
        ],
        "write `max(x, 0) - x * y + ln(1 + exp(-abs(x)))`, or compute the loss of what `forward` returns",
    ),
    operation(
        &["tile", "repeat_interleave", "expand_dims"],
        "write `expand::<[batch, seq, d_model]>(x)`, which repeats a value along axes; operators do so by themselves",
    ),
    operation(
        &[
            "LSTM",
            "GRU",
            "RNN",
            "LSTMCell",
            "GRUCell",
            "RNNCell",
            "scan",
            "fori_loop",
            "while_loop",
        ],
        "a recurrent layer is written as a loop over steps: `let y = scan seq { state h: [batch, d] = 0; h = ..; yield h; };`",
    ),
    operation(
        &["fft", "rfft", "dct"],
        "a constant matrix is an input: `einsum::<[batch, k, d_model]>(matrix, x)` with `matrix: [k, seq]`",
    ),
    operation(
        &["Linear", "Dense", "fc", "proj", "lm_head"],
        "write `linear::<out>(x)`, where `out` is the width of the result",
    ),
    operation(
        &["Embedding", "wte", "tok_emb", "embed"],
        "write `embedding::<vocab, d_model>(ids)`",
    ),
    operation(
        &[
            "wpe",
            "pos_emb",
            "position_embedding",
            "positional_embedding",
        ],
        "write `learned_position::<max_len, d_model>(x)`",
    ),
    operation(
        &[
            "RotaryEmbedding",
            "rotary",
            "rotary_embedding",
            "apply_rotary_pos_emb",
        ],
        "write `rope::<seq>(x)`; the key `position = rope` of an attention rotates its queries and keys",
    ),
    operation(
        &["PositionalEncoding", "sinusoidal", "sinusoidal_encoding"],
        "write `sinusoidal_position::<d_model>(x)`",
    ),
    operation(
        &[
            "MultiheadAttention",
            "self_attention",
            "causal_self_attention",
            "mha",
            "attn",
        ],
        "write `attention::<heads = 8, mask = causal>(x)`, with the keys of `attention!`",
    ),
    operation(
        &[
            "sdpa",
            "scaled_dot_product_attention",
            "flash_attention",
            "flex_attention",
        ],
        "write `attend::<mask = causal>(q, k, v)`; `attention::<heads = 8, mask = causal>(x)` has projections, too",
    ),
    operation(
        &["cross_attention"],
        "write `attention::<heads = 8>(x, context = y)`",
    ),
    operation(
        &["mlp", "ffn", "FeedForward", "ff"],
        "write `feed_forward::<hidden>(x)`, with `activation = gelu`",
    ),
    operation(&["LayerNorm", "ln_f"], "write `layer_norm(x)`"),
    operation(&["RmsNorm"], "write `rms_norm(x)`"),
    operation(&["Dropout", "drop"], "write `dropout::<0.1>(x)`"),
    operation(&["swish", "SiLU"], "write `silu(x)`"),
    operation(
        &["add", "residual", "plus"],
        "values are added by `+`: `x + layer_norm(x)`",
    ),
    operation(&["mul", "multiply"], "values are multiplied by `*`"),
    operation(
        &[
            "avg_pool",
            "AvgPool",
            "global_average_pool",
            "pool",
            "pooling",
        ],
        "write `mean_pool(x)`, the mean over the sequence",
    ),
    operation(
        &["MaxPool", "max_pooling", "global_max_pool"],
        "write `max_pool(x)`, the largest numbers of the sequence",
    ),
    operation(
        &["reduce_sum"],
        "write `sum::<seq>(x)`, the sum over an axis",
    ),
    operation(
        &["reduce_mean"],
        "write `mean::<seq>(x)`, the mean over an axis",
    ),
    operation(
        &["amax", "reduce_max"],
        "write `max::<seq>(x)`, the largest numbers along an axis",
    ),
    operation(
        &["amin", "reduce_min"],
        "write `min::<seq>(x)`, the smallest numbers along an axis",
    ),
    operation(
        &["var", "var_mean"],
        "write `variance::<seq>(x)`, which divides by the number of elements",
    ),
    operation(
        &["std"],
        "write `sqrt(variance::<seq>(x))`, which divides by the number of elements",
    ),
    operation(&["log_softmax"], "write `x - logsumexp::<d_model>(x)`"),
    operation(
        &["normalize", "unit_norm", "L2Norm"],
        "write `l2_norm(x)`, vectors of length 1; `layer_norm(x)` and `rms_norm(x)` have learned gains",
    ),
    operation(
        &["squeeze"],
        "write `x[axis = 0]`, which has no axis of this name; `rearrange::<[batch, d_model]>(x)` leaves out an axis of size 1",
    ),
    operation(
        &["unsqueeze", "expand_as", "broadcast_to"],
        "values are combined by the names of their axes: `[batch, seq, d_model] * [batch, d_model]`; \
         `rearrange::<[batch, 1, d_model]>(x)` adds an axis of size 1, `expand::<[batch, seq, d_model]>(x)` repeats a value along axes",
    ),
    operation(
        &[
            "view",
            "reshape",
            "flatten",
            "unflatten",
            "ravel",
            "view_as",
            "pixel_unshuffle",
            "pixel_shuffle",
        ],
        "write `rearrange::<[batch, (heads, d_head)] -> [batch, heads, d_head]>(x)`, which splits an axis, \
         and `rearrange::<[batch, (heads, d_head)]>(x)`, which merges two",
    ),
    operation(
        &["unfold", "sliding_window_view"],
        "write `windows::<seq, size = 3, step = 1, to = n>(x)`, windows along an axis",
    ),
    operation(&["roll"], "write `shift::<seq, 1>(x)`, where zeros come in"),
    operation(
        &["ZeroPad1d", "ConstantPad1d", "constant_pad_nd"],
        "write `pad::<seq, before = 1, after = 1, to = longer>(x)`",
    ),
    operation(
        &["vstack", "dstack"],
        "write `stack::<[2, batch, d_model]>(a, b)`, along a new axis",
    ),
    operation(
        &["param", "Parameter"],
        "a learned tensor is declared by a statement: `param token: [1, d_model] = normal(0.02);`",
    ),
    operation(
        &["transpose", "swapaxes", "swapdims", "movedim", "moveaxis"],
        "write `permute::<[seq, batch, d_model]>(x)`, with all axes in the new order",
    ),
    operation(&["chunk"], "write `let (a, b) = split::<axis>(x);`"),
    operation(
        &["slice", "select", "narrow"],
        "write `x[seq = 0]` for one index of an axis, and `x[seq = 1..3]` for a range",
    ),
    operation(
        &[
            "gather",
            "index_select",
            "take",
            "take_along_dim",
            "take_along_axis",
            "index",
        ],
        "write `x[seq = ids]`: axes of the ids that `x` has are the same, the others are new",
    ),
    operation(
        &[
            "moe",
            "MoE",
            "mixture_of_experts",
            "experts",
            "grouped_mm",
            "ragged_dot",
            "gmm",
            "GroupedLinear",
        ],
        "write `let (gates, ids) = top_k::<experts, k = 2>(softmax(linear::<experts>(x)));`, and then \
         `sum::<2>(gates * grouped_linear::<d_model, groups = experts>(x, ids))`",
    ),
    operation(
        &["embedding_bag", "EmbeddingBag"],
        "write `mean::<seq>(table[ids], keep)` with a `param table: [vocab, d_model] = normal(1);`",
    ),
    operation(
        &[
            "stop_gradient",
            "no_grad",
            "lax_stop_gradient",
            "StopGradient",
        ],
        "write `detach(x)`, the same numbers without a gradient",
    ),
    operation(
        &["argsort", "sort"],
        "write `let (values, ids) = top_k::<axis, k = n>(x);`, the largest number first; with `-x` it is the smallest",
    ),
    operation(&["argmin"], "write `argmax::<axis>(-x)`"),
    operation(
        &["topk"],
        "write `let (values, ids) = top_k::<axis, k = 2>(x);`",
    ),
    operation(
        &["onehot", "to_categorical"],
        "write `one_hot::<count>(ids)`, a vector with a 1 for each id",
    ),
    operation(
        &["range", "iota", "position_ids", "positions"],
        "write `arange::<seq>()`, the indices of an axis",
    ),
    operation(
        &[
            "index_add",
            "segment_sum",
            "scatter",
            "scatter_reduce",
            "bincount",
        ],
        "write `scatter_add::<[vocab, d_model]>(x, ids)`, sums of numbers by id",
    ),
    operation(
        &["cumulative_sum", "prefix_sum", "associative_scan"],
        "write `cumsum::<seq>(x)`, the sums up to each place",
    ),
    operation(
        &["masked_softmax", "masked_mean", "masked_sum"],
        "a second operand says what counts: `softmax::<seq>(x, keep)`, `mean::<seq>(x, lens)`",
    ),
    operation(
        &[
            "matmul",
            "mm",
            "bmm",
            "baddbmm",
            "mv",
            "tensordot",
            "dot",
            "inner",
            "outer",
            "dot_general",
            "batch_matmul",
        ],
        "a product by the names of axes is `einsum::<[batch, seq, e]>(x, w)`, with the axes of the result",
    ),
    operation(
        &["Conv1d", "conv_1d", "causal_conv1d", "Conv1D"],
        "write `conv1d::<seq, out = 64, kernel = 3, padding = same>(x)`; the channels are the last axis, or `channels = c`",
    ),
    operation(
        &["Conv2d", "Conv2D", "conv_2d"],
        "write `conv2d::<[height, width], out = 64, kernel = 3, channels = c>(x)`",
    ),
    operation(
        &[
            "ConvTranspose1d",
            "ConvTranspose2d",
            "Conv1DTranspose",
            "Conv2DTranspose",
            "conv_transpose",
        ],
        "write `conv_transpose2d::<[height, width], out = 64, kernel = 2, stride = 2, channels = c>(x)`, or `conv_transpose1d`",
    ),
    operation(
        &[
            "Conv3d",
            "BatchNorm",
            "BatchNorm1d",
            "BatchNorm2d",
            "Sequential",
        ],
        MODULE,
    ),
    operation(
        &["print", "println", "dbg", "assert", "eprintln"],
        "a model computes values and nothing else; `Net::summary_of(batch, seq)` shows its shapes",
    ),
];
