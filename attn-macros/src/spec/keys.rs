//! The one table of the language: parsing, documentation, suggestions and editor completion read it.

mod words;

use super::elsewhere::is_alias;
use words::{CLAIMS, MASKS, NORMALIZERS, POSITIONS, SCORES};

/// A key of `attention!`.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: KeyKind,
    /// The default, in words.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

/// The words that may stand after the `=`.
pub(crate) enum KeyKind {
    /// A positive whole number, or a constant expression for one.
    Size,
    /// A whole number for all axes, one for each in brackets, or one of these words.
    SizePerAxis(&'static [Word]),
    /// A number, or a constant expression for one.
    Number,
    /// One of these words, with optional arguments.
    Word(&'static [Word]),
    /// These words, combined by `&`, `|`, `!` and parentheses.
    Mask(&'static [Word]),
    /// These words, combined by `&`, optionally in braces.
    Claims(&'static [Word]),
    /// `true`, `false`, or a list of projections.
    Projections,
    /// Sizes in brackets.
    Sizes,
    /// A type of Rust.
    Type,
    /// The axes of a result, in brackets.
    Shape,
    /// The name of an axis, or several in brackets.
    Axes,
    /// The axes of a value and those of a result, those that are one axis in parentheses.
    Pattern,
    /// A whole number, or a constant expression for one, with a sign.
    Index,
}

/// A word of the language, with its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [Arg],
    pub(crate) doc: &'static str,
}

/// An argument in the parentheses after a word. It may be given by position or by name.
pub(crate) struct Arg {
    pub(crate) name: &'static str,
    pub(crate) kind: ArgKind,
}

/// The kinds of arguments.
pub(crate) enum ArgKind {
    Size {
        default: Option<u64>,
    },
    Number {
        default: Option<f64>,
    },
    /// A size that may be left out.
    OptionalSize,
    /// A number that may be left out.
    OptionalNumber,
    /// Numbers in brackets, or the name of an array.
    Numbers,
    /// One of the words of this key, `name = word`, which may be left out. Where `true` is one of them, the bare name is that.
    Word(&'static Key),
    /// One of these bare words; absent if none of them is there.
    Flag(&'static [&'static str]),
}

pub(crate) const fn plain(name: &'static str, doc: &'static str) -> Word {
    Word {
        name,
        args: &[],
        doc,
    }
}

pub(super) const fn size(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::Size { default: None },
    }
}

pub(super) const fn number(name: &'static str, default: Option<f64>) -> Arg {
    Arg {
        name,
        kind: ArgKind::Number { default },
    }
}

const MASK: Key = Key {
    name: "mask",
    kind: KeyKind::Mask(MASKS),
    default: "`none`",
    doc: "Which keys a query attends to. Masks combine by `&`, `|`, `!` and parentheses.",
};

const GRID: Key = Key {
    name: "grid",
    kind: KeyKind::Sizes,
    default: "absent: a sequence",
    doc: "The tokens are the places of a grid `[rows, cols]` or `[frames, rows, cols]`, row by row: patches of an image or of a video. A sequence of another length is an error. Masks such as `neighborhood` compare places, and a body may read `q_row`, `q_col`, `q_frame`, `kv_row`, `kv_col`, `kv_frame`.",
};

const KV_GRID: Key = Key {
    name: "kv_grid",
    kind: KeyKind::Sizes,
    default: "`grid`",
    doc: "The grid of the keys, in cross-attention.",
};

const PREFIX_TOKENS: Key = Key {
    name: "prefix_tokens",
    kind: KeyKind::Size,
    default: "0",
    doc: "How many tokens stand before the grid, in both sequences: class tokens and registers. In the masks of a grid they attend to all keys, and all queries attend to them. `num_prefix_tokens` of `timm`.",
};

const ENSURE: Key = Key {
    name: "ensure",
    kind: KeyKind::Claims(CLAIMS),
    default: "nothing",
    doc: "What the mask promises, whatever the lengths and the data: `{ causal & every_query_attends }`. Each promise is proved while the program is compiled; one that does not hold is an error with a counterexample, and so is one that cannot be decided.",
};
const SCORE: Key = Key {
    name: "score",
    kind: KeyKind::Word(SCORES),
    default: "`scaled_dot`",
    doc: "How a query and a key are compared.",
};
const SCALE: Key = Key {
    name: "scale",
    kind: KeyKind::Number,
    default: "`1 / sqrt(head_dim)` for `scaled_dot`, otherwise 1",
    doc: "Positive factor on the scores.",
};
const SOFTCAP: Key = Key {
    name: "softcap",
    kind: KeyKind::Number,
    default: "none",
    doc: "Positive bound `c` on the scores: `c * tanh(score / c)`, after the scale and before a position bias.",
};
const NORMALIZER: Key = Key {
    name: "normalizer",
    kind: KeyKind::Word(NORMALIZERS),
    default: "`softmax`",
    doc: "How scores become weights.",
};
const POSITION: Key = Key {
    name: "position",
    kind: KeyKind::Word(POSITIONS),
    default: "`none`",
    doc: "How the positions of a query and a key enter their score. In cross-attention both are counted from 0.",
};
const BIDIRECTIONAL: Key = Key {
    name: "bidirectional",
    kind: KeyKind::Word(DIRECTIONS),
    default: "by the words of `mask`, or else required with `rel_pos_bias`",
    doc: "Whether `rel_pos_bias` tells keys after the query apart. `mask = causal`, a window that is not `symmetric`, and what `&` and `|` make of these say `false`; but aligned `lower_right` in cross-attention they say `true`, as a query attends to keys with a greater index than its own; no mask, `padding`, `document`, `prefix_lm`, `chunked` and symmetric windows say `true`, too. A `fn mask` and `!` do not say. T5's `bidirectional`.",
};
const QK_NORM: Key = Key {
    name: "qk_norm",
    kind: KeyKind::Word(QK_NORMS),
    default: "`none`",
    doc: "Normalisation of every query and key vector, per head, before the rotation and the score.",
};
const TALKING_HEADS: Key = Key {
    name: "talking_heads",
    kind: KeyKind::Word(TALKING),
    default: "`none`",
    doc: "Where the heads talk to each other: the scores, the weights, or both become sums over all heads, with a learned matrix `[heads, heads]` (Shazeer et al. 2020).",
};
const DROPOUT: Key = Key {
    name: "dropout",
    kind: KeyKind::Number,
    default: "0",
    doc: "Probability, at least 0 and less than 1, with which a weight is dropped after the normalizer. It acts in `forward_mut` on a traced tensor.",
};

/// Every key, in the order in which the documentation lists them.
pub(crate) static KEYS: &[Key] = &[
    Key {
        name: "heads",
        kind: KeyKind::Size,
        default: "required",
        doc: "Number of query heads.",
    },
    Key {
        name: "d_model",
        kind: KeyKind::Size,
        default: "required",
        doc: "Width of the input and of the output, in total over the heads.",
    },
    Key {
        name: "kv_heads",
        kind: KeyKind::Size,
        default: "`heads`",
        doc: "Number of key and value heads; it divides `heads`. 1 is multi-query attention, anything between is grouped-query attention.",
    },
    Key {
        name: "head_dim",
        kind: KeyKind::Size,
        default: "`d_model / heads`",
        doc: "Width of a query and of a key, per head.",
    },
    Key {
        name: "value_head_dim",
        kind: KeyKind::Size,
        default: "`head_dim`",
        doc: "Width of a value, per head.",
    },
    Key {
        name: "d_context",
        kind: KeyKind::Size,
        default: "absent: self-attention",
        doc: "Width of a second input that gives keys and values: cross-attention, `forward((x, context))`.",
    },
    Key {
        name: "d_values",
        kind: KeyKind::Size,
        default: "absent: `context` gives the values",
        doc: "Width of a third input that gives the values, while the second one gives the keys: `forward((x, context, values))`, which is `forward(query, key, value)` of `torch.nn.MultiheadAttention`, with `kdim = d_context` and `vdim = d_values`.",
    },
    MASK,
    GRID,
    KV_GRID,
    PREFIX_TOKENS,
    ENSURE,
    SCORE,
    SCALE,
    SOFTCAP,
    NORMALIZER,
    POSITION,
    BIDIRECTIONAL,
    QK_NORM,
    TALKING_HEADS,
    Key {
        name: "bias",
        kind: KeyKind::Projections,
        default: "`true`",
        doc: "Which projections add a learned bias: `true`, `false`, or some of them as in `[q, k, v]`.",
    },
    DROPOUT,
    Key {
        name: "init",
        kind: KeyKind::Word(DISTRIBUTIONS),
        default: "as `torch.nn.MultiheadAttention`",
        doc: "Distribution of the weights before training. Biases start at 0 and the gains of `qk_norm` at 1.",
    },
];

/// The keys of `attend`: those of `attention!` that are not about projections, and the axes of its operands.
pub(crate) static ATTEND_KEYS: &[Key] = &[
    MASK,
    GRID,
    KV_GRID,
    PREFIX_TOKENS,
    ENSURE,
    SCORE,
    SCALE,
    SOFTCAP,
    NORMALIZER,
    POSITION,
    BIDIRECTIONAL,
    QK_NORM,
    TALKING_HEADS,
    DROPOUT,
    Key {
        name: "heads",
        kind: KeyKind::Axes,
        default: "`heads`, if there is such an axis",
        doc: "The axis of the heads of the queries, and of keys and values with as many.",
    },
    Key {
        name: "kv_heads",
        kind: KeyKind::Axes,
        default: "`kv_heads`, or else that of the queries",
        doc: "The axis of the heads of keys and values, where these have fewer; their number divides that of the queries.",
    },
];

/// The words of a key that is true or false.
pub(crate) static TRUTHS: &[Word] = &[plain("true", "Yes."), plain("false", "No.")];

static GAINS: &[Word] = &[
    plain("true", "A learned factor, 1 before training."),
    plain("false", "None. PyTorch: `elementwise_affine=False`."),
    plain(
        "one_plus",
        "`1 + weight`, with a weight that is 0 before training, as in Gemma.",
    ),
];

/// The gain of a norm.
pub(crate) static GAIN: Key = gain();

/// The same among the keys of an operation.
pub(crate) const fn gain() -> Key {
    Key {
        name: "gain",
        kind: KeyKind::Word(GAINS),
        default: "`true`",
        doc: "The learned factor of a norm: `true`, `false`, or `one_plus` for `1 + weight` (Gemma).",
    }
}

static DIRECTIONS: &[Word] = &[
    plain(
        "true",
        "Half of the buckets are for keys after the query: T5's encoder.",
    ),
    plain(
        "false",
        "All buckets are for keys up to the query, and a later key has the bias of the query's own position: T5's decoder.",
    ),
];

static QK_NORMS: &[Word] = &[
    plain("none", "Queries and keys as they are projected."),
    Word {
        name: "rms",
        args: &[choice("gain", &GAIN), number("epsilon", Some(1e-6))],
        doc: "Root mean square with a learned gain (Zhang & Sennrich 2019); with `gain = one_plus` the factor is `1 + weight`, as in Gemma 3, and with `gain = false` there is none. `epsilon` is added to the mean of the squares: `rms_norm_eps` of `transformers`.",
    },
    Word {
        name: "l2",
        args: &[number("epsilon", Some(1e-6))],
        doc: "Unit length (Henry et al. 2020), up to `epsilon`, which is added to its square: `x / sqrt(sum(x²) + epsilon)`.",
    },
];

static TALKING: &[Word] = &[
    plain("none", "Every head for itself."),
    plain(
        "before",
        "The scores are mixed, before the mask and the normalizer: `score[g] = Σ mix_scores[g, h] score[h]`. `proj_l` of CaiT.",
    ),
    plain(
        "after",
        "The weights are mixed, before dropout: `weight[g] = Σ mix_weights[g, h] weight[h]`. `proj_w` of CaiT.",
    ),
    plain(
        "both",
        "The scores before the normalizer and the weights after it: the paper, and CaiT (Touvron et al. 2021) without the biases of its two layers.",
    ),
];

pub(super) const fn numbers(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::Numbers,
    }
}

pub(super) const fn choice(name: &'static str, key: &'static Key) -> Arg {
    Arg {
        name,
        kind: ArgKind::Word(key),
    }
}

pub(super) const fn optional_number(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::OptionalNumber,
    }
}

