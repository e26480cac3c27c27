//! Which values of a function are the same for all tokens of a session: those of its inputs beside the tokens.

use super::graph::{Block, Model, Node, Region, Repeat, Scan, Step, ValueId};

/// What a value is computed of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DependsOn {
    /// Of parameters and constants.
    Parameters,
    /// Of what a session is given when it starts.
    Given,
    /// Of tokens.
    Tokens,
}

/// What each value of a function is computed of.
#[derive(Clone)]
pub(crate) struct Given(Vec<DependsOn>);

impl Given {
    pub(crate) fn of(model: &Model) -> Self {
        let mut found = Given(vec![DependsOn::Parameters; model.values.len()]);
        let tokens = model.tokens();
        for (index, input) in model.inputs.iter().enumerate() {
            found.0[input.0] = match index == tokens {
                true => DependsOn::Tokens,
                false => DependsOn::Given,
            };
        }
        found.region(model.block(), &model.body);
        found.region(model.block(), &model.grouped);
        found
    }

    pub(crate) fn depends_on(&self, block: Block<'_>, id: ValueId) -> DependsOn {
        self.0[block.memory(id).0]
    }

    /// What the operations of a loop depend on, all together.
    pub(crate) fn body(&self, block: Block<'_>, body: &Region) -> DependsOn {
        let nodes = body.nodes().into_iter();
        let of_nodes = nodes.map(|node| self.depends_on(block, node.result));
        of_nodes.max().unwrap_or(DependsOn::Parameters)
    }

    /// The values that are computed of what a session is given, and read for tokens.
    pub(crate) fn read_by_tokens(&self, block: Block<'_>) -> Vec<ValueId> {
        let is = |id: ValueId, what| self.depends_on(block, id) == what;
        let nodes = block.body.nodes().into_iter();
        let of_tokens = nodes.filter(|node| is(node.result, DependsOn::Tokens));
        let read = of_tokens.flat_map(|node| node.operands.iter().copied());
        let scans = block.body.scans().into_iter();
        let scans = scans.filter(|scan| self.body(block, &scan.body) == DependsOn::Tokens);
        let initial = scans.flat_map(|scan| scan.states.iter().map(|state| state.before));
        read.chain(initial)
            .filter(|id| is(*id, DependsOn::Given))
            .collect()
    }

    fn region(&mut self, block: Block<'_>, region: &Region) {
        for step in &region.steps {
            match step {
                Step::Node(node) => self.node(block, node),
                Step::Repeat(repeat) => self.rounds(block, repeat),
                Step::Scan(scan) => self.scan(block, scan),
            }
        }
    }

    fn node(&mut self, block: Block<'_>, node: &Node) {
        let operands = node.operands.iter();
        let of_operands = operands.map(|operand| self.depends_on(block, *operand));
        let found = of_operands.max().unwrap_or(DependsOn::Parameters);
        node.results().for_each(|id| self.raise(block, id, found));
    }

    /// A variable of a loop depends on what it is before the loop, and on what the rounds make of it.
    fn rounds(&mut self, block: Block<'_>, repeat: &Repeat) {
        loop {
            let before = self.0.clone();
            for carried in &repeat.carried {
                for id in [carried.before, carried.after] {
                    let found = self.depends_on(block, id);
                    self.raise(block, carried.value, found);
                }
            }
            self.region(block, &repeat.body);
            if self.0 == before {
                return;
            }
        }
    }

    /// A state depends on what it is before the scan, and on what the steps make of it.
    fn scan(&mut self, block: Block<'_>, scan: &Scan) {
        for of in &scan.slices {
            self.raise(block, of.slice, self.depends_on(block, of.whole));
        }
        loop {
            let before = self.0.clone();
            for state in &scan.states {
                for id in [state.before, state.after] {
                    self.raise(block, state.value, self.depends_on(block, id));
                }
            }
            self.region(block, &scan.body);
            if self.0 == before {
                break;
            }
        }
        for of in &scan.yields {
            self.raise(block, of.whole, self.depends_on(block, of.slice));
        }
        for state in &scan.states {
            if let Some(last) = state.last {
                self.raise(block, last, self.depends_on(block, state.value));
            }
        }
    }

    fn raise(&mut self, block: Block<'_>, id: ValueId, to: DependsOn) {
        for id in [id, block.memory(id)] {
            self.0[id.0] = self.0[id.0].max(to);
        }
    }
}
