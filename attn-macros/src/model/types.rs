//! The types of values: floats or indices, with their axes.

use std::fmt;

use proc_macro2::TokenStream;
use quote::quote;

use crate::spec::Size;

/// The most axes of a value: the operations of dfdx take as many, in the order of memory.
pub(crate) const MOST_AXES: usize = 4;

/// The most axes of a tensor of dfdx, with those that are summed over or run in a step of their own.
pub(crate) const MOST_AXES_OF_TENSOR: usize = 6;

/// The type of a value, as a user writes it: `[batch, seq, 512]`, `ids[batch, seq]`, `lens[batch]`, `bool[batch, seq]`.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub(crate) kind: ValueKind,
    pub(crate) axes: Vec<Axis>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueKind {
    Floats,
    /// Tokens, documents.
    Ids,
    /// Valid lengths.
    Lens,
    /// A mask: `true` is real, attend.
    Bools,
}

/// The size of an axis.
#[derive(Clone, Debug)]
pub(crate) enum Axis {
    /// Any `Dim`.
    Symbol(Symbol),
    Size(Size),
}

/// An axis of any length.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    /// The axis of the inputs that has its length.
    pub(crate) length: String,
    /// The name of that axis, or the one that `as` gives it.
    pub(crate) name: String,
}

impl Symbol {
    /// An axis of the inputs.
    pub(crate) fn of_inputs(name: &str) -> Self {
        Symbol {
            length: name.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// Whether the axes are known to be the same.
pub(crate) fn same_axes(a: &[Axis], b: &[Axis]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| matches!(a.same(b), Same::Yes))
}

impl Type {
    pub(crate) fn new(kind: ValueKind, axes: &[Axis]) -> Self {
        let axes = axes.to_vec();
        Type { kind, axes }
    }

    pub(crate) fn floats(axes: Vec<Axis>) -> Self {
        Type {
            kind: ValueKind::Floats,
            axes,
        }
    }

    /// The size of the last axis, if it is a constant.
    pub(crate) fn width(&self) -> Option<&Size> {
        self.axes.last().and_then(Axis::size)
    }

    /// These floats with another last axis.
    pub(crate) fn ending_in(&self, last: Size) -> Type {
        self.ending_in_axis(Axis::Size(last))
    }

    pub(crate) fn ending_in_axis(&self, last: Axis) -> Type {
        let before = self.axes.len().saturating_sub(1);
        let before = self.axes[..before].iter().cloned();
        Type::floats(before.chain([last]).collect())
    }

    /// The indices of the axes that `axis` may be: the one of its name, or else those of its size.
    pub(crate) fn candidates(&self, axis: &Axis) -> Vec<usize> {
        let indices = |is: &dyn Fn(&Axis) -> bool| -> Vec<usize> {
            let axes = self.axes.iter().enumerate();
            let found = axes.filter(|(_, other)| is(other));
            found.map(|(index, _)| index).collect()
        };
        let of_name = indices(&|other| axis.name().is_some() && other.name() == axis.name());
        match of_name.is_empty() {
            true => indices(&|other| other.is(axis)),
            false => of_name,
        }
    }

    /// For each axis of `other`, the index of the same axis here. `None` if one is none of these, or may be several of them.
    pub(crate) fn places(&self, other: &Type) -> Option<Vec<usize>> {
        let places = other.axes.iter().map(|axis| match *self.candidates(axis) {
            [place] => Some(place),
            _ => None,
        });
        let places: Vec<usize> = places.collect::<Option<_>>()?;
        let is_again = |(index, place): (usize, &usize)| places[..index].contains(place);
        (!places.iter().enumerate().any(is_again)).then_some(places)
    }

    /// The same, or the last axes here if they have no such names.
    pub(crate) fn places_or_last(&self, other: &Type) -> Vec<usize> {
        let first = self.axes.len() - other.axes.len();
        let last = || (first..self.axes.len()).collect();
        self.places(other).unwrap_or_else(last)
    }

    /// Whether the two are equal.
    pub(crate) fn same(&self, other: &Type) -> Same {
        if self.kind != other.kind || self.axes.len() != other.axes.len() {
            return Same::No;
        }
        let pairs = self.axes.iter().zip(&other.axes);
        Same::all(pairs.map(|(a, b)| a.same(b)))
    }
}

impl Axis {
    pub(crate) fn size(&self) -> Option<&Size> {
        match self {
            Axis::Size(size) => Some(size),
            Axis::Symbol(_) => None,
        }
    }

    /// Its name. A number has none.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Axis::Symbol(symbol) => Some(&symbol.name),
            Axis::Size(size) => size.axis.as_deref(),
        }
    }

    /// Whether it is the same axis: by the names if both have one, otherwise by the size.
    fn is(&self, other: &Axis) -> bool {
        match (self.name(), other.name()) {
            (Some(a), Some(b)) => a == b,
            _ => matches!(self.same(other), Same::Yes),
        }
    }

    /// Whether both have names, and these differ.
    pub(crate) fn is_another(&self, other: &Axis) -> bool {
        matches!((self.name(), other.name()), (Some(a), Some(b)) if a != b)
    }

    /// The same axis by another name.
    pub(crate) fn named(&self, name: &str) -> Axis {
        match self {
            Axis::Symbol(symbol) => Axis::Symbol(Symbol {
                name: name.to_owned(),
                ..symbol.clone()
            }),
            Axis::Size(size) => {
                let mut size = size.clone();
                size.axis = Some(name.into());
                Axis::Size(size)
            }
        }
    }

    pub(crate) fn is_one(&self) -> bool {
        self.size().is_some_and(|size| size.value == Some(1))
    }

    pub(crate) fn same(&self, other: &Axis) -> Same {
        match (self, other) {
            (Axis::Symbol(a), Axis::Symbol(b)) if a.length == b.length => Same::Yes,
            (Axis::Size(a), Axis::Size(b)) => match (a.value, b.value) {
                (Some(a), Some(b)) if a == b => Same::Yes,
                (Some(_), Some(_)) => Same::No,
                _ if a == b => Same::Yes,
                _ => Same::If(vec![quote!(#a == #b)]),
            },
            _ => Same::No,
        }
    }
}

/// Whether two types are equal.
pub(crate) enum Same {
    Yes,
    No,
    /// If rustc finds these conditions to be true.
    If(Vec<TokenStream>),
}

impl Same {
    fn all(parts: impl Iterator<Item = Same>) -> Same {
        let mut conditions = Vec::new();
        for part in parts {
            match part {
                Same::Yes => {}
                Same::No => return Same::No,
                Same::If(more) => conditions.extend(more),
            }
        }
        if conditions.is_empty() {
            Same::Yes
        } else {
            Same::If(conditions)
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.prefix())?;
        let axes: Vec<_> = self.axes.iter().map(Axis::to_string).collect();
        write!(f, "[{}]", axes.join(", "))
    }
}

/// `a`, or `(a, b)`
pub(crate) fn tuple<T: ToString>(parts: &[T]) -> String {
    let parts: Vec<_> = parts.iter().map(T::to_string).collect();
    match parts.as_slice() {
        [one] => one.clone(),
        _ => format!("({})", parts.join(", ")),
    }
}

impl ValueKind {
    /// The word before the brackets.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            ValueKind::Floats => "",
            ValueKind::Ids => "ids",
            ValueKind::Lens => "lens",
            ValueKind::Bools => "bool",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Axis::Symbol(symbol) => f.write_str(&symbol.name),
            Axis::Size(size) => size.fmt(f),
        }
    }
}
