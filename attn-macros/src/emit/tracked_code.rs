//! Emitted lines, with their effect on memory. Both are written in one place, so that they cannot differ.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, quote};

/// Lines of a forward or a backward pass.
#[derive(Default)]
pub(crate) struct TrackedCode {
    pub(crate) code: TokenStream,
    entries: Vec<Entry>,
}

/// A change to the memory of a variable.
enum Entry {
    /// It has what this footprint, an expression, says that is kept.
    Take(String, TokenStream),
    /// Something takes memory for a moment of the forward pass, or of the backward pass.
    Forth(TokenStream),
    Back(TokenStream),
    Drop(String),
    /// `let to = from;`
    Move {
        from: String,
        to: String,
    },
    /// `to = from;`
    Assign {
        from: String,
        to: String,
    },
    /// It goes into what is handed on to the backward pass, under its own name.
    Keep(String),
    /// It comes out of that.
    Restore(String),
    Repeat(TokenStream, Vec<Entry>),
}

impl TrackedCode {
    /// A line that takes no memory, and gives none back.
    pub(crate) fn line(&mut self, code: impl ToTokens) {
        code.to_tokens(&mut self.code);
    }

    /// The variable that the line just written makes has memory.
    pub(crate) fn take(&mut self, name: &Ident, footprint: TokenStream) {
        self.entries.push(Entry::Take(name.to_string(), footprint));
    }

    /// The line just written computes what has this footprint, and keeps nothing.
    pub(crate) fn compute(&mut self, footprint: TokenStream) {
        self.entries.push(Entry::Forth(footprint));
    }

    /// The line just written is the derivative of what has this footprint.
    pub(crate) fn differentiate(&mut self, footprint: TokenStream) {
        self.entries.push(Entry::Back(footprint));
    }

