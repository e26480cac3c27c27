//! Tokens to [`Draft`]s.

use proc_macro2::{Delimiter, Ident, Punct, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Expr, Token, Visibility, braced, token};

use super::body::{self, BodyDraft};
use super::claims;
use super::elsewhere::{NamePosition, instead_of};
use super::keys::{KEYS, Key, KeyKind, Word, nearest};
use super::mask::{self, MaskExpr};
use super::value::{Constant, Real, Size};
use super::word::{self, Call};
use super::{Item, Projections, not_constant, text};
use crate::diag::Diagnostics;
use crate::{fragments, messages};

/// A declaration as written: the understood part of each key.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) item: Item,
    pub(crate) entries: Vec<Entry>,
    pub(crate) body: BodyDraft,
    /// The sizes of the model around it, which the body may name.
    pub(crate) sizes_around: Vec<(Ident, Size)>,
    /// Queries, keys and values are the inputs: it is an `attend` of a model. This is the width of a query and a key.
    pub(crate) of_operands: Option<Size>,
    /// The list of keys was parsed to its end, so other keys are missing.
    pub(crate) complete: bool,
    /// There was a mistake, which has been reported.
    pub(crate) poisoned: bool,
}

/// One `key = value`.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: &'static Key,
    /// The key as written.
    pub(crate) name: Ident,
    /// The name is only similar to the key's, which has been reported.
    guessed: bool,
    pub(crate) value: Value,
    /// The tokens of the value.
    pub(crate) origin: TokenStream,
}

