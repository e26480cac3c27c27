//! A model: its sizes, and the signatures of its function and of its blocks.

use std::collections::HashMap;

use proc_macro2::{Delimiter, Group, Ident, TokenTree};

use super::header::{Entry, entries};
use super::names::{Names, Own, Scope, is_constant, size};
use super::network::Walker;
use super::tokens::Tokens;
use crate::diag::Diagnostics;
use crate::model::budget::is_bound;
use crate::model::lora::is_lora;

/// `<sizes>; fn forward(inputs) -> result { statements }`, and blocks.
pub(super) fn walk(
    names: &mut Names<'_>,
    tokens: &mut Tokens,
    imports: &[(Group, Ident)],
    cx: &Diagnostics,
) {
    let mut sizes = Vec::new();
    let none = names.scope(&[], &[], &[]);
    if tokens.take('<') {
        for Entry { key, value } in entries(tokens) {
            let tokens = value.rest().iter().cloned().collect();
            if key.as_ref().is_some_and(|key| is_bound(key, &tokens)) {
                continue;
            }
            if let Some((word, keys)) = is_lora(key.as_ref(), &tokens) {
                names.language("header", Some(&word));
                walk_lora(names, Tokens::new(keys.stream()), none);
                continue;
            }
            if key.is_none() && value.rest().len() <= 1 {
                names.language("header", value.ident(0));
                continue;
            }
            let doc = format!("A size of the model: `{}`.", value.text());
            size(names, &value, Some(none));
            sizes.extend(key.map(|name| Own { name, doc }));
        }
    }
    let header = names.scope(&[], &[], &sizes);
    let items: Vec<Item> = std::iter::from_fn(|| Item::take(tokens)).collect();
    let blocks = Blocks::of(&items, imports);
    for item in items {
        let callable = names.scope(&[], &["operations"], &blocks.others(&item.name));
        item.walk(names, cx, &blocks, &sizes, [header, callable]);
    }
}

/// `rank = 8, on = ["q_proj"]`
fn walk_lora(names: &mut Names<'_>, keys: Tokens, none: Scope) {
    for mut entry in keys.split() {
        let key = entry.starts_entry().then(|| entry.take_ident()).flatten();
        match &key {
            None => names.language("lora", entry.ident(0)),
            Some(key) => {
                names.language("lora", Some(key));
                entry.next();
                if ["rank", "alpha", "dropout"].iter().any(|name| key == name) {
                    size(names, &entry, Some(none));
                }
            }
        }
    }
}

/// The blocks and functions of a model.
pub(super) struct Blocks {
    names: Vec<Own>,
    keys: HashMap<String, Vec<Own>>,
}

impl Blocks {
    /// The items of this declaration, and the blocks that it uses, by their names here.
    fn of(items: &[Item], imports: &[(Group, Ident)]) -> Self {
        let imports = imports.iter().filter_map(|(blocks, name)| {
            // Behind the blocks that it calls itself.
            let tokens: Vec<TokenTree> = blocks.stream().into_iter().collect();
            let is_at =
                |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == '@');
            let start = tokens.iter().rposition(is_at).map_or(0, |last| last + 3);
            let block = tokens.into_iter().skip(start).collect();
            let mut block = Item::take(&mut Tokens::new(block))?;
            block.name = name.clone();
            Some(block)
        });
        let imports: Vec<Item> = imports.collect();
        // `forward` may be called, too.
        let items: Vec<&Item> = items.iter().chain(&imports).collect();
        let named = |item: &Item| {
            let doc = format!(
                "`{} {}({}){}`",
                if item.is_block { "block" } else { "fn" },
                item.name,
                item.signature,
                item.result.text()
            );
            Own {
                name: item.name.clone(),
                doc,
            }
        };
        let keys = items
            .iter()
            .map(|item| (item.name.to_string(), item.keys()));
        Blocks {
            names: items.iter().copied().map(named).collect(),
            keys: keys.collect(),
        }
    }

    /// All but the one of this name, which cannot call itself.
    fn others(&self, name: &Ident) -> Vec<Own> {
        let names = self.names.iter().filter(|own| own.name != *name);
        names.cloned().collect()
    }

    /// The keys of the block of this name. A function has none.
    pub(super) fn find(&self, name: &Ident) -> Option<&[Own]> {
        self.keys.get(&name.to_string()).map(Vec::as_slice)
    }
}

