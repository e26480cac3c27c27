//! The derivative of a block in which values are parts of others.

use std::rc::Rc;

use crate::model::diff::{Backward, BackwardStep, BufferId, GradSource, GradTarget, diff};
use crate::model::graph::{Block, Node, Region, Step, Value, ValueId, View};
use crate::model::types::{Axis, Type};
use crate::ops::Gradient::{self, Computed, InPlace, Same, Together};
use crate::ops::{Fusion, Op, Properties, Saved};
use crate::spec::Size;

/// An operation by the gradients of its operands.
struct Fake(Vec<Gradient>);

impl Op for Fake {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        self.0.clone()
    }
}

/// The input, a value of two parts, these, and two more.
const NAMES: [&str; 6] = ["x", "whole", "a", "b", "y", "z"];
const X: ValueId = ValueId(0);
const WHOLE: ValueId = ValueId(1);
const A: ValueId = ValueId(2);
const B: ValueId = ValueId(3);
const Y: ValueId = ValueId(4);
const Z: ValueId = ValueId(5);

/// The derivative of `result`, a text per line.
fn lines(nodes: Vec<(ValueId, Vec<(ValueId, Gradient)>)>, result: ValueId) -> Vec<String> {
    let views = [None, None, Some(0), Some(1), None, None];
    let values = NAMES.into_iter().zip(views).map(|(name, part)| Value {
        name: name.to_owned(),
        source: name.to_owned(),
        ty: Type::floats(vec![Axis::Size(Size::known(2))]),
        view: part.map(|part| View {
            of: WHOLE,
            part: Some(part),
        }),
        alias: None,
    });
    let values: Vec<_> = values.collect();
    let steps = nodes.into_iter().map(|(result, operands)| {
        let (operands, gradients) = operands.into_iter().unzip();
        Step::Node(Node {
            op: Rc::new(Fake(gradients)),
            operands,
            result,
            others: Vec::new(),
            name: None,
        })
    });
    let body = Region {
        steps: steps.collect(),
    };
    let results = [result];
    let backward = diff(Block {
        values: &values,
        inputs: &[X],
        body: &body,
        results: &results,
        results_are_given: false,
    });
    backward
        .lines
        .iter()
        .map(|line| text(&backward, line))
        .collect()
}

fn text(backward: &Backward<'_, Fake>, line: &BackwardStep<'_, Fake>) -> String {
    let name = |id: ValueId| NAMES[id.0];
    let buffer = |id: BufferId| name(backward.buffers[id.0]);
    let from = |from: &GradSource| match from {
        GradSource::Result(_) => "the result",
        GradSource::Buffer(id) => buffer(*id),
    };
    let to = |to: &GradTarget| match to {
        GradTarget::Input(id) => format!("input {}", name(*id)),
        GradTarget::New(id) => format!("new {}", buffer(*id)),
        GradTarget::Overwrite(id) => format!("rest of {}", buffer(*id)),
        GradTarget::Add(id) => format!("add to {}", buffer(*id)),
        GradTarget::InPlace(id) => format!("in place of {}", buffer(*id)),
    };
    match line {
        BackwardStep::Adjoint {
            node,
            d_result,
            to: targets,
            ..
        } => {
            let operands = targets
                .iter()
                .map(|(index, target)| format!("{}: {}", name(node.operands[*index]), to(target)));
            let operands: Vec<_> = operands.collect();
            format!(
                "{}, from {}: {}",
                name(node.result),
                from(d_result),
                operands.join(", ")
            )
        }
        BackwardStep::Add {
            from: of,
            to: target,
        } => format!("{}: {}", from(of), to(target)),
        BackwardStep::Free(id) => format!("free {}", buffer(*id)),
        _ => panic!("no loop, no copy, no zeros"),
    }
}

#[test]
fn parts_are_written_into_one_buffer() {
    let nodes = vec![
        (WHOLE, vec![(X, Computed)]),
        (Y, vec![(A, Together), (B, Together)]),
    ];
    let expected = [
        "y, from the result: a: new whole, b: rest of whole",
        "whole, from whole: x: input x",
        "free whole",
    ];
    assert_eq!(lines(nodes, Y), expected);
}

#[test]
fn a_part_that_is_read_twice_is_added_to() {
    let nodes = vec![
        (WHOLE, vec![(X, Computed)]),
        (Y, vec![(A, Computed)]),
        (Z, vec![(Y, Computed), (A, Computed), (B, Computed)]),
    ];
    let expected = [
        "z, from the result: y: new y, a: new whole, b: rest of whole",
        "y, from y: a: add to whole",
        "free y",
        "whole, from whole: x: input x",
        "free whole",
    ];
    assert_eq!(lines(nodes, Z), expected);
}

/// A part has no buffer of its own, so it neither shares nor takes that of a result.
#[test]
fn a_gradient_as_it_is_is_added_to_a_part() {
    let nodes = vec![
        (WHOLE, vec![(X, Computed)]),
        (Y, vec![(A, InPlace)]),
        (Z, vec![(Y, Computed), (B, Same)]),
    ];
    let expected = [
        "the result: new whole",
        "z, from the result: y: new y",
        "y, from y: a: rest of whole",
        "free y",
        "whole, from whole: x: input x",
        "free whole",
    ];
    assert_eq!(lines(nodes, Z), expected);
}
