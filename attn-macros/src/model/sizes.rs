//! The sizes of the header, by name wherever a constant may stand.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;

use super::constants::Constants;
use super::syntax::SizeDraft;
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::keys::{Key, KeyKind, nearest};
use crate::spec::{Real, parse_size, value::Size};

/// The sizes that the header declares, and in a block those that a call gives it.
#[derive(Clone)]
pub(super) struct Sizes {
    declared: Vec<Named>,
    /// Names that stand for a size, and are none of these: constants of the user, or misspelt.
    others: Rc<RefCell<Vec<Ident>>>,
}

#[derive(Clone)]
struct Named {
    name: Ident,
    /// The tokens that replace the name: a literal, a name, or an expression in parentheses.
    value: TokenTree,
    size: Option<Size>,
    /// A key of a block that is another number.
    number: Option<Real>,
    is_used: Rc<Cell<bool>>,
}

impl Sizes {
    pub(super) fn new(drafts: &[SizeDraft], constants: &mut Constants, cx: &Diagnostics) -> Self {
        let mut sizes = Sizes {
            declared: Vec::new(),
            others: Rc::default(),
        };
        for (index, SizeDraft { name, value }) in drafts.iter().enumerate() {
            if sizes.has(name) {
                cx.error(name, messages::size_twice(name));
                continue;
            }
            let is_sound = sizes.is_sound(value)
                && is_set(name, value, &drafts[index..], cx)
                && is_no_key(name, value, cx);
            let value = sizes.substitute(value);
            let mut size = is_sound
                .then(|| parse_size(&value, &name.to_string(), cx))
                .flatten();
            if let Some(size) = &mut size {
                let text = name.unraw().to_string();
                constants.name_as(&text, size);
                size.axis = Some(text.into());
            }
            let value = size
                .as_ref()
                .map_or(value.clone(), |size| match size.value {
                    Some(_) => size.to_token_stream(),
                    None => value,
                });
            sizes.declared.push(Named {
                name: name.clone(),
                value: one_token(value),
                size,
                number: None,
                is_used: Rc::default(),
            });
        }
        sizes
    }

    /// Declares a size that a call gives to a block. It hides one of the header. `None` after a mistake.
    pub(super) fn declare(&mut self, name: &Ident, value: Option<Given>) {
        self.declared.retain(|size| size.name != *name);
        let tokens = match &value {
            Some(Given::Size(size)) if size.value.is_none() && !size.origin.is_empty() => {
                size.origin.clone()
            }
            Some(Given::Size(size)) => size.to_token_stream(),
            Some(Given::Number(number)) => number.to_token_stream(),
            None => TokenStream::new(),
        };
        let (size, number) = match value {
            Some(Given::Size(size)) => (Some(size), None),
            Some(Given::Number(number)) => (None, Some(number)),
            None => (None, None),
        };
        self.declared.push(Named {
            name: name.clone(),
            value: one_token(tokens),
            size,
            number,
            is_used: Rc::default(),
        });
    }

    /// A name that stands for a size and is none, where this one was probably meant.
    pub(super) fn misspelt(&self, name: &Ident) -> Option<Ident> {
        meant_for(name, &self.others.borrow(), false).cloned()
    }

    /// Whether anything reads the size.
    pub(super) fn is_used(&self, name: &Ident) -> bool {
        self.find(name).is_some_and(|size| size.is_used.get())
    }

    /// The size of this name, which is only told.
    pub(super) fn size(&self, name: &Ident) -> Option<&Size> {
        self.find(name)?.size.as_ref()
    }

    /// The value of this name as a number.
    pub(super) fn number(&self, name: &Ident) -> Option<Real> {
        let named = self.find(name)?;
        named.is_used.set(true);
        let number = named.number.clone();
        number.or_else(|| named.size.as_ref().map(Size::to_real))
    }

    /// Whether this name is a number, and no size.
    pub(super) fn is_number(&self, name: &Ident) -> bool {
        self.find(name).is_some_and(|named| named.number.is_some())
    }

    /// Whether no size that `tokens` name is wrong itself, which was reported.
    pub(super) fn is_sound(&self, tokens: &TokenStream) -> bool {
        let is_wrong = |name: &Ident| {
            let named = self.find(name);
            named.is_some_and(|named| named.size.is_none() && named.number.is_none())
        };
        !names(tokens).iter().any(is_wrong)
    }

    /// `tokens` with the values of the sizes in the places of their names. What `=` follows is the name of an argument.
    pub(super) fn substitute(&self, tokens: &TokenStream) -> TokenStream {
        self.replace(tokens, Delimiter::Parenthesis)
    }

    /// The same in a type, where expressions stand in braces.
    pub(super) fn substitute_in_type(&self, tokens: &TokenStream) -> TokenStream {
        self.replace(tokens, Delimiter::Brace)
    }

    /// The same, where these delimiters are around what is more than a token.
    fn replace(&self, tokens: &TokenStream, around: Delimiter) -> TokenStream {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let replaced = tokens.iter().enumerate().map(|(index, token)| match token {
            TokenTree::Ident(name) => match self.find(name) {
                Some(size) if is_value(&tokens, index) => size.at(name.span(), around),
                _ => token.clone(),
            },
            TokenTree::Group(group) => {
                let inner = self.replace(&group.stream(), around);
                let mut inner = Group::new(group.delimiter(), inner);
                inner.set_span(group.span());
                inner.into()
            }
            other => other.clone(),
        });
        replaced.collect()
    }

    fn find(&self, name: &Ident) -> Option<&Named> {
        self.declared.iter().find(|size| size.name == *name)
    }

