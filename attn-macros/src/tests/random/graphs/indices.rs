//! Operations with ids, and of numbers that lengths or marks select.
//!
//! Where ids are computed of a value, learned numbers are added to it: equal numbers, whose order rounding decides, would give the two
//! forms different ids.

use super::operations::{SEQUENCE, TOKENS, along, pair};
use super::writer::{Axes, Axis, Writer, is_subset, list, width};
use crate::model::types::MOST_AXES;

/// The number of ids of the input `tokens`, and more than the named axes have.
const IDS: Axis = Axis::Size(7);
const TWO: Axis = Axis::Size(2);

/// The axes of `x[axis = ids]`. `None` if an axis stands there twice, or there are too many.
fn at_ids(x: &[Axis], axis: Axis, ids: &[Axis]) -> Option<Axes> {
    let is_shared = |of: &Axis| of.is_named() && *of != axis && x.contains(of);
    let new = ids.iter().copied().filter(|of| !is_shared(of));
    let at = x.iter().position(|of| *of == axis)?;
    let mut axes = x.to_vec();
    axes.splice(at..=at, new);
    let is_same = |a: &Axis, b: &Axis| a == b || a.size().is_some() && a.size() == b.size();
    let is_single = |of: &Axis| axes.iter().filter(|other| is_same(other, of)).count() == 1;
    (axes.len() <= MOST_AXES && axes.iter().all(is_single)).then_some(axes)
}

/// The axes with another one in the place of this one, or with none.
fn replaced(axes: &[Axis], axis: Axis, to: Option<Axis>) -> Option<Axes> {
    let at = axes.iter().position(|of| *of == axis)?;
    let mut axes = axes.to_vec();
    axes.splice(at..=at, to);
    Some(axes)
}

/// A learned table with this many rows.
fn table(w: &mut Writer, rows: Axis, width: Axis) -> String {
    let name = w.name();
    w.line(format!(
        "param {name}: {} = normal(1.0);",
        list(&[rows, width])
    ));
    name
}

/// `X + v1`, of different numbers along an axis.
fn apart(w: &mut Writer, x: &str, axis: Axis) -> String {
    let by = match axis {
        Axis::Batch => return format!("{x} + {}", w.input("b", ["floats", ""], &[axis])),
        Axis::Seq => return format!("{x} + {}", w.input("p", ["floats", ""], &[axis])),
        _ => w.name(),
    };
    w.line(format!("param {by}: {} = normal(1.0);", list(&[axis])));
    format!("{x} + {by}")
}

/// Only values without a derivative are detached, so that the gradients are still those of differences.
pub(super) fn detach(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &[
        "X * detach(floor(2 * Y + 0.37))",
        "detach(floor(2 * Y + 0.37)) + X",
        "X * detach(if Y < 0.1 { 0.5 } else { -1 })",
    ];
    if w.numbers.percent(40) {
        let x = w.find(|_| true)?;
        let axes = w.axes(x);
        let x = w.read(x);
        return w.define(&format!("detach(floor(2 * {x} + 0.37))"), axes);
    }
    let (x, y, axes) = pair(w)?;
    let of = w.numbers.pick(OF).replace('X', &x).replace('Y', &y);
    w.define(&of, axes)
}

/// Rows of a table, or numbers along an axis, by ids of an input or by constants.
pub(super) fn lookup(w: &mut Writer) -> Option<()> {
    match w.numbers.below(3) {
        0 => {
            let rows = table(w, IDS, Axis::D);
            let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
            w.define(&format!("{rows}[{ids}]"), SEQUENCE.to_vec())
        }
        1 => {
            const OF: &[(&str, usize)] = &[("[-1, 0]", 2), ("[0, -1, 0, 0, -1]", 5)];
            let (list, count) = *w.numbers.pick(OF);
            let count = Axis::Size(count);
            let (x, axis) = along(w, |axes, _| !axes.contains(&count))?;
            let to = replaced(&w.axes(x), axis, Some(count))?;
            let x = w.read(x);
            w.define(&format!("{x}[{} = {list}]", axis.text()), to)
        }
        _ => at_places(w),
    }
}

/// Numbers along the sequence.
fn at_places(w: &mut Writer) -> Option<()> {
    if w.is_session {
        return None;
    }
    let kinds: &[(&str, &[Axis])] = &[
        ("last", &[Axis::Batch]),
        ("order", &TOKENS),
        ("turned", &[Axis::Seq, Axis::Batch]),
        ("some", &[Axis::Rows]),
    ];
    let (name, ids) = *w.numbers.pick(kinds);
    let x = w.find(|axes| at_ids(axes, Axis::Seq, ids).is_some())?;
    let to = at_ids(&w.axes(x), Axis::Seq, ids)?;
    let x = w.read(x);
    let ids = w.input(name, ["places", "ids"], ids);
    w.define(&format!("{x}[seq = {ids}]"), to)
}

