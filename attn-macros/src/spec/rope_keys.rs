//! `rope` with its arguments, as a part of the table of [`keys`](super::keys), and the keys of the operation `rope`.

use super::keys::{
    Arg, ArgKind, Key, KeyKind, Word, choice, number, numbers, optional_number, plain, size,
};

pub(crate) const ROPE: Word = Word {
    name: "rope",
    args: &[
        number("theta", Some(10000.0)),
        choice("scaling", &SCALING),
        Arg {
            name: "dims",
            kind: ArgKind::OptionalSize,
        },
        choice("interleaved", &INTERLEAVED),
        choice("position_ids", &POSITION_IDS),
    ],
    doc: "Rotates queries and keys by their positions (Su et al. 2021), first half of the width against the second, as Llama does; with `interleaved` neighbours, as GPT-J does. `dims` is how many coordinates of a head are rotated, the first ones: `rotary_dim` of GPT-J, `partial_rotary_factor * head_dim` of Phi and GPT-NeoX. With `position_ids` the call takes the positions, `[batch, seq]` or `[seq]`; in cross-attention a pair, for queries and keys.",
};

/// The operation has the arguments of [`ROPE`] as keys, but for `position_ids`: it has an operand for these.
pub(crate) static ROPE_KEYS: &[Key] = &[
    Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "the last axis of any length, or else the one before the last",
        doc: "The axis along which the position is the place.",
    },
    Key {
        name: "theta",
        kind: KeyKind::Number,
        default: "`10000.0`",
        doc: "The base of the frequencies.",
    },
    Key {
        name: "dims",
        kind: KeyKind::Size,
        default: "all",
        doc: "How many numbers of a vector are rotated, the first ones.",
    },
    INTERLEAVED,
    SCALING,
];

const SCALING: Key = Key {
    name: "scaling",
    kind: KeyKind::Word(SCALINGS),
    default: "`none`",
    doc: "How the frequencies of `rope` are changed for sequences that are longer than those of the training. The formulas are those of `transformers`.",
};

static SCALINGS: &[Word] = &[
    plain("none", "`theta^(-2i / dims)`, as it is."),
    Word {
        name: "linear",
        args: &[number("factor", None)],
        doc: "Divided by `factor` (Chen et al. 2023). `rope_type: linear` of `transformers`.",
    },
    Word {
        name: "ntk",
        args: &[number("factor", None)],
        doc: "With the base `theta * factor^(dims / (dims - 2))`: NTK-aware scaling.",
    },
    Word {
        name: "dynamic_ntk",
        args: &[number("factor", None), size("original_max_len")],
        doc: "As `ntk` with `factor * len / original_max_len - (factor - 1)` for sequences longer than `original_max_len`. `rope_type: dynamic` of `transformers`.",
    },
    Word {
        name: "llama3",
        args: &[
            number("factor", None),
            number("low_freq_factor", None),
            number("high_freq_factor", None),
            size("original_max_len"),
        ],
        doc: "Low frequencies are divided by `factor`, high ones are not, and between them it goes over (Llama 3.1). `rope_type: llama3`.",
    },
    Word {
        name: "yarn",
        args: &[
            number("factor", None),
            size("original_max_len"),
            number("beta_fast", Some(32.0)),
            number("beta_slow", Some(1.0)),
            optional_number("attention_factor"),
            optional_number("mscale"),
            optional_number("mscale_all_dim"),
            choice("truncate", &TRUNCATE),
        ],
        doc: "Pairs that rotate less than `beta_slow` times in `original_max_len` positions are divided by `factor`, those that rotate more than `beta_fast` times are not, and between them it goes over; rotated vectors get the length `attention_factor`, or `0.1 ln(factor) + 1` (Peng et al. 2023). `rope_type: yarn`.",
    },
    Word {
        name: "longrope",
        args: &[
            numbers("short_factor"),
            numbers("long_factor"),
            number("factor", None),
            size("original_max_len"),
            optional_number("attention_factor"),
        ],
        doc: "Pair `i` is divided by `short_factor[i]` in a sequence of at most `original_max_len` tokens, and by `long_factor[i]` in a longer one; rotated vectors get the length `attention_factor`, or `sqrt(1 + ln(factor) / ln(original_max_len))` (Ding et al. 2024, Phi-3). The lists are numbers in brackets or constant arrays, `[1.0, 1.25]` or `FACTORS`. A session takes the list of its capacity from its first token on, as vLLM does. `rope_type: longrope`.",
    },
];

const INTERLEAVED: Key = Key {
    name: "interleaved",
    kind: KeyKind::Word(&[
        plain(
            "false",
            "Pairs of the first half and the second, as GPT-NeoX and Llama.",
        ),
        plain("true", "Pairs of neighbours, as GPT-J and RoFormer."),
    ]),
    default: "`false`",
    doc: "Which coordinates are a pair.",
};

const POSITION_IDS: Key = Key {
    name: "position_ids",
    kind: KeyKind::Word(&[
        plain(
            "false",
            "A token has the position of its place in the sequence, from 0 on.",
        ),
        plain("true", "The call takes the positions of the tokens."),
    ]),
    default: "`false`",
    doc: "Whether the call takes positions.",
};

const TRUNCATE: Key = Key {
    name: "truncate",
    kind: KeyKind::Word(&[
        plain("true", "The bounds of the change are whole pairs."),
        plain("false", "The bounds of the change are as computed."),
    ]),
    default: "`true`",
    doc: "Whether the bounds between pairs are rounded.",
};