impl Entry {
    pub(crate) fn new(key: &'static Key, name: Ident, value: Value, origin: TokenStream) -> Self {
        Entry {
            key,
            name,
            guessed: false,
            value,
            origin,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Value {
    Size(Size),
    /// In their order. One may stand for all.
    Sizes(Vec<Size>),
    Number(Real),
    Word(Call),
    Mask {
        mask: MaskExpr,
        /// All its words were understood.
        complete: bool,
    },
    Claims(Vec<Call>),
    Projections(Projections),
    /// The tokens of a type or a shape, which `model!` parses itself.
    Tokens(TokenStream),
    /// Not understood, and reported.
    Invalid,
}

impl Value {
    /// Hands `f` every value in it that rustc may have to evaluate.
    pub(crate) fn for_each_constant(&mut self, f: &mut impl FnMut(&mut dyn Constant)) {
        match self {
            Value::Size(size) => f(size),
            Value::Sizes(sizes) => sizes.iter_mut().for_each(|size| f(size)),
            Value::Number(number) => f(number),
            Value::Word(call) => call.constants().for_each(f),
            Value::Mask { mask, .. } => {
                mask.for_each_call(&mut |call| call.constants().for_each(&mut *f))
            }
            Value::Claims(calls) => {
                let constants = calls.iter_mut().flat_map(Call::constants);
                constants.for_each(f);
            }
            Value::Projections(_) | Value::Tokens(_) | Value::Invalid => {}
        }
    }
}

impl Draft {
    fn cfgs(&self) -> impl Iterator<Item = &Attribute> {
        self.item.cfgs()
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key.name == key)
    }
}

/// Parses `input`: the path of the facade crate, then the declarations.
pub(crate) fn parse(input: TokenStream, cx: &Diagnostics) -> (TokenStream, Vec<Draft>) {
    let parser = |input: ParseStream<'_>| {
        let krate = parse_crate(input);
        let mut drafts = Vec::new();
        // The whole input may have been a comment, which has been reported.
        if input.is_empty() && cx.count() == 0 {
            cx.here(input, messages::EMPTY);
        }
        while !input.is_empty() {
            match parse_item(input, cx) {
                Ok(draft) => push_item(&mut drafts, draft, cx),
                Err(error) if input.is_empty() => cx.here(input, error),
                Err(error) => {
                    cx.push(error);
                    skip_item(input);
                }
            }
        }
        Ok((krate, drafts))
    };
    let input = fragments::of_layers(input);
    cx.set_end(input.clone().into_iter().last().map(|token| token.span()));
    parser.parse2(input).unwrap_or_else(|error| {
        cx.push(error);
        (quote!(::attn), Vec::new())
    })
}

/// Adds `draft`, unless its name is taken. (Alternatives of `#[cfg]` may have one name.)
fn push_item(drafts: &mut Vec<Draft>, draft: Draft, cx: &Diagnostics) {
    let name = &draft.item.name;
    let clashes =
        |other: &Draft| other.item.name == *name && other.cfgs().chain(draft.cfgs()).count() == 0;
    if drafts.iter().any(clashes) {
        cx.error(name, messages::declared_twice(name));
    } else {
        drafts.push(draft);
    }
}

/// The `[$crate]` that the facade's macro puts in front.
pub(crate) fn parse_crate(input: ParseStream<'_>) -> TokenStream {
    let path = input.step(|cursor| match cursor.token_tree() {
        Some((TokenTree::Group(group), rest)) => Ok((group.stream(), rest)),
        _ => Err(cursor.error("")),
    });
    path.unwrap_or_else(|_| quote!(::attn))
}

fn parse_item(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<Draft> {
    let before = cx.count();
    let attrs = input.call(Attribute::parse_outer)?;
    let vis: Visibility = input.parse()?;
    if input.parse::<Option<Token![struct]>>()?.is_none() {
        let found = input.cursor().token_tree();
        let found = found.map_or_else(TokenStream::new, |(token, _)| token.to_token_stream());
        return Err(input.error(messages::expected_struct(&found)));
    }
    let name: Ident = expect(input, messages::EXPECTED_NAME)?;
    expect::<Token![<]>(input, messages::EXPECTED_KEYS)?;
    let item = Item { attrs, vis, name };
    let entries = parse_keys(input, cx);
    let complete = input.parse::<Option<Token![>]>>()?.is_some();
    if !complete {
        cx.here(input, messages::UNCLOSED);
    }
    let body = parse_end(input, complete, cx)?;
    Ok(Draft {
        item,
        entries,
        body,
        sizes_around: Vec::new(),
        of_operands: None,
        complete,
        poisoned: cx.count() > before,
    })
}

/// The `;` of a declaration, or its body.
fn parse_end(input: ParseStream<'_>, complete: bool, cx: &Diagnostics) -> syn::Result<BodyDraft> {
    if input.peek(token::Brace) {
        let content;
        braced!(content in input);
        return Ok(body::parse(&content, cx));
    }
    if input.parse::<Option<Token![;]>>()?.is_none() {
        if complete {
            cx.here(input, messages::EXPECTED_SEMICOLON);
        }
        skip_item(input);
    }
    Ok(BodyDraft::default())
}

pub(crate) fn expect<T: syn::parse::Parse>(
    input: ParseStream<'_>,
    message: &str,
) -> syn::Result<T> {
    // The error of a failed parse is at the unexpected token, or at the end.
    input
        .parse()
        .map_err(|error: syn::Error| syn::Error::new(error.span(), message))
}

/// Skips a declaration with a mistake: to its `;` or its body.
fn skip_item(input: ParseStream<'_>) {
    while let Ok(token) = input.parse::<TokenTree>() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            group if is_brace(&group) => break,
            _ => {}
        }
    }
}

fn is_brace(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// `key = value, ...` up to the closing `>`.
fn parse_keys(input: ParseStream<'_>, cx: &Diagnostics) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    while !input.is_empty() && !input.peek(Token![>]) && !input.peek(Token![;]) {
        if let Some(entry) = parse_entry(input, cx) {
            let same = |earlier: &&mut Entry| earlier.key.name == entry.key.name;
            match entries.iter_mut().find(same) {
                None => entries.push(entry),
                Some(_) if entry.guessed => {}
                Some(earlier) if earlier.guessed => *earlier = entry,
                Some(_) => cx.error(&entry.name, messages::duplicate_key(entry.key.name)),
            }
        }
        if !has_next_entry(input, cx) {
            break;
        }
    }
    entries
}

