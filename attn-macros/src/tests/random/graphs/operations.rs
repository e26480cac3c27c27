//! The operations: each writes a line with itself, if there is a value that it takes.

use super::attentions;
use super::convolutions;
use super::indices;
use super::scans;
use super::writer::{Axes, Axis, Writer, is_subset, list, width};

/// Writes an operation. `None`, and nothing is written, if no value suits.
type Write = fn(&mut Writer) -> Option<()>;

pub(super) const TOKENS: [Axis; 2] = [Axis::Batch, Axis::Seq];
pub(super) const SEQUENCE: [Axis; 3] = [Axis::Batch, Axis::Seq, Axis::D];

/// The first value of a model, and of one with a session.
pub(super) const FIRST: [Write; 2] = [
    |w| {
        let x = w.input("x", ["floats", ""], &SEQUENCE);
        w.declare(x, SEQUENCE.to_vec());
        Some(())
    },
    embedding,
];

/// All operations, more often those that others need.
pub(super) const OPERATIONS: &[(&str, Write)] = &[
    ("input", input),
    ("param", param),
    ("buffer", buffer),
    ("embedding", embedding),
    ("tied", tied),
    ("position", position),
    ("unary", unary),
    ("unary", unary),
    ("binary", binary),
    ("binary", binary),
    ("binary", binary),
    ("choice", choice),
    ("linear", linear),
    ("linear", linear),
    ("grouped_linear", indices::grouped_linear),
    ("feed_forward", feed_forward),
    ("rows", rows),
    ("einsum", einsum),
    ("einsum", einsum),
    ("rearrange", rearrange),
    ("stack", stack),
    ("expand", expand),
    ("pad", pad),
    ("shift", shift),
    ("windows", windows),
    ("softmax", softmax),
    ("reduce", reduce),
    ("reduce", reduce),
    ("concat", concat),
    ("permute", permute),
    ("split", split),
    ("part", part),
    ("pool", pool),
    ("detach", indices::detach),
    ("lookup", indices::lookup),
    ("lookup", indices::lookup),
    ("argmax", indices::argmax),
    ("cross_entropy", indices::cross_entropy),
    ("top_k", indices::top_k),
    ("arange", indices::arange),
    ("one_hot", indices::one_hot),
    ("float", indices::float),
    ("mask", indices::mask),
    ("scatter_add", indices::scatter_add),
    ("cumsum", indices::cumsum),
    ("l2_norm", indices::l2_norm),
    ("rope", indices::rope),
    ("selected", indices::selected),
    ("selected", indices::selected),
    ("conv1d", convolutions::conv1d),
    ("causal", convolutions::causal),
    ("conv2d", convolutions::conv2d),
    ("conv_transpose1d", convolutions::conv_transpose1d),
    ("conv_transpose2d", convolutions::conv_transpose2d),
    ("attention", attentions::attention),
    ("attention", attentions::attention),
    ("attend", attentions::attend),
    ("results", attentions::results),
    ("body", attentions::body),
    ("grid", attentions::grid),
    ("scan", scans::scan),
    ("repeat", repeat),
    ("repeat", repeat),
];

/// Whether an operation may go along this axis.
fn is_along(w: &Writer, axis: Axis) -> bool {
    !w.is_session || axis.size().is_some()
}

/// A size of an axis that has none of the names and is not among these.
fn is_free(axes: &[Axis], size: usize) -> bool {
    size != 1 && size != 3 && size != 4 && !axes.contains(&Axis::Size(size))
}

fn input(w: &mut Writer) -> Option<()> {
    if w.is_session {
        return None;
    }
    let kinds: &[(&str, &[Axis])] = &[
        ("c", &[Axis::Batch, Axis::D]),
        ("w", &TOKENS),
        ("m", &[Axis::Rows, Axis::D]),
        ("z", &[Axis::Batch, Axis::Rows, Axis::D]),
        ("p", &[Axis::Seq]),
    ];
    let (name, axes) = w.numbers.pick(kinds);
    let read = w.input(name, ["floats", ""], axes);
    w.define(&format!("tanh({read})"), axes.to_vec())
}

fn param(w: &mut Writer) -> Option<()> {
    let shapes: &[&[Axis]] = &[
        &[Axis::D],
        &[Axis::Rows],
        &[Axis::Rows, Axis::D],
        &[Axis::Size(2), Axis::D],
        &[],
    ];
    let axes = w.numbers.pick(shapes).to_vec();
    let name = w.name();
    w.line(format!("param {name}: {} = normal(1.0);", list(&axes)));
    w.declare(name, axes);
    Some(())
}

