//! Products of all steps at once.
//!
//! A product in a scan that depends on no state is computed before the scan, as one product over all steps, and so is what it is computed of.

use std::rc::Rc;

use super::graph::{Model, Node, Region, Repeat, Scan, Slice, Step, Value, ValueId};
use super::types::Type;
use crate::ops::{Expand, Fusion, ModelOp};

/// The operations of a model with the products of its scans before these.
pub(crate) fn all_at_once(model: &mut Model) -> Region {
    let mut values = model.values.to_vec();
    let region = region(&model.grouped, &mut values);
    model.values = values.into();
    region
}

fn region(of: &Region, values: &mut Vec<Value>) -> Region {
    let mut steps = Vec::new();
    for step in &of.steps {
        match step {
            Step::Node(_) => steps.push(step.clone()),
            Step::Repeat(repeat) => steps.push(Step::Repeat(Repeat {
                body: region(&repeat.body, values),
                ..repeat.clone()
            })),
            Step::Scan(scan) => {
                let mut hoist = Hoist {
                    scan,
                    values,
                    known: scan.slices.clone(),
                    before: Vec::new(),
                };
                let body = hoist.body();
                let Hoist { known, before, .. } = hoist;
                steps.extend(before.into_iter().map(Step::Node));
                let mut scan = scan.with_body(body);
                // The slices that the body still reads.
                let read: Vec<_> = scan.body.steps.iter().flat_map(super::plan::uses).collect();
                let is_read =
                    |of: &Slice| read.contains(&of.slice) || scan.results.contains(&of.slice);
                scan.slices = known.into_iter().filter(is_read).collect();
                scan.find_inputs();
                steps.push(Step::Scan(scan));
            }
        }
    }
    Region { steps }
}

struct Hoist<'a> {
    scan: &'a Scan,
    values: &'a mut Vec<Value>,
    /// The values of all steps that are there before the scan.
    known: Vec<Slice>,
    before: Vec<Node>,
}

impl Hoist<'_> {
    /// The body without what is computed before it.
    fn body(&mut self) -> Region {
        let steps = &self.scan.body.steps;
        let movable = self.movable();
        // What no product reads stays: in the loop it is joined with others.
        let mut wanted: Vec<ValueId> = Vec::new();
        for (step, is_movable) in steps.iter().zip(&movable).rev() {
            if let (Step::Node(node), true) = (step, *is_movable) {
                let is_product = matches!(
                    node.fusion(),
                    Fusion::Projection(_) | Fusion::Contraction(_)
                );
                if is_product || wanted.contains(&node.result) {
                    wanted.extend(node.results());
                    wanted.extend(&node.operands);
                }
            }
        }
        let mut body = Region::default();
        for (step, is_movable) in steps.iter().zip(&movable) {
            match step {
                Step::Node(node) if *is_movable && wanted.contains(&node.result) => {
                    self.move_out(node);
                }
                step => body.steps.push(step.clone()),
            }
        }
        body
    }

    /// Of each step of the body, whether it can be computed for all steps at once.
    fn movable(&self) -> Vec<bool> {
        let mut stepped: Vec<ValueId> = self.known.iter().map(|of| of.slice).collect();
        let is_outside = |id: &ValueId| self.scan.wholes().any(|whole| whole == *id);
        let steps = self.scan.body.steps.iter();
        let movable = steps.map(|step| {
            let Step::Node(node) = step else {
                return false;
            };
            let of_steps = node.operands.iter().filter(|id| stepped.contains(id));
            let is_known = match node.fusion() {
                Fusion::Projection(_)
                | Fusion::Rows
                | Fusion::Elementwise(_)
                | Fusion::Repeat(_) => true,
                // A product of two values of a step may be larger than these.
                Fusion::Contraction(_) => of_steps.count() == 1,
                _ => false,
            };
            let mut operands = node.operands.iter();
            let is_there = operands.all(|id| stepped.contains(id) || is_outside(id));
            let reads_step = node.operands.iter().any(|id| stepped.contains(id));
            let is_movable = is_known && is_there && reads_step;
            if is_movable {
                stepped.extend(node.results());
            }
            is_movable
        });
        movable.collect()
    }

    fn move_out(&mut self, node: &Node) {
        let is_same = |id: &ValueId| self.known.iter().all(|of| of.slice != *id);
        let same: Vec<_> = node.operands.iter().map(is_same).collect();
        let is_product = matches!(node.fusion(), Fusion::Contraction(_));
        let operands = node.operands.iter().zip(&same);
        let operands = operands.map(|(id, is_same)| match is_product && *is_same {
            true => *id,
            false => self.whole(*id),
        });
        let operands: Vec<_> = operands.collect();
        let op: Rc<dyn ModelOp> = match node.fusion() {
            Fusion::Contraction(einsum) => {
                let operand = same.iter().position(|is_same| !is_same);
                let axis = self.scan.axis.clone();
                Rc::new(einsum.at_all_steps(axis, operand.unwrap_or(0)))
            }
            Fusion::Repeat(places) => {
                let places = places.iter().map(|place| place + 1);
                Rc::new(Expand::new(std::iter::once(0).chain(places).collect()))
            }
            _ => Rc::clone(&node.op),
        };
        let result = self.all_of(node.result);
        let others = node.others.iter();
        let others = others.map(|id| id.map(|id| self.all_of(id)));
        let others = others.collect();
        self.before.push(Node {
            op,
            operands,
            result,
            others,
            name: node.name.clone(),
        });
    }

    /// A new value of all steps, of which this one is a slice from here on.
    fn all_of(&mut self, slice: ValueId) -> ValueId {
        let whole = self.with_steps(slice);
        self.known.push(Slice { whole, slice });
        whole
    }

    /// The value of all steps. One that is the same at each step is repeated.
    fn whole(&mut self, id: ValueId) -> ValueId {
        if let Some(of) = self.known.iter().find(|of| of.slice == id) {
            return of.whole;
        }
        let places = (1..=self.values[id.0].ty.axes.len()).collect();
        let result = self.with_steps(id);
        self.before.push(Node {
            op: Rc::new(Expand::new(places)),
            operands: vec![id],
            result,
            others: Vec::new(),
            name: None,
        });
        result
    }

    /// A new value with the axis of the steps in front.
    fn with_steps(&mut self, id: ValueId) -> ValueId {
        let Value {
            name, source, ty, ..
        } = self.values[id.0].clone();
        let axes = std::iter::once(self.scan.axis.clone()).chain(ty.axes);
        let mut name = format!("{name}_steps");
        while self.values.iter().any(|value| value.name == name) {
            name.push('_');
        }
        self.values.push(Value {
            name,
            source,
            ty: Type::floats(axes.collect()),
            view: None,
            alias: None,
        });
        ValueId(self.values.len() - 1)
    }
}
