//! The picture of a model: boxes in the order of the program, frames around those of a loop, and edges between boxes.

use std::ops::Range;

use crate::model::emit::docs;
use crate::model::graph::{Model, Node, Repeat, Scan, Step, ValueId};

pub(super) struct Chart {
    /// From top to bottom.
    pub(super) vertices: Vec<Vertex>,
    /// The first is the whole picture; a frame stands behind the one around it.
    pub(super) frames: Vec<Frame>,
    pub(super) edges: Vec<Edge>,
}

pub(super) struct Vertex {
    pub(super) kind: VertexKind,
    pub(super) name: String,
    pub(super) ty: String,
    /// The innermost one around it.
    pub(super) frame: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum VertexKind {
    /// An input, a result, or what a loop changes.
    Value,
    Embedding,
    Attention,
    Linear,
    Norm,
    Other,
}

/// A loop.
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) parent: usize,
    pub(super) vertices: Range<usize>,
}

pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) course: Course,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// To the next box.
    Down,
    /// Past some boxes, or past another edge between the same two.
    Beside,
    /// From the end of a round to the start of the next.
    Back,
}

/// The picture of `model`.
pub(super) fn chart(model: &Model) -> Chart {
    let mut builder = Builder::new(model);
    builder.inputs_of(None);
    for (index, step) in model.body.steps.iter().enumerate() {
        builder.inputs_of(Some(index));
        builder.step(step, 0);
    }
    builder.results();
    builder.chart
}

