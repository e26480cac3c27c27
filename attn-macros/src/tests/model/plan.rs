//! The derivative and the lifetimes of a model, as data.

use super::{GPT, lower};
use crate::model::diff::{self, Backward, BackwardStep, BufferId, GradSource, GradTarget};
use crate::model::fusion::FuseWith;
use crate::model::graph::{Model, Step, ValueId};
use crate::model::plan::{self, Forward};

pub(super) fn names(model: &Model, values: &[ValueId]) -> Vec<String> {
    let names = values.iter().map(|id| model.value(*id).name.clone());
    names.collect()
}

/// The backward pass, one line per step. Each buffer is named after the value that it was made for.
pub(super) fn backward(model: &Model) -> Vec<String> {
    let backward = diff::diff(model.block());
    let mut text = Vec::new();
    push(model, &backward, &backward.lines, "", &mut text);
    text
}

fn push(
    model: &Model,
    backward: &Backward<'_>,
    lines: &[BackwardStep<'_>],
    indent: &str,
    text: &mut Vec<String>,
) {
    let value = |id: ValueId| model.value(id).name.as_str();
    let buffer = |id: BufferId| format!("d {}", value(backward.buffers[id.0]));
    let from = |from: &GradSource| match from {
        GradSource::Result(index) => format!("result {index}"),
        GradSource::Buffer(id) => buffer(*id),
    };
    let to = |to: &GradTarget| match to {
        GradTarget::Input(id) => format!("input {}", value(*id)),
        GradTarget::New(id) => format!("new {}", buffer(*id)),
        GradTarget::Overwrite(id) => format!("overwrite {}", buffer(*id)),
        GradTarget::Add(id) => format!("add {}", buffer(*id)),
        GradTarget::InPlace(id) => format!("its own {}", buffer(*id)),
    };
    for line in lines {
        let line = match line {
            BackwardStep::Zeros(id) => format!("zeros {}", buffer(*id)),
            BackwardStep::Uninit(id) => format!("uninit {}", buffer(*id)),
            BackwardStep::Copy { from: of, to: id } => {
                format!("copy {} to {}", from(of), buffer(*id))
            }
            BackwardStep::Add {
                from: of,
                to: target,
            } => format!("{} to {}", from(of), to(target)),
            BackwardStep::Free(id) => format!("free {}", buffer(*id)),
            BackwardStep::Adjoint {
                node,
                d_result,
                to: targets,
                ..
            } => {
                let targets: Vec<_> = targets.iter().map(|(_, target)| to(target)).collect();
                let of = value(node.result);
                format!("{of}: {} to {}", from(d_result), targets.join(", "))
            }
            BackwardStep::Strips { lines, .. } => {
                text.push(format!("{indent}strips"));
                push(model, backward, lines, &format!("{indent}  "), text);
                continue;
            }
            BackwardStep::Scan { .. } => "scan".to_owned(),
            BackwardStep::Recompute(_) => "again".to_owned(),
            BackwardStep::Repeat { carried, lines, .. } => {
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

/// The values that are freed after each step, and the one whose memory a result reuses.
fn forward(model: &Model) -> Vec<String> {
    fn push(model: &Model, steps: &[Step], plan: &Forward, text: &mut Vec<String>) {
        for (step, planned) in steps.iter().zip(&plan.steps) {
            let free = names(model, &planned.free).join(", ");
            match step {
                Step::Node(node) => {
                    let reuse = planned.reuse.map(|index| planned.terms[index].value);
                    let reuse = reuse.map_or("memory", |id| &model.value(id).name);
                    let place = match planned.with {
                        None => format!("in {reuse}"),
                        Some(FuseWith::Next) => format!("in {reuse} with the next"),
                        Some(FuseWith::Reader) => "nowhere".to_owned(),
                    };
                    let fall = planned.terms.iter().filter(|term| term.dropout.is_some());
                    let fall =
                        fall.map(|term| format!(", dropped {}", model.value(term.value).name));
                    let name = &model.value(node.result).name;
                    let fall = fall.collect::<String>();
                    text.push(format!("{name} {place}{fall}; free {free}"));
                }
                Step::Repeat(repeat) => {
                    text.push(format!("repeat {:?}; free {free}", planned.moved));
                    push(model, &repeat.body.steps, &planned.body, text);
                    text.push(format!("next {:?}", planned.body.moved));
                }
                Step::Scan(_) => text.push(format!("scan; free {free}")),
            }
        }
    }
    let mut text = Vec::new();
    let plan = plan::plan(model.block(), &[]);
    push(model, &model.grouped.steps, &plan, &mut text);
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
fn values_that_derivatives_read_are_saved_and_others_are_freed() {
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
            "x_3 in attention with the next; free ",
            "layer_norm_2 in memory; free ",
            "feed_forward in memory; free ",
            "x_4 in feed_forward; free ",
            "next [true]",
            "layer_norm_3 in memory; free ",
            "linear in memory; free ",
        ]
    );
    let plan = plan::plan(gpt.block(), &[]);
    assert_eq!(names(&gpt, &plan.saved), ["x_2", "layer_norm_3"]);
    let Some(body) = plan.steps.iter().find(|step| !step.moved.is_empty()) else {
        panic!("no loop");
    };
    let saved = ["x_2", "layer_norm", "x_3", "layer_norm_2"];
    assert_eq!(names(&gpt, &body.body.saved), saved);
}

#[test]
fn a_gradient_that_others_will_read_is_copied_before_it_changes() {
    // The gradient of the sum is that of `y`, too, when the softmax adds to that of `x`.
    let model = lower(
        "struct M;
        fn forward(a: [n, 4]) -> [n, 4] {
            let x = softmax(a);
            let y = softmax(x);
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
            let x = softmax(a);
            let y = softmax(x);
            softmax(x + y)
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

#[test]
fn dropout_is_applied_in_the_pass_of_its_neighbour() {
    let gpt = lower(
        "struct Gpt<vocab = 65, d_model = 384>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = dropout::<0.1>(embedding::<vocab, d_model>(tokens) + learned_position::<256, d_model>(tokens));
            repeat 6, name = blocks {
                x = x + dropout::<0.1>(attention::<heads = 6, mask = causal, dropout = 0.1>(layer_norm(x)));
                x = x + dropout::<0.1>(feed_forward::<1536>(layer_norm(x)));
            }
            linear::<vocab>(layer_norm(x))
        }",
    );
    assert_eq!(
        forward(&gpt),
        [
            "embedding in memory; free ",
            "learned_position in memory; free ",
            "add in learned_position with the next; free embedding",
            "x in memory; free ",
            "repeat [true]; free ",
            "layer_norm in memory; free ",
            "attention in memory; free ",
            "dropout nowhere; free ",
            "x_3 in attention with the next, dropped attention; free ",
            "layer_norm_2 in memory; free ",
            "feed_forward in memory; free ",
            "dropout_2 nowhere; free ",
            "x_4 in feed_forward, dropped feed_forward; free ",
            "next [true]",
            "layer_norm_3 in memory; free ",
            "linear in memory; free ",
        ]
    );
    // Elements of a gradient are dropped on the way from one buffer to the other, or in place.
    let lines = backward(&gpt);
    let of = |name: &str| lines.iter().find(|line| line.trim().starts_with(name));
    assert_eq!(
        of("dropout_2:").map(String::as_str),
        Some("  dropout_2: d x_2 to new d feed_forward")
    );
    assert_eq!(
        of("x:").map(String::as_str),
        Some("x: d x_2 to its own d x_2")
    );
}

/// The part of a plan for `body`, with `a` and `b`, that is about dropout.
fn dropouts(body: &str) -> Vec<String> {
    let model = lower(&format!(
        "struct M<d = 4>;
        fn forward(a: [n, d], b: [n, d]) -> [n, d] {{
            let y = linear::<d>(a * b);
            {body}
        }}"
    ));
    let lines = forward(&model).into_iter();
    lines
        .filter(|line| {
            ["nowhere", "dropped", "with the next"]
                .iter()
                .any(|word| line.contains(word))
        })
        .collect()
}

#[test]
fn dropout_of_both_terms_of_a_sum_and_of_the_sum_before_its_norm() {
    let lines = dropouts("rms_norm(dropout::<0.1>(dropout::<0.2>(a) + dropout::<0.3>(y)))");
    assert_eq!(
        lines,
        [
            "dropout nowhere; free ",
            "dropout_2 nowhere; free ",
            "add in y with the next, dropped a, dropped y; free ",
            "dropout_3 in memory with the next; free ",
        ]
    );
    // The operand of a dropout is free behind the sum, not before.
    let lines = dropouts("let z = dropout::<0.1>(y); z + linear::<d>(a)");
    assert_eq!(
        lines,
        ["z nowhere; free ", "add in linear, dropped y; free y"]
    );
    // A derivative that is a number does not read an operand, whatever the expression is.
    let lines = dropouts("let z = dropout::<0.1>(y); z + z - b");
    assert_eq!(lines, ["z nowhere; free ", "sub in y, dropped y; free "]);
    let lines = dropouts("dropout::<0.1>(gelu(a)) * y");
    assert_eq!(lines, ["gelu in memory with the next; free "]);
}

#[test]
fn dropout_that_others_read_is_a_pass_of_its_own() {
    for body in [
        // Read twice: by two operations, and by a loop.
        "let z = dropout::<0.1>(y); linear::<d>(a + z) + linear::<d>(z + b)",
        "let z = dropout::<0.1>(y); let mut x = a; repeat 2 { x = x + z; } x",
        // A loop variable.
        "let mut x = a; repeat 2 { x = dropout::<0.1>(linear::<d>(x)); } x * y",
        "let mut x = dropout::<0.1>(y); repeat 2 { x = linear::<d>(x); } x * a",
        "let mut x = a; let mut w = y; repeat 2 { let z = dropout::<0.1>(linear::<d>(x)); w = w + z; x = z; } w * x",
        "let mut x = a; let mut w = y; repeat 2 { x = x + w; w = dropout::<0.1>(x); } x * w",
        // Read by the derivative.
        "dropout::<0.1>(y) * a",
        // Returned.
        "dropout::<0.1>(y)",
        // Of a sum that others read, and of one that is elsewhere.
        "let s = a + y; dropout::<0.1>(s) * s",
        "let s = a + y; let z = linear::<d>(b); dropout::<0.1>(s) * z",
    ] {
        assert_eq!(dropouts(body), [""; 0], "{body}");
    }
    // The sum broadcasts along an axis that the other term lacks.
    let model = lower(
        "struct M<d = 4>;
        fn forward(a: [n, d], b: [1, d]) -> [n, d] { a + dropout::<0.1>(b * 2) }",
    );
    let lines = forward(&model);
    assert!(
        lines.contains(&"scale in memory with the next; free ".to_owned()),
        "{lines:?}"
    );
}