/// Reads numbers at computed ids, which are below the size of `axis`, and have the axes `of`.
fn read_at(w: &mut Writer, ids: &str, of: &[Axis], axis: Axis) -> Option<()> {
    let below = axis.size().unwrap_or(5);
    let Axis::Size(most) = IDS else { return None };
    if w.numbers.percent(50) {
        // Numbers along the axis of another value.
        // In a session, what has numbers for each token begins with the axes of tokens.
        let is_session = w.is_session;
        let is_allowed =
            |to: Axes| !is_session || to.starts_with(&TOKENS) || !is_subset(&TOKENS, &to);
        let x = w.find(|axes| at_ids(axes, axis, of).is_some_and(is_allowed));
        if let Some(x) = x {
            let to = at_ids(&w.axes(x), axis, of)?;
            let x = w.read(x);
            return w.define(&format!("{x}[{} = {ids}]", axis.text()), to);
        }
    }
    let last = match w.numbers.percent(50) {
        true => IDS,
        false => Axis::D,
    };
    let to = [of, &[last]].concat();
    if below > most || to.len() > MOST_AXES || of.contains(&last) {
        // They are read in any case.
        if of.contains(&Axis::Size(below)) {
            return w.define(&format!("0.5 * float({ids})"), of.to_vec());
        }
        return w.define(
            &format!("mean::<{below}>(one_hot::<{below}>({ids}))"),
            of.to_vec(),
        );
    }
    match (last == IDS, w.numbers.percent(50)) {
        (true, _) => w.define(&format!("one_hot::<7>({ids})"), to),
        (_, true) => w.define(&format!("embedding::<7, d>({ids})"), to),
        (_, false) => {
            let rows = table(w, IDS, Axis::D);
            w.define(&format!("{rows}[{ids}]"), to)
        }
    }
}

/// What stands at the largest number.
pub(super) fn argmax(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |axes, _| axes.len() < MOST_AXES)?;
    let of = replaced(&w.axes(x), axis, None)?;
    let x = w.read(x);
    let x = apart(w, &x, axis);
    let x = match w.numbers.percent(30) {
        true => format!("detach({x})"),
        false => x,
    };
    let ids = format!("argmax::<{}>({x})", axis.text());
    read_at(w, &ids, &of, axis)
}

/// The losses of the largest numbers.
pub(super) fn cross_entropy(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |axes, _| axes.len() < MOST_AXES)?;
    let of = replaced(&w.axes(x), axis, None)?;
    let x = w.read(x);
    let targets = format!("argmax::<{}>({})", axis.text(), apart(w, &x, axis));
    let smoothing = match w.numbers.percent(50) {
        true => ", label_smoothing = 0.2",
        false => "",
    };
    let axis = axis.text();
    w.define(
        &format!("cross_entropy::<{axis}{smoothing}, reduction = none>({x}, {targets})"),
        of,
    )
}

/// The two largest numbers, or their ids.
pub(super) fn top_k(w: &mut Writer) -> Option<()> {
    // A batch may have one sequence.
    let has_two = |axis: Axis| axis != Axis::Batch && axis.size() != Some(1);
    let (x, axis) = along(w, |axes, axis| has_two(axis) && !axes.contains(&TWO))?;
    let from = w.axes(x);
    let to = replaced(&from, axis, Some(TWO))?;
    let x = w.read(x);
    let x = apart(w, &x, axis);
    let [values, ids] = [w.name(), w.name()];
    let reads_ids = w.numbers.percent(60);
    let unread = if reads_ids { "" } else { "_" };
    w.line(format!(
        "let ({values}, {unread}{ids}) = top_k::<{}, k = 2>({x});",
        axis.text()
    ));
    w.declare(values.clone(), to.clone());
    if !reads_ids {
        return Some(());
    }
    let are_named = from.iter().all(|of| *of == axis || of.is_named());
    if are_named && w.numbers.percent(40) {
        let name = axis.text();
        return w.define(
            &format!(
                "scatter_add::<{}, axis = {name}>(0.5 * {values}, {ids})",
                list(&from)
            ),
            from,
        );
    }
    read_at(w, &ids, &to, axis)
}

