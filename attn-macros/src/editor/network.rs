//! The statements of a model, of its function and of its blocks.

use std::collections::{BTreeMap, HashMap};

use proc_macro2::{Delimiter, Ident, Span, TokenTree};

use super::body;
use super::header::{Entry, entries, walk_value, walk_words};
use super::items::has_named_operands;
use super::names::{Names, Own, Scope, is_constant, size};
use super::scan::Steps;
use super::signature::{Blocks, walk_axes};
use super::statement::{
    ends_statement, is_assignment, is_keyword, starts_repeat, starts_scan, starts_tensor,
    take_header, take_value,
};
use super::tokens::Tokens;
use crate::diag::Diagnostics;
use crate::ops::Operation;
use crate::spec::keys::{Key, KeyKind};

/// The state of a walk through the statements.
pub(super) struct Walker<'w, 'n> {
    pub(super) cx: &'w Diagnostics,
    pub(super) names: &'w mut Names<'n>,
    blocks: &'w Blocks,
    /// The sizes of the header, and these together with the axes of the inputs.
    sizes: Scope,
    pub(super) axes: Scope,
    /// The keys of each operation, between its `<` and `>`.
    arguments: HashMap<String, Scope>,
    /// The names that layers have, which others may be tied to.
    layers: Scope,
    /// The variables and operations.
    pub(super) scope: Scope,
    /// Every variable with its last shape.
    pub(super) variables: BTreeMap<String, Own>,
    /// The scan whose body is walked.
    pub(super) scan: Option<Steps>,
}

impl<'w, 'n> Walker<'w, 'n> {
    /// `scope`: the variables and operations that are there from the start, of which `inputs` are the variables.
    pub(super) fn new(
        cx: &'w Diagnostics,
        names: &'w mut Names<'n>,
        blocks: &'w Blocks,
        [sizes, axes, scope]: [Scope; 3],
        inputs: Vec<Own>,
    ) -> Self {
        let layers = names.scope(&[], &[], &[]);
        let variables = inputs.into_iter().map(|own| (own.name.to_string(), own));
        Walker {
            cx,
            names,
            blocks,
            sizes,
            axes,
            arguments: HashMap::new(),
            layers,
            scope,
            variables: variables.collect(),
            scan: None,
        }
    }

    pub(super) fn statements(&mut self, mut tokens: Tokens) {
        while !tokens.is_empty() {
            if tokens.take(';') {
                continue;
            }
            self.statement(&mut tokens);
        }
        self.names.own(self.scope, None);
    }

    fn statement(&mut self, tokens: &mut Tokens) {
        if tokens.is_word("yield") {
            return self.yielded(tokens);
        }
        let goes_on = tokens.ident(1).is_some() && !is_keyword(tokens) || tokens.rest().len() == 1;
        if goes_on || tokens.is(1, ';') {
            // A single word will become a statement.
            let word = tokens.take_ident();
            return match word {
                Some(word) => self.names.own(self.scope, Some(&word)),
                None => drop(tokens.next()),
            };
        }
        if let Some(entries) = named_values(tokens) {
            for mut entry in entries {
                if entry.starts_entry() {
                    entry.take_ident();
                    entry.take(':');
                }
                self.expression(entry);
            }
            return;
        }
        // A statement may be inserted before this one.
        self.names.own(self.scope, None);
        if tokens.take_word("let") {
            tokens.take_word("mut");
            let names = declared(tokens);
            tokens.take_until(|rest| rest.is(0, '=') || ends_statement(rest));
            tokens.take('=');
            self.value_or_scan(tokens);
            for name in names {
                let shape = self.cx.shape_of(&name);
                self.declare(name, shape);
            }
        } else if starts_tensor(tokens, "param") {
            self.param(tokens);
        } else if starts_tensor(tokens, "buffer") {
            self.buffer(tokens);
        } else if starts_tensor(tokens, "state") {
            self.state(tokens);
        } else if starts_repeat(tokens) {
            self.repeat(tokens);
        } else if starts_scan(tokens) {
            self.scan(tokens);
        } else if is_assignment(tokens) {
            let name = tokens.take_ident();
            while ['+', '-', '*', '/', '=']
                .into_iter()
                .any(|sign| tokens.take(sign))
            {}
            self.value_or_scan(tokens);
            name.into_iter().for_each(|name| self.assign(name));
        } else if !self.value(tokens) {
            tokens.next();
        }
    }

