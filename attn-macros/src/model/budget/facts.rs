//! A model as numbers: how much memory the derivative has of its nodes, and how much work these are.
//!
//! A size that only rustc can evaluate is taken as a plausible one. The numbers order plans, and no more.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{BinOp, Expr, ItemConst, Lit};

use super::search::Choice;
use crate::model::diff::{Backward, BackwardStep, BufferId, GradTarget, diff, reads};
use crate::model::emit::{Extents, length};
use crate::model::graph::{Block, Model, Node, Region, Repeat, Step, ValueId};
use crate::model::recompute::{Chosen, keeps_memory};
use crate::model::types::{Axis, ValueKind};
use crate::ops::Kept;
use crate::spec::Size;

/// The length of an axis that the macro cannot know.
const PLAUSIBLE: u64 = 256;

/// To read or write a number takes as long as so many floating-point operations of a product.
const OPERATIONS_PER_NUMBER: u64 = 32;

#[derive(Default)]
pub(crate) struct Facts {
    /// Those that can run again, each behind those that it reads.
    pub(super) nodes: Vec<NodeFacts>,
    /// Values where they are kept, if they are.
    pub(super) places: Vec<Place>,
    /// The model itself, and then the bodies of its loops.
    pub(super) regions: Vec<RegionFacts>,
    /// The loops that are split.
    pub(super) parts: Vec<PartFacts>,
}

/// A loop in two parts.
pub(super) struct PartFacts {
    /// The regions of its first and of its last rounds.
    pub(super) regions: [usize; 2],
    /// How many there are of both.
    pub(super) rounds: u64,
}

pub(super) struct NodeFacts {
    pub(super) result: ValueId,
    pub(super) region: usize,
    pub(super) makes: Vec<usize>,
    pub(super) reads: Vec<usize>,
    /// The numbers that it keeps beside values.
    pub(super) kept: Option<u64>,
    /// The numbers that it needs for a moment, in both passes.
    pub(super) scratch: u64,
    /// Of one run.
    pub(super) work: u64,
    /// That of the result alone, which is left out where nobody reads the result.
    pub(super) of_result: u64,
}

pub(super) struct Place {
    pub(super) numbers: u64,
    pub(super) region: usize,
}

#[derive(Default)]
pub(super) struct RegionFacts {
    /// How often it runs in a round of the region around it; of a part of a loop, how often both parts do.
    pub(super) rounds: u64,
    pub(super) around: Option<usize>,
    pub(super) lines: Vec<LineFacts>,
}

/// A line of the derivative.
#[derive(Default)]
pub(super) struct LineFacts {
    pub(super) reads: Vec<usize>,
    /// The nodes whose kept memory it takes.
    pub(super) kept: Vec<usize>,
    /// The loop that it is.
    pub(super) inner: Option<usize>,
    /// The numbers of gradients that it makes, and frees.
    pub(super) made: u64,
    pub(super) freed: u64,
    /// The numbers that it needs for a moment.
    pub(super) scratch: u64,
}

impl Facts {
    pub(crate) fn of(model: &Model, lengths: &BTreeMap<String, u64>) -> Self {
        let names = lengths.iter();
        let names = names.map(|(axis, value)| (length(model, axis).to_string(), *value));
        let mut reader = Reader {
            model,
            lengths,
            names: names.collect(),
            block: model.block(),
            loops: Vec::new(),
            places: Vec::new(),
            facts: Facts::default(),
        };
        reader.constants();
        reader.region(&model.grouped, &[], 1, &[]);
        let derivative = diff(model.block());
        reader.lines(0, &[], &derivative, &derivative.lines);
        reader.facts
    }

    /// Choices by the results of the nodes.
    pub(super) fn chosen(&self, choices: &[Choice]) -> Chosen {
        let results = |is_it: fn(Choice) -> bool| {
            let nodes = choices.iter().zip(&self.nodes);
            let nodes = nodes.filter(|(choice, _)| is_it(**choice));
            nodes.map(|(_, node)| node.result).collect()
        };
        Chosen {
            again: results(|choice| choice != Choice::Kept),
            twice: results(|choice| choice == Choice::Twice),
        }
    }
}

