//! The words of masks, claims, scores, normalizers and positions, with their arguments.

use super::super::rope_keys::ROPE;
use super::{Arg, ArgKind, Word, number, plain, size};

/// The alignment of query positions with key positions when the two lengths differ.
const ALIGNMENT: Arg = Arg {
    name: "alignment",
    kind: ArgKind::Flag(&["upper_left", "lower_right"]),
};
const SYMMETRIC: Arg = Arg {
    name: "symmetric",
    kind: ArgKind::Flag(&["symmetric"]),
};

const DILATION: Arg = Arg {
    name: "dilation",
    kind: ArgKind::Size { default: Some(1) },
};
const SHIFT: Arg = Arg {
    name: "shift",
    kind: ArgKind::Size { default: Some(0) },
};
const FRAMES: Arg = optional_size("frames");
const ROWS: Arg = optional_size("rows");
const COLS: Arg = optional_size("cols");

const fn optional_size(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::OptionalSize,
    }
}

pub(super) static MASKS: &[Word] = &[
    plain("none", "Every query attends to every key."),
    Word {
        name: "causal",
        args: &[ALIGNMENT],
        doc: "A query attends to the keys up to its own position. With `lower_right` the last query lines up with the last key, with `upper_left` the first with the first; cross-attention must say which.",
    },
    Word {
        name: "sliding_window",
        args: &[size("n"), ALIGNMENT, SYMMETRIC],
        doc: "A query attends to itself and the `n - 1` keys before it; with `symmetric` also to the `n - 1` after it.",
    },
    Word {
        name: "dilated_sliding_window",
        args: &[size("n"), size("dilation"), ALIGNMENT, SYMMETRIC],
        doc: "As `sliding_window`, over every `dilation`-th key: `n` keys, counted with the query itself.",
    },
    Word {
        name: "prefix_lm",
        args: &[size("n"), ALIGNMENT],
        doc: "Causal, but the first `n` keys are seen by every query.",
    },
    Word {
        name: "chunked",
        args: &[size("n"), ALIGNMENT],
        doc: "A query attends within its own chunk of `n` positions, in both directions; `causal & chunked(n)` looks back only.",
    },
    Word {
        name: "neighborhood",
        args: &[size("n"), DILATION, FRAMES, ROWS, COLS],
        doc: "On a grid: a query attends to the `n` x `n` keys around it. At a border the window is moved inside, so it always has as many keys; an axis that is shorter is attended to whole. With a `dilation` it has every `dilation`-th key (NATTEN: Hassani et al. 2023, Hassani & Shi 2022). `rows = 3` is a window of 3 rows.",
    },
    Word {
        name: "local",
        args: &[size("n"), DILATION, FRAMES, ROWS, COLS],
        doc: "On a grid: a query attends to the keys that a convolution of `n` x `n` reads, which are fewer at a border (Parmar et al. 2018, Ramachandran et al. 2019). An even window has one key more before the query than behind it.",
    },
    Word {
        name: "window",
        args: &[size("n"), SHIFT, FRAMES, ROWS, COLS],
        doc: "On a grid: a query attends within its own window of `n` x `n` places. With a `shift` the windows begin `shift` places later along every axis, and those at a border are smaller: the shifted windows of Swin with the mask of their cyclic shift (Liu et al. 2021).",
    },
    plain(
        "same_row",
        "On a grid: a query attends to its own row. Axial attention along the width (Ho et al. 2019); `same_row | same_col` is criss-cross attention (Huang et al. 2019).",
    ),
    plain(
        "same_col",
        "On a grid: a query attends to its own column. Axial attention along the height. `same_row & same_col` are the frames of one place: attention over time (TimeSformer, Bertasius et al. 2021).",
    ),
    plain(
        "same_frame",
        "On a grid of three axes: a query attends to its own frame. Attention over space.",
    ),
    plain(
        "padding",
        "Keys beyond the valid ones are left out. The call takes valid lengths `[batch]`, a key mask `[batch, key]` of `bool`, or `LengthsPerQuery` `[batch, query]`: `true` may be attended to, as in Hugging Face's `attention_mask`, and unlike in PyTorch's `key_padding_mask`.",
    ),
    plain(
        "document",
        "A query attends to the keys of its own document. The call takes an id for each token, `[batch, seq]`; in cross-attention a pair, for queries and keys.",
    ),
];

