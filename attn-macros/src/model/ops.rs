//! The one table of the operations of `model!`: parsing, suggestions and documentation read it.

use crate::markdown::Table;
use crate::spec::keys::{INITS, KEYS, Key, Kind, Word};

/// An operation, as `name::<keys>(operands)`.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// The keys whose values may be given by their position.
    pub(crate) positional: &'static [&'static str],
    pub(crate) keys: &'static [Key],
    /// What it takes and returns.
    pub(crate) signature: &'static str,
    pub(crate) doc: &'static str,
}

const fn size(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key {
        name,
        kind: Kind::Size,
        default,
        doc,
    }
}

const fn word(name: &'static str, doc: &'static str) -> Word {
    Word {
        name,
        args: &[],
        doc,
    }
}

static TRUTHS: &[Word] = &[word("true", "Yes."), word("false", "No.")];

/// The nonlinearities of `feed_forward`: the word, the type in `attn::nn`, and whether a gate is in front.
pub(crate) const FEED_FORWARDS: &[(&str, &str, bool)] = &[
    ("gelu", "Gelu", false),
    ("gelu_tanh", "GeluTanh", false),
    ("relu", "Relu", false),
    ("relu_squared", "ReluSquared", false),
    ("silu", "Silu", false),
    ("sigmoid", "Sigmoid", false),
    ("tanh", "Tanh", false),
    ("swiglu", "Silu", true),
    ("geglu", "Gelu", true),
    ("reglu", "Relu", true),
];

static ACTIVATIONS: &[Word] = &[
    word("gelu", "`x Φ(x)` (Hendrycks and Gimpel 2016)."),
    word("gelu_tanh", "Its approximation by `tanh`, as in GPT-2."),
    word("relu", "`max(x, 0)`."),
    word("relu_squared", "`max(x, 0)²` (So et al. 2021)."),
    word("silu", "`x sigmoid(x)`."),
    word("sigmoid", "`1 / (1 + exp(-x))`."),
    word("tanh", "`tanh(x)`."),
    word("swiglu", "Gated by `silu`, as in LLaMA (Shazeer 2020)."),
    word("geglu", "Gated by `gelu` (Shazeer 2020)."),
    word("reglu", "Gated by `relu` (Shazeer 2020)."),
];

const fn init(default: &'static str, doc: &'static str) -> Key {
    Key {
        name: "init",
        kind: Kind::Word(INITS),
        default,
        doc,
    }
}

static EMBEDDING: &[Key] = &[
    size("vocab", "required", "How many ids there are."),
    size("d_model", "required", "Width of a vector."),
    init(
        "`normal(1)`",
        "Distribution of the table before training: `normal(std)`, `xavier_uniform`, or `kaiming_uniform`. A table that others are tied to wants `normal(0.02)`.",
    ),
];
static LEARNED_POSITION: &[Key] = &[
    size(
        "max_len",
        "required",
        "How many positions there are: the longest sequence.",
    ),
    size("d_model", "required", "Width of a vector."),
    init(
        "`normal(0.02)`",
        "Distribution of the table before training, as of `embedding`.",
    ),
];
static SINUSOIDAL_POSITION: &[Key] = &[size("d_model", "required", "Width of a vector.")];
static LINEAR: &[Key] = &[
    size("out", "required", "Width of the result."),
    Key {
        name: "bias",
        kind: Kind::Word(TRUTHS),
        default: "`true`",
        doc: "Whether a learned bias is added.",
    },
    init(
        "uniform within `1 / sqrt(in)`",
        "Distribution of the weight before training, as of `embedding`. That of the bias stays.",
    ),
];
static FEED_FORWARD: &[Key] = &[
    size("hidden", "required", "Width of the hidden layer."),
    Key {
        name: "activation",
        kind: Kind::Word(ACTIVATIONS),
        default: "`gelu`",
        doc: "The nonlinearity. With a gate there are three projections, without biases.",
    },
    init(
        "uniform within `1 / sqrt(in)`",
        "Distribution of its weights before training, as of `embedding`. That of the biases stays.",
    ),
];
const fn epsilon(default: &'static str) -> Key {
    Key {
        name: "epsilon",
        kind: Kind::Number,
        default,
        doc: "Positive: keeps the divisor away from 0.",
    }
}

static LAYER_NORM: &[Key] = &[epsilon("1e-5")];
static RMS_NORM: &[Key] = &[epsilon("1e-6")];

static DROPOUT: &[Key] = &[Key {
    name: "p",
    kind: Kind::Number,
    default: "required",
    doc: "Probability, at least 0 and less than 1, with which a number is dropped. It acts in `forward_mut` on a traced tensor.",
}];

static MODULE: &[Key] = &[
    Key {
        name: "type",
        kind: Kind::Type,
        default: "required",
        doc: "What `build_module` takes: a builder of dfdx, a tuple, a layer of `attention!`, another model.",
    },
    Key {
        name: "out",
        kind: Kind::Shape,
        default: "required",
        doc: "The shape of its result: `[batch, seq, d_model]`.",
    },
];

const fn plain(name: &'static str, signature: &'static str, doc: &'static str) -> Operation {
    keyed(name, &[], &[], signature, doc)
}

const fn keyed(
    name: &'static str,
    positional: &'static [&'static str],
    keys: &'static [Key],
    signature: &'static str,
    doc: &'static str,
) -> Operation {
    Operation {
        name,
        positional,
        keys,
        signature,
        doc,
    }
}

