//! The loops of a model in two parts: the first rounds, which keep less, and the last ones.
//!
//! ```text
//! repeat 6 { body }   →   repeat again_0 { body }  repeat 6 - again_0 { body }
//! ```
//!
//! In the derivative the last rounds come first. When the memory is full they have nothing to compute again, and when the first rounds do,
//! what the last ones kept is gone. So each part is a loop like any other, with values of its own, on its part of the parameters.

use quote::{format_ident, quote};

use crate::model::graph::{
    Carried, Model, Node, Part, Region, Repeat, Scan, Slice, State, Step, Value, ValueId, View,
};
use crate::spec::Size;

/// The model with its outer loops split, if it has any.
pub(crate) fn split(model: &Model) -> Option<Model> {
    let mut copier = Copier {
        values: model.values.to_vec(),
        copies: Vec::new(),
        of_loop: 0,
        runs: runs(&model.grouped),
    };
    let mut loops = 0;
    let steps = model.grouped.steps.iter().flat_map(|step| match step {
        Step::Repeat(repeat) => {
            loops += 1;
            copier.parts(repeat, loops - 1)
        }
        Step::Node(_) | Step::Scan(_) => vec![step.clone()],
    });
    let grouped = Region {
        steps: steps.collect(),
    };
    (loops > 0).then(|| Model {
        grouped,
        values: copier.values.into(),
        copies: copier.copies,
        ..model.clone()
    })
}

/// The most loops over the same parameters.
fn runs(region: &Region) -> usize {
    let steps = region.steps.iter().map(|step| match step {
        Step::Repeat(repeat) => repeat.run.max(runs(&repeat.body)),
        Step::Scan(scan) => runs(&scan.body),
        Step::Node(_) => 0,
    });
    steps.max().unwrap_or(0)
}

struct Copier {
    values: Vec<Value>,
    /// Values of the first part, each with the one of the last part that it is a copy of.
    copies: Vec<(ValueId, ValueId)>,
    /// Where the copies of this loop begin among them. What reads another loop reads the last part of that.
    of_loop: usize,
    runs: usize,
}

