//! Whether a network can go on token by token: whether what it makes of a token depends on nothing behind it.

use super::emit::operation_name;
use super::given::{DependsOn, Given};
use super::graph::{
    Field, Model, Module, ModuleId, Node, Region, Repeat, Scan, State, Step, Submodule, ValueId,
};
use super::plan::uses;
use super::transposes::without_transposes;
use super::types::{Axis, ValueKind};
use crate::graph::AttentionLayer;
use crate::messages::{attend as attend_messages, model as messages};
use crate::ops::{Decode, Label};

/// Why it cannot, in the user's words.
pub(crate) fn check(model: &Model) -> Result<(), String> {
    let Some(input) = model.inputs.get(model.tokens()) else {
        return Err(messages::session_inputs());
    };
    let tokens = Tokens {
        model,
        input: *input,
        given: Given::of(model),
    };
    tokens.input()?;
    tokens.others()?;
    tokens.once()?;
    tokens.region(&without_transposes(model))?;
    tokens.results()
}

impl Model {
    /// The place of the tokens among the inputs: the ids for each of which the result has a vector, or else the first input.
    pub(crate) fn tokens(&self) -> usize {
        let result = self.results.first().map(|id| &self.value(*id).ty.axes);
        let of_result = result.and_then(|axes| axes.split_last());
        let names = |axes: &[Axis]| axes.iter().map(Axis::to_string).collect::<Vec<_>>();
        let mut inputs = self.inputs.iter().map(|id| &self.value(*id).ty);
        let found = inputs.position(|ty| {
            let same = of_result.is_some_and(|(_, axes)| names(&ty.axes) == names(axes));
            ty.kind == ValueKind::Ids && same
        });
        found.unwrap_or(0)
    }

    /// The inputs beside the tokens, with their places: what a session is given.
    pub(crate) fn given_inputs(&self) -> impl Iterator<Item = (usize, ValueId)> {
        let tokens = self.tokens();
        let inputs = self.inputs.iter().copied().enumerate();
        inputs.filter(move |(place, _)| *place != tokens)
    }

    /// The length of a sequence of tokens: the last axis of these.
    pub(crate) fn sequence(&self) -> Option<&str> {
        match self
            .value(*self.inputs.get(self.tokens())?)
            .ty
            .axes
            .last()?
        {
            Axis::Symbol(symbol) => Some(&symbol.length),
            Axis::Size(_) => None,
        }
    }

    /// The layers of a module that remember something in a session: attentions that run in it, convolutions along the tokens, and loops and
    /// blocks with such layers.
    pub(crate) fn remembering<'m>(&'m self, module: &'m Module) -> impl Iterator<Item = &'m Field> {
        module.fields.iter().filter(|field| match &field.layer {
            Submodule::Attention(index) => self.remembers_attention(*index),
            Submodule::Layer(layer) => layer.recent().is_some(),
            Submodule::Repeat { module, .. } | Submodule::Block { module, .. } => {
                self.remembers(*module)
            }
            _ => false,
        })
    }

    /// Whether an attention runs for tokens, and not only for what a session is given.
    pub(crate) fn remembers_attention(&self, index: usize) -> bool {
        let given = Given::of(self);
        let nodes = self.nodes().into_iter();
        let mut nodes = nodes.filter(|node| node.attention().is_some_and(|op| op.index == index));
        nodes.any(|node| given.depends_on(self.block(), node.result) == DependsOn::Tokens)
    }

    pub(crate) fn remembers(&self, module: ModuleId) -> bool {
        let mut layers = self.remembering(self.module(module));
        layers.next().is_some() || !self.scans_in(module).is_empty()
    }

    /// The scans over tokens that stand in a module.
    pub(crate) fn scans_in(&self, module: ModuleId) -> Vec<&Scan> {
        let given = Given::of(self);
        let scans = self.body.scans().into_iter();
        let is_of_tokens = |scan: &Scan| given.body(self.block(), &scan.body) != DependsOn::Given;
        let scans = scans.filter(|scan| scan.module == module && is_of_tokens(scan));
        scans.collect()
    }
}

struct Tokens<'m> {
    model: &'m Model,
    input: ValueId,
    given: Given,
}