struct Reader<'m> {
    model: &'m Model,
    lengths: &'m BTreeMap<String, u64>,
    /// The same by the names of arguments, and the constants of the model.
    names: BTreeMap<String, u64>,
    block: Block<'m>,
    /// The regions of loops.
    loops: Vec<(*const Repeat, usize)>,
    /// Where values are kept: the region, and the index of the place.
    places: Vec<(ValueId, usize)>,
    facts: Facts,
}

impl<'m> Reader<'m> {
    /// Takes the constants that only rustc can evaluate, each as far as it is made of others.
    fn constants(&mut self) {
        for tokens in &self.model.constants {
            if let Ok(constant) = syn::parse2::<ItemConst>(tokens.clone()) {
                let value = self.value(&constant.expr);
                self.names.insert(constant.ident.to_string(), value);
            }
        }
    }

    /// The nodes of a region, with the regions around it. The values that a loop carries are defined where it begins.
    fn region(&mut self, region: &'m Region, carried: &[ValueId], rounds: u64, around: &[usize]) {
        let index = self.facts.regions.len();
        self.facts.regions.push(RegionFacts {
            rounds,
            around: around.last().copied(),
            lines: Vec::new(),
        });
        let inside = [around, &[index]].concat();
        carried.iter().for_each(|value| {
            self.define(*value, index);
        });
        for step in &region.steps {
            match step {
                Step::Node(node) => self.node(node, index, &inside),
                Step::Scan(scan) => scan.defined().into_iter().for_each(|value| {
                    self.define(value, index);
                }),
                Step::Repeat(repeat) => {
                    let values: Vec<_> = repeat.carried.iter().map(|of| of.value).collect();
                    let whole = repeat.part.as_ref().map(|part| &part.whole);
                    let rounds = whole.unwrap_or(&repeat.count).value;
                    let rounds = rounds.unwrap_or(PLAUSIBLE / 32);
                    let body = self.facts.regions.len();
                    self.loops.push((repeat, body));
                    match &repeat.part {
                        Some(part) if part.is_last => {
                            let parts = self.facts.parts.last_mut();
                            parts.into_iter().for_each(|of| of.regions[1] = body);
                        }
                        Some(_) => self.facts.parts.push(PartFacts {
                            regions: [body; 2],
                            rounds,
                        }),
                        None => {}
                    }
                    self.region(&repeat.body, &values, rounds, &inside);
                    values.iter().for_each(|value| {
                        self.define(*value, index);
                    });
                }
            }
        }
    }

    fn node(&mut self, node: &'m Node, region: usize, inside: &[usize]) {
        if self.block.is_alias(node.result) {
            return;
        }
        let reads = self.read(node.operands.iter().copied(), inside);
        let makes = node.results().map(|value| self.define(value, region));
        let makes: Vec<_> = makes.collect();
        let operands = node.operands.iter().map(|value| self.numbers(*value));
        let moved = operands.chain(node.results().map(|value| self.numbers(value)));
        let moved = moved.fold(0, u64::saturating_add);
        let operations = self.operations(node);
        let work = operations.saturating_add(moved.saturating_mul(OPERATIONS_PER_NUMBER));
        let kept = keeps_memory(node).then(|| self.kept(node));
        let (scratch, of_result) = match node.op.properties().kept {
            Some(Kept::Hidden) => (self.hidden(node), operations / 2),
            Some(Kept::Attention) => (self.kept(node), 0),
            _ => (0, 0),
        };
        self.facts.nodes.push(NodeFacts {
            result: node.result,
            region,
            makes,
            reads,
            kept,
            scratch,
            work,
            of_result,
        });
    }

    fn define(&mut self, value: ValueId, region: usize) -> usize {
        let value = self.block.memory(value);
        let place = self.facts.places.len();
        self.facts.places.push(Place {
            numbers: self.numbers(value),
            region,
        });
        self.places.push((value, place));
        place
    }

