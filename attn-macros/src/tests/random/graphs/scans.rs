//! Loops over the steps along an axis.

use super::operations::{SEQUENCE, along};
use super::writer::{Axis, Writer, is_subset, list, width};

/// One state or two. `X` is the value at a step, `Y` another one that is the same at all steps, `W` the last axis.
pub(super) fn scan(w: &mut Writer) -> Option<()> {
    const OF: &[&str] = &[
        "H = tanh(linear::<W>(X) + linear::<W, bias = false>(H)); yield H;",
        "let Z = sigmoid(X + linear::<W>(H)); H = (1 - Z) * H + Z * tanh(X * Y); yield H;",
        "yield H * X; H = 0.5 * H + sin(X) * Y;",
        "let Z = dropout::<0.2>(H + X); H = layer_norm(Z) + 0.5 * Y; yield Z;",
        "state G: S = Y; let Z = tanh(G + X); G = 0.7 * H; H = Z * sigmoid(linear::<W>(X)); yield H + G;",
    ];
    const KEYS: &[&str] = &["", "", ", reverse = true", ", keep = sqrt"];
    let suits = |axes: &[Axis], axis: Axis| {
        width(axes).is_some_and(|width| width > 2) && axes.last() != Some(&axis)
    };
    // A session goes on along the tokens.
    let (x, axis) = match w.is_session {
        true => (
            w.find(|axes| suits(axes, Axis::Seq) && axes.contains(&Axis::Seq))?,
            Axis::Seq,
        ),
        false => along(w, suits)?,
    };
    let axes = w.axes(x);
    let mut of_step = axes.clone();
    of_step.retain(|of| *of != axis);
    let constant = of_step.clone();
    let y = w.find(|other| is_subset(other, &constant))?;
    let [x, y] = [w.read(x), w.read(y)];
    let keys = match w.is_session {
        true => "",
        false => w.numbers.pick(KEYS),
    };
    let mut body = w.numbers.pick(OF).replace('S', &list(&of_step));
    if axes == SEQUENCE
        && axis == Axis::Seq
        && !w.is_session
        && w.numbers.percent(40)
        && let Some(memory) = w.find(is_memory)
    {
        let memory = w.read(memory);
        body =
            format!("H = 0.5 * H + attend(H + X, linear::<W>({memory}), {memory}) * Y; yield H;");
    }
    let [h, g, z] = [w.name(), w.name(), w.name()];
    let last = of_step.last()?.text();
    let names = [
        ('H', &h),
        ('G', &g),
        ('Z', &z),
        ('X', &x),
        ('Y', &y),
        ('W', &last),
    ];
    for (letter, name) in names {
        body = body.replace(letter, name);
    }
    let initial = *w.numbers.pick(&["0.0", "0.3"]);
    let state = format!("state {h}: {} = {initial};", list(&of_step));
    let name = axis.text();
    let result = w.name();
    if w.is_session || w.numbers.percent(60) {
        w.line(format!(
            "let {result} = scan {name}{keys} {{ {state} {body} }};"
        ));
        w.declare(result, axes);
        return Some(());
    }
    let end = w.name();
    w.line(format!(
        "let ({result}, {end}) = scan {name}{keys} {{ {state} {body} {h} }};"
    ));
    w.declare(result, axes);
    w.declare(end, of_step);
    Some(())
}

/// Whether a step attends to it.
fn is_memory(axes: &[Axis]) -> bool {
    matches!(axes, [Axis::Batch, rows, Axis::D] if rows.size().is_some() && *rows != Axis::D)
}