pub(super) static CLAIMS: &[Word] = &[
    Word {
        name: "causal",
        args: &[ALIGNMENT],
        doc: "No query attends to a key after its own position. The positions line up as in the mask `causal`.",
    },
    Word {
        name: "sliding_window",
        args: &[size("n"), ALIGNMENT, SYMMETRIC],
        doc: "No query attends to a key outside of this window.",
    },
    plain("padding", "No query attends to a key that is not valid."),
    plain("document", "No query attends to a key of another document."),
    plain(
        "every_query_attends",
        "Every query attends to at least one key, if there is one.",
    ),
];

pub(super) static SCORES: &[Word] = &[
    plain("scaled_dot", "`q · k * scale` (Vaswani et al. 2017)."),
    plain("dot", "`q · k`, without a scale (Luong et al. 2015)."),
    Word {
        name: "additive",
        args: &[size("hidden")],
        doc: "`w_v · tanh(W_q q + W_k k)` over `hidden` units per head (Bahdanau et al. 2015). `q_proj` and `k_proj` are `W_q` and `W_k`.",
    },
    plain(
        "bilinear",
        "`qᵀ W k` with a learned `W` per head (Luong et al. 2015, \"general\").",
    ),
];

pub(super) static NORMALIZERS: &[Word] = &[
    plain("softmax", "`exp(s) / Σ exp(s)`. PyTorch: `torch.softmax`."),
    plain(
        "softmax1",
        "`exp(s) / (1 + Σ exp(s))`: a query may attend to less than everything (Miller 2023). PyTorch: `add_zero_attn`.",
    ),
    plain(
        "sink",
        "`exp(s) / (exp(sink) + Σ exp(s))` with a learned `sink` per head, 0 before training (Xiao et al. 2023; gpt-oss). PyTorch: `torch.softmax` over the scores and one column more, `sink`, that is left out afterwards.",
    ),
    plain(
        "sigmoid",
        "`1 / (1 + exp(-s))`: each key on its own (Ramapuram et al. 2024). PyTorch: `torch.sigmoid`.",
    ),
    Word {
        name: "relu",
        args: &[number("power", Some(1.0))],
        doc: "`max(s, 0)^power`: each key on its own, and not at all below 0 (Wortsman et al. 2023). PyTorch: `torch.relu(s) ** power`.",
    },
    plain(
        "sparsemax",
        "`max(s - τ, 0)`, with the `τ` for which the weights of a query have the sum 1: most are exactly 0 (Martins & Astudillo 2016). PyTorch: `entmax.sparsemax`.",
    ),
    plain(
        "entmax15",
        "`max(s / 2 - τ, 0)²`, with the `τ` for which the weights of a query have the sum 1: between `softmax` and `sparsemax` (Peters et al. 2019, `α = 1.5`). PyTorch: `entmax.entmax15`.",
    ),
];

pub(super) static POSITIONS: &[Word] = &[
    plain("none", "The score does not know positions."),
    ROPE,
    plain(
        "alibi",
        "Subtracts a fixed slope per head times the distance (Press et al. 2022).",
    ),
    Word {
        name: "rel_pos_bias",
        args: &[
            Arg {
                name: "num_buckets",
                kind: ArgKind::Size { default: Some(32) },
            },
            Arg {
                name: "max_distance",
                kind: ArgKind::Size { default: Some(128) },
            },
        ],
        doc: "Adds a learned bias per head and bucket of distances (T5, Raffel et al. 2020); half of the buckets are for keys after the query where it is `bidirectional`.",
    },
];