    /// The places of values that a region reads. Inputs have none.
    fn read(&self, values: impl Iterator<Item = ValueId>, inside: &[usize]) -> Vec<usize> {
        let places = values.filter_map(|value| {
            let value = self.block.memory(value);
            let of_value = self.places.iter().filter(|(other, _)| *other == value);
            let of_value = of_value.map(|(_, place)| *place);
            // The innermost one.
            of_value
                .filter(|place| inside.contains(&self.facts.places[*place].region))
                .max_by_key(|place| self.facts.places[*place].region)
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn lines(
        &mut self,
        region: usize,
        around: &[usize],
        derivative: &Backward<'_>,
        lines: &[BackwardStep<'_>],
    ) {
        let inside = [around, &[region]].concat();
        let facts: Vec<_> = lines
            .iter()
            .map(|line| self.line(&inside, derivative, line))
            .collect();
        self.facts.regions[region].lines = facts;
    }

    fn line(
        &mut self,
        inside: &[usize],
        derivative: &Backward<'_>,
        line: &BackwardStep<'_>,
    ) -> LineFacts {
        let size = |reader: &Self, buffer: BufferId| reader.numbers(derivative.of(buffer));
        let mut facts = LineFacts {
            reads: self.read(reads(self.block, line).into_iter(), inside),
            ..LineFacts::default()
        };
        match line {
            BackwardStep::Zeros(buffer)
            | BackwardStep::Uninit(buffer)
            | BackwardStep::Copy { to: buffer, .. } => {
                facts.made = size(self, *buffer);
            }
            BackwardStep::Free(buffer) => facts.freed = size(self, *buffer),
            BackwardStep::Adjoint { node, to, .. } => {
                let new = to.iter().filter_map(|(_, to)| match to {
                    GradTarget::New(buffer) => Some(size(self, *buffer)),
                    _ => None,
                });
                facts.made = new.fold(0, u64::saturating_add);
                let mut nodes = self.facts.nodes.iter();
                let node = nodes.position(|of| of.result == node.result && of.kept.is_some());
                facts.scratch = node.map_or(0, |node| self.facts.nodes[node].scratch);
                facts.kept.extend(node);
            }
            BackwardStep::Strips { lines, .. } => {
                for line in lines {
                    let inner = self.line(inside, derivative, line);
                    facts.kept.extend(inner.kept);
                    facts.made = facts.made.saturating_add(inner.made);
                    facts.freed = facts.freed.saturating_add(inner.freed);
                }
            }
            BackwardStep::Repeat { repeat, lines, .. } => {
                let mut loops = self.loops.iter();
                let found = loops.find(|(other, _)| std::ptr::eq(*other, *repeat));
                if let Some((_, index)) = found.copied() {
                    facts.inner = Some(index);
                    self.lines(index, inside, derivative, lines);
                }
            }
            BackwardStep::Add { .. } | BackwardStep::Scan { .. } | BackwardStep::Recompute(_) => {}
        }
        facts
    }

    fn length(&self, axis: &Axis) -> u64 {
        let known = match axis {
            Axis::Size(size) => return self.size(size),
            Axis::Symbol(symbol) => self.lengths.get(&symbol.length).copied(),
        };
        known.unwrap_or(PLAUSIBLE)
    }

    fn size(&self, size: &Size) -> u64 {
        let value = size.value;
        value.unwrap_or_else(|| self.evaluate(size.to_token_stream()))
    }

    fn numbers(&self, value: ValueId) -> u64 {
        let ty = &self.block.value(value).ty;
        let axes = ty.axes.iter().map(|axis| self.length(axis));
        let each = if ty.kind == ValueKind::Ids { 2 } else { 1 };
        axes.fold(each, u64::saturating_mul)
    }

    /// The last axis of the first operand, and the product of the others.
    fn matrix(&self, node: &Node) -> [u64; 2] {
        let Some(value) = node.operands.first() else {
            return [1, 1];
        };
        let axes = &self.block.value(*value).ty.axes;
        let width = axes.last().map_or(1, |axis| self.length(axis)).max(1);
        [self.numbers(*value) / width, width]
    }

    /// What a node keeps beside values.
    fn kept(&self, node: &Node) -> u64 {
        let [rows, width] = self.matrix(node);
        match node.op.properties().kept {
            Some(Kept::Array) => rows.saturating_mul(2),
            // A gate is as wide again.
            Some(Kept::Hidden) => {
                let hidden = self.hidden(node).max(1);
                let products = self.operations(node) / width / hidden;
                hidden.saturating_mul(if products > 4 { 2 } else { 1 })
            }
            Some(Kept::Attention) => {
                let of_row = width.saturating_mul(4).saturating_add(8);
                rows.saturating_mul(of_row)
            }
            Some(Kept::Loss) => rows.saturating_mul(width),
            Some(Kept::Dropout) | None => 0,
        }
    }

    /// The numbers of a hidden layer. A gate doubles what the cost says.
    fn hidden(&self, node: &Node) -> u64 {
        let [rows, width] = self.matrix(node);
        let hidden = node.op.cost(&self.extents(node)).hidden;
        rows.saturating_mul(hidden.map_or(width, |hidden| self.evaluate(hidden) / 2))
    }

    /// The floating-point operations of its products.
    fn operations(&self, node: &Node) -> u64 {
        let [rows, width] = self.matrix(node);
        if let Some(attention) = node.attention() {
            let keys = &self.block.value(node.operands[attention.inputs.keys]).ty;
            let keys = keys.axes.iter().rev().nth(1);
            let keys = keys.map_or(1, |axis| self.length(axis));
            let of_number = width.saturating_mul(8);
            let of_number = of_number.saturating_add(keys.saturating_mul(4));
            return rows.saturating_mul(width).saturating_mul(of_number);
        }
        let flops = node.op.cost(&self.extents(node)).flops;
        flops.map_or(0, |flops| self.evaluate(flops))
    }

    fn extents<'a>(&'a self, node: &'a Node) -> Extents<'a> {
        Extents {
            model: self.model,
            operands: &node.operands,
            result: node.result,
        }
    }

    fn evaluate(&self, tokens: TokenStream) -> u64 {
        syn::parse2(tokens).map_or(PLAUSIBLE, |expr| self.value(&expr))
    }

    /// The value of an expression of sizes, or the product of the arguments of a call.
    fn value(&self, expr: &Expr) -> u64 {
        let product = |all: &mut dyn Iterator<Item = &Expr>| {
            all.map(|of| self.value(of)).fold(1, u64::saturating_mul)
        };
        match expr {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Int(int) => int.base10_parse().unwrap_or(PLAUSIBLE),
                _ => 1,
            },
            Expr::Path(path) => {
                let name = path.path.get_ident().map(ToString::to_string);
                let known = name.and_then(|name| self.names.get(&name));
                known.copied().unwrap_or(PLAUSIBLE)
            }
            Expr::Binary(binary) => {
                let [left, right] = [&binary.left, &binary.right].map(|side| self.value(side));
                match binary.op {
                    BinOp::Add(_) => left.saturating_add(right),
                    BinOp::Sub(_) => left.saturating_sub(right),
                    BinOp::Mul(_) => left.saturating_mul(right),
                    BinOp::Div(_) => left / right.max(1),
                    BinOp::Rem(_) => left % right.max(1),
                    _ => PLAUSIBLE,
                }
            }
            Expr::Paren(inner) => self.value(&inner.expr),
            Expr::Group(inner) => self.value(&inner.expr),
            Expr::Cast(inner) => self.value(&inner.expr),
            Expr::Reference(inner) => self.value(&inner.expr),
            Expr::Array(array) => product(&mut array.elems.iter()),
            Expr::Call(call) => product(&mut call.args.iter()),
            _ => PLAUSIBLE,
        }
    }
}