    /// Walks to the end of the statement. Returns whether there was anything.
    pub(super) fn value(&mut self, tokens: &mut Tokens) -> bool {
        let value = take_value(tokens);
        let is_there = !value.is_empty();
        self.expression(value);
        tokens.take(';') || is_there
    }

    fn value_or_scan(&mut self, tokens: &mut Tokens) {
        if starts_scan(tokens) {
            // A value may be inserted before it.
            self.names.own(self.scope, None);
            self.scan(tokens);
        } else {
            self.value(tokens);
        }
    }

    pub(super) fn declare(&mut self, name: Ident, shape: Option<String>) {
        let doc = match &shape {
            Some(shape) => format!("`{shape}`"),
            None => "A variable, whose shape is not known.".to_owned(),
        };
        let own = Own { name, doc };
        self.scope = self
            .names
            .scope(&[self.scope], &[], std::slice::from_ref(&own));
        self.variables.insert(own.name.to_string(), own);
    }

    /// A variable that keeps its shape is a use of the declared one.
    fn assign(&mut self, name: Ident) {
        let shape = self.cx.shape_of(&name);
        let known = self.variables.get(&name.to_string());
        let is_same = |shape: &String| known.is_some_and(|own| own.doc == format!("`{shape}`"));
        if shape.as_ref().is_none_or(is_same) {
            self.names.own(self.scope, Some(&name));
        } else {
            self.declare(name, shape);
        }
    }

    /// `param token: [1, d_model] = normal(0.02);`
    fn param(&mut self, tokens: &mut Tokens) {
        let word = tokens.take_ident();
        self.names.language("operations", word.as_ref());
        let name = tokens.take_ident();
        tokens.take(':');
        if let Some(axes) = tokens.take_group(Delimiter::Bracket) {
            walk_axes(self.names, axes, self.sizes);
        }
        if tokens.take('=') {
            let init = take_value(tokens);
            let is_word = init.is_empty() || init.ident(0).is_some_and(|name| !is_constant(name));
            match Key::find("init").filter(|_| is_word) {
                Some(key) => walk_words(self.names, key, init, Some(self.sizes)),
                None => size(self.names, &init, Some(self.sizes)),
            }
        }
        tokens.take(';');
        if let Some(name) = name {
            let shape = self.cx.shape_of(&name);
            self.declare(name, shape);
        }
    }

    /// `buffer slope: [heads] = |h| pow(2, -8 * (h + 1) / heads);`
    fn buffer(&mut self, tokens: &mut Tokens) {
        let word = tokens.take_ident();
        self.names.language("operations", word.as_ref());
        let name = tokens.take_ident();
        tokens.take(':');
        if let Some(axes) = tokens.take_group(Delimiter::Bracket) {
            walk_axes(self.names, axes, self.sizes);
        }
        tokens.take('=');
        let scope = self.scope;
        let mut indices = Vec::new();
        if tokens.take('|') {
            while !tokens.is_empty() && !tokens.take('|') {
                let index = tokens.next();
                indices.extend(match index {
                    Some(TokenTree::Ident(name)) if name != "_" => Some(Own {
                        name,
                        doc: "The index along an axis.".to_owned(),
                    }),
                    _ => None,
                });
            }
        }
        self.scope = self.names.scope(&[self.sizes], &["functions"], &indices);
        self.value(tokens);
        self.scope = scope;
        if let Some(name) = name {
            let shape = self.cx.shape_of(&name);
            self.declare(name, shape);
        }
    }

