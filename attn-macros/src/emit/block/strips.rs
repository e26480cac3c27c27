//! Passes over strips of rows: the lines of their operations stand in a closure, which has the rows of every array that they write.
//!
//! ```text
//! p::strips(rows, 384, [p::StripSlot::Scratch(384), p::StripSlot::Rows(mean.as_mut_slice(), 1)], |strip, [mut mul, mut mean]| {
//!     p::layers::elementwise(&p::loops::Square, [p::read(strip.of(x, 384))], mul.as_mut_slice());
//!     p::layers::reduce(p::layers::Reduction::Mean, mul.as_slice(), .., mean.as_mut_slice());
//! });
//! ```

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::{Frame, size};
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::{BufferId, GradSource, GradTarget};
use crate::model::graph::ValueId;
use crate::model::types::{Axis, same_axes};

/// The variables of a pass.
pub(crate) struct StripNames {
    /// Those of the values with rows.
    axes: Vec<Axis>,
    locals: Vec<(Memory, Ident)>,
    /// Gradients that have one number for all elements of a row.
    pub(super) for_all: Vec<BufferId>,
}

/// A value or a gradient of which a pass has the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    Value(ValueId),
    Buffer(BufferId),
    /// The gradient of an input.
    Input(ValueId),
}

impl From<GradTarget> for Memory {
    fn from(target: GradTarget) -> Self {
        match target {
            GradTarget::Input(id) => Memory::Input(id),
            GradTarget::New(buffer)
            | GradTarget::Overwrite(buffer)
            | GradTarget::Add(buffer)
            | GradTarget::InPlace(buffer) => Memory::Buffer(buffer),
        }
    }
}

/// Memory of a pass, for the values that are in it one after the other.
pub(super) struct Slot {
    pub(super) name: Ident,
    pub(super) of: Vec<Memory>,
    /// `p::StripSlot::Scratch(384)`
    pub(super) memory: TokenStream,
}

impl StripNames {
    pub(super) fn new(axes: &[Axis], slots: &[Slot]) -> Self {
        let locals = slots.iter().flat_map(|slot| {
            let of = slot.of.iter();
            of.map(|memory| (*memory, slot.name.clone()))
        });
        StripNames {
            axes: axes.to_vec(),
            locals: locals.collect(),
            for_all: Vec::new(),
        }
    }

    pub(super) fn local(&self, memory: Memory) -> Option<&Ident> {
        let found = self.locals.iter().find(|(of, _)| *of == memory);
        found.map(|(_, name)| name)
    }

    /// The numbers that a row has of a value with these axes.
    pub(super) fn width(&self, axes: &[Axis]) -> TokenStream {
        match self.axes.last() {
            Some(last) if same_axes(axes, &self.axes) => size(last),
            _ => quote!(1),
        }
    }

    /// Whether values with these axes have rows.
    pub(super) fn are_rows(&self, axes: &[Axis]) -> bool {
        same_axes(axes, &self.axes)
    }

    fn has_rows(&self, axes: &[Axis]) -> bool {
        let rows = self.axes.len().saturating_sub(1);
        self.are_rows(axes) || same_axes(axes, &self.axes[..rows])
    }

    /// The numbers of a value: those of the strip, if it has rows.
    pub(super) fn numbers<F: Frame>(&self, frame: &F, id: ValueId) -> TokenStream {
        match self.local(Memory::Value(id)) {
            Some(name) => quote!(#name.as_slice()),
            None => self.outer(&frame.read(id).slice, &frame.ty(id).axes),
        }
    }

    /// The numbers of a gradient that has the axes of this value.
    pub(super) fn gradient<F: Frame>(
        &self,
        frame: &F,
        from: GradSource,
        slice: &TokenStream,
        of: ValueId,
    ) -> TokenStream {
        let local = match from {
            GradSource::Buffer(buffer) => self.local(Memory::Buffer(buffer)),
            GradSource::Result(_) => None,
        };
        match (local, from) {
            (Some(name), GradSource::Buffer(buffer)) if self.for_all.contains(&buffer) => {
                let width = self.width(&self.axes);
                quote!(p::repeated(#name.as_slice(), &[strip.rows, 1], &[strip.rows, #width]))
            }
            (Some(name), _) => quote!(#name.as_slice()),
            (None, _) => self.outer(slice, &frame.ty(of).axes),
        }
    }

    fn outer(&self, slice: &TokenStream, axes: &[Axis]) -> TokenStream {
        if !self.has_rows(axes) {
            return quote!(#slice);
        }
        let width = self.width(axes);
        quote!(strip.of(#slice, #width))
    }

    /// A dropout of a value with these axes, from the first row of the strip on.
    pub(super) fn dropout(&self, kept: &Ident, axes: &[Axis]) -> TokenStream {
        let width = self.width(axes);
        quote!(#kept.from(strip.first * #width))
    }

    /// The call with these lines for each strip.
    pub(super) fn emit<F: Frame>(
        &self,
        frame: &F,
        lines: &mut TrackedCode,
        slots: &[Slot],
        inside: TokenStream,
    ) {
        let axes = &self.axes[..self.axes.len().saturating_sub(1)];
        let rows = frame.rows(axes);
        let width = self.width(&self.axes);
        let names = slots.iter().map(|slot| &slot.name);
        let memory = slots.iter().map(|slot| &slot.memory);
        lines.line(quote! {
            p::strips(#rows, #width, [#(#memory),*], |strip, [#(mut #names),*]| { #inside });
        });
    }
}

/// `p::StripSlot::Rows(x.as_mut_slice(), 384)`
pub(super) fn slot(kind: &str, arguments: &[TokenStream]) -> TokenStream {
    let kind = format_ident!("{kind}");
    quote!(p::StripSlot::#kind(#(#arguments),*))
}