struct Builder<'a> {
    model: &'a Model,
    chart: Chart,
    /// The vertex that a value comes from, at this place of the program.
    at: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn new(model: &'a Model) -> Self {
        let picture = Frame {
            title: String::new(),
            parent: 0,
            vertices: 0..0,
        };
        let chart = Chart {
            vertices: Vec::new(),
            frames: vec![picture],
            edges: Vec::new(),
        };
        Builder {
            model,
            chart,
            at: vec![0; model.values.len()],
        }
    }

    /// The inputs that stand above a step of the model, or at the top. The first one stands lowest: it goes on from there.
    fn inputs_of(&mut self, step: Option<usize>) {
        let model = self.model;
        for id in model.inputs.iter().rev() {
            if begins(model, *id) == step {
                self.at[id.0] = self.vertex(VertexKind::Value, self.name(*id), *id, 0);
            }
        }
    }

    fn results(&mut self) {
        for (index, id) in self.model.results.iter().enumerate() {
            let name = match self.model.results.len() {
                1 => "output".to_owned(),
                _ => format!("output.{index}"),
            };
            let vertex = self.vertex(VertexKind::Value, name, *id, 0);
            self.edge(*id, vertex);
        }
    }

    fn step(&mut self, step: &Step, frame: usize) {
        match step {
            Step::Node(node) => self.node(node, frame),
            Step::Repeat(repeat) => self.repeat(repeat, frame),
            Step::Scan(scan) => self.scan(scan, frame),
        }
    }

    fn node(&mut self, node: &Node, frame: usize) {
        let name = docs::operation_name(self.model, node);
        let vertex = self.vertex(node.op.description().vertex, name, node.result, frame);
        for operand in &node.operands {
            self.edge(*operand, vertex);
        }
        for id in node.results() {
            self.at[id.0] = vertex;
        }
    }

    /// A variable that a loop changes starts at the top of its frame within a round, and behind the loop at the end of a round.
    fn repeat(&mut self, repeat: &Repeat, parent: usize) {
        let frame = self.chart.frames.len();
        let start = self.chart.vertices.len();
        self.chart.frames.push(Frame {
            title: docs::place_name(self.model, &repeat.place),
            parent,
            vertices: start..start,
        });
        for carried in &repeat.carried {
            let vertex = self.vertex(
                VertexKind::Value,
                self.name(carried.value),
                carried.value,
                frame,
            );
            self.edge(carried.before, vertex);
        }
        for (index, carried) in repeat.carried.iter().enumerate() {
            self.at[carried.value.0] = start + index;
        }
        for step in &repeat.body.steps {
            self.step(step, frame);
        }
        let end = self.chart.vertices.len();
        self.chart.frames[frame].vertices.end = end;
        if start == end {
            self.chart.frames.truncate(frame);
        }
        self.close(repeat, start);
    }

    /// As a loop: what a step reads is at the top of the frame, and its results are those of the operations that compute them.
    fn scan(&mut self, scan: &Scan, parent: usize) {
        let frame = self.chart.frames.len();
        let start = self.chart.vertices.len();
        self.chart.frames.push(Frame {
            title: format!("scan {}", scan.axis),
            parent,
            vertices: start..start,
        });
        let slices = scan.slices.iter().map(|of| (of.whole, of.slice));
        let states = scan.states.iter().map(|of| (of.before, of.value));
        let starts: Vec<_> = states.chain(slices).collect();
        for (from, to) in &starts {
            let vertex = self.vertex(VertexKind::Value, self.name(*to), *to, frame);
            self.edge(*from, vertex);
        }
        for (index, (_, to)) in starts.iter().enumerate() {
            self.at[to.0] = start + index;
        }
        for step in &scan.body.steps {
            self.step(step, frame);
        }
        let end = self.chart.vertices.len();
        self.chart.frames[frame].vertices.end = end;
        if start == end {
            self.chart.frames.truncate(frame);
        }
        for (index, state) in scan.states.iter().enumerate() {
            let from = self.at[state.after.0];
            let to = start + index;
            let course = Course::Back;
            self.chart.edges.push(Edge { from, to, course });
            if let Some(last) = state.last {
                self.at[last.0] = from;
            }
        }
        for of in &scan.yields {
            self.at[of.whole.0] = self.at[of.slice.0];
        }
    }

    /// Edges back to the vertices of what the loop changes, the first of which is `start`.
    fn close(&mut self, repeat: &Repeat, start: usize) {
        let ends = repeat.carried.iter().map(|of| self.at[of.after.0]);
        let ends: Vec<_> = ends.collect();
        for (index, (carried, from)) in repeat.carried.iter().zip(ends).enumerate() {
            let to = start + index;
            let course = Course::Back;
            self.chart.edges.push(Edge { from, to, course });
            self.at[carried.value.0] = from;
        }
    }

    fn name(&self, id: ValueId) -> String {
        self.model.value(id).name.clone()
    }

    fn vertex(&mut self, kind: VertexKind, name: String, of: ValueId, frame: usize) -> usize {
        self.chart.vertices.push(Vertex {
            kind,
            name,
            ty: self.model.value(of).ty.to_string(),
            frame,
        });
        self.chart.vertices.len() - 1
    }

    fn edge(&mut self, from: ValueId, to: usize) {
        let from = self.at[from.0];
        let mut others = self.chart.edges.iter().rev();
        let course = match others.find(|other| other.to != to || other.from == from) {
            Some(other) if other.to == to => Course::Beside,
            _ if from + 1 == to => Course::Down,
            _ => Course::Beside,
        };
        self.chart.edges.push(Edge { from, to, course });
    }
}

/// The step above which an input stands: the first that reads it, if nothing but inputs goes into that. Elsewhere it would stand
/// between an operation and the next.
fn begins(model: &Model, input: ValueId) -> Option<usize> {
    let mut steps = model.body.steps.iter().enumerate();
    let (index, step) = steps.find(|(_, step)| reads(step, input))?;
    let Step::Node(node) = step else {
        return None;
    };
    let begins = node.operands.iter().all(|id| model.inputs.contains(id));
    begins.then_some(index)
}

fn reads(step: &Step, value: ValueId) -> bool {
    match step {
        Step::Node(node) => node.operands.contains(&value),
        Step::Repeat(repeat) => {
            let mut carried = repeat.carried.iter();
            carried.any(|of| of.before == value || of.after == value)
                || repeat.body.steps.iter().any(|step| reads(step, value))
        }
        Step::Scan(scan) => scan.operands().contains(&value),
    }
}