    /// `repeat layers as i, name = encoder { .. }`. Variables that it assigns keep their shapes.
    fn repeat(&mut self, tokens: &mut Tokens) {
        let word = tokens.take_ident();
        self.names.language("operations", word.as_ref());
        let (scope, sizes) = (self.scope, self.sizes);
        for (index, mut option) in take_header(tokens).into_iter().enumerate() {
            if index == 0 {
                let is_index = |name: &Ident| name != "usize";
                let count = option
                    .take_until(|rest| rest.is_word("as") && rest.ident(1).is_some_and(is_index));
                size(self.names, &count, Some(self.sizes));
                if option.take_word("as")
                    && let Some(name) = option.take_ident()
                {
                    let doc = "The index of a round.".to_owned();
                    let own = [Own { name, doc }];
                    self.sizes = self.names.scope(&[sizes], &[], &own);
                    self.scope = self.names.scope(&[scope], &[], &own);
                }
            } else {
                let name = option.take_ident();
                self.names.language("repeat", name.as_ref());
            }
        }
        if let Some(statements) = tokens.take_group(Delimiter::Brace) {
            let variables = self.variables.clone();
            self.statements(statements);
            self.variables = variables;
        }
        (self.scope, self.sizes) = (scope, sizes);
    }

    fn expression(&mut self, mut tokens: Tokens) {
        let mut expects_value = true;
        while let Some(token) = tokens.next() {
            expects_value = match token {
                TokenTree::Ident(word) if word == "if" => true,
                // A branch follows, as behind a condition.
                TokenTree::Ident(word) if word == "else" => false,
                TokenTree::Ident(word) if word == "as" => {
                    let axes = tokens.take_group(Delimiter::Bracket);
                    axes.into_iter().for_each(|axes| self.renamed(axes));
                    false
                }
                TokenTree::Ident(name) => {
                    self.operand(name, &mut tokens);
                    false
                }
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Brace && expects_value =>
                {
                    let value = Tokens::new(group.stream());
                    size(self.names, &value, Some(self.sizes));
                    false
                }
                TokenTree::Group(group) => {
                    self.expression(Tokens::new(group.stream()));
                    false
                }
                TokenTree::Punct(_) => true,
                TokenTree::Literal(_) => false,
            };
        }
        if expects_value {
            self.names.own(self.scope, None);
        }
    }

    /// A variable, or an operation with its keys and operands.
    fn operand(&mut self, name: Ident, tokens: &mut Tokens) {
        let has_arguments = tokens.starts_arguments(0);
        let is_call = has_arguments || tokens.is_group(0, Delimiter::Parenthesis);
        let operation = Operation::find(&name.to_string()).filter(|_| is_call);
        match operation {
            // A variable may have the name, too.
            Some(_) => self.names.language("operations", Some(&name)),
            None => self.variable(&name),
        }
        if has_arguments {
            (0..3).for_each(|_| drop(tokens.next()));
            let entries = entries(tokens);
            match (operation, self.blocks.find(&name)) {
                (Some(operation), _) => self.arguments(operation, entries),
                (None, Some(keys)) => self.keys_of_block(keys, entries),
                (None, None) => {}
            }
        }
        if let Some(operands) = tokens.take_group(Delimiter::Parenthesis) {
            for operand in operands.split() {
                self.argument_of_call(operation, operand);
            }
            if let Some(mut inner) = tokens.take_group(Delimiter::Brace) {
                let is_attend = operation.is_some_and(|operation| operation.name == "attend");
                let variables: Vec<Own> = self.variables.values().cloned().collect();
                let variables = is_attend.then_some(variables.as_slice());
                body::walk(self.names, &mut inner, variables);
            }
        }
        while let Some(parts) = tokens.take_group(Delimiter::Bracket) {
            self.parts(parts);
        }
    }

    /// `batch, kv = seq`
    fn renamed(&mut self, axes: Tokens) {
        for mut axis in axes.split() {
            if axis.is(1, '=') {
                let name = axis.take_ident();
                self.names.own(self.axes, name.as_ref());
                axis.take('=');
            }
            match axis.is_empty() {
                true => self.names.own(self.axes, None),
                false => walk_axes(self.names, axis, self.axes),
            }
        }
    }