impl Copier {
    /// Both parts of a loop. The last one has the values of the loop, as others read what is in them behind it.
    fn parts(&mut self, repeat: &Repeat, index: usize) -> Vec<Step> {
        self.of_loop = self.copies.len();
        self.copy_values(repeat);
        let at = format_ident!("___again_{index}");
        let count = &repeat.count;
        let [first_count, last_count] = [quote!(#at), quote!((#count - #at))];
        let size = |tokens| Size::derive(None, tokens, String::new());
        let part = |is_last| {
            Some(Box::new(Part {
                is_last,
                at: at.clone(),
                whole: count.clone(),
            }))
        };
        let first = Repeat {
            count: size(first_count),
            part: part(false),
            ..self.repeat(repeat)
        };
        let carried = repeat.carried.iter().map(|of| Carried {
            before: self.copy(of.value),
            ..of.clone()
        });
        let last = Repeat {
            count: size(last_count),
            part: part(true),
            carried: carried.collect(),
            ..repeat.clone()
        };
        vec![Step::Repeat(first), Step::Repeat(last)]
    }

    /// Makes copies of all values that a loop defines, and of views of them.
    fn copy_values(&mut self, repeat: &Repeat) {
        let mut defined = Vec::new();
        defined_by(repeat, &mut defined);
        let mut at = 0;
        while at < defined.len() {
            let id = defined[at];
            at += 1;
            let all = self.values.iter().enumerate();
            let of_it = all.filter(|(_, value)| {
                value.view.is_some_and(|view| view.of == id) || value.alias == Some(id)
            });
            let of_it: Vec<_> = of_it.map(|(index, _)| ValueId(index)).collect();
            let new = of_it.into_iter().filter(|id| !defined.contains(id));
            let new: Vec<_> = new.collect();
            defined.extend(new);
        }
        for id in defined {
            let mut name = format!("{}_copy", self.values[id.0].name);
            while self.values.iter().any(|value| value.name == name) {
                name.push('_');
            }
            self.copies.push((ValueId(self.values.len()), id));
            let value = self.values[id.0].clone();
            self.values.push(Value { name, ..value });
        }
        for index in self.of_loop..self.copies.len() {
            let (copy, _) = self.copies[index];
            let Value { view, alias, .. } = self.values[copy.0].clone();
            self.values[copy.0].view = view.map(|view| View {
                of: self.copy(view.of),
                ..view
            });
            self.values[copy.0].alias = alias.map(|of| self.copy(of));
        }
    }

    /// The copy of a value of this loop, or the value itself.
    fn copy(&self, id: ValueId) -> ValueId {
        let mut copies = self.copies[self.of_loop..].iter();
        let found = copies.find(|(_, of)| *of == id);
        found.map_or(id, |(copy, _)| *copy)
    }

    fn copies(&self, ids: &[ValueId]) -> Vec<ValueId> {
        ids.iter().map(|id| self.copy(*id)).collect()
    }

    fn region(&self, region: &Region) -> Region {
        let steps = region.steps.iter().map(|step| match step {
            Step::Node(node) => Step::Node(self.node(node)),
            Step::Repeat(repeat) => Step::Repeat(self.repeat(repeat)),
            Step::Scan(scan) => Step::Scan(self.scan(scan)),
        });
        Region {
            steps: steps.collect(),
        }
    }

    fn node(&self, node: &Node) -> Node {
        let others = node.others.iter();
        Node {
            operands: self.copies(&node.operands),
            result: self.copy(node.result),
            others: others.map(|id| id.map(|id| self.copy(id))).collect(),
            ..node.clone()
        }
    }

    fn repeat(&self, repeat: &Repeat) -> Repeat {
        let carried = repeat.carried.iter().map(|of| Carried {
            before: self.copy(of.before),
            value: self.copy(of.value),
            after: self.copy(of.after),
        });
        Repeat {
            run: repeat.run + self.runs,
            carried: carried.collect(),
            body: self.region(&repeat.body),
            ..repeat.clone()
        }
    }

    fn scan(&self, scan: &Scan) -> Box<Scan> {
        let slices = |of: &[Slice]| {
            let copies = of.iter().map(|of| Slice {
                whole: self.copy(of.whole),
                slice: self.copy(of.slice),
            });
            copies.collect()
        };
        let states = scan.states.iter().map(|of| State {
            before: self.copy(of.before),
            value: self.copy(of.value),
            after: self.copy(of.after),
            last: of.last.map(|id| self.copy(id)),
        });
        Box::new(Scan {
            slices: slices(&scan.slices),
            states: states.collect(),
            yields: slices(&scan.yields),
            inputs: self.copies(&scan.inputs),
            results: self.copies(&scan.results),
            body: self.region(&scan.body),
            axis: scan.axis.clone(),
            module: scan.module,
            reverse: scan.reverse,
            keep: scan.keep,
        })
    }
}

/// The values that a loop defines, those inside of its loops and scans included.
fn defined_by(repeat: &Repeat, defined: &mut Vec<ValueId>) {
    defined.extend(repeat.carried.iter().map(|of| of.value));
    defined_in(&repeat.body, defined);
}

fn defined_in(region: &Region, defined: &mut Vec<ValueId>) {
    for step in &region.steps {
        match step {
            Step::Node(node) => defined.extend(node.results()),
            Step::Repeat(repeat) => defined_by(repeat, defined),
            Step::Scan(scan) => {
                defined.extend(scan.defined());
                defined.extend(scan.slices.iter().map(|of| of.slice));
                defined.extend(scan.states.iter().map(|of| of.value));
                defined_in(&scan.body, defined);
            }
        }
    }
}