    /// The size of this name.
    pub(super) fn get(&self, name: &Ident) -> Option<Size> {
        let named = self.find(name)?;
        named.is_used.set(true);
        named.size.clone()
    }

    /// The axis of the size that `tokens` name, if they are a name and nothing else.
    pub(super) fn axis(&self, tokens: &TokenStream) -> Option<Rc<str>> {
        let name = syn::parse2::<Ident>(tokens.clone()).ok()?;
        self.find(&name)?.size.as_ref()?.axis.clone()
    }

    pub(super) fn has(&self, name: &Ident) -> bool {
        self.find(name).is_some()
    }

    /// Every name of a size.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.declared.iter().map(|size| size.name.to_string())
    }

    /// Notes names that stand for a size. A `const` is written in capitals, and a `let` in a block is none of them.
    pub(super) fn mention(&self, names: &[Ident]) {
        let may_be_size = |name: &&Ident| {
            let text = name.to_string();
            !self.has(name) && text.to_lowercase() == text && syn::parse_str::<Ident>(&text).is_ok()
        };
        let others = names.iter().filter(may_be_size).cloned();
        self.others.borrow_mut().extend(others);
    }

    /// A size that nothing reads was perhaps meant where another name stands: the error is there.
    pub(super) fn report_unused(&self, model: &Ident, cx: &Diagnostics) {
        let others = self.others.borrow();
        let unused = self.declared.iter().filter(|size| !size.is_used.get());
        let is_one = unused.clone().count() == 1;
        for Named { name, .. } in unused {
            match meant_for(name, &others, is_one) {
                Some(other) => cx.error(other, messages::size_for_another(other, name, model)),
                None => cx.error(name, messages::unused_size(name)),
            }
        }
    }
}

/// What a call gives to a block as the value of a key.
#[derive(Clone)]
pub(super) enum Given {
    Size(Size),
    Number(Real),
}

/// Whether the value of a size names none that is declared `later`, or the size itself.
fn is_set(name: &Ident, value: &TokenStream, later: &[SizeDraft], cx: &Diagnostics) -> bool {
    let is_later = |name: &&Ident| later.iter().any(|size| size.name == **name);
    let names = names(value);
    let early = names.iter().find(is_later);
    if let Some(early) = early {
        cx.error(early, messages::size_too_early(early, name));
    }
    early.is_none()
}

/// Whether this is a size, and not another key of a layer with one of its values.
fn is_no_key(name: &Ident, value: &TokenStream, cx: &Diagnostics) -> bool {
    let Some(key) = Key::find(&name.to_string()) else {
        return true;
    };
    let text = value.to_string();
    let is_value = match key.kind {
        KeyKind::Size | KeyKind::Type | KeyKind::Shape | KeyKind::Axes => false,
        KeyKind::Number => text.parse::<f64>().is_ok() && text.parse::<u64>().is_err(),
        _ => {
            let first = value.clone().into_iter().next();
            let first = first.map(|token| token.to_string()).unwrap_or_default();
            key.words().iter().any(|word| word.name == first) || text == "true" || text == "false"
        }
    };
    if is_value {
        cx.error(name, messages::key_as_size(key, value));
    }
    !is_value
}

/// Where `name` was probably meant. Of one size and one other name, each is likely to be the other, however they are spelt.
fn meant_for<'a>(name: &Ident, others: &'a [Ident], is_one: bool) -> Option<&'a Ident> {
    let texts: Vec<_> = others.iter().map(Ident::to_string).collect();
    let near = nearest(&name.to_string(), texts.iter().map(String::as_str));
    let near = near.and_then(|near| others.iter().find(|other| *other == near));
    let first = others.first();
    near.or(first.filter(|first| is_one && others.iter().all(|other| other == *first)))
}

impl Named {
    /// The value where its name stands.
    fn at(&self, place: Span, around: Delimiter) -> TokenTree {
        self.is_used.set(true);
        let mut token = match &self.value {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                Group::new(around, group.stream()).into()
            }
            value => value.clone(),
        };
        token.set_span(token.span().located_at(place));
        token
    }
}

/// The names in an expression that stand for values.
pub(crate) fn names(tokens: &TokenStream) -> Vec<Ident> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is_call = |index: usize| matches!(tokens.get(index), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
    let names = tokens.iter().enumerate().map(|(index, token)| match token {
        TokenTree::Ident(name) if is_value(&tokens, index) && !is_call(index + 1) => {
            vec![name.clone()]
        }
        TokenTree::Group(group) => names(&group.stream()),
        _ => Vec::new(),
    });
    names.flatten().collect()
}

/// Whether the name here is no part of a path, no field, and not what `=` follows.
pub(super) fn is_value(tokens: &[TokenTree], index: usize) -> bool {
    let is_punct = |index: usize, char: char| matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == char);
    let is_part = index > 0 && (is_punct(index - 1, '.') || is_punct(index - 1, ':'));
    let is_argument = is_punct(index + 1, '=') && !is_punct(index + 2, '=');
    let is_path = is_punct(index + 1, ':');
    !is_part && !is_argument && !is_path
}

fn one_token(tokens: TokenStream) -> TokenTree {
    let mut rest = tokens.clone().into_iter();
    match (rest.next(), rest.next()) {
        // A block at the start of an expression would be a statement.
        (Some(TokenTree::Group(group)), None)
            if group.delimiter() == Delimiter::Brace
                && syn::parse2::<syn::Expr>(group.stream()).is_ok() =>
        {
            Group::new(Delimiter::Parenthesis, group.stream()).into()
        }
        (Some(token), None) => token,
        _ => Group::new(Delimiter::Parenthesis, tokens).into(),
    }
}