    /// `seq = 0, d_model = 1..`, `seq = ids`, `ids`
    fn parts(&mut self, parts: Tokens) {
        for mut part in parts.split() {
            if self.is_value(&part) {
                self.expression(part);
                continue;
            }
            let axis = part.take_until(|rest| rest.is(0, '='));
            match axis.is_empty() {
                true => self.names.own(self.axes, None),
                false => walk_axes(self.names, axis, self.axes),
            }
            if part.take('=') {
                match self.is_value(&part) {
                    true => self.expression(part),
                    false => size(self.names, &part, Some(self.sizes)),
                }
            }
        }
    }

    /// Whether a variable or a call stands there, and not a constant.
    fn is_value(&self, part: &Tokens) -> bool {
        let Some(name) = part.ident(0) else {
            return false;
        };
        let is_call = part.starts_arguments(1) || part.is_group(1, Delimiter::Parenthesis);
        let is_variable = self.variables.contains_key(&name.to_string());
        is_call || (is_variable && part.rest().len() == 1)
    }

    /// `x`, `context = y`
    fn argument_of_call(&mut self, operation: Option<&'static Operation>, mut operand: Tokens) {
        if operand.starts_entry() {
            let key = operand.take_ident();
            if let Some(operation) = operation.filter(|operation| has_named_operands(operation)) {
                let module = format!("operands::{}", operation.name);
                self.names.language(&module, key.as_ref());
            }
            operand.next();
        }
        self.expression(operand);
    }

    fn arguments(&mut self, operation: &'static Operation, entries: Vec<Entry>) {
        for (index, Entry { key, value }) in entries.into_iter().enumerate() {
            match key {
                None => self.by_position(operation, index, value),
                Some(name) => self.by_name(operation, name, value),
            }
        }
    }

    /// The keys of a block are sizes.
    fn keys_of_block(&mut self, keys: &[Own], entries: Vec<Entry>) {
        let doc = "The name of the field that has the layers of this call.".to_owned();
        let name = Ident::new("name", Span::call_site());
        let tied = Own {
            name: Ident::new("tied", Span::call_site()),
            doc: "The name of a call before this one, whose layers run again.".to_owned(),
        };
        let own = keys.iter().cloned().chain([Own { name, doc }, tied]);
        let own: Vec<Own> = own.collect();
        let scope = self.names.scope(&[self.sizes], &[], &own);
        for (index, Entry { key, value }) in entries.into_iter().enumerate() {
            match (key, value.rest(), keys.get(index)) {
                (Some(key), _, _) => {
                    self.names.own(scope, Some(&key));
                    let is_own = keys.iter().any(|own| own.name == key);
                    if is_own || (key != "name" && key != "tied") {
                        size(self.names, &value, Some(self.sizes));
                    }
                }
                // The key that the number belongs to.
                (None, [TokenTree::Literal(number)], Some(key)) => {
                    let key = Ident::new(&key.name.to_string(), number.span());
                    self.names.own(scope, Some(&key));
                }
                (None, [], _) => self.names.own(scope, None),
                (None, [TokenTree::Ident(name)], _) if !is_constant(name) => {
                    self.names.own(scope, Some(name));
                }
                _ => size(self.names, &value, Some(self.sizes)),
            }
        }
    }

    fn by_name(&mut self, operation: &'static Operation, name: Ident, mut value: Tokens) {
        self.names.language(operation.name, Some(&name));
        let key = operation.key(&name.to_string());
        if name == "name" {
            if let Some(name) = value.take_ident() {
                let doc = "A layer of the model.".to_owned();
                self.layers = self.names.scope(&[self.layers], &[], &[Own { name, doc }]);
            }
        } else if name == "tied" {
            self.names.own(self.layers, value.ident(0));
        } else if key.is_some_and(is_of_axes) {
            self.lists_of_axes(value);
        } else if key.is_some_and(|key| key.name == "out" && operation.name == "module") {
            let axes = value.take_group(Delimiter::Bracket);
            axes.into_iter()
                .for_each(|axes| walk_axes(self.names, axes, self.axes));
        } else if let Some(key) = key {
            walk_value(self.names, key, value, Some(self.sizes));
        }
    }

