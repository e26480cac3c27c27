//! The items of a body, as written.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::buffer::Cursor;
use syn::parse::ParseStream;
use syn::{Attribute, Block, Token, token};

use super::dot::{Products, Rows};
use super::{index, normalize};
use crate::diag::Diagnostics;
use crate::messages::body as messages;
use crate::score::{Type, Var};
use crate::spec::word::split_at_commas;
use crate::spec::{Coordinate, Dim};

/// The parts of a body that were understood.
#[derive(Clone, Default)]
pub(crate) struct BodyDraft {
    pub(super) params: Vec<ParamDraft>,
    pub(super) data: Vec<DataDraft>,
    functions: Vec<FunctionDraft>,
    /// What the model around the layer computes for each `dot`.
    pub(super) products: Vec<Products>,
    /// There was a mistake, which has been reported.
    pub(in crate::spec) poisoned: bool,
}

/// `param name: [dims] = init;`
#[derive(Clone)]
pub(super) struct ParamDraft {
    pub(super) attrs: Vec<Attribute>,
    pub(super) name: Ident,
    pub(super) dims: Group,
    pub(super) init: TokenStream,
}

/// `data name: [dims];`, `data name: ids[dims];` or `data name: bool[dims];`
#[derive(Clone)]
pub(super) struct DataDraft {
    pub(super) attrs: Vec<Attribute>,
    pub(super) name: Ident,
    /// The type of an element.
    pub(super) ty: Type,
    pub(super) dims: DimsDraft,
    /// It is a value of the model around the layer, which has a gradient.
    pub(super) given: bool,
}

/// The axes of data.
#[derive(Clone)]
pub(super) enum DimsDraft {
    /// In brackets.
    Written(Group),
    /// Those of products.
    Products(Vec<Dim>, Rows),
}

/// `fn name(args) { block }`
#[derive(Clone)]
pub(super) struct FunctionDraft {
    pub(super) kind: FunctionKind,
    pub(super) name: Ident,
    pub(super) args: Vec<Ident>,
    /// Unknown arguments, which have been reported.
    pub(super) unknown_args: Vec<Ident>,
    pub(super) block: Block,
}

impl FunctionDraft {
    pub(super) fn takes_score(&self) -> bool {
        self.args.iter().any(|arg| arg == "score")
    }
}

/// The functions that a body may define.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum FunctionKind {
    Score,
    Mask,
    Normalize,
}

/// The indices and lengths that a function may take.
pub(super) const VARS: [Var; 6] = [Var::B, Var::H, Var::QIdx, Var::KvIdx, Var::QLen, Var::KvLen];

impl FunctionKind {
    pub(crate) const ALL: [FunctionKind; 3] = [
        FunctionKind::Score,
        FunctionKind::Mask,
        FunctionKind::Normalize,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            FunctionKind::Score => "score",
            FunctionKind::Mask => "mask",
            FunctionKind::Normalize => "normalize",
        }
    }

    /// Whether it may take an argument of this name. The coordinates of a grid are among them.
    pub(crate) fn takes(self, name: &str) -> bool {
        self.args().iter().any(|arg| arg == name) || Coordinate::find(name).is_some()
    }

    /// The names of the arguments that it may take of every layer.
    pub(crate) fn args(self) -> Vec<String> {
        let score = (self != FunctionKind::Mask).then(|| "score".to_owned());
        let vars = VARS.iter().map(Var::to_string);
        score.into_iter().chain(vars).collect()
    }
}

impl BodyDraft {
    /// Makes declared data of floats a value that has a gradient. Returns whether there are such data.
    pub(crate) fn give(&mut self, name: &Ident) -> bool {
        let mut data = self.data.iter_mut();
        let data = data.find(|data| {
            let is_declared = matches!(data.dims, DimsDraft::Written(_));
            is_declared && data.name == *name && data.ty == Type::Float
        });
        data.map(|data| data.given = true).is_some()
    }

