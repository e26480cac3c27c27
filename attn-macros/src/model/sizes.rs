//! The constants of the header, by name wherever a constant may stand: sizes, numbers with a decimal point, lists of these, and switches.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Lit;
use syn::ext::IdentExt;

use super::constants::Constants;
use super::syntax::SizeDraft;
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::ops::OPERATIONS;
use crate::spec::arithmetic::{is_condition, is_converted_to_size};
use crate::spec::keys::{Key, KeyKind, nearest};
use crate::spec::value::{Numbers, Real, Size};
use crate::spec::{parse_number, parse_numbers, parse_size, receiver};

/// Above any vocabulary and any axis that is flattened, and low enough that the numbers of a matrix of two sizes can be counted.
pub(crate) const LARGEST_SIZE: u64 = 1 << 30;
/// The same of several axes that are merged.
pub(crate) const LARGEST_PRODUCT: u64 = 1 << 40;

/// The constants that the header declares, and in a block those that a call gives it.
#[derive(Clone, Default)]
pub(super) struct Sizes {
    declared: Vec<Named>,
    /// Names that stand for a size, and are none of these: constants of the user, or misspelt.
    others: Rc<RefCell<Vec<Ident>>>,
    /// Constants whose use as another thing than they are was reported.
    misused: Rc<RefCell<Vec<Ident>>>,
}

#[derive(Clone)]
struct Named {
    name: Ident,
    /// The tokens that replace the name: a literal, a name, or an expression in parentheses.
    tokens: TokenTree,
    /// None after a mistake.
    value: Option<ConstValue>,
    is_used: Rc<Cell<bool>>,
}

/// The value of a constant of the header, or of a key of a block.
#[derive(Clone)]
pub(crate) enum ConstValue {
    /// `d_model = 64`
    Size(Size),
    /// `scale = 0.125`
    Number(Real),
    /// `long_factor = [1.0, 1.25]`, `long_factor = &FACTORS`
    Numbers(Numbers),
    /// `bias = true`
    Switch(bool),
}

impl Sizes {
    pub(super) fn new(drafts: &[SizeDraft], constants: &mut Constants, cx: &Diagnostics) -> Self {
        let mut sizes = Sizes {
            declared: Vec::new(),
            others: Rc::default(),
            misused: Rc::default(),
        };
        for (index, SizeDraft { name, value }) in drafts.iter().enumerate() {
            if sizes.has(name) {
                cx.error(name, messages::size_twice(name));
                continue;
            }
            let is_sound = sizes.is_sound(value)
                && is_set(name, value, &drafts[index..], cx)
                && is_no_key(name, value, cx)
                && is_no_condition(name, value, cx);
            let tokens = sizes.substitute(value);
            let value = is_sound
                .then(|| ConstValue::of(name, &tokens, constants, cx))
                .flatten();
            // A wrong constant stands for nothing, so those that name it do not grow.
            let tokens = match &value {
                Some(value) => value.known().unwrap_or(tokens),
                None => TokenStream::new(),
            };
            sizes.declared.push(Named {
                name: name.clone(),
                tokens: one_token(tokens),
                value,
                is_used: Rc::default(),
            });
        }
        sizes
    }

    /// The sizes of another declaration: their axes are none of this one.
    pub(super) fn of_library(mut self, suffix: &str) -> Self {
        for named in &mut self.declared {
            if let Some(ConstValue::Size(size)) = &mut named.value {
                size.axis = size
                    .axis
                    .as_ref()
                    .map(|axis| format!("{axis}{suffix}").into());
            }
        }
        self
    }

    /// Declares a constant that a call gives to a block. It hides one of the header. `None` after a mistake.
    pub(super) fn declare(&mut self, name: &Ident, value: Option<ConstValue>) {
        self.declared.retain(|named| named.name != *name);
        let tokens = match &value {
            Some(ConstValue::Size(size)) if size.value.is_none() && !size.origin.is_empty() => {
                size.origin.clone()
            }
            Some(ConstValue::Size(size)) => size.to_token_stream(),
            Some(ConstValue::Number(number)) => number.to_token_stream(),
            Some(ConstValue::Numbers(numbers)) => numbers.argument(),
            Some(ConstValue::Switch(value)) => value.to_token_stream(),
            None => TokenStream::new(),
        };
        self.declared.push(Named {
            name: name.clone(),
            tokens: one_token(tokens),
            value,
            is_used: Rc::default(),
        });
    }

    /// A name that stands for a size and is none, where this one was probably meant.
    pub(super) fn misspelt(&self, name: &Ident) -> Option<Ident> {
        meant_for(name, &self.others.borrow(), false).cloned()
    }

    /// Whether anything reads the constant.
    pub(super) fn is_used(&self, name: &Ident) -> bool {
        self.find(name).is_some_and(|named| named.is_used.get())
    }