    /// A value, or a key that has none yet.
    fn by_position(&mut self, operation: &'static Operation, index: usize, value: Tokens) {
        let key = operation.positional().get(index).copied();
        match (value.rest(), key) {
            (
                [TokenTree::Literal(number)] | [TokenTree::Punct(_), TokenTree::Literal(number)],
                Some(key),
            ) => {
                // The key that the number belongs to.
                let key = Ident::new(key, number.span());
                self.names.language(operation.name, Some(&key));
            }
            (_, Some("type")) => self.names.ty(value.rest()),
            ([TokenTree::Group(_), ..], _) if takes_axes(operation) => self.lists_of_axes(value),
            ([], _) => {
                let scope = self.arguments_of(operation);
                self.names.own(scope, None);
            }
            // Tokens that follow without a comma do not belong to it.
            ([TokenTree::Ident(name)] | [TokenTree::Ident(name), TokenTree::Ident(_), ..], _)
                if !is_constant(name) =>
            {
                let scope = self.arguments_of(operation);
                self.names.own(scope, Some(name));
            }
            _ => size(self.names, &value, Some(self.sizes)),
        }
    }

    /// `seq`, `[batch, seq]`, `[batch, (rows, cols)] -> [batch, rows, cols]`
    fn lists_of_axes(&mut self, mut value: Tokens) {
        let mut is_list = false;
        while value.is_group(0, Delimiter::Bracket) || is_list && !value.is_empty() {
            match value.take_group(Delimiter::Bracket) {
                Some(axes) => walk_axes(self.names, axes, self.axes),
                None => drop(value.next()),
            }
            is_list = true;
        }
        if !is_list {
            walk_axes(self.names, value, self.axes);
        }
    }

    fn arguments_of(&mut self, operation: &'static Operation) -> Scope {
        if let Some(scope) = self.arguments.get(operation.name) {
            return *scope;
        }
        let values: &[Scope] = match operation.positional().as_slice() {
            [] => &[],
            _ if takes_axes(operation) => &[self.axes],
            _ => &[self.sizes],
        };
        let scope = self.names.scope(values, &[operation.name], &[]);
        self.arguments.insert(operation.name.to_owned(), scope);
        scope
    }
}

/// The variable behind `let`, or those in parentheses.
fn declared(tokens: &mut Tokens) -> Vec<Ident> {
    let several = tokens.take_group(Delimiter::Parenthesis);
    // Results by name: `{ logits, hidden: x, .. }`.
    match several.or_else(|| tokens.take_group(Delimiter::Brace)) {
        Some(names) => names.split().into_iter().filter_map(variable).collect(),
        None => tokens.take_ident().into_iter().collect(),
    }
}

/// `x`, or the `x` of `hidden: x`
fn variable(mut entry: Tokens) -> Option<Ident> {
    let name = entry.take_ident();
    match entry.take(':') {
        true => entry.take_ident(),
        false => name,
    }
}

/// The entries of `{ logits, hidden: x }`, if the last line is this.
fn named_values(tokens: &mut Tokens) -> Option<Vec<Tokens>> {
    let [TokenTree::Group(group)] = tokens.rest() else {
        return None;
    };
    let entries = Tokens::new(group.stream());
    let has_name = entries.ident(0).is_some()
        && (entries.rest().len() == 1 || entries.is(1, ',') || entries.starts_entry());
    let is_it = group.delimiter() == Delimiter::Brace && has_name;
    is_it.then(|| tokens.next())?;
    is_it.then(|| entries.split())
}

/// Whether the first key by position names axes: `sum::<seq>(x)`.
fn takes_axes(operation: &Operation) -> bool {
    operation.keys.first().is_some_and(is_of_axes)
}

fn is_of_axes(key: &Key) -> bool {
    matches!(key.kind, KeyKind::Axes | KeyKind::Pattern)
}
