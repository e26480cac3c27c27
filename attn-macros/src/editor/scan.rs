//! Scans: `let y = scan seq, reverse = true { state h: [batch, d] = 0; h = ..; yield h; };`

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Ident};

use super::names::{Own, Scope};
use super::network::Walker;
use super::signature::walk_axes;
use super::statement::take_header;
use super::tokens::Tokens;

/// What is seen in the body of a scan.
pub(super) struct Steps {
    /// The variables and operations around it, which the initial values of states read.
    outside: Scope,
    /// The shapes that variables of outside have at a step.
    shapes: BTreeMap<String, String>,
}

impl Walker<'_, '_> {
    /// From its word to its end.
    pub(super) fn scan(&mut self, tokens: &mut Tokens) {
        let word = tokens.take_ident();
        self.names.language("operations", word.as_ref());
        for (index, mut part) in take_header(tokens).into_iter().enumerate() {
            if index == 0 {
                walk_axes(self.names, part, self.axes);
            } else {
                let name = part.take_ident();
                self.names.language("scan", name.as_ref());
            }
        }
        if let Some(statements) = tokens.take_group(Delimiter::Brace) {
            self.steps(statements);
        }
        tokens.take(';');
    }

    fn steps(&mut self, statements: Tokens) {
        let outside = self.scope;
        let variables = self.variables.clone();
        let steps = Steps {
            outside,
            shapes: BTreeMap::new(),
        };
        let around = self.scan.replace(steps);
        let inside = self.names.reserve();
        self.scope = inside;
        self.statements(statements);
        (self.scope, self.variables) = (outside, variables);
        let steps = std::mem::replace(&mut self.scan, around);
        let shapes = steps.into_iter().flat_map(|steps| steps.shapes);
        let own = shapes.filter_map(|(name, shape)| {
            let name = self.variables.get(&name)?.name.clone();
            let doc = format!("`{shape}` at a step");
            Some(Own { name, doc })
        });
        let own: Vec<Own> = own.collect();
        // The word may be the name of a variable, too.
        let words: &[&str] = match self.variables.contains_key("state") {
            true => &[],
            false => &["statements_of_scan"],
        };
        self.names.define(inside, &[outside], words, &own);
    }

    /// The name of a variable. In a scan, one of outside has the shape of a step.
    pub(super) fn variable(&mut self, name: &Ident) {
        self.names.own(self.scope, Some(name));
        let shape = self.scan.as_ref().and_then(|_| self.cx.shape_of(name));
        if let (Some(steps), Some(shape)) = (&mut self.scan, shape) {
            steps.shapes.insert(name.to_string(), shape);
        }
    }

    /// `state h: [batch, d] = 0.0;`
    pub(super) fn state(&mut self, tokens: &mut Tokens) {
        let word = tokens.take_ident();
        self.names.language("statements_of_scan", word.as_ref());
        tokens.take_word("mut");
        let name = tokens.take_ident();
        tokens.take(':');
        if let Some(axes) = tokens.take_group(Delimiter::Bracket) {
            walk_axes(self.names, axes, self.axes);
        }
        tokens.take('=');
        let scope = self.scope;
        self.scope = self.scan.as_ref().map_or(scope, |steps| steps.outside);
        self.value(tokens);
        self.scope = scope;
        if let Some(name) = name {
            let shape = self.cx.shape_of(&name);
            self.declare(name, shape);
        }
    }

    /// `yield h;`
    pub(super) fn yielded(&mut self, tokens: &mut Tokens) {
        // A statement may be inserted before this one.
        self.names.own(self.scope, None);
        if let Some(word) = tokens.take_ident() {
            // A keyword of Rust is no name of a module: this one has its documentation.
            let name = Ident::new("yield_", word.span());
            self.names.language("keywords", Some(&name));
        }
        self.value(tokens);
    }
}
