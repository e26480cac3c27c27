//! The graph in the language of Graphviz.

use std::fmt::{Display, Write};

use super::docs;
use crate::model::graph::{Model, Region, Repeat, Scan, Step, ValueId};

pub(crate) fn dot(model: &Model) -> String {
    let mut dot = format!(
        "digraph {} {{\n    node [shape=box, fontname=\"sans-serif\"];\n",
        model.item.name
    );
    for id in &model.inputs {
        push_value(model, *id, "    ", &mut dot);
    }
    push_region(model, &model.body, "    ", &mut dot);
    for (index, id) in model.results.iter().enumerate() {
        let _ = writeln!(dot, "    result{index} [label=\"output\", shape=ellipse];");
        let _ = writeln!(dot, "    v{} -> result{index};", id.0);
    }
    dot.push_str("}\n");
    dot
}

fn push_region(model: &Model, region: &Region, indent: &str, dot: &mut String) {
    for step in &region.steps {
        match step {
            Step::Node(node) => {
                let id = node.result.0;
                let ty = &model.value(node.result).ty;
                let label = escaped(docs::operation_name(model, node));
                let _ = writeln!(dot, "{indent}v{id} [label=\"{label}\\n{}\"];", escaped(ty));
                for operand in &node.operands {
                    let _ = writeln!(dot, "{indent}v{} -> v{id};", operand.0);
                }
                for other in node.results().skip(1) {
                    push_value(model, other, indent, dot);
                    let _ = writeln!(dot, "{indent}v{id} -> v{};", other.0);
                }
            }
            Step::Repeat(repeat) => push_repeat(model, repeat, indent, dot),
            Step::Scan(scan) => push_scan(model, scan, indent, dot),
        }
    }
}

fn push_repeat(model: &Model, repeat: &Repeat, indent: &str, dot: &mut String) {
    let inner = &format!("{indent}    ");
    let label = escaped(format!("repeat {}", repeat.count));
    let _ = writeln!(dot, "{indent}subgraph cluster_{} {{", repeat.module.0);
    let _ = writeln!(dot, "{inner}label=\"{label}\";");
    for carried in &repeat.carried {
        push_value(model, carried.value, inner, dot);
        let before = carried.before.0;
        let id = carried.value.0;
        let _ = writeln!(dot, "{inner}v{before} -> v{id};");
    }
    push_region(model, &repeat.body, inner, dot);
    for carried in &repeat.carried {
        let after = carried.after.0;
        let id = carried.value.0;
        let _ = writeln!(
            dot,
            "{inner}v{after} -> v{id} [style=dashed, constraint=false];"
        );
    }
    let _ = writeln!(dot, "{indent}}}");
}

fn push_scan(model: &Model, scan: &Scan, indent: &str, dot: &mut String) {
    let inner = &format!("{indent}    ");
    let label = escaped(format!("scan {}", scan.axis));
    let id = scan.results[0].0;
    let _ = writeln!(dot, "{indent}subgraph cluster_scan_{id} {{");
    let _ = writeln!(dot, "{inner}label=\"{label}\";");
    let starts = scan.slices.iter().map(|of| (of.whole, of.slice));
    let states = scan.states.iter().map(|of| (of.before, of.value));
    for (from, to) in starts.chain(states) {
        push_value(model, to, inner, dot);
        let _ = writeln!(dot, "{inner}v{} -> v{};", from.0, to.0);
    }
    push_region(model, &scan.body, inner, dot);
    for state in &scan.states {
        let [after, value] = [state.after.0, state.value.0];
        let _ = writeln!(
            dot,
            "{inner}v{after} -> v{value} [style=dashed, constraint=false];"
        );
    }
    let _ = writeln!(dot, "{indent}}}");
    let yields = scan.yields.iter().map(|of| (of.slice, of.whole));
    let lasts = scan
        .states
        .iter()
        .filter_map(|of| Some((of.after, of.last?)));
    for (from, to) in yields.chain(lasts) {
        push_value(model, to, indent, dot);
        let _ = writeln!(dot, "{indent}v{} -> v{};", from.0, to.0);
    }
}

/// An input, or a variable of a loop.
fn push_value(model: &Model, id: ValueId, indent: &str, dot: &mut String) {
    let value = model.value(id);
    let _ = writeln!(
        dot,
        "{indent}v{} [label=\"{}\\n{}\", shape=ellipse];",
        id.0,
        value.name,
        escaped(&value.ty)
    );
}

/// The text as it stands between quotes.
fn escaped(text: impl Display) -> String {
    text.to_string().replace('\\', "\\\\").replace('"', "\\\"")
}