    /// There was a mistake, which has been reported.
    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }

    pub(super) fn function(&self, kind: FunctionKind) -> Option<&FunctionDraft> {
        self.functions.iter().find(|function| function.kind == kind)
    }

    /// The function that computes scores or weights without reading the score of queries and keys. With it the layer has none.
    pub(in crate::spec) fn of_places(&self) -> Option<FunctionKind> {
        let function = self
            .function(FunctionKind::Score)
            .or_else(|| self.function(FunctionKind::Normalize));
        let function = function.filter(|function| !self.poisoned && !function.takes_score())?;
        (!normalize::is_word(function)).then_some(function.kind)
    }

    /// Whether a function takes a coordinate of the grid.
    pub(in crate::spec) fn reads_grid(&self) -> bool {
        let args = self.functions.iter().flat_map(|function| &function.args);
        args.into_iter()
            .any(|arg| Coordinate::find(&arg.to_string()).is_some())
    }

    /// Whether a tensor of this name is there already.
    pub(crate) fn declares(&self, name: &Ident) -> bool {
        let params = self.params.iter().map(|param| &param.name);
        let mut names = params.chain(self.data.iter().map(|data| &data.name));
        names.any(|known| known == name)
    }
}

/// Parses the contents of the braces.
pub(crate) fn parse(input: ParseStream<'_>, cx: &Diagnostics) -> BodyDraft {
    let before = cx.count();
    let mut draft = BodyDraft::default();
    while !input.is_empty() {
        let start = input.cursor();
        if let Err(error) = parse_item(input, &mut draft, cx) {
            cx.push(error);
            skip_item(input);
            if input.cursor() == start {
                let _ = input.parse::<TokenTree>();
            }
        }
    }
    draft.poisoned = cx.count() > before;
    draft
}

fn parse_item(input: ParseStream<'_>, draft: &mut BodyDraft, cx: &Diagnostics) -> syn::Result<()> {
    let attrs = input.call(Attribute::parse_outer)?;
    if input.parse::<Option<Token![fn]>>()?.is_some() {
        refuse_attributes(&attrs, |name| name != "doc", cx);
        let function = parse_function(input, cx)?;
        match draft.function(function.kind) {
            Some(_) => cx.error(&function.name, messages::given_twice(&function.name)),
            None => draft.functions.push(function),
        }
        return Ok(());
    }
    if !starts_tensor(input.cursor()) {
        let message = messages::unknown_item(&next_token(input));
        return Err(syn::Error::new(input.span(), message));
    }
    refuse_attributes(&attrs, |name| name == "cfg" || name == "cfg_attr", cx);
    if input.parse::<Ident>()? == "param" {
        let param = parse_param(attrs, input, cx)?;
        if is_new(&param.name, draft, cx) {
            draft.params.push(param);
        }
    } else {
        let data = parse_data(attrs, input, cx)?;
        if is_new(&data.name, draft, cx) {
            draft.data.push(data);
        }
    }
    Ok(())
}

fn is_new(name: &Ident, draft: &BodyDraft, cx: &Diagnostics) -> bool {
    let is_new = !draft.declares(name);
    if !is_new {
        cx.error(name, messages::given_twice(name));
    }
    is_new
}

/// Reports attributes: a field exists or not for the whole layer, so `cfg` cannot choose; and a function has no item to annotate.
fn refuse_attributes(attrs: &[Attribute], refused: fn(&str) -> bool, cx: &Diagnostics) {
    for attr in attrs {
        let name = attr.path().to_token_stream().to_string();
        if refused(&name) {
            cx.error(attr, messages::refused_attribute(&name));
        }
    }
}

/// Whether braces with this in them may be a body: they are empty, or an item begins. A `data` without a name is a variable.
pub(crate) fn may_start(content: Cursor<'_>) -> bool {
    let name = content.ident().and_then(|(_, rest)| rest.ident());
    content.eof() || starts_item(content) && (!starts_tensor(content) || name.is_some())
}

