//! Random valid declarations, over every key of the language.

use proptest::prelude::*;
use proptest::sample::select;

use super::formula::{Formula, formulas};

/// The choice for every optional key. [`ValidSpec::entries`] applies the rules between them.
#[derive(Clone, Debug)]
struct Choices {
    sizes: Sizes,
    cross: bool,
    /// For self-attention and for cross-attention.
    masks: (Formula, Formula),
    grid: Option<Grid>,
    score: &'static str,
    scale: Option<&'static str>,
    position: &'static str,
    qk_norm: &'static str,
    /// Keys without rules, with their values.
    free: Vec<String>,
    spelling: Vec<Spelling>,
}

#[derive(Clone, Debug)]
struct Sizes {
    heads: u64,
    /// Picks a divisor of `heads`.
    kv_heads: Option<prop::sample::Index>,
    /// The width of a head, which is doubled for `rope`.
    width: u64,
    /// If set, `d_model` is not `heads * width`.
    d_model: Option<u64>,
    value_head_dim: Option<u64>,
}

/// Tokens on a grid, and a word of their masks with the operator in front.
#[derive(Clone, Debug)]
struct Grid {
    queries: &'static str,
    /// For cross-attention.
    keys: Option<&'static str>,
    prefix: Option<&'static str>,
    word: &'static str,
}

/// The notation of a size.
#[derive(Clone, Copy, Debug)]
enum Spelling {
    Plain,
    Suffixed,
    Underscored,
    Hexadecimal,
    Braced,
    Parenthesised,
    Sum,
    Product,
}

impl Spelling {
    const ALL: [Spelling; 8] = [
        Spelling::Plain,
        Spelling::Suffixed,
        Spelling::Underscored,
        Spelling::Hexadecimal,
        Spelling::Braced,
        Spelling::Parenthesised,
        Spelling::Sum,
        Spelling::Product,
    ];

    fn write(self, size: u64) -> String {
        match self {
            Spelling::Plain => size.to_string(),
            Spelling::Suffixed => format!("{size}usize"),
            Spelling::Underscored => format!("0_{size}"),
            Spelling::Hexadecimal => format!("{size:#x}"),
            Spelling::Braced => format!("{{ {size} }}"),
            Spelling::Parenthesised => format!("({size})"),
            Spelling::Sum => format!("{{ {} + 1 }}", size - 1),
            Spelling::Product => format!("1 * {size}"),
        }
    }
}

impl Choices {
    fn entries(&self) -> Vec<String> {
        let mut entries = self.size_entries();
        let additive = self.score.starts_with("additive");
        let mut add = |key: &str, value: &str| entries.push(format!("{key} = {value}"));
        add("score", self.score);
        match self.scale {
            Some(scale) if !additive && self.score != "dot" => add("scale", scale),
            _ => {}
        }
        if !additive {
            add("qk_norm", self.qk_norm);
        }
        let mut mask = match self.cross {
            true => self.masks.1.to_string(),
            false => self.masks.0.to_string(),
        };
        if let Some(grid) = &self.grid {
            add("grid", grid.queries);
            if let (Some(keys), true) = (grid.keys, self.cross) {
                add("kv_grid", keys);
            }
            if let Some(prefix) = grid.prefix {
                add("prefix_tokens", prefix);
            }
            mask = format!("({mask}) {}", grid.word);
        }
        if let Some(position) = self.position() {
            add("position", position);
            // The words of a mask with a `!` do not decide the buckets.
            if position.starts_with("rel_pos_bias") && mask.contains('!') {
                add("bidirectional", "true");
            }
        }
        if self.cross {
            add("d_context", "6");
        }
        add("mask", &mask);
        entries.extend(self.free.iter().cloned());
        entries
    }

    fn position(&self) -> Option<&'static str> {
        let bilinear = self.score == "bilinear" && self.position.starts_with("rope");
        (!self.score.starts_with("additive") && !bilinear).then_some(self.position)
    }

    fn size_entries(&self) -> Vec<String> {
        let Sizes {
            heads,
            kv_heads,
            mut width,
            d_model,
            value_head_dim,
        } = self.sizes;
        if self.position().is_some_and(|name| name.starts_with("rope")) {
            width *= 2;
        }
        let divisors: Vec<_> = (1..=heads).filter(|size| heads % size == 0).collect();
        let additive = self.score.starts_with("additive");
        let own_width = d_model.is_some();
        let sizes = [
            ("heads", Some(heads)),
            ("kv_heads", kv_heads.map(|pick| *pick.get(&divisors))),
            ("d_model", Some(d_model.unwrap_or(heads * width))),
            ("head_dim", (own_width && !additive).then_some(width)),
            (
                "value_head_dim",
                value_head_dim.or((own_width && additive).then_some(width)),
            ),
        ];
        let spelled = sizes.into_iter().zip(&self.spelling);
        spelled
            .filter_map(|((key, size), spelling)| {
                Some(format!("{key} = {}", spelling.write(size?)))
            })
            .collect()
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let fields = (
        1..=8u64,
        any::<Option<prop::sample::Index>>(),
        1..=6u64,
        prop::option::of(1..=20u64),
        prop::option::of(1..=7u64),
    );
    fields.prop_map(|(heads, kv_heads, width, d_model, value_head_dim)| Sizes {
        heads,
        kv_heads,
        width,
        d_model,
        value_head_dim,
    })
}