fn buffer(w: &mut Writer) -> Option<()> {
    const OF: &[(&[Axis], &str)] = &[
        (&[Axis::D], "|i| 0.3 * i - 0.4"),
        (
            &[Axis::Rows, Axis::D],
            "|row, i| if i <= row { sin(i + 1) } else { -0.5 }",
        ),
        (&[Axis::Size(2), Axis::D], "0.7"),
    ];
    let (axes, value) = *w.numbers.pick(OF);
    let name = w.name();
    w.line(format!("buffer {name}: {} = {value};", list(axes)));
    w.declare(name, axes.to_vec());
    Some(())
}

fn embedding(w: &mut Writer) -> Option<()> {
    let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
    w.define(&format!("embedding::<7, d>({ids})"), SEQUENCE.to_vec())
}

/// The table of an embedding, read twice.
fn tied(w: &mut Writer) -> Option<()> {
    let x = w.find(|axes| axes.last() == Some(&Axis::D) && !axes.contains(&Axis::Size(7)))?;
    let mut axes = w.axes(x);
    let x = w.read(x);
    let ids = w.input("tokens", ["ids", "ids"], &TOKENS);
    let [table, logits] = [w.name(), w.name()];
    w.line(format!(
        "let {table} = embedding::<7, d, name = t_{table}>({ids});"
    ));
    w.declare(table.clone(), SEQUENCE.to_vec());
    w.line(format!("let {logits} = linear::<tied = t_{table}>({x});"));
    axes.pop();
    axes.push(Axis::Size(7));
    w.declare(logits, axes);
    Some(())
}

fn position(w: &mut Writer) -> Option<()> {
    let x = w.find(|axes| axes.len() == 3 && axes[..2] == TOKENS && width(axes).is_some())?;
    let axes = w.axes(x);
    let last = axes[2].text();
    let x = w.read(x);
    let of = *w
        .numbers
        .pick(&["sinusoidal_position::<W>", "learned_position::<9, W>"]);
    w.define(&format!("{x} + {}({x})", of.replace('W', &last)), axes)
}

/// `X` is the value.
fn unary(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &[
        "gelu(X)",
        "gelu_tanh(X)",
        "relu(X)",
        "relu_squared(X)",
        "silu(X)",
        "sigmoid(X)",
        "tanh(X)",
        "exp(tanh(X))",
        "ln(2 + X * X)",
        "sqrt(1 + X * X)",
        "sin(X)",
        "cos(2 * X)",
        "abs(X)",
        "floor(2 * X + 0.37) * X",
        "pow(X, 2)",
        "clamp(X, -0.7, 0.7)",
        "min(X, 0.2)",
        "max(0.1, X)",
        "2 * X - 1",
        "1 - X / 3",
        "dropout::<0.5>(X)",
    ];
    let x = w.find(|_| true)?;
    let axes = w.axes(x);
    let x = w.read(x);
    let of = w.numbers.pick(OF).replace('X', &x);
    w.define(&of, axes)
}

/// Two values: the axes of the second are among those of the first.
pub(super) fn pair(w: &mut Writer) -> Option<(String, String, Axes)> {
    let x = w.find(|axes| !axes.is_empty())?;
    let axes = w.axes(x);
    let y = w.find(|other| is_subset(other, &axes))?;
    // Of as many axes in another order, the first operand has those of the result.
    let of_y = w.axes(y);
    let is_permuted = of_y.len() == axes.len() && of_y != axes;
    let [x, y] = [w.read(x), w.read(y)];
    Some(match is_permuted || w.numbers.percent(50) {
        true => (x, y, axes),
        false => (y, x, axes),
    })
}

fn binary(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &[
        "X + Y",
        "X - Y",
        "X * Y",
        "X / (2 + Y * Y)",
        "min(X, Y)",
        "max(X, Y)",
        "clamp(X, Y - 1, Y + 1)",
        "X * sigmoid(Y) + 0.5 * Y",
    ];
    let (x, y, axes) = pair(w)?;
    let of = w.numbers.pick(OF).replace('X', &x).replace('Y', &y);
    w.define(&of, axes)
}