/// Maps by group: the best group or the best two of each vector, or groups of an input.
pub(super) fn grouped_linear(w: &mut Writer) -> Option<()> {
    let suits = |axes: &[Axis]| {
        width(axes).is_some()
            && axes.len() < MOST_AXES
            && !axes.contains(&IDS)
            && !axes.contains(&TWO)
    };
    let x = w.find(suits)?;
    let mut rows = w.axes(x);
    rows.pop();
    let to = [Axis::D, Axis::Rows, Axis::Size(5)];
    let to = to.into_iter().filter(|axis| !rows.contains(axis));
    let to = *w.numbers.pick(&to.collect::<Vec<_>>());
    let result = [&*rows, &[to]].concat();
    let x = w.read(x);
    let keys = *w
        .numbers
        .pick(&["", ", bias = false", ", capacity_factor = 0.8"]);
    let keys = if w.is_session && keys.contains("capacity") {
        ""
    } else {
        keys
    };
    let map = |ids: &str| format!("grouped_linear::<{}, 7{keys}>({x}, {ids})", to.text());
    match w.numbers.below(3) {
        0 if rows.starts_with(&TOKENS) => {
            let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
            w.define(&map(&ids), result)
        }
        1 => w.define(&map(&format!("argmax::<7>(linear::<7>({x}))")), result),
        _ => {
            let [gates, ids] = [w.name(), w.name()];
            w.line(format!(
                "let ({gates}, {ids}) = top_k::<7, k = 2>(linear::<7>({x}));"
            ));
            w.define(&format!("sum::<2>({gates} * {})", map(&ids)), result)
        }
    }
}

/// A vector or a row for each index of an axis.
pub(super) fn arange(w: &mut Writer) -> Option<()> {
    let axes: &[Axis] = match w.is_session {
        true => &[Axis::Rows, Axis::D],
        false => &[Axis::Seq, Axis::Batch, Axis::Rows],
    };
    let axis = *w.numbers.pick(axes);
    let ids = format!("arange::<{}>()", axis.text());
    match axis == Axis::D || w.numbers.percent(50) {
        true => w.define(&format!("one_hot::<7>({ids})"), vec![axis, IDS]),
        false => {
            let rows = table(w, IDS, Axis::D);
            w.define(&format!("{rows}[{ids}]"), vec![axis, Axis::D])
        }
    }
}

pub(super) fn one_hot(w: &mut Writer) -> Option<()> {
    let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
    let axes = vec![Axis::Batch, Axis::Seq, IDS];
    w.define(&format!("one_hot::<7>({ids})"), axes)
}

/// Ids, lengths or marks as numbers.
pub(super) fn float(w: &mut Writer) -> Option<()> {
    let kinds: &[(&str, [&str; 2], &[Axis])] = &[
        ("tokens", ["ids", "ids"], &TOKENS),
        ("keep", ["marks", "bool"], &TOKENS),
        ("lens", ["lens", "lens"], &[Axis::Batch]),
    ];
    let kinds = if w.is_session { &kinds[..1] } else { kinds };
    let (name, kind, axes) = *w.numbers.pick(kinds);
    let read = w.input(name, kind, axes);
    w.define(&format!("0.5 * float({read})"), axes.to_vec())
}

/// A choice by marks, and by ids that are compared.
pub(super) fn mask(w: &mut Writer) -> Option<()> {
    let x = w.find(|axes| is_subset(&TOKENS, axes))?;
    let axes = w.axes(x);
    let x = w.read(x);
    let tokens = w.input("tokens", ["ids", "ids"], &TOKENS);
    if w.is_session || w.numbers.percent(30) {
        let written = format!("if {tokens} < 3 || {x} > 0.3 {{ {x} }} else {{ 0.5 }}");
        return w.define(&written, axes);
    }
    let keep = w.input("keep", ["marks", "bool"], &TOKENS);
    let written = match w.numbers.percent(50) {
        true => format!("if {keep} && {tokens} != 2 {{ tanh({x}) }} else {{ 0 }}"),
        false => format!("if arange::<seq>() < {tokens} || !{keep} {{ {x} }} else {{ 0.5 * {x} }}"),
    };
    w.define(&written, axes)
}

/// Sums over tokens of each id.
pub(super) fn scatter_add(w: &mut Writer) -> Option<()> {
    if w.is_session {
        return None;
    }
    let x = w.find(|axes| is_subset(&TOKENS, axes) && !axes.contains(&IDS))?;
    let axes = w.axes(x);
    let mut to = replaced(&axes, Axis::Seq, Some(IDS))?;
    if w.numbers.percent(40) {
        to.retain(|axis| *axis != Axis::Batch);
    }
    let x = w.read(x);
    let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
    w.define(&format!("scatter_add::<{}>({x}, {ids})", list(&to)), to)
}