impl<'m> Tokens<'m> {
    fn axes(&self, value: ValueId) -> &'m [Axis] {
        &self.model.value(value).ty.axes
    }

    /// Each attention and each convolution runs once for a token: it remembers one sequence.
    fn once(&self) -> Result<(), String> {
        let mut known = Vec::new();
        for node in self.model.nodes() {
            let place = match (node.attention(), node.op.description().label) {
                (Some(attention), _) => &attention.place,
                (None, Label::Layer(place)) if self.goes_on(node) => place,
                _ => continue,
            };
            if self.depends_on(node.result) != DependsOn::Tokens {
                continue;
            }
            let name = self.model.path(place);
            if known.contains(&name) {
                return Err(messages::session_twice(&name));
            }
            known.push(name);
        }
        Ok(())
    }

    fn goes_on(&self, node: &Node) -> bool {
        node.op.decode(self.model) == Ok(Decode::WithPast)
    }

    /// The input is tokens, of any number of sequences of any length.
    fn input(&self) -> Result<(), String> {
        let axes = self.axes(self.input);
        let mut names: Vec<&str> = axes
            .iter()
            .filter_map(|axis| match axis {
                Axis::Symbol(symbol) => Some(symbol.length.as_str()),
                Axis::Size(_) => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        let ty = &self.model.value(self.input).ty;
        if ty.kind == ValueKind::Ids && names.len() == axes.len() && !axes.is_empty() {
            Ok(())
        } else {
            Err(messages::session_input(ty))
        }
    }

    /// The other inputs have something for each sequence, and nothing for each token.
    fn others(&self) -> Result<(), String> {
        let length = |axis: &'m Axis| match axis {
            Axis::Symbol(symbol) => Some(symbol.length.as_str()),
            Axis::Size(_) => None,
        };
        let axes = self.axes(self.input);
        for (_, id) in self.model.given_inputs() {
            let input = self.model.value(id);
            let of_input = self.axes(id);
            let [batch, seq] = axes else {
                return Err(messages::session_of_one(&input.source, &input.ty));
            };
            if of_input.iter().any(|axis| length(axis) == length(seq)) {
                return Err(messages::session_per_token(&input.source, &input.ty));
            }
            if of_input.first().map(length) != Some(length(batch)) {
                return Err(messages::session_of_one(&input.source, &input.ty));
            }
        }
        let mut given = self.model.given_inputs();
        let Some((_, first)) = given.next() else {
            return Ok(());
        };
        let mut given = self.model.given_inputs();
        match given.all(|(place, _)| self.model.default_of(place).is_some()) {
            true => Err(messages::session_defaults(&self.model.value(first).source)),
            false => Ok(()),
        }
    }

    fn depends_on(&self, id: ValueId) -> DependsOn {
        self.given.depends_on(self.model.block(), id)
    }

    fn results(&self) -> Result<(), String> {
        match self.model.results.as_slice() {
            [result] if self.axes_per_token(*result) == Some(1) => Ok(()),
            [result] => Err(messages::session_result(&self.model.value(*result).ty)),
            results => Err(messages::session_results(results.len())),
        }
    }

    /// How many axes a value has for every token, if it has numbers for each of them: 0 for one number, 1 for a vector.
    fn axes_per_token(&self, value: ValueId) -> Option<usize> {
        let before = self.axes(self.input);
        let (tokens, others) = self.axes(value).split_at_checked(before.len())?;
        let same = tokens.iter().zip(before).all(|(a, b)| match (a, b) {
            (Axis::Symbol(a), Axis::Symbol(b)) => a.length == b.length,
            _ => false,
        });
        let all_sizes = others.iter().all(|axis| matches!(axis, Axis::Size(_)));
        (same && all_sizes).then_some(others.len())
    }

    /// Whether a value is the same for all tokens.
    fn is_constant(&self, value: ValueId) -> bool {
        let mut axes = self.axes(value).iter();
        axes.all(|axis| matches!(axis, Axis::Size(_)))
    }

    fn region(&self, region: &Region) -> Result<(), String> {
        region.steps.iter().try_for_each(|step| match step {
            Step::Node(node) => match self.depends_on(node.result) {
                DependsOn::Given => Ok(()),
                DependsOn::Parameters | DependsOn::Tokens => self.node(node),
            },
            Step::Repeat(repeat) => match self.given.body(self.model.block(), &repeat.body) {
                DependsOn::Given => Ok(()),
                DependsOn::Parameters | DependsOn::Tokens => self.rounds(repeat),
            },
            Step::Scan(scan) => match self.given.body(self.model.block(), &scan.body) {
                DependsOn::Given => Ok(()),
                DependsOn::Parameters | DependsOn::Tokens => self.scan(scan),
            },
        })
    }

    /// A scan along the tokens goes on where it was: its states are what it remembers.
    fn scan(&self, scan: &Scan) -> Result<(), String> {
        let is_along = match &scan.axis {
            Axis::Symbol(symbol) => self.model.sequence() == Some(&symbol.length),
            Axis::Size(_) => false,
        };
        if !is_along || scan.reverse {
            return Err(messages::session_scan(&scan.axis, scan.reverse));
        }
        if let Some(last) = scan.states.iter().find_map(|state| self.last_read(state)) {
            return Err(messages::session_last(&self.model.value(last).source));
        }
        let is_given = |id: &&ValueId| self.depends_on(**id) == DependsOn::Given;
        let of_slices = scan.slices.iter().map(|of| &of.whole);
        let nodes = scan.body.nodes();
        let of_nodes = nodes.iter().filter(|node| node.attention().is_none());
        let of_nodes = of_nodes.flat_map(|node| &node.operands);
        let mut read = of_slices.chain(of_nodes).chain(&scan.results);
        if let Some(given) = read.find(is_given) {
            let name = &self.model.value(*given).source;
            return Err(messages::session_given_to_a_scan(name));
        }
        for state in &scan.states {
            let value = self.model.value(state.before);
            if self.has_tokens(state.before) {
                return Err(messages::session_operation(&value.source));
            }
        }
        for node in nodes {
            if node.attention().is_some() {
                self.operands(node)?;
                self.attends_at_a_step(node)?;
            }
            if node.op.decode(self.model)? == Decode::Never {
                let name = operation_name(self.model, node);
                return Err(messages::session_operation(&name));
            }
        }
        Ok(())
    }

    /// The value of a state behind the last step, if something reads it.
    fn last_read(&self, state: &State) -> Option<ValueId> {
        let last = state.last?;
        let read = self.model.body.steps.iter().flat_map(uses);
        let mut read = read.chain(self.model.results.iter().copied());
        read.any(|id| id == last).then_some(last)
    }

    /// The queries are those of the step, of which a sequence has one.
    fn attends_at_a_step(&self, node: &Node) -> Result<(), String> {
        let Some(attention) = node.attention() else {
            return Ok(());
        };
        if node.results().nth(1).is_some() {
            let name = self.model.path(&attention.place);
            return Err(attend_messages::session_results(&name));
        }
        let is_cross = self.model.attentions[attention.index].graph.cross;
        let mut axes = self.axes(node.operands[0]).iter().rev().skip(1);
        match is_cross && axes.next().is_some_and(Axis::is_one) {
            true => Ok(()),
            false => Err(messages::session_attention_in_a_step(
                &self.model.path(&attention.place),
            )),
        }
    }

    fn has_tokens(&self, value: ValueId) -> bool {
        let mut axes = self.axes(value).iter();
        axes.any(
            |axis| matches!(axis, Axis::Symbol(of) if self.model.sequence() == Some(&of.length)),
        )
    }

    /// Whether an operation brings the tokens to the front for a scan, or back. A session has one sequence at a time.
    fn is_at_scan(&self, node: &Node) -> bool {
        let mut scans = self.model.body.scans().into_iter();
        scans.any(|scan| {
            let is_slice = scan.slices.iter().any(|of| of.whole == node.result);
            let mut yields = scan.yields.iter();
            is_slice || yields.any(|of| node.operands == [of.whole])
        })
    }

    /// A loop over tokens computes nothing of what is given alone: that would be computed for each token.
    fn rounds(&self, repeat: &Repeat) -> Result<(), String> {
        let nodes = repeat.body.nodes().into_iter();
        let mut nodes = nodes.filter(|node| self.depends_on(node.result) == DependsOn::Given);
        if let Some(node) = nodes.next() {
            let name = operation_name(self.model, node);
            return Err(messages::session_given_in_a_loop(&name));
        }
        self.region(&repeat.body)
    }

    /// What is given is read as the context of an attention, and as the data of its keys.
    fn operands(&self, node: &Node) -> Result<(), String> {
        let is_given = |id: &ValueId| self.depends_on(*id) == DependsOn::Given;
        let Some(attention) = node.attention() else {
            return match node.operands.iter().any(is_given) {
                true => Err(messages::session_given(&operation_name(self.model, node))),
                false => Ok(()),
            };
        };
        if node.others.first().is_some_and(Option::is_some) {
            let name = self.model.path(&attention.place);
            return Err(attend_messages::session_weights(&name));
        }
        let [x, others @ ..] = node.operands.as_slice() else {
            return Ok(());
        };
        let AttentionLayer { graph, .. } = &self.model.attentions[attention.index];
        let name = self.model.path(&attention.place);
        if is_given(x) || graph.cross && !others.iter().all(is_given) {
            return Err(messages::session_context(&name));
        }
        // What the body reads stands behind the vectors.
        let read = attention.inputs.len() - graph.given.len();
        let read = node.operands[read..].iter().zip(&graph.given);
        match { read }.find(|(id, _)| !graph.cross && is_given(id)) {
            Some((_, given)) => Err(messages::session_value(&name, given.label(), true)),
            None => Ok(()),
        }
    }

    fn node(&self, node: &Node) -> Result<(), String> {
        self.operands(node)?;
        if self.is_at_scan(node) {
            return Ok(());
        }
        let has_numbers = self.axes_per_token(node.result).is_some();
        let is_repeated = !self.has_tokens(node.result)
            && node
                .operands
                .iter()
                .all(|operand| self.is_constant(*operand));
        let stands_alone = has_numbers || is_repeated || self.is_constant(node.result);
        match node.op.decode(self.model)? {
            Decode::WithPast => Ok(()),
            Decode::PerToken if stands_alone => Ok(()),
            Decode::PerToken | Decode::Never => {
                let name = operation_name(self.model, node);
                Err(messages::session_operation(&name))
            }
        }
    }
}
