//! Sizes, numbers, and words with arguments, read by the table of [`keys`](super::keys).

use std::fmt;

use proc_macro2::{Delimiter, Ident, Punct, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{BinOp, Expr, UnOp};

use super::arithmetic;
use super::keys::{Arg, ArgKind, Key, Word, nearest};
use super::not_constant::{self, NotConstant};
use super::parse::Value;
use super::text;
use super::value::{Constant, Numbers, Real, Size};
use crate::diag::Diagnostics;
use crate::messages;

/// A word with all its arguments, defaults filled in, in the order of the table.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) word: &'static Word,
    /// The tokens, arguments included.
    pub(crate) origin: TokenStream,
    args: Vec<ArgValue>,
}

#[derive(Clone)]
enum ArgValue {
    Size(Size),
    Number(Real),
    Numbers(Numbers),
    Flag(Option<&'static str>),
    Word(Call),
    /// Left out, and without a default.
    Absent,
    /// Not understood, and reported.
    Invalid,
}

impl Call {
    /// The word `none`, as if it had been written.
    pub(crate) fn none() -> Call {
        const NONE: &Word = &Word {
            name: "none",
            args: &[],
            doc: "",
        };
        Call {
            word: NONE,
            origin: TokenStream::new(),
            args: Vec::new(),
        }
    }

    /// A word whose arguments are the values of keys of the same names.
    pub(crate) fn of_values<'v>(
        word: &'static Word,
        origin: TokenStream,
        value_of: impl Fn(&str) -> Option<&'v Value>,
    ) -> Call {
        let args = word.args.iter().map(|arg| match value_of(arg.name) {
            Some(Value::Size(size)) => ArgValue::Size(size.clone()),
            Some(Value::Number(number)) => ArgValue::Number(number.clone()),
            Some(Value::Word(call)) => ArgValue::Word(call.clone()),
            Some(_) => ArgValue::Invalid,
            None => default_of(arg).unwrap_or(ArgValue::Absent),
        });
        let args = args.collect();
        Call { word, origin, args }
    }

    /// The size of the argument `name`. The table guarantees that it is present.
    pub(crate) fn size(&self, name: &str) -> Size {
        match self.arg(name) {
            Some(ArgValue::Size(size)) => size.clone(),
            _ => Size::known(1),
        }
    }

    /// The number of the argument `name`. The table guarantees that it is present.
    pub(crate) fn number(&self, name: &str) -> Real {
        match self.arg(name) {
            Some(ArgValue::Number(number)) => number.clone(),
            _ => Real::known(1.0),
        }
    }

    /// The size of the argument `name`, if it is there.
    pub(crate) fn optional_size(&self, name: &str) -> Option<Size> {
        match self.arg(name) {
            Some(ArgValue::Size(size)) => Some(size.clone()),
            _ => None,
        }
    }

    /// The number of the argument `name`, if it is there.
    pub(crate) fn optional_number(&self, name: &str) -> Option<Real> {
        match self.arg(name) {
            Some(ArgValue::Number(number)) => Some(number.clone()),
            _ => None,
        }
    }

    /// The list of the argument `name`, if it is there.
    pub(crate) fn numbers(&self, name: &str) -> Option<&Numbers> {
        match self.arg(name) {
            Some(ArgValue::Numbers(numbers)) => Some(numbers),
            _ => None,
        }
    }

    /// The word of the argument `name`, if it is there.
    pub(crate) fn choice(&self, name: &str) -> Option<&Call> {
        match self.arg(name) {
            Some(ArgValue::Word(call)) => Some(call),
            _ => None,
        }
    }