pub(super) fn cumsum(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |_, _| true)?;
    let axes = w.axes(x);
    let x = w.read(x);
    w.define(&format!("cumsum::<{}>(0.5 * {x})", axis.text()), axes)
}

pub(super) fn l2_norm(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |_, _| true)?;
    let axes = w.axes(x);
    let x = w.read(x);
    w.define(
        &format!("l2_norm::<{}, epsilon = 0.1>({x})", axis.text()),
        axes,
    )
}

/// Vectors that are rotated by their places, or by the ids of their tokens.
pub(super) fn rope(w: &mut Writer) -> Option<()> {
    let is_even = |axes: &[Axis]| width(axes).is_some_and(|width| width % 2 == 0);
    if w.numbers.percent(30)
        && let Some(x) = w.find(|axes| is_even(axes) && is_subset(&TOKENS, axes))
    {
        let axes = w.axes(x);
        let x = w.read(x);
        let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
        return w.define(&format!("rope::<theta = 50.0>({x}, {ids})"), axes);
    }
    let is_session = w.is_session;
    let along = |axes: &[Axis]| {
        let vectors = axes[..axes.len() - 1].iter().copied();
        let axis = vectors.rev().find(|axis| axis.is_named());
        axis.filter(|axis| !is_session || *axis != Axis::Batch)
    };
    let x = w.find(|axes| is_even(axes) && along(axes).is_some())?;
    let axes = w.axes(x);
    let axis = along(&axes)?;
    let x = w.read(x);
    w.define(
        &format!("rope::<{}, dims = 2, interleaved = true>({x})", axis.text()),
        axes,
    )
}

/// A reduction or a softmax of the numbers that an input selects.
pub(super) fn selected(w: &mut Writer) -> Option<()> {
    // The logarithm of nothing is infinite.
    const OF: &[&str] = &[
        "softmax::<A>(2 * X, I)",
        "softmax::<A>(X, I)",
        "sum::<A>(X, I)",
        "mean::<A>(X, I)",
        "max::<A>(X, I)",
        "min::<A>(X, I)",
        "variance::<A>(X, I)",
        "exp(tanh(logsumexp::<A>(X, I)))",
    ];
    const SELECT: &[(&str, [&str; 2], Axis, &[Axis])] = &[
        ("lens", ["lens", "lens"], Axis::Seq, &[Axis::Batch]),
        (
            "some_lens",
            ["lens", "lens"],
            Axis::Seq,
            &[Axis::D, Axis::Batch],
        ),
        ("keep", ["marks", "bool"], Axis::Seq, &TOKENS),
        ("keep", ["marks", "bool"], Axis::Batch, &TOKENS),
        ("keep_d", ["marks", "bool"], Axis::D, &[Axis::D]),
        (
            "keep_some",
            ["marks", "bool"],
            Axis::Seq,
            &[Axis::D, Axis::Seq],
        ),
        (
            "keep_rows",
            ["marks", "bool"],
            Axis::Rows,
            &[Axis::Batch, Axis::Rows],
        ),
    ];
    if w.is_session {
        return None;
    }
    let (name, kind, axis, of) = *w.numbers.pick(SELECT);
    let x = w.find(|axes| axes.contains(&axis) && is_subset(of, axes))?;
    let mut axes = w.axes(x);
    let x = w.read(x);
    let selection = w.input(name, kind, of);
    let written = *w.numbers.pick(OF);
    if !written.starts_with("softmax") {
        axes.retain(|of| *of != axis);
    }
    let written = written.replace('A', &axis.text()).replace('X', &x);
    w.define(&written.replace('I', &selection), axes)
}

/// A line of a `repeat` with ids: of an input, or of the carried value, along its last axis.
pub(super) fn in_a_round(w: &mut Writer, carried: &str, axes: &[Axis]) -> String {
    let name = w.name();
    if axes == SEQUENCE && w.numbers.percent(50) {
        let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
        return format!("param {name}: [7, d] = normal(1.0); {carried} += {name}[{ids}]; ");
    }
    let last = axes.last().map_or_else(String::new, |axis| axis.text());
    let ids = format!("argmax::<{last}>({carried} + {name})");
    format!("param {name}: [{last}] = normal(1.0); {carried} += one_hot::<{last}>({ids}); ")
}