/// `fn`, `#`, `param` or `data`
fn starts_item(at: Cursor<'_>) -> bool {
    let is_function = at.ident().is_some_and(|(word, _)| word == "fn");
    let is_attribute = at.punct().is_some_and(|(sign, _)| sign.as_char() == '#');
    is_function || is_attribute || starts_tensor(at)
}

/// `param` or `data`
fn starts_tensor(at: Cursor<'_>) -> bool {
    at.ident()
        .is_some_and(|(word, _)| word == "param" || word == "data")
}

fn next_token(input: ParseStream<'_>) -> TokenStream {
    let token = input.cursor().token_tree();
    token.map_or_else(TokenStream::new, |(token, _)| token.to_token_stream())
}

/// Skips an item with a mistake: to its `;` or its braces, or to the start of the next one.
fn skip_item(input: ParseStream<'_>) {
    while !starts_item(input.cursor()) {
        match input.parse::<TokenTree>() {
            Ok(TokenTree::Punct(punct)) if punct.as_char() == ';' => break,
            Ok(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => break,
            Ok(_) => {}
            Err(_) => break,
        }
    }
}

/// The error for a next token other than `what`.
fn missing(input: ParseStream<'_>, what: &str, usage: &str) -> syn::Error {
    let message = messages::expected(what, &next_token(input), usage);
    syn::Error::new(input.span(), message)
}

fn expect_group(input: ParseStream<'_>, delimiter: Delimiter) -> Option<Group> {
    match input.cursor().token_tree() {
        Some((TokenTree::Group(group), _)) if group.delimiter() == delimiter => input.parse().ok(),
        _ => None,
    }
}

/// The tokens up to where `end` says, or to the next item.
fn tokens_until(input: ParseStream<'_>, end: fn(ParseStream<'_>) -> bool) -> TokenStream {
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !end(input) && !starts_item(input.cursor()) {
        tokens.extend(input.parse::<TokenTree>());
    }
    tokens
}

/// `name: [dims]` or `name: ids[dims]`, with the `ids`, or `bool`, if it is there.
fn parse_tensor(input: ParseStream<'_>, usage: &str) -> syn::Result<(Ident, Option<Ident>, Group)> {
    let name: Ident = input.parse().map_err(|_| missing(input, "a name", usage))?;
    input
        .parse::<Token![:]>()
        .map_err(|_| missing(input, "`:`", usage))?;
    let word = input.cursor().ident();
    let kind = match word.is_some_and(|(word, _)| word == "ids" || word == "bool") {
        true => Some(input.parse()?),
        false => None,
    };
    let dims = expect_group(input, Delimiter::Bracket)
        .ok_or_else(|| missing(input, "sizes in brackets", usage))?;
    Ok((name, kind, dims))
}