const ZEROS: Word = plain("zeros", "Every element is 0.");
const ONES: Word = plain("ones", "Every element is 1.");
const NORMAL: Word = Word {
    name: "normal",
    args: &[number("std", None)],
    doc: "Normal around 0 with the given standard deviation.",
};
const TRUNCATED_NORMAL: Word = Word {
    name: "truncated_normal",
    args: &[number("std", None)],
    doc: "Normal around 0, drawn again beyond two standard deviations.",
};
const UNIFORM: Word = Word {
    name: "uniform",
    args: &[number("bound", None)],
    doc: "Uniform between `-bound` and `bound`.",
};
const XAVIER_UNIFORM: Word = plain(
    "xavier_uniform",
    "Uniform within `sqrt(6 / (fan_in + fan_out))` (Glorot & Bengio 2010).",
);
const XAVIER_NORMAL: Word = plain(
    "xavier_normal",
    "Normal with the standard deviation `sqrt(2 / (fan_in + fan_out))` (Glorot & Bengio 2010).",
);
const KAIMING_UNIFORM: Word = plain(
    "kaiming_uniform",
    "Uniform within `sqrt(6 / fan_in)` (He et al. 2015).",
);
const KAIMING_NORMAL: Word = plain(
    "kaiming_normal",
    "Normal with the standard deviation `sqrt(2 / fan_in)` (He et al. 2015).",
);
const ORTHOGONAL: Word = plain(
    "orthogonal",
    "Random rows, or columns if these are longer, of length 1 that are perpendicular (Saxe et al. 2014).",
);