    /// The size of this name, which is only told.
    pub(super) fn size(&self, name: &Ident) -> Option<&Size> {
        match self.find(name)?.value.as_ref()? {
            ConstValue::Size(size) => Some(size),
            _ => None,
        }
    }

    /// Whether no constant that `tokens` name is wrong itself, which was reported.
    pub(super) fn is_sound(&self, tokens: &TokenStream) -> bool {
        let is_wrong = |name: &Ident| self.find(name).is_some_and(|named| named.value.is_none());
        !names(tokens).iter().any(is_wrong)
    }

    /// `tokens` with the values of the sizes in the places of their names. What `=` follows is the name of an argument.
    pub(super) fn substitute(&self, tokens: &TokenStream) -> TokenStream {
        self.replace(tokens, Delimiter::Parenthesis)
    }

    /// The same in a type, where expressions stand in braces.
    pub(super) fn substitute_in_type(&self, tokens: &TokenStream) -> TokenStream {
        receiver::with_types(self.replace(tokens, Delimiter::Brace))
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

    /// Whether this is the first time that the use of a constant as another thing than it is would be reported.
    pub(super) fn is_first_misuse(&self, name: &Ident) -> bool {
        let mut misused = self.misused.borrow_mut();
        let is_first = !misused.contains(name);
        if is_first {
            misused.push(name.clone());
        }
        is_first
    }

    /// Whether a mistake in a constant, or in its use, was reported.
    pub(super) fn is_reported(&self, name: &Ident) -> bool {
        let is_wrong = self.find(name).is_some_and(|named| named.value.is_none());
        is_wrong || self.misused.borrow().contains(name)
    }

    fn find(&self, name: &Ident) -> Option<&Named> {
        self.declared.iter().find(|size| size.name == *name)
    }

    /// The value of this name.
    pub(super) fn get(&self, name: &Ident) -> Option<ConstValue> {
        let named = self.find(name)?;
        named.is_used.set(true);
        named.value.clone()
    }

    /// Notes that `tokens` are read, although nothing becomes of them: they stand in a branch that is not taken.
    pub(super) fn skip(&self, tokens: &TokenStream) {
        let names = names(tokens);
        names.iter().for_each(|name| {
            self.get(name);
        });
        self.mention(&names);
    }

    /// The axis of the size that `tokens` name, if they are a name and nothing else.
    pub(super) fn axis(&self, tokens: &TokenStream) -> Option<Rc<str>> {
        let name = syn::parse2::<Ident>(tokens.clone()).ok()?;
        match self.find(&name)?.value.as_ref()? {
            ConstValue::Size(size) => size.axis.clone(),
            _ => None,
        }
    }

    pub(super) fn has(&self, name: &Ident) -> bool {
        self.find(name).is_some()
    }

    /// Every name of a size.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.declared.iter().map(|size| size.name.to_string())
    }

    /// Every constant with its value.
    pub(super) fn values(&self) -> impl Iterator<Item = (String, ConstValue)> {
        let values = self.declared.iter();
        values.filter_map(|named| Some((named.name.unraw().to_string(), named.value.clone()?)))
    }

    /// Every size that is known here.
    pub(super) fn declared_sizes(&self) -> impl Iterator<Item = (Ident, Size)> {
        let sizes = self.declared.iter();
        sizes.filter_map(|named| match &named.value {
            Some(ConstValue::Size(size)) => Some((named.name.clone(), size.clone())),
            _ => None,
        })
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

    /// A constant that nothing reads was perhaps meant where another name stands: the error is there.
    pub(super) fn report_unused(&self, model: &Ident, cx: &Diagnostics) {
        let others = self.others.borrow();
        let unused = self.declared.iter().filter(|size| !size.is_used.get());
        let is_one = unused.clone().count() == 1;
        for Named { name, value, .. } in unused {
            let is_size = matches!(value, Some(ConstValue::Size(_)) | None);
            match meant_for(name, &others, is_one && is_size) {
                Some(other) => cx.error(other, messages::size_for_another(other, name, model)),
                None if is_size => cx.error(name, messages::unused_size(name)),
                None => cx.error(name, messages::unused_constant(name)),
            }
        }
    }
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

/// Whether this is a constant, and not a key of a layer with one of its words.
fn is_no_key(name: &Ident, value: &TokenStream, cx: &Diagnostics) -> bool {
    let Some(key) = Key::find(&name.to_string()) else {
        return true;
    };
    let first = value.clone().into_iter().next();
    let first = first.map(|token| token.to_string()).unwrap_or_default();
    let is_switch = first == "true" || first == "false";
    let is_value = !is_switch && key.words().iter().any(|word| word.name == first);
    if is_value {
        cx.error(name, messages::key_as_size(key, value));
    }
    !is_value
}

/// Whether this is a constant, and not a condition, which rustc would have to evaluate.
fn is_no_condition(name: &Ident, value: &TokenStream, cx: &Diagnostics) -> bool {
    let is_condition = syn::parse2(value.clone()).is_ok_and(|value| is_condition(&value));
    if is_condition {
        cx.error(value, messages::condition_as_constant(name, value));
    }
    !is_condition
}

/// Where `name` was probably meant. Of one size and one other name, each is likely to be the other, however they are spelt.
fn meant_for<'a>(name: &Ident, others: &'a [Ident], is_one: bool) -> Option<&'a Ident> {
    let texts: Vec<_> = others.iter().map(Ident::to_string).collect();
    let near = nearest(&name.to_string(), texts.iter().map(String::as_str));
    let near = near.and_then(|near| others.iter().find(|other| *other == near));
    let first = others.first();
    near.or(first.filter(|first| is_one && others.iter().all(|other| other == *first)))
}