/// One `key = value`, up to the next comma. `None` if the key is unknown, which is reported.
fn parse_entry(input: ParseStream<'_>, cx: &Diagnostics) -> Option<Entry> {
    let tokens = tokens_of_entry(input);
    if tokens.is_empty() {
        cx.here(input, messages::EMPTY_ENTRY);
        return None;
    }
    let Some(parts) = EntryParts::of(&tokens) else {
        cx.error(&tokens, messages::expected_key(&tokens));
        return None;
    };
    let name = &parts.name;
    let has_value = !parts.equals.is_empty();
    let found = name.to_string();
    let key = Key::find(&found);
    match (key, has_value) {
        (None, false) => cx.error(name, messages::word_without_key(&found)),
        (None, true) => cx.error(name, messages::unknown_key(&found)),
        (Some(key), false) => cx.error(name, messages::key_without_value(key)),
        (Some(_), true) => parts.check(cx),
    }
    let EntryParts { name, value, .. } = parts;
    let Some(key) = key else {
        return has_value.then(|| guess(name, value)).flatten();
    };
    if !has_value {
        return Some(Entry::new(key, name, Value::Invalid, value));
    }
    if value.is_empty() {
        cx.error(&tokens, messages::key_without_value(key));
        return Some(Entry::new(key, name, Value::Invalid, value));
    }
    let parsed = match unknown_constant(key, &value) {
        Some(constant) => {
            cx.error(&constant, messages::no_constant(key, &constant));
            Value::Invalid
        }
        None => parse_value(key, &value, cx),
    };
    Some(Entry::new(key, name, parsed, value))
}

/// The name of a variable or of a key in a value that rustc would have to evaluate.
fn unknown_constant(key: &Key, value: &TokenStream) -> Option<Ident> {
    match key.kind {
        KeyKind::Size | KeyKind::Number => {
            not_constant::find_name(&syn::parse2(value.clone()).ok()?)
        }
        _ => None,
    }
}

/// An entry as written, in any form.
struct EntryParts {
    /// `attn.` or `const`, which do not belong there.
    before: TokenStream,
    name: Ident,
    /// `=`, or the sign in its place: `=>`, `:`, `: usize =`.
    equals: TokenStream,
    value: TokenStream,
}

impl EntryParts {
    /// `None` if the entry does not begin with a name.
    fn of(tokens: &TokenStream) -> Option<Self> {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let is = |at: usize, char: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == char);
        let name_at = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(name)) => Some(name),
            _ => None,
        };
        let mut at = 0;
        while let Some(name) = name_at(at) {
            let dots = if is(at + 1, ':') && is(at + 2, ':') {
                2
            } else {
                usize::from(is(at + 1, '.'))
            };
            let further = at + 1 + dots;
            if (name != "const" && dots == 0) || name_at(further).is_none() {
                break;
            }
            at = further;
        }
        let name = name_at(at)?.clone();
        let after = at + 1;
        let signs = (after..)
            .take_while(|&at| ['=', ':', '>'].iter().any(|sign| is(at, *sign)))
            .count();
        let typed = (after..tokens.len()).find(|&at| is(after, ':') && is(at, '='));
        let value_at = typed.map_or(after + signs, |equals| equals + 1);
        let part = |range: &[TokenTree]| range.iter().cloned().collect();
        Some(EntryParts {
            before: part(&tokens[..at]),
            name,
            equals: part(&tokens[after..value_at]),
            value: part(&tokens[value_at..]),
        })
    }

    /// Reports tokens before the key, and a sign other than `=`.
    fn check(&self, cx: &Diagnostics) {
        let EntryParts {
            before,
            name,
            equals,
            value,
        } = self;
        if !before.is_empty() {
            let found = quote!(#before #name);
            cx.error(&found, messages::key_with_more(&found, name, value));
        } else if text::of(equals) != "=" {
            let signs = equals.clone().into_iter();
            let signs = signs.take_while(|token| matches!(token, TokenTree::Punct(_)));
            let found = signs.collect();
            cx.error(equals, messages::expected_equals(&found, name, value));
        }
    }
}

/// The size that was probably meant, so that it is not reported as missing as well.
fn guess(name: Ident, origin: TokenStream) -> Option<Entry> {
    let sizes = KEYS.iter().filter(|key| matches!(key.kind, KeyKind::Size));
    if instead_of(&name.to_string(), NamePosition::Key).is_some() {
        return None;
    }
    let near = nearest(&name.to_string(), sizes.map(|key| key.name))?;
    let key = Key::find(near)?;
    let quiet = Diagnostics::default();
    let value = parse_value(key, &origin, &quiet);
    (quiet.count() == 0).then_some(Entry {
        key,
        name,
        guessed: true,
        value,
        origin,
    })
}

