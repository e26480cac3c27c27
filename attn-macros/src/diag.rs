//! The sink for errors: every stage reports here and goes on.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::parse::ParseStream;

use crate::messages;

/// Collects errors, each at the tokens it is about.
#[derive(Default)]
pub(crate) struct Diagnostics {
    errors: RefCell<Vec<syn::Error>>,
    reported: Cell<usize>,
    muted: Cell<bool>,
    shapes: RefCell<Option<Vec<(String, String)>>>,
    end: Cell<Option<Span>>,
}

impl Diagnostics {
    /// Reports `message` at `at`.
    pub(crate) fn error(&self, at: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(at, message));
    }

    /// Where the input ends: for errors about what is missing there.
    pub(crate) fn set_end(&self, end: Option<Span>) {
        self.end.set(end);
    }

    /// Reports `message` at the next token, or at the last one if there is none.
    pub(crate) fn here(&self, input: ParseStream<'_>, message: impl std::fmt::Display) {
        let at = match self.end.get() {
            Some(end) if input.is_empty() => end,
            _ => input.span(),
        };
        self.push(syn::Error::new(at, message));
    }

    /// Reports an error of the parser.
    pub(crate) fn push(&self, error: syn::Error) {
        self.reported.set(self.reported.get() + 1);
        if !self.muted.get() {
            self.errors.borrow_mut().push(error);
        }
    }

    /// Says nothing of further errors, which follow from those that are reported. They are counted all the same.
    pub(crate) fn mute(&self) {
        self.muted.set(true);
    }

    /// Where the errors begin that are reported from here on.
    pub(crate) fn mark(&self) -> usize {
        self.errors.borrow().len()
    }

    /// Removes, among the errors from `mark` on, those that are `known`, by their places and messages. The others are from now on. They
    /// are counted all the same.
    pub(crate) fn forget_repeated(&self, mark: usize, known: &mut HashSet<String>) {
        let mut errors = self.errors.borrow_mut();
        let later = errors.split_off(mark);
        let text = |error: &syn::Error| format!("{:?} {error}", error.span());
        errors.extend(later.into_iter().filter(|error| known.insert(text(error))));
    }

    /// How many errors there are so far: a stage compares this before and after.
    pub(crate) fn count(&self) -> usize {
        self.reported.get()
    }

    /// Takes back all errors behind a [`mark`](Self::mark) and a [`count`](Self::count).
    pub(crate) fn take_back(&self, (mark, count): (usize, usize)) {
        self.errors.borrow_mut().truncate(mark);
        self.reported.set(count);
    }

    /// From now on shapes are noted: an editor shows them.
    pub(crate) fn keep_shapes(&self) {
        self.shapes.borrow_mut().get_or_insert_default();
    }

    /// Notes the shape that a variable gets where it is written as `name`, if anybody asks for that.
    pub(crate) fn note_shape(&self, name: &Ident, shape: impl std::fmt::Display) {
        if let Some(shapes) = &mut *self.shapes.borrow_mut() {
            shapes.push((place_of(name), shape.to_string()));
        }
    }

    /// The first shape that was noted for this `name`, which is then forgotten.
    pub(crate) fn shape_of(&self, name: &Ident) -> Option<String> {
        let place = place_of(name);
        let mut shapes = self.shapes.borrow_mut();
        let shapes = shapes.as_mut()?;
        let index = shapes.iter().position(|(other, _)| *other == place)?;
        Some(shapes.remove(index).1)
    }

    /// The errors as `compile_error!` items.
    pub(crate) fn into_compile_errors(self) -> TokenStream {
        let mut errors = self.errors.into_inner();
        if errors.is_empty() && self.reported.get() > 0 {
            // No mistake is accepted because its message was lost.
            errors.push(syn::Error::new(Span::call_site(), messages::LOST));
        }
        errors.iter().map(syn::Error::to_compile_error).collect()
    }
}

/// A name and the place where it is written. (Spans cannot be compared, but for how they are printed.)
fn place_of(name: &Ident) -> String {
    format!("{name} {:?}", name.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mistake_is_accepted_if_its_message_is_lost() {
        let mut known = HashSet::new();
        let errors = [(); 2].map(|()| {
            let cx = Diagnostics::default();
            cx.error(quote::quote!(x), "a mistake");
            cx.forget_repeated(0, &mut known);
            cx.into_compile_errors().to_string()
        });
        assert!(errors[0].contains("a mistake"), "{}", errors[0]);
        assert!(errors[1].contains("its message is lost"), "{}", errors[1]);
        let none = Diagnostics::default().into_compile_errors();
        assert!(none.is_empty(), "{none}");
    }
}
