//! Attentions: layers, and those to given queries, keys and values, with their results and bodies.

use super::operations::{SEQUENCE, TOKENS};
use super::writer::{Axis, Writer, width};

pub(super) fn attention(w: &mut Writer) -> Option<()> {
    const OF_ITSELF: &[&str] = &[
        "mask = causal",
        "mask = causal, position = rope",
        "mask = sliding_window(2), qk_norm = rms, bias = false",
        "mask = causal, position = alibi, softcap = 2, kv_heads = 1",
        "mask = causal, normalizer = sink, head_dim = 3",
    ];
    const OF_ALL: &[&str] = &[
        "",
        "position = rel_pos_bias(4, 3)",
        "mask = padding",
        "mask = document & causal",
    ];
    const OF_A_CONTEXT: &[&str] = &["", "score = additive(3)", "score = bilinear"];
    let x = w.find(|axes| axes.len() == 3 && axes[..2] == TOKENS && axes[2] == Axis::D)?;
    let is_context = |axes: &[Axis]| {
        axes.len() == 3 && axes[0] == Axis::Batch && axes[1] != axes[2] && width(axes).is_some()
    };
    let context = w
        .find(is_context)
        .filter(|_| !w.is_session && w.numbers.percent(30));
    let keys = match context {
        Some(_) => OF_A_CONTEXT,
        None if w.is_session || w.numbers.percent(50) => OF_ITSELF,
        None => OF_ALL,
    };
    let keys = *w.numbers.pick(keys);
    let x = w.read(x);
    let operand = match context {
        Some(context) => format!(", context = {}", w.read(context)),
        None if keys.contains("padding") => {
            format!(
                ", padding = {}",
                w.input("lens", ["lens", "lens"], &[Axis::Batch])
            )
        }
        None if keys.contains("document") => {
            format!(
                ", document = {}",
                w.input("documents", ["ids", "ids"], &TOKENS)
            )
        }
        None => String::new(),
    };
    let comma = if keys.is_empty() { "" } else { ", " };
    w.define(
        &format!("attention::<2{comma}{keys}>({x}{operand})"),
        SEQUENCE.to_vec(),
    )
}

/// Attention of one value to itself, of projections of it, or of some of both.
pub(super) fn attend(w: &mut Writer) -> Option<()> {
    const KEYS: &[&str] = &[
        "mask = causal",
        "mask = causal, position = rope",
        "mask = sliding_window(2), qk_norm = rms",
        "mask = causal, normalizer = sink",
    ];
    const OPERANDS: &[&str] = &[
        "X, X, X",
        "linear::<4>(X), linear::<4>(X), linear::<4>(X)",
        "linear::<6>(X), linear::<6, bias = false>(X), X",
        "X, linear::<4>(X), tanh(X)",
        "concat(X, tanh(X)), concat(linear::<4>(X), X), X",
    ];
    let x = w.find(|axes| axes.len() == 3 && axes[..2] == TOKENS && axes[2] == Axis::D)?;
    let x = w.read(x);
    let keys = w.numbers.pick(KEYS);
    let operands = w.numbers.pick(OPERANDS).replace('X', &x);
    w.define(&format!("attend::<{keys}>({operands})"), SEQUENCE.to_vec())
}

/// Attention whose weights and sums are read, or some of these: `A` stands for the axis of the keys.
pub(super) fn results(w: &mut Writer) -> Option<()> {
    const NAMES: &[[bool; 3]] = &[
        [true, true, true],
        [true, true, false],
        [true, false, true],
        [false, true, true],
        [false, true, false],
        [false, false, true],
    ];
    const KEYS: &[&str] = &[
        "",
        "::<mask = causal>",
        "::<mask = sliding_window(2), normalizer = sink>",
        "::<normalizer = softmax1, softcap = 2>",
    ];
    const OF_WEIGHTS: &[&str] = &[
        "sum::<A>(W * W)",
        "max::<A>(W)",
        "mean::<A>(W * sin(3 * W))",
        "logsumexp::<A>(2 * W)",
    ];
    if w.is_session {
        return None;
    }
    let x = w.find(|axes| *axes == SEQUENCE)?;
    let is_context = |axes: &[Axis]| matches!(axes, [Axis::Batch, rows, Axis::D] if rows.size().is_some() && *rows != Axis::D);
    let context = w.find(is_context).filter(|_| w.numbers.percent(60));
    let x = w.read(x);
    let mut keys = (*w.numbers.pick(KEYS)).to_owned();
    if context.is_some() {
        keys = keys.replace("causal", "causal(upper_left)");
        keys = keys.replace("(2)", "(2, upper_left)");
    }
    let reads = *w.numbers.pick(NAMES);
    let names = reads.map(|is_read| match is_read {
        true => w.name(),
        false => format!("_{}", w.name()),
    });
    let kv = context.map_or_else(|| "kv".to_owned(), |at| w.axes(at)[1].text());
    let of = context.map_or_else(|| x.clone(), |at| w.read(at));
    let [y, weights, lse] = &names;
    w.line(format!(
        "let ({y}, {weights}, {lse}) = attend{keys}({x}, linear::<4>({of}), {of});"
    ));
    for (name, axes) in [(y, SEQUENCE.as_slice()), (lse, &TOKENS)] {
        if !name.starts_with('_') {
            w.declare(name.clone(), axes.to_vec());
        }
    }
    if !reads[1] {
        return Some(());
    }
    if w.numbers.percent(40) {
        let of = match context {
            Some(_) => of,
            None => format!("{of} as [batch, kv = seq, d]"),
        };
        // Without the factor it would be the result of the attention, and a comparison of the two would be one of their rounding.
        let written = format!("0.5 * einsum::<[batch, seq, d]>({weights}, {of})");
        return w.define(&written, SEQUENCE.to_vec());
    }
    let written = w.numbers.pick(OF_WEIGHTS).replace('A', &kv);
    w.define(&written.replace('W', weights), TOKENS.to_vec())
}

