//! Variables, and whether anything reads them.

use std::collections::BTreeSet;

use proc_macro2::Ident;
use syn::ext::IdentExt;

use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::model::graph::ValueId;

/// The variables that are in scope, the innermost last.
pub(super) struct Scopes {
    variables: Vec<Variable>,
    /// Where the scopes that are open begin.
    starts: Vec<usize>,
    /// Whether all that is read was understood. What seems unused may otherwise be meant where it was not.
    knows_reads: bool,
}

pub(super) struct Variable {
    pub(super) name: Ident,
    /// None after a mistake.
    pub(super) value: Option<ValueId>,
    pub(super) changes: Changes,
    /// Something reads the value that it has now.
    is_read: bool,
    /// Where it got the value that it has now.
    at: Ident,
}

/// Whether a variable may get another value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Changes {
    /// `let mut`
    Allowed,
    /// `let`
    Never,
    /// An input never does, either.
    OfInput,
    /// Nor does a learned tensor.
    OfParam,
    /// Nor a tensor of constants.
    OfBuffer,
}

impl Scopes {
    pub(super) fn new(poisoned: bool) -> Self {
        Scopes {
            variables: Vec::new(),
            starts: Vec::new(),
            knows_reads: !poisoned,
        }
    }

    /// After a mistake: something is read, and nobody knows what.
    pub(super) fn reads_unknown(&mut self) {
        self.knows_reads = false;
    }

    pub(super) fn open(&mut self) {
        self.starts.push(self.variables.len());
    }

    /// Ends the innermost scope: its values must have been read.
    pub(super) fn close(&mut self, cx: &Diagnostics) {
        let start = self.starts.pop().unwrap_or(0);
        for variable in self.variables.drain(start..) {
            if self.knows_reads {
                variable.report(cx);
            }
        }
    }

    pub(super) fn declare(&mut self, name: &Ident, value: Option<ValueId>, changes: Changes) {
        self.variables.push(Variable {
            name: name.clone(),
            value,
            changes,
            is_read: false,
            at: name.clone(),
        });
    }

    /// After a mistake: a variable of which nothing is known, in all scopes. It is not reported again.
    pub(super) fn declare_unknown(&mut self, name: &Ident) {
        self.variables.insert(
            0,
            Variable {
                name: name.clone(),
                value: None,
                changes: Changes::Allowed,
                is_read: true,
                at: name.clone(),
            },
        );
        self.starts.iter_mut().for_each(|start| *start += 1);
    }

    pub(super) fn find(&self, name: &Ident) -> Option<&Variable> {
        self.variables
            .iter()
            .rev()
            .find(|variable| variable.name == *name)
    }

    /// How many variables there are.
    pub(super) fn count(&self) -> usize {
        self.variables.len()
    }

    /// The number of the variables before this one.
    pub(super) fn place(&self, name: &Ident) -> Option<usize> {
        let mut variables = self.variables.iter();
        variables.rposition(|variable| variable.name == *name)
    }

    fn find_mut(&mut self, name: &Ident) -> Option<&mut Variable> {
        self.variables
            .iter_mut()
            .rev()
            .find(|variable| variable.name == *name)
    }

    /// The variable, which is read.
    pub(super) fn read(&mut self, name: &Ident) -> Option<&Variable> {
        let variable = self.find_mut(name)?;
        variable.is_read = true;
        Some(variable)
    }

    /// After a mistake: a variable that may change.
    pub(super) fn allow_changes(&mut self, name: &Ident) {
        if let Some(variable) = self.find_mut(name) {
            variable.changes = Changes::Allowed;
            variable.is_read = true;
        }
    }

    /// Gives a variable another value. The one before must have been read.
    pub(super) fn assign(&mut self, name: &Ident, value: Option<ValueId>, cx: &Diagnostics) {
        let knows_reads = self.knows_reads;
        if let Some(variable) = self.find_mut(name) {
            if knows_reads {
                variable.report(cx);
            }
            variable.value = value;
            variable.is_read = false;
            variable.at = name.clone();
        }
    }

    /// Gives a variable another value that counts as read, or not.
    pub(super) fn set(&mut self, name: &Ident, value: ValueId, is_read: bool) {
        if let Some(variable) = self.find_mut(name) {
            variable.value = Some(value);
            variable.is_read = is_read;
        }
    }

    /// The names that can be read.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let set = self
            .variables
            .iter()
            .filter(|variable| variable.value.is_some());
        let names: BTreeSet<_> = set
            .map(|variable| variable.name.unraw().to_string())
            .collect();
        names.into_iter()
    }
}

impl Variable {
    fn report(&self, cx: &Diagnostics) {
        let is_meant = self.name.to_string().starts_with('_');
        if !self.is_read && self.value.is_some() && !is_meant {
            cx.error(&self.at, messages::unused_value(&self.name));
        }
    }
}