/// `fn forward(inputs) -> result { statements }`, `block mlp(parameters) -> result { statements }`
struct Item {
    word: Option<Ident>,
    is_block: bool,
    name: Ident,
    signature: String,
    parameters: Vec<Input>,
    result: Tokens,
    statements: Option<Tokens>,
}

impl Item {
    /// The next one before the next model.
    fn take(tokens: &mut Tokens) -> Option<Self> {
        let before = tokens
            .take_until(|rest| rest.is_group(0, Delimiter::Parenthesis) || rest.is_word("struct"));
        let parameters = tokens.take_group(Delimiter::Parenthesis)?;
        let mut words = before.rest().iter().rev().filter_map(|token| match token {
            TokenTree::Ident(word) => Some(word.clone()),
            _ => None,
        });
        let name = words.next();
        let word = words.next().filter(|word| word == "block");
        let mut result =
            tokens.take_until(|rest| rest.is_group(0, Delimiter::Brace) || rest.is_word("struct"));
        // Results by name stand in braces, too.
        let is_named = tokens.is_group(1, Delimiter::Brace);
        result.extend(is_named.then(|| tokens.next()).flatten());
        Some(Item {
            is_block: word.is_some(),
            word,
            name: name.unwrap_or_else(|| Ident::new("forward", proc_macro2::Span::call_site())),
            signature: parameters.text(),
            parameters: parameters.split().into_iter().map(Input::of).collect(),
            result,
            statements: tokens.take_group(Delimiter::Brace),
        })
    }

    /// The names of parameters that are sizes.
    fn keys(&self) -> Vec<Own> {
        let keys = self.parameters.iter().filter(|input| self.is_key(input));
        let keys = keys.filter_map(|input| {
            let doc = match &input.default {
                Some(default) => {
                    format!("A size of `{}`. Default: `{}`.", self.name, default.text())
                }
                None => format!("A size of `{}`.", self.name),
            };
            let name = input.name.clone()?;
            Some(Own { name, doc })
        });
        keys.collect()
    }

    fn is_key(&self, input: &Input) -> bool {
        self.is_block && input.axes.is_none()
    }

    /// `header`: the sizes of the model. `callable`: operations and blocks.
    fn walk(
        self,
        names: &mut Names<'_>,
        cx: &Diagnostics,
        blocks: &Blocks,
        of_header: &[Own],
        [header, callable]: [Scope; 2],
    ) {
        if let Some(word) = &self.word {
            names.language("operations", Some(word));
        }
        let keys = self.keys();
        let known: Vec<&Own> = of_header.iter().chain(&keys).collect();
        let mut bound = axes(&self.parameters, &known);
        if let Some(statements) = &self.statements {
            made_axes(statements.clone(), &known, &mut bound);
        }
        let mut sizes = names.scope(&[header], &[], &keys);
        let axes = names.scope(&[sizes], &[], &bound);
        if self.is_block {
            // An axis of a block may be a constant of the caller.
            sizes = axes;
        }
        let mut variables = Vec::new();
        let is_block = self.is_block;
        for input in self.parameters {
            let is_key = is_block && input.axes.is_none();
            let operand = input.walk(names, axes);
            variables.extend(operand.filter(|_| !is_key));
        }
        walk_result(names, self.result, axes);
        let Some(statements) = self.statements else {
            return;
        };
        let axes = names.scope(&[axes], &[], &renamed(&statements));
        let scope = names.scope(&[callable], &[], &variables);
        Walker::new(cx, names, blocks, [sizes, axes, scope], variables).statements(statements);
    }
}

/// `tokens: ids[batch, seq]`, `hidden`, `hidden = 4`
struct Input {
    name: Option<Ident>,
    kind: Option<Ident>,
    axes: Option<Tokens>,
    default: Option<Tokens>,
}

impl Input {
    fn of(mut tokens: Tokens) -> Self {
        tokens.take_word("mut");
        let name = tokens.take_ident();
        tokens.take(':');
        let kind = tokens.take_ident();
        let axes = tokens.take_group(Delimiter::Bracket);
        let has_default = tokens.take('=');
        Input {
            name,
            kind,
            axes,
            default: has_default.then_some(tokens),
        }
    }

    /// Returns the variable.
    fn walk(self, names: &mut Names<'_>, axes: Scope) -> Option<Own> {
        names.language("kinds", self.kind.as_ref());
        let shape = self.axes.as_ref().map(Tokens::text).unwrap_or_default();
        let kind = self.kind.map(|kind| kind.to_string()).unwrap_or_default();
        if let Some(tokens) = self.axes {
            walk_axes(names, tokens, axes);
        }
        if let Some(default) = self.default {
            size(names, &default, Some(axes));
        }
        let doc = format!("`{kind}[{shape}]`");
        self.name.map(|name| Own { name, doc })
    }
}