/// Parses the tokens after `data`.
fn parse_data(
    attrs: Vec<Attribute>,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<DataDraft> {
    let usage = messages::DATA_USAGE;
    let (name, kind, dims) = parse_tensor(input, usage)?;
    if input.peek(Token![=]) {
        let init = tokens_until(input, |input| input.peek(Token![;]));
        cx.error(&init, messages::initial_data(&name));
    }
    input
        .parse::<Token![;]>()
        .map_err(|_| missing(input, "`;`", usage))?;
    Ok(DataDraft {
        attrs,
        name,
        ty: match kind {
            Some(kind) if kind == "ids" => Type::Int,
            Some(_) => Type::Bool,
            None => Type::Float,
        },
        dims: DimsDraft::Written(dims),
        given: false,
    })
}

/// Parses the tokens after `param`.
fn parse_param(
    attrs: Vec<Attribute>,
    input: ParseStream<'_>,
    cx: &Diagnostics,
) -> syn::Result<ParamDraft> {
    let usage = messages::PARAM_USAGE;
    let (name, kind, dims) = parse_tensor(input, usage)?;
    if let Some(kind) = kind {
        cx.error(&kind, messages::not_learned(&kind, &name));
    }
    input
        .parse::<Token![=]>()
        .map_err(|_| missing(input, "`=` and an initializer", usage))?;
    let init = tokens_until(input, |input| input.peek(Token![;]));
    if init.is_empty() {
        return Err(missing(input, "an initializer", usage));
    }
    input
        .parse::<Token![;]>()
        .map_err(|_| missing(input, "`;`", usage))?;
    Ok(ParamDraft {
        attrs,
        name,
        dims,
        init,
    })
}

/// Parses the tokens after `fn`.
fn parse_function(input: ParseStream<'_>, cx: &Diagnostics) -> syn::Result<FunctionDraft> {
    let name: Ident = input
        .parse()
        .map_err(|_| missing(input, "`score`, `mask` or `normalize`", messages::ITEMS))?;
    let kind = FunctionKind::ALL
        .into_iter()
        .find(|kind| name == kind.name());
    let kind =
        kind.ok_or_else(|| syn::Error::new(name.span(), messages::unknown_function_item(&name)))?;
    let usage = messages::function_usage(kind);
    let (args, unknown_args) = match expect_group(input, Delimiter::Parenthesis) {
        Some(args) => parse_args(&args, kind, cx),
        // The name of a normalizer needs none.
        None if kind == FunctionKind::Normalize && input.peek(token::Brace) => Default::default(),
        None => return Err(missing(input, "arguments in parentheses", &usage)),
    };
    let result = tokens_until(input, |input| {
        input.peek(token::Brace) || input.peek(Token![;])
    });
    let Some(block) = expect_group(input, Delimiter::Brace) else {
        let what = "an expression in braces";
        return Err(match result.is_empty() {
            true => missing(input, what, &usage),
            false => syn::Error::new_spanned(&result, messages::expected(what, &result, &usage)),
        });
    };
    if !result.is_empty() {
        cx.error(&result, messages::before_the_braces(kind, &result));
    }
    Ok(FunctionDraft {
        kind,
        name,
        args,
        unknown_args,
        block: index::parse_block(&block, cx)?,
    })
}

/// The known names among the arguments, and the others.
fn parse_args(group: &Group, kind: FunctionKind, cx: &Diagnostics) -> (Vec<Ident>, Vec<Ident>) {
    let mut args: Vec<Ident> = Vec::new();
    let mut unknown = Vec::new();
    for (position, tokens) in split_at_commas(group.stream()).into_iter().enumerate() {
        let name = match parse_arg(&tokens, kind, cx) {
            Ok(name) => name,
            Err(names) => {
                unknown.extend(names);
                continue;
            }
        };
        if args.contains(&name) {
            cx.error(&name, messages::argument_twice(&name));
            continue;
        }
        if name == "score" && position > 0 {
            cx.error(&name, messages::score_comes_first(kind));
        }
        args.push(name);
    }
    (args, unknown)
}

/// One argument, or the unknown name in its place. A name with a type is reported, but accepted.
fn parse_arg(
    tokens: &TokenStream,
    kind: FunctionKind,
    cx: &Diagnostics,
) -> Result<Ident, Option<Ident>> {
    let list: Vec<_> = tokens.clone().into_iter().collect();
    let is_known = |name: &Ident| kind.takes(&name.to_string());
    match list.as_slice() {
        [TokenTree::Ident(name)] if is_known(name) => Ok(name.clone()),
        [TokenTree::Ident(name)] => {
            cx.error(name, messages::unknown_argument(kind, name));
            Err(Some(name.clone()))
        }
        list => {
            cx.error(tokens, messages::expected_argument(tokens));
            let names = list.iter().filter_map(|token| match token {
                TokenTree::Ident(name) => Some(name),
                _ => None,
            });
            let known = names.clone().find(|name| is_known(name));
            known.cloned().ok_or_else(|| names.clone().next().cloned())
        }
    }
}