impl ConstValue {
    /// The value that the tokens of a header denote. They are a number if there is a decimal point among them.
    fn of(
        name: &Ident,
        tokens: &TokenStream,
        constants: &mut Constants,
        cx: &Diagnostics,
    ) -> Option<Self> {
        let text = name.unraw().to_string();
        Some(match tokens.to_string().as_str() {
            "true" => ConstValue::Switch(true),
            "false" => ConstValue::Switch(false),
            _ if is_list(tokens) => {
                let mut numbers = parse_numbers(tokens, &name.to_string(), cx)?;
                constants.name_as(&text, &mut numbers);
                ConstValue::Numbers(numbers)
            }
            // A decimal point in a size is a mistake.
            _ if has_float(tokens) && !is_key_of_size(&text) && !is_made_a_size(tokens) => {
                let mut number = parse_number(tokens, &name.to_string(), cx)?;
                constants.name_as(&text, &mut number);
                ConstValue::Number(number)
            }
            _ => {
                let mut size = parse_size(tokens, &name.to_string(), cx)?;
                constants.name_as(&text, &mut size);
                size.axis = Some(text.into());
                ConstValue::Size(size)
            }
        })
    }

    /// The tokens of a value that is known during the expansion, or that stands by its name.
    fn known(&self) -> Option<TokenStream> {
        match self {
            ConstValue::Size(size) => size.value.map(|_| size.to_token_stream()),
            ConstValue::Number(number) => Some(number.to_token_stream()),
            ConstValue::Numbers(numbers) => Some(numbers.argument()),
            ConstValue::Switch(_) => None,
        }
    }
}

impl fmt::Display for ConstValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstValue::Size(size) => write!(f, "the size {size}"),
            ConstValue::Number(number) => write!(f, "the number {number}"),
            ConstValue::Numbers(numbers) => write!(f, "the list {numbers}"),
            ConstValue::Switch(value) => write!(f, "the switch {value}"),
        }
    }
}

/// Whether these are the tokens of a list: `[1.0, 1.25]`, `&FACTORS`.
pub(super) fn is_list(tokens: &TokenStream) -> bool {
    let first = tokens.clone().into_iter().next();
    first.is_some_and(|first| match first {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            is_list(&group.stream())
        }
        TokenTree::Group(group) => group.delimiter() == Delimiter::Bracket,
        TokenTree::Punct(punct) => punct.as_char() == '&',
        _ => false,
    })
}

/// Whether a key of this name is a size.
fn is_key_of_size(name: &str) -> bool {
    let of_operations = OPERATIONS
        .iter()
        .filter_map(|operation| operation.key(name));
    let mut keys = Key::find(name).into_iter().chain(of_operations);
    keys.any(|key| matches!(key.kind, KeyKind::Size))
}

/// Whether a number is converted to a size: `{ (1.5 * d as f32) as usize }`. A root is a number alone.
fn is_made_a_size(tokens: &TokenStream) -> bool {
    let is_converted = syn::parse2(tokens.clone()).is_ok_and(|value| is_converted_to_size(&value));
    is_converted && parse_size(tokens, "", &Diagnostics::default()).is_some()
}

/// Whether one of these tokens is a number with a decimal point or an exponent.
fn has_float(tokens: &TokenStream) -> bool {
    let mut tokens = tokens.clone().into_iter();
    tokens.any(|token| match token {
        TokenTree::Group(group) => has_float(&group.stream()),
        TokenTree::Literal(literal) => {
            matches!(syn::parse_str(&literal.to_string()), Ok(Lit::Float(_)))
        }
        // A root is no whole number.
        TokenTree::Ident(name) => name == "sqrt",
        TokenTree::Punct(_) => false,
    })
}

impl Named {
    /// The value where its name stands.
    fn at(&self, place: Span, around: Delimiter) -> TokenTree {
        self.is_used.set(true);
        let mut token = match &self.tokens {
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
