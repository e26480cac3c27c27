//! The derivative of a model, and what lives how long: as data.

use super::{GPT, lower};
use crate::model::diff::{self, Backward, BufferId, From, Line, To};
use crate::model::graph::{Model, Step, ValueId};
use crate::model::plan::{self, Forward};

fn names(model: &Model, values: &[ValueId]) -> Vec<String> {
    let names = values.iter().map(|id| model.value(*id).name.clone());
    names.collect()
}

/// The backward pass, a line per line, each buffer by the value that it was made for.
fn backward(model: &Model) -> Vec<String> {
    let backward = diff::diff(model);
    let mut text = Vec::new();
    push(model, &backward, &backward.lines, "", &mut text);
    text
}

fn push(
    model: &Model,
    backward: &Backward<'_>,
    lines: &[Line<'_>],
    indent: &str,
    text: &mut Vec<String>,
) {
    let value = |id: ValueId| model.value(id).name.as_str();
    let buffer = |id: BufferId| format!("d {}", value(backward.buffers[id.0]));
    let from = |from: &From| match from {
        From::Result(index) => format!("result {index}"),
        From::Buffer(id) => buffer(*id),
    };
    let to = |to: &To| match to {
        To::Input(id) => format!("input {}", value(*id)),
        To::New(id) => format!("new {}", buffer(*id)),
        To::Add(id) => format!("add {}", buffer(*id)),
    };
    for line in lines {
        let line = match line {
            Line::Zeros(id) => format!("zeros {}", buffer(*id)),
            Line::Copy { from: of, to: id } => format!("copy {} to {}", from(of), buffer(*id)),
            Line::Add {
                from: of,
                to: target,
            } => format!("{} to {}", from(of), to(target)),
            Line::Free(id) => format!("free {}", buffer(*id)),
            Line::Adjoint {
                node,
                d_result,
                to: targets,
            } => {
                let targets: Vec<_> = targets.iter().map(|(_, target)| to(target)).collect();
                let of = value(node.result);
                format!("{of}: {} to {}", from(d_result), targets.join(", "))
            }
            Line::Repeat { carried, lines, .. } => {
                text.push(format!("{indent}repeat"));
                push(model, backward, lines, &format!("{indent}  "), text);
                let next = carried
                    .iter()
                    .map(|[start, end]| format!("{} = {}", buffer(*start), buffer(*end)));
                format!("  next {}", next.collect::<Vec<_>>().join(", "))
            }
        };
        text.push(format!("{indent}{line}"));
    }
}

/// What is free behind each step, and whose memory a result takes.
fn forward(model: &Model) -> Vec<String> {
    fn push(model: &Model, steps: &[Step], plan: &Forward, text: &mut Vec<String>) {
        for (step, planned) in steps.iter().zip(&plan.steps) {
            let free = names(model, &planned.free).join(", ");
            match step {
                Step::Node(node) => {
                    let reuse = planned.reuse.map(|index| node.operands[index]);
                    let reuse = reuse.map_or("memory", |id| &model.value(id).name);
                    let next = if planned.with_next {
                        " with the norm"
                    } else {
                        ""
                    };
                    let name = &model.value(node.result).name;
                    text.push(format!("{name} in {reuse}{next}; free {free}"));
                }
                Step::Repeat(repeat) => {
                    text.push(format!("repeat {:?}; free {free}", planned.moved));
                    push(model, &repeat.body.steps, &planned.body, text);
                    text.push(format!("next {:?}", planned.body.moved));
                }
            }
        }
    }
    let mut text = Vec::new();
    push(model, &model.body.steps, &plan::plan(model), &mut text);
    text
}

#[test]
fn one_gradient_runs_through_the_residual_stream() {
    let gpt = lower(GPT);
    assert_eq!(
        backward(&gpt),
        [
            "linear: result 0 to new d layer_norm_3",
            "layer_norm_3: d layer_norm_3 to new d x_2",
            "free d layer_norm_3",
            "repeat",
            "  feed_forward: d x_2 to new d layer_norm_2",
            "  layer_norm_2: d layer_norm_2 to add d x_2",
            "  free d layer_norm_2",
            "  attention: d x_2 to new d layer_norm",
            "  layer_norm: d layer_norm to add d x_2",
            "  free d layer_norm",
            "  next d x_2 = d x_2",
            "learned_position: d x_2 to ",
            "embedding: d x_2 to ",
            "free d x_2",
        ]
    );
}

#[test]
fn what_derivatives_read_is_kept_and_the_rest_is_free() {
    let gpt = lower(GPT);
    assert_eq!(
        forward(&gpt),
        [
            "embedding in memory; free ",
            "learned_position in memory; free ",
            "x in learned_position; free embedding",
            "repeat [true]; free ",
            "layer_norm in memory; free ",
            "attention in memory; free ",
            "x_3 in attention with the norm; free ",
            "layer_norm_2 in memory; free ",
            "feed_forward in memory; free ",
            "x_4 in feed_forward; free ",
            "next [true]",
            "layer_norm_3 in memory; free ",
            "linear in memory; free ",
        ]
    );
    let plan = plan::plan(&gpt);
    assert_eq!(names(&gpt, &plan.saved), ["x_2", "layer_norm_3"]);
    let Some(body) = plan.steps.iter().find(|step| !step.moved.is_empty()) else {
        panic!("no loop");
    };
    let saved = ["x_2", "layer_norm", "x_3", "layer_norm_2"];
    assert_eq!(names(&gpt, &body.body.saved), saved);
}

#[test]
fn a_gradient_that_others_will_read_is_copied_before_it_changes() {
    // The gradient of the sum is that of `y`, too, when the scale adds to that of `x`.
    let model = lower(
        "struct M;
        fn forward(a: [n, 4]) -> [n, 4] {
            let x = tanh(a);
            let y = x * 2;
            x + y
        }",
    );
    assert_eq!(
        backward(&model),
        [
            "copy result 0 to d x",
            "y: result 0 to add d x",
            "x: d x to input a",
            "free d x",
        ]
    );
    let model = lower(
        "struct M;
        fn forward(a: [n, 4]) -> [n, 4] {
            let x = tanh(a);
            let y = x * 2;
            gelu(x + y)
        }",
    );
    let lines = backward(&model);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("copy d add to d x")),
        "{lines:?}"
    );
}