fn choice(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &[
        "if X < Y { X * Y } else { tanh(X) }",
        "if X > 0.1 && !(Y >= 0.6) { 0.5 * X } else { Y - 1 }",
        "if X <= 0 || Y > X { Y } else if X > 0.5 { sqrt(X) } else { 0.25 }",
    ];
    let (x, y, axes) = pair(w)?;
    let of = w.numbers.pick(OF).replace('X', &x).replace('Y', &y);
    w.define(&of, axes)
}

fn linear(w: &mut Writer) -> Option<()> {
    let x = w.find(|axes| width(axes).is_some())?;
    let mut axes = w.axes(x);
    axes.pop();
    let to = [Axis::D, Axis::D, Axis::Rows, Axis::Size(2), Axis::Size(5)];
    let to = to.into_iter().filter(|axis| !axes.contains(axis));
    let to = *w.numbers.pick(&to.collect::<Vec<_>>());
    let bias = *w.numbers.pick(&["", ", bias = false"]);
    axes.push(to);
    let x = w.read(x);
    w.define(&format!("linear::<{}{bias}>({x})", to.text()), axes)
}

const ACTIVATIONS: &[&str] = &[
    "gelu",
    "gelu_tanh",
    "relu",
    "relu_squared",
    "silu",
    "sigmoid",
    "tanh",
    "swiglu",
    "geglu",
    "reglu",
];

fn feed_forward(w: &mut Writer) -> Option<()> {
    let x = w.find(|axes| width(axes).is_some())?;
    let axes = w.axes(x);
    let x = w.read(x);
    let activation = w.numbers.pick(ACTIVATIONS);
    w.define(
        &format!("feed_forward::<6, activation = {activation}>({x})"),
        axes,
    )
}

/// Operations on vectors.
fn rows(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &[
        "layer_norm",
        "layer_norm::<epsilon = 0.1>",
        "rms_norm",
        "l2_norm",
        "rms_norm::<epsilon = 0.5>",
        "softmax",
    ];
    let x = w.find(|axes| width(axes).is_some_and(|width| width > 2))?;
    let axes = w.axes(x);
    let of = match axes.last() {
        Some(Axis::D) if w.numbers.percent(25) => "group_norm::<2>",
        _ => *w.numbers.pick(OF),
    };
    let x = w.read(x);
    w.define(&format!("{of}({x})"), axes)
}

/// A product of two values, summed over an axis, or with a learned matrix.
fn einsum(w: &mut Writer) -> Option<()> {
    if w.numbers.percent(50) {
        let x = w.find(|axes| axes.contains(&Axis::D) && !axes.contains(&Axis::Rows))?;
        let to = w.axes(x).into_iter();
        let to: Axes = to
            .map(|axis| if axis == Axis::D { Axis::Rows } else { axis })
            .collect();
        let x = w.read(x);
        let weight = w.name();
        w.line(format!("param {weight}: [d, rows] = normal(0.5);"));
        return w.define(&format!("einsum::<{}>({x}, {weight})", list(&to)), to);
    }
    let (x, axis) = along(w, |_, _| true)?;
    let axes = w.axes(x);
    let y = w.find(|other| is_subset(other, &axes))?;
    let mut to = axes;
    to.retain(|of| *of != axis);
    let [x, y] = [w.read(x), w.read(y)];
    w.define(&format!("einsum::<{}>({x}, {y})", list(&to)), to)
}

/// The last two axes as one, in their order or in the other one.
fn rearrange(w: &mut Writer) -> Option<()> {
    let pair = |axes: &[Axis]| {
        let [.., a, b] = axes else { return None };
        let size = a.size()? * b.size()?;
        (a != b && is_free(axes, size)).then_some((*a, *b, Axis::Size(size)))
    };
    let x = w.find(|axes| pair(axes).is_some())?;
    let mut axes = w.axes(x);
    let (a, b, merged) = pair(&axes)?;
    axes.truncate(axes.len() - 2);
    let before: String = axes.iter().map(|axis| axis.text() + ", ").collect();
    let [a, b] = match w.numbers.percent(50) {
        true => [a, b],
        false => [b, a],
    };
    axes.push(merged);
    let x = w.read(x);
    let of = format!("[{before}({}, {})]", a.text(), b.text());
    w.define(&format!("rearrange::<{of}>({x})"), axes)
}

/// A value with fewer axes.
fn expand(w: &mut Writer) -> Option<()> {
    let x = w.find(|axes| axes.len() < SEQUENCE.len() && is_subset(axes, &SEQUENCE))?;
    let x = w.read(x);
    w.define(
        &format!("expand::<[batch, seq, d]>({x})"),
        SEQUENCE.to_vec(),
    )
}