    /// Whether the argument `name` is there, and `true`.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        let choice = self.choice(name);
        choice.is_some_and(|call| call.word.name == "true")
    }

    /// Makes the argument `name` `true`, if it is one that may be.
    pub(crate) fn set_true(&mut self, name: &str) {
        let args = self.word.args.iter().zip(&mut self.args);
        for (arg, value) in args.filter(|(arg, _)| arg.name == name) {
            if let ArgKind::Word(key) = &arg.kind {
                let word = key.words().iter().find(|word| word.name == "true");
                if let Some(word) = word {
                    *value = ArgValue::Word(Call {
                        word,
                        origin: TokenStream::new(),
                        args: Vec::new(),
                    });
                }
            }
        }
    }

    /// The names of the arguments that take values, and the expressions of these: `Some(..)` or `None` where they may be left out.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (Ident, TokenStream)> {
        let args = self.word.args.iter().zip(&self.args);
        args.map(|(arg, value)| {
            let name = format_ident!("{}", arg.name);
            let optional = matches!(arg.kind, ArgKind::OptionalSize | ArgKind::OptionalNumber);
            let value = match value {
                ArgValue::Size(size) => quote!(#size),
                ArgValue::Number(number) => quote!(#number),
                ArgValue::Numbers(numbers) => quote!(#numbers),
                ArgValue::Word(call) => {
                    let word = format_ident!("{}", call.word.name);
                    quote!(#word)
                }
                ArgValue::Absent if !optional => match &arg.kind {
                    // The first word of a choice is its default.
                    ArgKind::Word(key) => {
                        let word = format_ident!("{}", key.words()[0].name);
                        quote!(#word)
                    }
                    _ => quote!(None),
                },
                ArgValue::Flag(_) | ArgValue::Absent | ArgValue::Invalid => {
                    return (name, quote!(None));
                }
            };
            match optional {
                true => (name, quote!(Some(#value))),
                false => (name, value),
            }
        })
    }

    /// The word of a flag that was given.
    pub(crate) fn flag(&self, name: &str) -> Option<&'static str> {
        match self.arg(name) {
            Some(ArgValue::Flag(flag)) => *flag,
            _ => None,
        }
    }

    /// The values of the arguments as written, flags left out.
    pub(crate) fn args_text(&self) -> Vec<String> {
        let values = self.args.iter().filter_map(|arg| match arg {
            ArgValue::Size(size) => Some(size.to_string()),
            ArgValue::Number(number) => Some(number.to_string()),
            ArgValue::Numbers(numbers) => Some(numbers.to_string()),
            ArgValue::Word(call) => Some(call.to_string()),
            ArgValue::Flag(_) | ArgValue::Absent | ArgValue::Invalid => None,
        });
        let flags = self.args.iter().filter_map(|arg| match arg {
            ArgValue::Flag(Some(flag)) => Some((*flag).to_owned()),
            _ => None,
        });
        values.chain(flags).collect()
    }

    /// The values that may have to be evaluated by rustc.
    pub(crate) fn constants(&mut self) -> Box<dyn Iterator<Item = &mut dyn Constant> + '_> {
        let one = |constant| Box::new(std::iter::once(constant));
        Box::new(self.args.iter_mut().flat_map(move |arg| match arg {
            ArgValue::Size(size) => one(size as &mut dyn Constant),
            ArgValue::Number(number) => one(number as &mut dyn Constant),
            ArgValue::Numbers(numbers) => one(numbers as &mut dyn Constant),
            ArgValue::Word(call) => call.constants(),
            ArgValue::Flag(_) | ArgValue::Absent | ArgValue::Invalid => {
                Box::new(std::iter::empty()) as Box<dyn Iterator<Item = _>>
            }
        }))
    }

    fn arg(&self, name: &str) -> Option<&ArgValue> {
        let position = self.word.args.iter().position(|arg| arg.name == name)?;
        self.args.get(position)
    }
}

/// The word as it was written.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::of(&self.origin))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The most tokens of a constant with those of the constants that it names, which may double with every name. What is written is shorter
/// (`depth.rs`).
const MOST_TOKENS: usize = 4000;

/// A size for `what`, a key or an argument.
pub(crate) fn parse_size(tokens: &TokenStream, what: &str, cx: &Diagnostics) -> Option<Size> {
    if is_too_long(tokens, what, cx) {
        return None;
    }
    let expr = parse_expr(tokens);
    let found = expr.as_ref().and_then(not_constant::find);
    if is_run_time(found, expr.as_ref(), cx) {
        return None;
    }
    let size = expr.as_ref().and_then(Size::from_expr);
    if size.is_none() {
        let message = match expr.as_ref().and_then(arithmetic::mistake) {
            Some(mistake) => messages::no_size_of(what, tokens, mistake),
            None => messages::expected_size(what, tokens),
        };
        cx.error(tokens, message);
    }
    size
}

/// A number for `what`, a key or an argument.
pub(crate) fn parse_number(tokens: &TokenStream, what: &str, cx: &Diagnostics) -> Option<Real> {
    if is_too_long(tokens, what, cx) {
        return None;
    }
    let expr = parse_expr(tokens);
    let found = expr.as_ref().and_then(not_constant::find_in_number);
    if is_run_time(found, expr.as_ref(), cx) {
        return None;
    }
    let number = expr.and_then(|expr| Real::from_expr(&expr));
    if number.is_none() {
        cx.error(tokens, messages::expected_number(what, tokens));
    }
    number
}

/// A list of numbers for `what`, an argument or a constant.
pub(crate) fn parse_numbers(tokens: &TokenStream, what: &str, cx: &Diagnostics) -> Option<Numbers> {
    let numbers = parse_expr(tokens).and_then(|expr| Numbers::from_expr(&expr));
    if numbers.is_none() {
        cx.error(tokens, messages::expected_numbers(what, tokens));
    }
    numbers
}

/// Reports a part of `expr` that only the running program could compute.
fn is_run_time(found: Option<NotConstant>, expr: Option<&Expr>, cx: &Diagnostics) -> bool {
    let Some((found, expr)) = found.zip(expr) else {
        return false;
    };
    match &found {
        NotConstant::Function(name) => cx.error(name, messages::run_time_function(name, expr)),
        NotConstant::Power(stars) => cx.error(stars, messages::power_in_constant(expr)),
        NotConstant::Name(_) => {}
    }
    true
}

/// Reports an expression that takes too long to read.
fn is_too_long(tokens: &TokenStream, what: &str, cx: &Diagnostics) -> bool {
    let is_too_long = count(tokens) > MOST_TOKENS;
    if is_too_long {
        cx.error(tokens, messages::constant_too_long(what, MOST_TOKENS));
    }
    is_too_long
}

fn count(tokens: &TokenStream) -> usize {
    let counts = tokens.clone().into_iter().map(|token| match token {
        TokenTree::Group(group) => 1 + count(&group.stream()),
        _ => 1,
    });
    counts.sum()
}

fn parse_expr(tokens: &TokenStream) -> Option<Expr> {
    syn::parse2(tokens.clone()).ok()
}

/// A value that is one word and nothing else.
pub(crate) fn parse_single(
    tokens: &TokenStream,
    key: &'static Key,
    words: &'static [Word],
    cx: &Diagnostics,
) -> Option<Call> {
    if let Some(value) = &parse_expr(tokens)
        && let Some((word, power)) = powered(value, words)
    {
        cx.error(
            tokens,
            messages::body::power_of_normalizer(word, value, power),
        );
        return None;
    }
    let mut rest = without_parentheses(tokens).into_iter().peekable();
    let Some(TokenTree::Ident(name)) = rest.next() else {
        cx.error(tokens, messages::expected_word(key, tokens));
        return None;
    };
    let args = next_group(&mut rest);
    if let Some(group) = next_wrong_group(&mut rest) {
        cx.error(
            &group,
            messages::arguments_in_parentheses(&name, &group, words),
        );
        return None;
    }
    if rest.peek().is_some() {
        cx.error(
            rest.collect::<TokenStream>(),
            messages::more_than_a_word(key, &name),
        );
        return None;
    }
    parse_call(name, args, key, words, cx)
}

/// `relu^2` or `relu ** 2`: the word whose argument the power is, and the power.
pub(crate) fn powered<'a>(
    value: &'a Expr,
    words: &'static [Word],
) -> Option<(&'static Word, &'a Expr)> {
    let Expr::Binary(binary) = value else {
        return None;
    };
    let power = match (&binary.op, &*binary.right) {
        (BinOp::BitXor(_), power) => power,
        (BinOp::Mul(_), Expr::Unary(power)) if matches!(power.op, UnOp::Deref(_)) => &power.expr,
        _ => return None,
    };
    let Expr::Path(path) = &*binary.left else {
        return None;
    };
    let name = path.path.get_ident()?;
    let has_power = |word: &&Word| word.args.iter().any(|arg| arg.name == "power");
    let word = words.iter().find(|word| name == word.name)?;
    Some(word).filter(has_power).map(|word| (word, power))
}

/// The tokens in the parentheses around the whole, if there are any.
pub(crate) fn without_parentheses(tokens: &TokenStream) -> TokenStream {
    let mut list = tokens.clone().into_iter();
    match (list.next(), list.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::Parenthesis => {
            without_parentheses(&group.stream())
        }
        _ => tokens.clone(),
    }
}

/// The parentheses after a word, if they are next.
pub(crate) fn next_group<I: Iterator<Item = TokenTree>>(
    tokens: &mut std::iter::Peekable<I>,
) -> Option<proc_macro2::Group> {
    match tokens.peek() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            let group = group.clone();
            tokens.next();
            Some(group)
        }
        _ => None,
    }
}

/// Brackets or braces after a word, where its arguments would be.
pub(crate) fn next_wrong_group<I: Iterator<Item = TokenTree>>(
    tokens: &mut std::iter::Peekable<I>,
) -> Option<proc_macro2::Group> {
    match tokens.next_if(|token| matches!(token, TokenTree::Group(_))) {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

/// Parses the word `name` with the contents of its parentheses.
pub(crate) fn parse_call(
    name: Ident,
    group: Option<proc_macro2::Group>,
    key: &'static Key,
    words: &'static [Word],
    cx: &Diagnostics,
) -> Option<Call> {
    let found = name.to_string();
    let named = |wanted: &str| words.iter().find(|word| word.name == wanted);
    if let Some(word) = named(&found) {
        return parse_args(word, &name, group, cx);
    }
    cx.error(&name, messages::unknown_word(key, &found));
    // Continue with the word that was probably meant, so that later errors are about its arguments only.
    let near = named(nearest(&found, words.iter().map(|word| word.name))?)?;
    parse_args(near, &name, group, &Diagnostics::default())
}

fn parse_args(
    word: &'static Word,
    name: &Ident,
    group: Option<proc_macro2::Group>,
    cx: &Diagnostics,
) -> Option<Call> {
    let mut origin = name.to_token_stream();
    group.to_tokens(&mut origin);
    let before = cx.count();
    let mut slots: Vec<Option<ArgValue>> = word.args.iter().map(|_| None).collect();
    let given = group
        .as_ref()
        .map(|group| split_at_commas(group.stream()))
        .unwrap_or_default();
    if word.args.is_empty() && group.is_some() {
        cx.error(&group, messages::takes_no_arguments(word));
        return None;
    }
    for tokens in given {
        parse_arg(&tokens, word, &mut slots, cx);
    }
    let mut args = Vec::with_capacity(slots.len());
    for (slot, arg) in slots.into_iter().zip(word.args) {
        match slot.or_else(|| default_of(arg)) {
            Some(value) => args.push(value),
            None if cx.count() == before => {
                cx.error(&origin, messages::missing_argument(word, arg))
            }
            None => {}
        }
    }
    (cx.count() == before).then_some(Call { word, origin, args })
}

fn default_of(arg: &Arg) -> Option<ArgValue> {
    match arg.kind {
        ArgKind::Size { default } => default.map(|value| ArgValue::Size(Size::known(value))),
        ArgKind::Number { default } => default.map(|value| ArgValue::Number(Real::known(value))),
        ArgKind::OptionalSize | ArgKind::OptionalNumber | ArgKind::Word(_) => {
            Some(ArgValue::Absent)
        }
        ArgKind::Flag(_) => Some(ArgValue::Flag(None)),
        ArgKind::Numbers => None,
    }
}

/// Puts one argument, `flag`, `name = value` or `value`, into its slot.
fn parse_arg(
    tokens: &TokenStream,
    word: &'static Word,
    slots: &mut [Option<ArgValue>],
    cx: &Diagnostics,
) {
    let list: Vec<_> = tokens.clone().into_iter().collect();
    if let [TokenTree::Ident(name)] = list.as_slice()
        && let Some((position, flag)) = find_flag(word, &name.to_string())
    {
        return fill(
            slots,
            position,
            ArgValue::Flag(Some(flag)),
            word,
            tokens,
            cx,
        );
    }
    if let [TokenTree::Ident(name)] = list.as_slice()
        && let Some(position) = find_switch(word, &name.to_string())
        && let ArgKind::Word(key) = &word.args[position].kind
    {
        let yes = Ident::new("true", name.span());
        let value = parse_call(yes, None, key, key.words(), cx);
        let value = value.map_or(ArgValue::Invalid, ArgValue::Word);
        return fill(slots, position, value, word, tokens, cx);
    }
    let (position, value): (_, TokenStream) = match list.as_slice() {
        [TokenTree::Ident(name), TokenTree::Punct(equals), value @ ..]
            if is_equals(equals, value) =>
        {
            let found = name.to_string();
            let position = word
                .args
                .iter()
                .position(|arg| arg.name == found && takes_value(arg));
            if position.is_none() {
                return cx.error(name, messages::unknown_argument(word, &found));
            }
            let value: TokenStream = value.iter().cloned().collect();
            if equals.as_char() == ':' {
                let found = equals.to_token_stream();
                cx.error(equals, messages::expected_equals(&found, name, &value));
            }
            (position, value)
        }
        _ => (
            word.args
                .iter()
                .zip(&*slots)
                .position(|(arg, slot)| takes_value(arg) && slot.is_none()),
            tokens.clone(),
        ),
    };
    let Some(position) = position else {
        return cx.error(tokens, messages::too_many_arguments(word, tokens));
    };
    let arg = &word.args[position];
    if value.is_empty() {
        return cx.error(tokens, messages::missing_argument(word, arg));
    }
    let what = format!("{}` of `{}", arg.name, word.name);
    let value = match arg.kind {
        ArgKind::Size { .. } | ArgKind::OptionalSize => {
            parse_size(&value, &what, cx).map(ArgValue::Size)
        }
        ArgKind::Number { .. } | ArgKind::OptionalNumber => {
            parse_number(&value, &what, cx).map(ArgValue::Number)
        }
        ArgKind::Numbers => parse_numbers(&value, &what, cx).map(ArgValue::Numbers),
        ArgKind::Word(key) => parse_single(&value, key, key.words(), cx).map(ArgValue::Word),
        ArgKind::Flag(_) => None,
    };
    let value = value.unwrap_or(ArgValue::Invalid);
    fill(slots, position, value, word, tokens, cx);
}

/// Whether it is `=`, or the `:` of another language, which is not part of a path.
fn is_equals(sign: &Punct, value: &[TokenTree]) -> bool {
    let is_path =
        matches!(value.first(), Some(TokenTree::Punct(second)) if second.as_char() == ':');
    sign.as_char() == '=' || sign.as_char() == ':' && !is_path
}

fn fill(
    slots: &mut [Option<ArgValue>],
    position: usize,
    value: ArgValue,
    word: &'static Word,
    tokens: &TokenStream,
    cx: &Diagnostics,
) {
    match &mut slots[position] {
        Some(_) => cx.error(
            tokens,
            messages::duplicate_argument(word, &word.args[position]),
        ),
        slot => *slot = Some(value),
    }
}

fn takes_value(arg: &Arg) -> bool {
    !matches!(arg.kind, ArgKind::Flag(_))
}

fn find_flag(word: &'static Word, found: &str) -> Option<(usize, &'static str)> {
    word.args
        .iter()
        .enumerate()
        .find_map(|(position, arg)| match arg.kind {
            ArgKind::Flag(flags) => flags
                .iter()
                .find(|flag| **flag == found)
                .map(|flag| (position, *flag)),
            _ => None,
        })
}

/// The argument that is `true` if its bare name is given.
fn find_switch(word: &'static Word, found: &str) -> Option<usize> {
    let is_meant = |arg: &Arg| arg.name == found && arg.is_switch();
    word.args.iter().position(is_meant)
}

/// The tokens between commas; nothing is left out.
pub(crate) fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![TokenStream::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => parts.push(TokenStream::new()),
            _ => parts.extend_last(token),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

trait ExtendLast {
    fn extend_last(&mut self, token: TokenTree);
}

impl ExtendLast for Vec<TokenStream> {
    fn extend_last(&mut self, token: TokenTree) {
        if let Some(last) = self.last_mut() {
            last.extend([token]);
        }
    }
}