/// Some of the keys without rules.
fn free() -> impl Strategy<Value = Vec<String>> {
    let entry = |key: &'static str, values: &'static [&'static str]| {
        let value = select(values).prop_map(move |value| format!("{key} = {value}"));
        prop::option::of(value)
    };
    let entries = (
        entry("softcap", &["30", "0.5", "{ 1.0 + 2.0 }", "limits::CAP"]),
        entry(
            "normalizer",
            &[
                "softmax",
                "softmax1",
                "sink",
                "sigmoid",
                "relu",
                "relu(2)",
                "relu(power = POWER)",
                "sparsemax",
                "entmax15",
            ],
        ),
        entry("bias", &["true", "false", "[q, k, v]", "[o]", "[]", "q"]),
        entry("dropout", &["0", "0.0", "0.1", "0.999", "P"]),
        entry("talking_heads", &["none", "before", "after", "both"]),
        entry(
            "init",
            &[
                "xavier_uniform",
                "kaiming_uniform",
                "normal(0.02)",
                "normal(std = STD)",
            ],
        ),
    );
    entries.prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].into_iter().flatten().collect())
}

/// Grids of two and of three axes, with words that these have.
fn grid() -> impl Strategy<Value = Grid> {
    let of = |grids: &'static [&'static str], words: &'static [&'static str]| {
        let fields = (
            select(grids),
            prop::option::of(select(grids)),
            prop::option::of(select(&["0", "1", "PREFIX"][..])),
            select(words),
        );
        fields.prop_map(|(queries, keys, prefix, word)| Grid {
            queries,
            keys,
            prefix,
            word,
        })
    };
    let flat = of(
        &["[4, 4]", "[1, 16]", "[ROWS, 3]"],
        &[
            "& neighborhood(3)",
            "& !neighborhood(2, rows = 1)",
            "| neighborhood(3, dilation = 2)",
            "& local(5, cols = N)",
            "& window(4, shift = 2)",
            "& (same_row | same_col)",
        ],
    );
    let deep = of(
        &["[2, 4, 4]", "[FRAMES, 1, 3]"],
        &[
            "& same_frame",
            "& neighborhood(3, frames = 1)",
            "| window(2)",
            "& same_row & same_col",
        ],
    );
    prop_oneof![flat, deep]
}

fn choices() -> impl Strategy<Value = Choices> {
    let masks = (formulas(false, true), formulas(true, true));
    let scores = select(
        &[
            "scaled_dot",
            "dot",
            "additive(5)",
            "additive(hidden = N)",
            "bilinear",
        ][..],
    );
    let scales = prop::option::of(select(&["1", "0.125", "SCALE"][..]));
    let positions = select(
        &[
            "none",
            "rope",
            "rope(500_000)",
            "rope(theta = 1e4)",
            "rope(interleaved, dims = 2)",
            "rope(position_ids = true)",
            "rope(scaling = llama3(8, 1, 4, 64))",
            "rope(1e5, scaling = yarn(4, 32, truncate = false))",
            "rope(scaling = dynamic_ntk(2.0, 8))",
            "rope(dims = 4, scaling = longrope([1.0, 1.5], &FACTORS, 4, 64))",
            "alibi",
            "rel_pos_bias",
            "rel_pos_bias()",
            "rel_pos_bias(num_buckets = 8, max_distance = 20)",
            "rel_pos_bias(4, BUCKETS)",
        ][..],
    );
    let qk_norms = select(
        &[
            "none",
            "rms",
            "rms(gain = one_plus)",
            "rms(gain = false)",
            "rms(epsilon = 1e-3)",
            "l2",
            "l2(epsilon = EPSILON)",
        ][..],
    );
    let spelling = prop::collection::vec(select(&Spelling::ALL[..]), 5);
    let fields = (
        sizes(),
        any::<bool>(),
        (masks, prop::option::of(grid())),
        scores,
        scales,
        positions,
        qk_norms,
        free(),
        spelling,
    );
    fields.prop_map(
        |(sizes, cross, (masks, grid), score, scale, position, qk_norm, free, spelling)| Choices {
            sizes,
            cross,
            masks,
            grid,
            score,
            scale,
            position,
            qk_norm,
            free,
            spelling,
        },
    )
}

/// The keys and values of a layer, in any order.
pub(in crate::tests) fn valid_entries() -> impl Strategy<Value = Vec<String>> {
    choices()
        .prop_map(|choices| choices.entries())
        .prop_shuffle()
}

/// Declarations of a layer called `Layer`.
pub(in crate::tests) fn valid_specs() -> impl Strategy<Value = String> {
    let heads = select(
        &[
            "struct",
            "pub struct",
            "pub(crate) struct",
            "/// Documented.\n#[derive(Clone)] #[cfg(test)] pub(super) struct",
        ][..],
    );
    (heads, valid_entries(), any::<bool>()).prop_map(|(head, entries, trailing)| {
        let comma = if trailing { "," } else { "" };
        format!("{head} Layer<{}{comma}>;", entries.join(", "))
    })
}
