//! A bound on the memory of a model, as `memory = 64 MiB for (batch = 8, seq = 256)`, and what is computed again to stay below it.
//!
//! The macro cannot know the exact bytes: they depend on constants that only rustc can evaluate. So it makes a few plans, of which most split the
//! outer loops ([`split`]): the first rounds compute more again than the last ones. All are emitted, with their work as estimated here, and a
//! `const fn` takes the one with the least work that fits, and the number of last rounds.

mod facts;
mod search;
mod select;
mod simulation;
mod split;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;

use super::graph::Model;
use super::recompute::Chosen;
use super::syntax::{BudgetDraft, SizeDraft};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::{Size, split_at_commas, text};

use facts::Facts;
pub(crate) use select::Work;
pub(crate) use split::split;

/// The bound, for these lengths of axes.
#[derive(Clone)]
pub(crate) struct Budget {
    pub(crate) amount: Size,
    pub(crate) unit: u64,
    pub(crate) axes: Vec<(Ident, Size)>,
    /// For people: `batch = 8, seq = 256`.
    pub(crate) text: String,
    /// The user's tokens, for errors.
    pub(crate) key: Ident,
}

impl Budget {
    /// Its bytes, an expression of rustc.
    pub(crate) fn bytes(&self) -> TokenStream {
        let Budget { amount, unit, .. } = self;
        quote!((#amount as u64).saturating_mul(#unit))
    }

    /// The length that is given for an axis.
    pub(crate) fn length(&self, axis: &str) -> Option<&Size> {
        let mut axes = self.axes.iter();
        let found = axes.find(|(name, _)| name.unraw() == axis);
        found.map(|(_, size)| size)
    }

    /// Whether a function with these axes is bound: the lengths of all are given.
    pub(crate) fn holds_for(&self, axes: &[String]) -> bool {
        axes.iter().all(|axis| self.length(axis).is_some())
    }
}

/// The bounds of a model.
pub(crate) struct Budgets {
    /// That of all functions without one of their own.
    pub(crate) of_model: Option<Budget>,
    pub(crate) of_functions: Vec<(Ident, Budget)>,
}

impl Budgets {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Budget> {
        let of_functions = self.of_functions.iter().map(|(_, budget)| budget);
        self.of_model.iter().chain(of_functions)
    }

    /// That of a function with these axes.
    pub(crate) fn of(&self, name: &str, axes: &[String]) -> Option<&Budget> {
        let mut of_functions = self.of_functions.iter();
        let own = of_functions.find(|(of, _)| of == name);
        let own = own.map(|(_, budget)| budget);
        let of_all = self.of_model.as_ref().filter(|of| of.holds_for(axes));
        own.or(of_all)
    }
}

/// The bytes of units.
const UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// Whether it is a bound and no size of the user's that is called `memory`: it has a unit, or says for which lengths it is.
pub(crate) fn is_bound(key: &Ident, value: &TokenStream) -> bool {
    let tokens: Vec<TokenTree> = value.clone().into_iter().collect();
    let has_unit = matches!(tokens.get(1), Some(TokenTree::Ident(unit)) if unit != "as");
    key == "memory" && (has_unit || tokens.iter().any(is_for))
}

fn is_for(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Ident(word) if word == "for")
}

/// `64 MiB for (batch = 8, seq = 256)`
pub(super) fn parse(key: &Ident, value: TokenStream, cx: &Diagnostics) -> Option<BudgetDraft> {
    let tokens: Vec<TokenTree> = value.into_iter().collect();
    let at = tokens.iter().position(is_for).unwrap_or(tokens.len());
    let (amount, behind) = tokens.split_at(at);
    let unit = match amount {
        [_, .., TokenTree::Ident(unit)] => Some(unit),
        _ => None,
    };
    let bytes = unit.and_then(|unit| UNITS.iter().find(|(name, _)| unit == name));
    let Some((_, bytes)) = bytes else {
        let place = unit.map_or_else(|| key.to_token_stream(), ToTokens::to_token_stream);
        cx.error(&place, messages::unit_of_memory(unit));
        return None;
    };
    let sizes = match behind {
        [_, TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => {
            group.stream()
        }
        [_, rest @ ..] => {
            let rest = rest.iter().cloned().collect();
            let place = if behind.len() == 1 {
                key.to_token_stream()
            } else {
                TokenStream::clone(&rest)
            };
            cx.error(&place, messages::memory_of_axes(&rest));
            return None;
        }
        [] => {
            cx.error(key, messages::memory_of_axes(&TokenStream::new()));
            return None;
        }
    };
    Some(BudgetDraft {
        key: key.clone(),
        amount: amount[..amount.len() - 1].iter().cloned().collect(),
        unit: *bytes,
        axes: parse_axes(&sizes, cx)?,
        sizes,
    })
}

/// `batch = 8, seq = 256`
fn parse_axes(tokens: &TokenStream, cx: &Diagnostics) -> Option<Vec<SizeDraft>> {
    let mut axes: Vec<SizeDraft> = Vec::new();
    let entries = split_at_commas(tokens.clone()).into_iter();
    for entry in entries.filter(|entry| !entry.is_empty()) {
        let tokens: Vec<TokenTree> = entry.clone().into_iter().collect();
        match tokens.as_slice() {
            [TokenTree::Ident(name), TokenTree::Punct(punct), value @ ..]
                if punct.as_char() == '=' && !value.is_empty() =>
            {
                if axes.iter().any(|other| other.name == *name) {
                    cx.error(name, messages::axis_of_memory_twice(name));
                    return None;
                }
                axes.push(SizeDraft {
                    name: name.clone(),
                    value: value.iter().cloned().collect(),
                });
            }
            _ => {
                cx.error(&entry, messages::axis_of_memory(&entry));
                return None;
            }
        }
    }
    Some(axes)
}

impl BudgetDraft {
    /// For people.
    pub(super) fn text(&self) -> String {
        text::of(&self.sizes)
    }
}

/// Reports a bound that holds for no function, and axes that none has.
pub(super) fn check<'f>(
    budget: &Budget,
    functions: impl Iterator<Item = &'f [String]> + Clone,
    cx: &Diagnostics,
) {
    let mut axes: Vec<String> = functions.clone().flatten().cloned().collect();
    axes.sort();
    axes.dedup();
    let is_known = |name: &Ident| axes.iter().any(|axis| name.unraw() == axis);
    if let Some((name, _)) = budget.axes.iter().find(|(name, _)| !is_known(name)) {
        cx.error(
            name,
            match axes.is_empty() {
                true => messages::no_axis_of_memory(name),
                false => messages::unknown_axis_of_memory(name, &axes),
            },
        );
        return;
    }
    let missing = functions.map(|axes| {
        let missing = axes.iter().filter(|axis| budget.length(axis).is_none());
        missing.map(String::as_str).collect::<Vec<_>>()
    });
    let least = missing.min_by_key(Vec::len).unwrap_or_default();
    if !least.is_empty() {
        cx.error(&budget.key, messages::missing_axis_of_memory(&least));
    }
}

/// What runs again in a plan of a function.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Whether the nodes are those of the model with split loops.
    pub(crate) is_split: bool,
    pub(crate) chosen: Chosen,
    /// How much work it is, as a number of floating-point operations.
    pub(crate) work: Work,
}

/// The plans of a function, which may have a model with [split] loops beside it. The first one runs nothing again.
pub(crate) fn plans(model: &Model, split: Option<&Model>, budget: &Budget) -> Vec<Plan> {
    let lengths = lengths(model, budget);
    let both = select::Both {
        whole: Facts::of(model, &lengths),
        split: split.map(|split| (split, Facts::of(split, &lengths))),
    };
    let plans = select::select(&both).into_iter().map(|plan| {
        let facts = match (&both.split, plan.is_split) {
            (Some((_, facts)), true) => facts,
            _ => &both.whole,
        };
        Plan {
            is_split: plan.is_split,
            chosen: facts.chosen(&plan.choices),
            work: plan.work,
        }
    });
    plans.collect()
}

/// The lengths of axes, as far as the macro can know them.
fn lengths(model: &Model, budget: &Budget) -> BTreeMap<String, u64> {
    let known = model.symbols.iter().filter_map(|axis| {
        let value = budget.length(axis)?.value?;
        Some((axis.clone(), value))
    });
    known.collect()
}