/// Attention whose body reads products with the rows of a table, or another value: that of the query, or of the key.
pub(super) fn body(w: &mut Writer) -> Option<()> {
    const OF_QUERIES: &[&str] = &[
        "(X, X, X) { fn score(score, q_idx, kv_idx) { score + dot(q, T[clamp(q_idx - kv_idx, 0, 2)]) } }",
        "(X, linear::<4>(X), X) { fn score(score, q_idx, kv_idx) { score * sigmoid(dot(2 * q, T[kv_idx % 3])) } }",
        "(X, X, X, by = V) { data by: [batch, q_len, 4]; fn score(score, b, q_idx, kv_idx) { score + by[b, q_idx, kv_idx % 4] } }",
    ];
    const OF_KEYS: &[&str] = &[
        "(X, X, X) { fn score(score, q_idx, kv_idx) { score + dot(k, T[clamp(q_idx - kv_idx, 0, 2)]) } }",
        "(X, tanh(X), X) { fn score(score, h, q_idx, kv_idx) { score + dot(q, T[q_idx % 3]) * dot(k, T[kv_idx % 3]) } }",
        "(X, X, X, by = V) { data by: [batch, kv_len, 4]; fn score(score, b, q_idx, kv_idx) { score * by[b, kv_idx, q_idx % 4] } }",
        "(X, X, X, by = V) { data by: [batch, kv_len, 4]; fn score(score, b, kv_idx) { tanh(score) + by[b, kv_idx, 3] } }",
    ];
    let x = w.find(|axes| *axes == SEQUENCE)?;
    let x = w.read(x);
    let of_keys = w.numbers.percent(60);
    let written = match of_keys {
        true => *w.numbers.pick(OF_KEYS),
        false => *w.numbers.pick(OF_QUERIES),
    };
    let mut written = written.replace('X', &x);
    if written.contains('T') {
        let table = w.name();
        w.line(format!("param {table}: [3, d] = normal(0.7);"));
        written = written.replace('T', &table);
    }
    if written.contains('V') {
        let by = w.find(|axes| *axes == SEQUENCE)?;
        written = written.replace('V', &w.read(by));
    }
    let mask = *w
        .numbers
        .pick(&["causal", "sliding_window(2)", "causal & sliding_window(3)"]);
    w.define(
        &format!("attend::<mask = {mask}>{written}"),
        SEQUENCE.to_vec(),
    )
}

/// Attention of an axis of constant size to itself, whose indices are places of a grid.
pub(super) fn grid(w: &mut Writer) -> Option<()> {
    const MASKS: &[&str] = &[
        "neighborhood(3)",
        "same_row | same_col",
        "causal & local(2)",
        "window(1)",
    ];
    let suits = |axes: &[Axis]| {
        matches!(axes, [Axis::Batch, tokens, _] if tokens.size().is_some()) && width(axes).is_some()
    };
    let x = w.find(suits)?;
    let axes = w.axes(x);
    let size = axes[1].size()?;
    let rows = (1..=size)
        .filter(|rows| size % rows == 0)
        .collect::<Vec<_>>();
    let rows = *w.numbers.pick(&rows);
    let mask = *w.numbers.pick(MASKS);
    let x = w.read(x);
    let keys = format!("grid = [{rows}, {}], mask = {mask}", size / rows);
    w.define(&format!("attend::<{keys}>({x}, {x}, {x})"), axes)
}