/// Two values along a new axis.
fn stack(w: &mut Writer) -> Option<()> {
    let two = Axis::Size(2);
    let kept = if w.is_session { 2 } else { 0 };
    let x = w.find(|axes| (kept..4).contains(&axes.len()) && !axes.contains(&two))?;
    let axes = w.axes(x);
    let y = w.find(|other| other == axes.as_slice())?;
    let place = kept + w.numbers.below(axes.len() - kept + 1);
    let mut to = axes;
    to.insert(place, two);
    let [x, y] = [w.read(x), w.read(y)];
    w.define(&format!("stack::<{}>({x}, 0.5 * {y})", list(&to)), to)
}

fn pad(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &["before = 1", "after = 1, value = 0.5"];
    let (x, axis) = along(w, |axes, axis| {
        axis.size().is_some_and(|size| is_free(axes, size + 1))
    })?;
    let to = Axis::Size(axis.size()? + 1);
    let axes = w.axes(x).into_iter();
    let axes: Axes = axes.map(|of| if of == axis { to } else { of }).collect();
    let x = w.read(x);
    let of = w.numbers.pick(OF);
    w.define(&format!("pad::<{}, {of}>({x})", axis.text()), axes)
}

fn shift(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |_, _| true)?;
    let axes = w.axes(x);
    let x = w.read(x);
    let by = *w.numbers.pick(&["1", "-1", "2"]);
    w.define(&format!("shift::<{}, {by}>({x})", axis.text()), axes)
}

/// The largest number of each window: there are three.
fn windows(w: &mut Writer) -> Option<()> {
    let suits = |axes: &[Axis], axis: Axis| {
        axis == Axis::D
            && axes.len() < 4
            && !axes.contains(&Axis::Rows)
            && !axes.contains(&Axis::Size(2))
    };
    let (x, axis) = along(w, suits)?;
    let to = w.axes(x).into_iter();
    let to: Axes = to
        .map(|of| if of == axis { Axis::Size(3) } else { of })
        .collect();
    let x = w.read(x);
    w.define(
        &format!("max::<2>(windows::<d, size = 2, step = 1>({x}))"),
        to,
    )
}

/// A value and one of its axes.
pub(super) fn along(
    w: &mut Writer,
    suits: impl Fn(&[Axis], Axis) -> bool,
) -> Option<(usize, Axis)> {
    let is_session = w.is_session;
    let may = |axes: &[Axis]| {
        let mut along = axes.iter().copied();
        let of: Axes = along.by_ref().filter(|axis| suits(axes, *axis)).collect();
        of.into_iter()
            .filter(|axis| !is_session || axis.size().is_some())
            .collect::<Axes>()
    };
    let x = w.find(|axes| !may(axes).is_empty())?;
    let axes = may(&w.axes(x));
    Some((x, *w.numbers.pick(&axes)))
}

fn softmax(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |_, _| true)?;
    let axes = w.axes(x);
    let x = w.read(x);
    w.define(&format!("softmax::<{}>(2 * {x})", axis.text()), axes)
}

fn reduce(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &["sum", "mean", "max", "min", "variance", "logsumexp"];
    let (x, first) = along(w, |_, _| true)?;
    let mut left = w.axes(x);
    left.retain(|axis| *axis != first);
    let mut gone = vec![first];
    let others = left.iter().copied().filter(|axis| is_along(w, *axis));
    let others: Axes = others.collect();
    if !others.is_empty() && w.numbers.percent(40) {
        let second = *w.numbers.pick(&others);
        left.retain(|axis| *axis != second);
        gone.push(second);
    }
    let of = w.numbers.pick(OF);
    let x = w.read(x);
    w.define(&format!("{of}::<{}>({x})", list(&gone)), left)
}

fn concat(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |axes, axis| {
        axis.size().is_some_and(|size| is_free(axes, 2 * size))
    })?;
    let axes = w.axes(x);
    let y = w.find(|other| other == axes.as_slice())?;
    let to = Axis::Size(2 * axis.size()?);
    let [x, y] = [w.read(x), w.read(y)];
    let axes = axes.into_iter().map(|of| if of == axis { to } else { of });
    w.define(
        &format!("concat::<{}>({x}, 0.5 * {y})", axis.text()),
        axes.collect(),
    )
}