/// The tokens before the next comma or the closing `>`, or where the next entry begins without one.
pub(crate) fn tokens_of_entry(input: ParseStream<'_>) -> TokenStream {
    let mut tokens = TokenStream::new();
    let mut after_value = false;
    let mut has_value = false;
    let mut after_equals = false;
    let mut is_arrow = false;
    let is_end = |input: ParseStream<'_>| {
        input.is_empty() || input.peek(Token![,]) || input.peek(Token![>]) || input.peek(Token![;])
    };
    while !is_end(input) || is_arrow && input.peek(Token![>]) && !input.peek2(Token![;]) {
        if after_value && has_value && starts_entry(input) {
            break;
        }
        if after_equals && input.peek(Token![|]) {
            tokens.extend(tokens_of_closure(input));
            break;
        }
        let Ok(token) = input.parse::<TokenTree>() else {
            break;
        };
        after_value = !matches!(token, TokenTree::Punct(_));
        after_equals = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '=');
        let is_sign = |punct: &Punct| matches!(punct.as_char(), '=' | '-');
        is_arrow = matches!(&token, TokenTree::Punct(punct) if is_sign(punct) && punct.spacing() == Spacing::Joint);
        has_value |= after_equals;
        tokens.extend([token]);
    }
    tokens
}

/// The tokens of a closure in place of a value, whose commas and `>` are its own.
fn tokens_of_closure(input: ParseStream<'_>) -> TokenStream {
    let is_end = |input: ParseStream<'_>| {
        let is_next = input.peek(Token![,]) && input.peek2(syn::Ident) && input.peek3(Token![=]);
        let is_last = ends_header(input) || ends_operation(input);
        input.is_empty() || input.peek(Token![;]) || is_next || is_last
    };
    let mut tokens = TokenStream::new();
    while !is_end(input) {
        tokens.extend(input.parse::<TokenTree>());
    }
    tokens
}

/// `>` behind the keys of a layer.
fn ends_header(input: ParseStream<'_>) -> bool {
    input.peek(Token![>]) && (input.peek2(Token![;]) || input.peek2(token::Brace))
}

/// `>` behind the keys of an operation. In a header a greater-than sign looks the same, but there its end is still to come.
fn ends_operation(input: ParseStream<'_>) -> bool {
    if !(input.peek(Token![>]) && input.peek2(token::Paren)) {
        return false;
    }
    let rest = input.fork();
    while !ends_header(&rest) && rest.parse::<TokenTree>().is_ok() {}
    rest.is_empty()
}

/// `key =`
fn starts_entry(input: ParseStream<'_>) -> bool {
    input.peek(syn::Ident) && input.peek2(Token![=])
}

/// Whether another entry follows: behind a comma, or without one, which is reported.
pub(crate) fn has_next_entry(input: ParseStream<'_>, cx: &Diagnostics) -> bool {
    if input.parse::<Token![,]>().is_ok() {
        return true;
    }
    let next = input.cursor().ident().filter(|_| starts_entry(input));
    if let Some((name, _)) = &next {
        cx.error(name, messages::lost_comma(name));
    }
    next.is_some()
}

pub(crate) fn parse_value(key: &'static Key, origin: &TokenStream, cx: &Diagnostics) -> Value {
    let is_closure = matches!(origin.clone().into_iter().next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '|');
    if is_closure && matches!(key.kind, KeyKind::Word(_) | KeyKind::Mask(_)) {
        cx.error(origin, messages::closure_as_value(key));
        return Value::Invalid;
    }
    match key.kind {
        KeyKind::Size => word::parse_size(origin, key.name, cx).map_or(Value::Invalid, Value::Size),
        KeyKind::SizePerAxis(words) => parse_size_per_axis(origin, key, words, cx),
        KeyKind::Number => {
            word::parse_number(origin, key.name, cx).map_or(Value::Invalid, Value::Number)
        }
        KeyKind::Word(words) => {
            word::parse_single(origin, key, words, cx).map_or(Value::Invalid, Value::Word)
        }
        KeyKind::Mask(words) => {
            let before = cx.count();
            let mask = mask::parse(origin, key, words, cx);
            let complete = cx.count() == before;
            Value::Mask { mask, complete }
        }
        KeyKind::Claims(words) => {
            claims::parse(origin, key, words, cx).map_or(Value::Invalid, Value::Claims)
        }
        KeyKind::Projections => {
            parse_projections(origin, cx).map_or(Value::Invalid, Value::Projections)
        }
        KeyKind::Sizes => parse_sizes(origin, key, cx),
        KeyKind::Type | KeyKind::Shape | KeyKind::Axes | KeyKind::Pattern | KeyKind::Index => {
            Value::Tokens(origin.clone())
        }
    }
}