#[test]
fn gradients_of_what_is_outside_of_a_loop_are_summed_over_its_rounds() {
    let model = lower(
        "struct M<d_model = 4>;
        fn forward(a: [n, d_model]) -> [n, d_model] {
            let memory = tanh(a);
            let mut x = a;
            repeat 3 {
                x = tanh(x) + memory;
            }
            x
        }",
    );
    let lines = backward(&model);
    let repeat = lines
        .iter()
        .position(|line| line == "repeat")
        .expect("a loop");
    assert!(
        lines[..repeat].contains(&"zeros d memory".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.ends_with("to add d memory")),
        "{lines:?}"
    );
}

#[test]
fn variables_that_change_places_take_their_memory_along() {
    let model = lower(
        "struct M<d_model = 4>;
        fn forward(a: [n, d_model]) -> ([n, d_model], [n, d_model]) {
            let mut x = tanh(a);
            let mut y = gelu(a);
            repeat 3 {
                let old = x;
                x = y;
                y = old;
            }
            (x, y)
        }",
    );
    let lines = forward(&model);
    assert!(lines.contains(&"next [true, true]".to_owned()), "{lines:?}");
    let lines = backward(&model);
    assert_eq!(
        lines,
        [
            "copy result 0 to d x_2",
            "copy result 1 to d y_2",
            "repeat",
            "  next d x_2 = d y_2, d y_2 = d x_2",
            "y: d y_2 to input a",
            "free d y_2",
            "x: d x_2 to input a",
            "free d x_2",
        ]
    );
}