    /// `drop(name);`
    pub(crate) fn drop(&mut self, name: &Ident) {
        self.line(quote!(p::drop(#name);));
        self.consumed(name);
    }

    /// The line just written takes the variable, and gives its memory back.
    pub(crate) fn consumed(&mut self, name: &Ident) {
        self.entries.push(Entry::Drop(name.to_string()));
    }

    /// The line just written is `let to = from;`.
    pub(crate) fn moved(&mut self, from: &Ident, to: &Ident) {
        let [from, to] = [from, to].map(Ident::to_string);
        self.entries.push(Entry::Move { from, to });
    }

    /// The line just written is `to = from;`.
    pub(crate) fn assigned(&mut self, from: &Ident, to: &Ident) {
        let [from, to] = [from, to].map(Ident::to_string);
        self.entries.push(Entry::Assign { from, to });
    }

    /// The variables go into what is handed on to the backward pass, those of them that have memory.
    pub(crate) fn keep(&mut self, names: &[Ident]) {
        let names = names.iter().map(|name| Entry::Keep(name.to_string()));
        self.entries.extend(names);
    }

    /// The lines run without a backward pass behind them: they hand nothing on.
    pub(crate) fn keep_nothing(&mut self) {
        keep_nothing(&mut self.entries);
    }

    /// They come out of that.
    pub(crate) fn restore(&mut self, names: &[Ident]) {
        let names = names.iter().map(|name| Entry::Restore(name.to_string()));
        self.entries.extend(names);
    }

    /// The code of other lines in a loop, which the caller writes, and their effect in this many rounds.
    pub(crate) fn repeat(&mut self, count: impl ToTokens, body: TrackedCode) -> TokenStream {
        let count = count.into_token_stream();
        self.entries.push(Entry::Repeat(count, body.entries));
        body.code
    }

    /// Other lines behind these.
    pub(crate) fn append(&mut self, other: TrackedCode) {
        self.line(other.code);
        self.entries.extend(other.entries);
    }
}

fn keep_nothing(entries: &mut Vec<Entry>) {
    entries.retain(|entry| !matches!(entry, Entry::Keep(_)));
    for entry in entries {
        if let Entry::Repeat(_, body) = entry {
            keep_nothing(body);
        }
    }
}

/// `p::Footprint::of(..)`, of both passes of an operation.
pub(crate) fn emit_footprint<'a>(
    forward: impl IntoIterator<Item = &'a TrackedCode>,
    backward: impl IntoIterator<Item = &'a TrackedCode>,
) -> TokenStream {
    let mut ledger = Ledger::default();
    let forward = forward.into_iter().flat_map(|lines| &lines.entries);
    let forward = ledger.scope(forward);
    let backward = backward.into_iter().flat_map(|lines| &lines.entries);
    let backward = ledger.pass(backward);
    let parts = &ledger.parts;
    quote!(p::Footprint::of(&[#(#parts),*], &[#(#forward),*], &[#(#backward),*]))
}

/// `p::Footprint::array(&[batch, seq, 512])`
pub(crate) fn array(axes: &[TokenStream]) -> TokenStream {
    quote!(p::Footprint::array(&[#(#axes),*]))
}

/// The footprint of a derivative that computes what has the `first` footprints, one after the other, has these arrays at once, and then
/// computes what has the `last` footprints.
pub(crate) fn at_once(
    first: &[TokenStream],
    arrays: &[TokenStream],
    last: &[TokenStream],
) -> Option<TokenStream> {
    let parts: Vec<_> = first.iter().chain(arrays).chain(last).collect();
    let entries = parts.iter().enumerate().map(|(index, _)| {
        let is_array = (first.len()..first.len() + arrays.len()).contains(&index);
        let index = Literal::usize_unsuffixed(index);
        match is_array {
            true => quote!(p::Take(#index)),
            false => quote!(p::Use(#index)),
        }
    });
    match parts.as_slice() {
        [] => None,
        [one] if arrays.is_empty() => Some(quote!(#one)),
        _ => Some(quote!(p::Footprint::of(&[#(#parts),*], &[], &[#(#entries),*]))),
    }
}

/// The variables with their memory, as the lines run.
#[derive(Default)]
struct Ledger {
    /// The footprints, each once.
    parts: Vec<TokenStream>,
    /// The last one of a name hides the others.
    variables: Vec<Variable>,
    kept: BTreeMap<String, usize>,
}

struct Variable {
    name: String,
    /// The number of a footprint, until it is moved or dropped.
    memory: Option<usize>,
}

impl Ledger {
    /// The entries as emitted. At the end of a scope its variables are dropped.
    fn scope<'a>(&mut self, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<TokenStream> {
        let outside = self.variables.len();
        let mut emitted = self.pass(entries);
        let inside = self.variables.split_off(outside).into_iter().rev();
        emitted.extend(inside.filter_map(|variable| variable.memory).map(free));
        emitted
    }

    fn pass<'a>(&mut self, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<TokenStream> {
        let entries = entries.into_iter();
        let emitted = entries.filter_map(|entry| self.entry(entry));
        emitted.collect()
    }

    fn entry(&mut self, entry: &Entry) -> Option<TokenStream> {
        match entry {
            Entry::Take(name, footprint) => {
                let part = self.part(footprint);
                self.make(name, Some(part));
                let part = Literal::usize_unsuffixed(part);
                Some(quote!(p::Take(#part)))
            }
            Entry::Forth(footprint) => {
                let part = Literal::usize_unsuffixed(self.part(footprint));
                Some(quote!(p::Take(#part)))
            }
            Entry::Back(footprint) => {
                let part = Literal::usize_unsuffixed(self.part(footprint));
                Some(quote!(p::Use(#part)))
            }
            Entry::Drop(name) => self.out_of(name).map(free),
            Entry::Move { from, to } => {
                let memory = self.out_of(from);
                self.make(to, memory);
                None
            }
            Entry::Assign { from, to } => {
                let memory = self.out_of(from);
                let of_to = self.memory(to)?;
                std::mem::replace(of_to, memory).map(free)
            }
            Entry::Keep(name) => {
                let part = self.out_of(name)?;
                self.kept.insert(name.clone(), part);
                None
            }
            Entry::Restore(name) => {
                let part = self.kept.get(name).copied();
                self.make(name, part);
                None
            }
            Entry::Repeat(count, body) => {
                let body = self.scope(body);
                (!body.is_empty()).then(|| quote!(p::Repeat(#count, &[#(#body),*])))
            }
        }
    }

    fn make(&mut self, name: &str, memory: Option<usize>) {
        let name = name.to_owned();
        self.variables.push(Variable { name, memory });
    }

    fn memory(&mut self, name: &str) -> Option<&mut Option<usize>> {
        let mut variables = self.variables.iter_mut().rev();
        let found = variables.find(|variable| variable.name == name);
        found.map(|variable| &mut variable.memory)
    }

    /// The memory of a variable that is moved or dropped.
    fn out_of(&mut self, name: &str) -> Option<usize> {
        self.memory(name).and_then(Option::take)
    }

    /// The number of a footprint.
    fn part(&mut self, footprint: &TokenStream) -> usize {
        let text = footprint.to_string();
        let known = self.parts.iter().position(|part| part.to_string() == text);
        known.unwrap_or_else(|| {
            self.parts.push(footprint.clone());
            self.parts.len() - 1
        })
    }
}

fn free(part: usize) -> TokenStream {
    let part = Literal::usize_unsuffixed(part);
    quote!(p::Free(#part))
}