fn permute(w: &mut Writer) -> Option<()> {
    let kept = if w.is_session { 2 } else { 0 };
    let x = w.find(|axes| axes.len() > kept + 1)?;
    let mut axes = w.axes(x);
    let by = 1 + w.numbers.below(axes.len() - kept - 1);
    axes[kept..].rotate_left(by);
    let x = w.read(x);
    w.define(&format!("permute::<{}>({x})", list(&axes)), axes)
}

fn split(w: &mut Writer) -> Option<()> {
    let halves = |axes: &[Axis], axis: Axis| {
        let size = axis.size().filter(|size| size.is_multiple_of(2));
        size.is_some_and(|size| is_free(axes, size / 2))
    };
    let (x, axis) = along(w, halves)?;
    let to = Axis::Size(axis.size()? / 2);
    let axes = w.axes(x).into_iter();
    let axes: Axes = axes.map(|of| if of == axis { to } else { of }).collect();
    let [a, b] = [w.name(), w.name()];
    let x = w.read(x);
    w.line(format!("let ({a}, {b}) = split::<{}>({x});", axis.text()));
    w.declare(a, axes.clone());
    w.declare(b, axes);
    Some(())
}

fn part(w: &mut Writer) -> Option<()> {
    let (x, axis) = along(w, |axes, _| !axes.contains(&Axis::Size(2)))?;
    let mut axes = w.axes(x);
    let at = axes.iter().position(|of| *of == axis)?;
    let x = w.read(x);
    let name = axis.text();
    // A batch may have one sequence.
    if axis == Axis::Batch || axis.size() == Some(1) || w.numbers.percent(50) {
        axes.remove(at);
        let index = w.numbers.pick(&["0", "-1"]);
        return w.define(&format!("{x}[{name} = {index}]"), axes);
    }
    axes[at] = Axis::Size(2);
    let range = w.numbers.pick(&["..2", "-2.."]);
    w.define(&format!("{x}[{name} = {range}]"), axes)
}

fn pool(w: &mut Writer) -> Option<()> {
    if w.is_session {
        return None;
    }
    let x = w.find(|axes| axes.len() == 3 && axes[..2] == TOKENS && width(axes).is_some())?;
    let mut axes = w.axes(x);
    axes.remove(1);
    let x = w.read(x);
    let of = *w.numbers.pick(&["mean_pool", "max_pool"]);
    let operand = match w.numbers.below(3) {
        0 => format!(", {}", w.input("lens", ["lens", "lens"], &[Axis::Batch])),
        1 => format!(", {}", w.input("keep", ["marks", "bool"], &TOKENS)),
        _ => String::new(),
    };
    w.define(&format!("{of}({x}{operand})"), axes)
}

/// A loop of one or two lines, which keep the axes of `X`. `W` is the last axis, `Y` another value.
fn repeat(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &[
        "tanh(linear::<W>(X))",
        "X + feed_forward::<5>(layer_norm(X))",
        "rms_norm(X) * sigmoid(X)",
        "X - 0.5 * gelu(X)",
        "X + softmax(X) * Y",
        "X * sigmoid(linear::<W, bias = false>(X)) + Y",
        "dropout::<0.2>(tanh(X))",
        "X - 0.2 * cumsum(X)",
    ];
    let x = w.find(|axes| width(axes).is_some_and(|width| width > 2))?;
    let axes = w.axes(x);
    let y = w.find(|other| is_subset(other, &axes))?;
    let last = axes.last()?.text();
    let carried = w.name();
    let [x, y] = [w.read(x), w.read(y)];
    let mut body = String::new();
    if w.numbers.percent(30) {
        let gain = w.name();
        body += &format!("param {gain}: [{last}] = ones; {carried} *= {gain}; ");
    }
    for _ in 0..1 + w.numbers.below(2) {
        let of = w.numbers.pick(OF).replace('W', &last);
        let of = of.replace('X', &carried).replace('Y', &y);
        body += &format!("{carried} = {of}; ");
    }
    if axes == SEQUENCE && w.numbers.percent(40) {
        body += &format!("{carried} += attention::<2, mask = causal>({carried}); ");
    }
    if w.numbers.percent(30) {
        body += &indices::in_a_round(w, &carried, &axes);
    }
    // The loop reads it in any case.
    let share = *w.numbers.pick(&["", ", share = true"]);
    w.line(format!("let mut {carried} = {x} + 0.1 * {y};"));
    let name = format!("r_{carried}");
    w.line(format!("repeat 2{share}, name = {name} {{ {body}}}"));
    w.declare(carried, axes);
    Some(())
}