/// The distributions of a tensor before training. Those that suit the weights of a layer come first.
pub(crate) const DISTRIBUTIONS: &[Word] = &[
    XAVIER_UNIFORM,
    XAVIER_NORMAL,
    KAIMING_UNIFORM,
    KAIMING_NORMAL,
    ORTHOGONAL,
    NORMAL,
    TRUNCATED_NORMAL,
    UNIFORM,
    ZEROS,
    ONES,
];

/// The initializer after the `=` of a `param` in a model, unless it is a number. It is no key: it belongs to the statement.
pub(crate) static INITIALIZER_OF_MODEL: Key = Key {
    name: "initializer",
    kind: KeyKind::Word(DISTRIBUTIONS),
    default: "required",
    doc: "What a learned tensor is before training.",
};

/// The same in a body, which has the slopes of its heads as well.
pub(crate) static INITIALIZER: Key = Key {
    name: "initializer",
    kind: KeyKind::Word(&[
        ZEROS,
        ONES,
        NORMAL,
        TRUNCATED_NORMAL,
        UNIFORM,
        XAVIER_UNIFORM,
        XAVIER_NORMAL,
        KAIMING_UNIFORM,
        KAIMING_NORMAL,
        ORTHOGONAL,
        plain(
            "alibi_slopes",
            "ALiBi's slope of every head (Press et al. 2022), for `[heads]`.",
        ),
    ]),
    default: "required",
    doc: "What a learned tensor is before training.",
};