/// Every operation, in the order in which the documentation lists them.
pub(crate) static OPERATIONS: &[Operation] = &[
    keyed(
        "embedding",
        &["vocab", "d_model"],
        EMBEDDING,
        "`ids[..]` to `[.., d_model]`",
        "A learned vector per id. With `tied = name` the table is that of another embedding. PyTorch: `torch.nn.Embedding`.",
    ),
    keyed(
        "learned_position",
        &["max_len", "d_model"],
        LEARNED_POSITION,
        "`ids[.., seq]` or `[.., seq, d_model]` to `[.., seq, d_model]`",
        "A learned vector per position (Gehring et al. 2017), to be added.",
    ),
    keyed(
        "sinusoidal_position",
        &["d_model"],
        SINUSOIDAL_POSITION,
        "`ids[.., seq]` or `[.., seq, d_model]` to `[.., seq, d_model]`",
        "Sines and cosines of the position (Vaswani et al. 2017, section 3.5), to be added.",
    ),
    keyed(
        "attention",
        &["heads", "d_model"],
        KEYS,
        "`[batch, seq, d_model]` to the same",
        "A layer of `attention!`, with all of its keys, and a body in braces after the operands. `context = y` makes it cross-attention; `padding = lens`, or a mask `padding = keep`, `document = ids`, or a pair with a context, and the names that the body declares as `data`, are operands, too.",
    ),
    keyed(
        "linear",
        &["out"],
        LINEAR,
        "`[.., in]` to `[.., out]`",
        "`x Wᵀ + b`. With `tied = name` the weight is the table of that embedding. PyTorch: `torch.nn.Linear`.",
    ),
    keyed(
        "feed_forward",
        &["hidden"],
        FEED_FORWARD,
        "`[.., d_model]` to the same",
        "Two linear maps, and a nonlinearity between them (Vaswani et al. 2017, section 3.3).",
    ),
    keyed(
        "layer_norm",
        &[],
        LAYER_NORM,
        "`[.., d_model]` to the same",
        "`(x - mean) / sqrt(var + epsilon)` over the last axis, with a learned gain and bias. PyTorch: `torch.nn.LayerNorm`.",
    ),
    keyed(
        "rms_norm",
        &[],
        RMS_NORM,
        "`[.., d_model]` to the same",
        "`x / sqrt(mean(x²) + epsilon)` over the last axis, with a learned gain. PyTorch: `torch.nn.RMSNorm`.",
    ),
    keyed(
        "module",
        &["type"],
        MODULE,
        "its operands, as a tuple if they are several, to `out`",
        "Any module of dfdx. The first operand has the tape.",
    ),
    keyed(
        "dropout",
        &["p"],
        DROPOUT,
        "`[..]` to the same",
        "A share `p` of the numbers becomes 0, and the others `1 / (1 - p)` times as large. PyTorch: `torch.nn.Dropout`.",
    ),
    plain("gelu", "`[..]` to the same", "`x Φ(x)`."),
    plain(
        "gelu_tanh",
        "`[..]` to the same",
        "Its approximation by `tanh`.",
    ),
    plain("relu", "`[..]` to the same", "`max(x, 0)`."),
    plain("relu_squared", "`[..]` to the same", "`max(x, 0)²`."),
    plain("silu", "`[..]` to the same", "`x sigmoid(x)`."),
    plain("sigmoid", "`[..]` to the same", "`1 / (1 + exp(-x))`."),
    plain("tanh", "`[..]` to the same", "`tanh(x)`."),
    plain(
        "softmax",
        "`[..]` to the same",
        "`exp(x) / Σ exp(x)` over the last axis. PyTorch: `torch.softmax(x, -1)`.",
    ),
    plain(
        "concat",
        "`[.., a]`, `[.., b]`, .. to `[.., a + b + ..]`",
        "Side by side along the last axis. PyTorch: `torch.cat(.., -1)`.",
    ),
    plain(
        "mean_pool",
        "`[.., seq, d_model]` to `[.., d_model]`",
        "The mean over a sequence; with `lens[batch]` as a second operand, over that many of its first rows, with `bool[batch, seq]` over those that are `true`, and 0 if there are none.",
    ),
];

/// The operations as Markdown, for the documentation of `model!`.
pub(crate) fn table() -> String {
    let mut table = Table::new(["operation", "takes", ""]);
    for operation in OPERATIONS {
        let keys = operation
            .keys
            .iter()
            .filter(|_| operation.name != "attention");
        let keys: Vec<_> = keys
            .map(|key| format!("`{}` ({}): {}", key.name, key.default, key.doc))
            .collect();
        let by_position = match operation.positional {
            [] => String::new(),
            names => format!("::<{}>", names.join(", ")),
        };
        table.row([
            &format!("`{}{by_position}`", operation.name),
            operation.signature,
            &format!("{} {}", operation.doc, keys.join(" ")),
        ]);
    }
    table.to_string()
}

impl Operation {
    pub(crate) fn find(name: &str) -> Option<&'static Operation> {
        OPERATIONS.iter().find(|operation| operation.name == name)
    }

    /// The key that has this word among its values.
    pub(crate) fn key_of_word(&self, found: &str) -> Option<(&'static Key, &'static Word)> {
        let words = |key: &'static Key| key.words().iter().map(move |word| (key, word));
        let mut words = self.keys.iter().flat_map(words);
        words.find(|(_, word)| word.name == found && found != "none")
    }

    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}