/// `[14, WIDTH]`
fn parse_sizes(origin: &TokenStream, key: &'static Key, cx: &Diagnostics) -> Value {
    match bracketed(origin) {
        Some(list) => parse_list_of_sizes(&list, key, cx),
        None => {
            let found = messages::quoted(origin);
            cx.error(origin, messages::grid::expected_sizes(key.name, &found));
            Value::Invalid
        }
    }
}

/// `3`, `[3, 5]`, `same`
fn parse_size_per_axis(
    origin: &TokenStream,
    key: &'static Key,
    words: &'static [Word],
    cx: &Diagnostics,
) -> Value {
    let name: Option<Ident> = syn::parse2(origin.clone()).ok();
    if name.is_some_and(|name| words.iter().any(|known| name == known.name)) {
        let word = word::parse_single(origin, key, words, cx);
        return word.map_or(Value::Invalid, Value::Word);
    }
    let unknown = syn::parse2(origin.clone()).ok();
    let is_unknown =
        unknown.is_some_and(|size: Ident| !size.to_string().starts_with(char::is_uppercase));
    if is_unknown && !words.is_empty() {
        cx.error(origin, messages::unknown_word_of_sizes(key, origin));
        return Value::Invalid;
    }
    let list = bracketed(origin).unwrap_or_else(|| vec![origin.clone()]);
    if list.is_empty() {
        cx.error(origin, messages::expected_size(key.name, origin));
        return Value::Invalid;
    }
    parse_list_of_sizes(&list, key, cx)
}

/// The parts of a list in brackets.
fn bracketed(origin: &TokenStream) -> Option<Vec<TokenStream>> {
    let mut tokens = origin.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::Bracket => {
            Some(word::split_at_commas(group.stream()))
        }
        _ => None,
    }
}

fn parse_list_of_sizes(list: &[TokenStream], key: &'static Key, cx: &Diagnostics) -> Value {
    let sizes: Vec<_> = list
        .iter()
        .map(|size| {
            let known = syn::parse2(size.clone()).ok();
            let unknown = known.and_then(|known| not_constant::find_name(&known));
            match unknown {
                Some(name) => {
                    cx.error(&name, messages::no_constant(key, &name));
                    None
                }
                None => word::parse_size(size, key.name, cx),
            }
        })
        .collect();
    let sizes: Option<Vec<Size>> = sizes.into_iter().collect();
    sizes.map_or(Value::Invalid, Value::Sizes)
}

/// `true`, `false`, `q`, or `[q, v]`.
fn parse_projections(origin: &TokenStream, cx: &Diagnostics) -> Option<Projections> {
    let tokens: Vec<_> = origin.clone().into_iter().collect();
    let names = match tokens.as_slice() {
        [TokenTree::Ident(word)] if word == "true" => return Some(Projections::all(true)),
        [TokenTree::Ident(word)] if word == "false" => return Some(Projections::all(false)),
        [TokenTree::Ident(_)] => origin.clone(),
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Bracket => group.stream(),
        _ => {
            cx.error(origin, messages::expected_projections(origin));
            return None;
        }
    };
    let list = syn::punctuated::Punctuated::<Expr, Token![,]>::parse_terminated;
    let Ok(list) = list.parse2(names) else {
        cx.error(origin, messages::expected_projections(origin));
        return None;
    };
    let before = cx.count();
    let mut chosen = Projections::all(false);
    for name in &list {
        let flag = match name.to_token_stream().to_string().as_str() {
            "q" => &mut chosen.q,
            "k" => &mut chosen.k,
            "v" => &mut chosen.v,
            "o" => &mut chosen.o,
            other => {
                cx.error(name, messages::unknown_projection(other));
                continue;
            }
        };
        if std::mem::replace(flag, true) {
            cx.error(name, messages::duplicate_projection(name));
        }
    }
    (cx.count() == before).then_some(chosen)
}