impl Key {
    pub(crate) fn find(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The words that this key knows, if it takes words.
    pub(crate) fn words(&self) -> &'static [Word] {
        match self.kind {
            KeyKind::Word(words)
            | KeyKind::SizePerAxis(words)
            | KeyKind::Mask(words)
            | KeyKind::Claims(words) => words,
            KeyKind::Size
            | KeyKind::Number
            | KeyKind::Projections
            | KeyKind::Sizes
            | KeyKind::Type
            | KeyKind::Shape
            | KeyKind::Axes
            | KeyKind::Pattern
            | KeyKind::Index => &[],
        }
    }
}

impl Key {
    /// The arguments of its words that are words themselves, with these words.
    pub(crate) fn choices(&self) -> impl Iterator<Item = (&'static Word, &'static Key)> {
        let args = self.words().iter();
        let args = args.flat_map(|word| word.args.iter().map(move |arg| (word, arg)));
        args.filter_map(|(word, arg)| match &arg.kind {
            ArgKind::Word(key) => Some((word, *key)),
            _ => None,
        })
    }
}

impl Word {
    /// The word with its required arguments only.
    pub(crate) fn shortest(&self) -> String {
        let needed = self.args.iter().filter(|arg| {
            matches!(
                arg.kind,
                ArgKind::Size { default: None }
                    | ArgKind::Number { default: None }
                    | ArgKind::Numbers
            )
        });
        let needed: Vec<_> = needed.map(|arg| arg.name).collect();
        if needed.is_empty() {
            return self.name.to_owned();
        }
        format!("{}({})", self.name, needed.join(", "))
    }

    /// The notation of the word, including its arguments.
    pub(crate) fn usage(&self) -> String {
        if self.args.is_empty() {
            return self.name.to_owned();
        }
        let args: Vec<_> = self.args.iter().map(Arg::usage).collect();
        format!("{}({})", self.name, args.join(", "))
    }
}

impl Arg {
    /// Whether its bare name is `name = true`.
    pub(crate) fn is_switch(&self) -> bool {
        let ArgKind::Word(key) = &self.kind else {
            return false;
        };
        key.words().iter().any(|word| word.name == "true")
    }

    fn usage(&self) -> String {
        match &self.kind {
            ArgKind::Size { default: None }
            | ArgKind::Number { default: None }
            | ArgKind::Numbers => self.name.to_owned(),
            ArgKind::Size {
                default: Some(value),
            } => format!("{} = {value}", self.name),
            ArgKind::Number {
                default: Some(value),
            } => format!("{} = {value}", self.name),
            ArgKind::OptionalSize | ArgKind::OptionalNumber | ArgKind::Word(_) => {
                format!("[{}]", self.name)
            }
            ArgKind::Flag(words) => format!("[{}]", words.join(" | ")),
        }
    }
}

/// The word and the key that `found` names, here or elsewhere.
pub(crate) fn owner_of(found: &str) -> Option<(&'static Key, &'static Word)> {
    let is_meant = |word: &Word| word.name == found || is_alias(found, word.name);
    KEYS.iter()
        .flat_map(|key| key.words().iter().map(move |word| (key, word)))
        .find(|(_, word)| is_meant(word) && word.name != "none")
}

/// The name among `names` that `found` was probably meant to be.
pub(crate) fn nearest<'a>(found: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let names: Vec<_> = names.collect();
    let mut known = names.iter().copied();
    if let Some(name) = known.find(|name| is_alias(found, name)) {
        return Some(name);
    }
    let found = found.to_ascii_lowercase();
    let likeness = |name| strsim::jaro_winkler(&found, name);
    let names = names.into_iter().map(|name| (likeness(name), name));
    names
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