/// The names of axes at their first positions.
fn axes(inputs: &[Input], sizes: &[&Own]) -> Vec<Own> {
    let axes = inputs.iter().filter_map(|input| input.axes.as_ref());
    let names = axes
        .flat_map(|axes| axes.rest())
        .filter_map(|token| match token {
            TokenTree::Ident(name) => Some(name.clone()),
            _ => None,
        });
    let is_size = |name: &Ident| sizes.iter().any(|size| size.name == *name);
    let own = names.filter(|name| !is_size(name) && !is_name_of_constant(name));
    own.map(|name| Own {
        doc: format!("An axis of any length, the same wherever `{name}` stands."),
        name,
    })
    .collect()
}

/// The names that every `as` gives to axes: `kv` in `x as [batch, kv = seq]`. Others read them wherever they stand.
fn renamed(tokens: &Tokens) -> Vec<Own> {
    let mut names = Vec::new();
    let mut is_behind_as = false;
    for token in tokens.rest() {
        if let TokenTree::Group(group) = token {
            let inner = Tokens::new(group.stream());
            if is_behind_as && group.delimiter() == Delimiter::Bracket {
                let entries = inner.split().into_iter();
                let new = entries.filter(|entry| entry.is(1, '='));
                names.extend(new.filter_map(|entry| {
                    let name = entry.ident(0)?.clone();
                    let mut axis = entry;
                    axis.take_until(|rest| rest.is(0, '='));
                    axis.take('=');
                    let doc = format!("The axis `{}` of a value by another name.", axis.text());
                    Some(Own { name, doc })
                }));
            } else {
                names.extend(renamed(&inner));
            }
        }
        is_behind_as = matches!(token, TokenTree::Ident(word) if word == "as");
    }
    names
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// The names of axes that operations make: `rows = (batch, seq)`, `to = all`.
fn made_axes(mut tokens: Tokens, sizes: &[&Own], known: &mut Vec<Own>) {
    while let Some(token) = tokens.next() {
        if let TokenTree::Group(group) = &token {
            made_axes(Tokens::new(group.stream()), sizes, known);
        }
        let TokenTree::Ident(operation) = token else {
            continue;
        };
        if !tokens.starts_arguments(0) {
            continue;
        }
        (0..3).for_each(|_| drop(tokens.next()));
        for Entry { key, value } in entries(&mut tokens) {
            let is_pattern = operation == "rearrange" || operation == "stack";
            if is_pattern || key.is_some_and(|key| key == "to") {
                new_names(&value, sizes, known);
            }
        }
    }
}

/// The names that are none of a size, an axis or a constant. In braces is a constant.
fn new_names(tokens: &Tokens, sizes: &[&Own], known: &mut Vec<Own>) {
    for token in tokens.rest() {
        match token {
            TokenTree::Group(_) if is_block(token) => {}
            TokenTree::Group(group) => {
                new_names(&Tokens::new(group.stream()), sizes, known);
            }
            TokenTree::Ident(name) => {
                let is_it = |own: &Own| own.name == *name;
                let is_known = sizes.iter().copied().any(is_it) || known.iter().any(is_it);
                if !is_known && !is_name_of_constant(name) {
                    known.push(Own {
                        doc: "An axis that an operation makes.".to_owned(),
                        name: name.clone(),
                    });
                }
            }
            _ => {}
        }
    }
}

/// A single letter, as `B`, is an axis.
fn is_name_of_constant(name: &Ident) -> bool {
    is_constant(name) && name.to_string().chars().count() > 1
}

pub(super) fn walk_axes(names: &mut Names<'_>, tokens: Tokens, axes: Scope) {
    for axis in tokens.split() {
        match axis.rest() {
            [TokenTree::Ident(name)] if !is_name_of_constant(name) => names.own(axes, Some(name)),
            // `..`
            [TokenTree::Punct(_), ..] => {}
            _ => size(names, &axis, Some(axes)),
        }
    }
}

/// `-> [batch, seq]`, or several in parentheses or braces.
fn walk_result(names: &mut Names<'_>, mut tokens: Tokens, axes: Scope) {
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                walk_axes(names, Tokens::new(group.stream()), axes);
            }
            TokenTree::Group(group) => walk_result(names, Tokens::new(group.stream()), axes),
            _ => {}
        }
    }
}
