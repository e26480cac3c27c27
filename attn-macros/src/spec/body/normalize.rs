//! `fn normalize`: a normalizer by name, or the weight as a function of the score and of the position.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Expr as Syntax, Stmt};

use super::lower::{Lower, MAX_OPERATIONS, Scope};
use super::names::{may_be_constant, variable};
use super::parse::FunctionDraft;
use super::{Function, FunctionKind, Normalizer};
use crate::messages::body as messages;
use crate::score::Expr;
use crate::spec::check::Checker;
use crate::spec::keys::{Key, Word, nearest};
use crate::spec::word;

/// The value of the function for the score `score`.
pub(super) fn check(
    scope: Scope<'_>,
    score: Option<&Expr>,
    checker: &mut Checker<'_>,
) -> Normalizer {
    let name = &scope.function.name;
    if checker.has("normalizer") {
        checker.cx.error(name, messages::NORMALIZER_TWICE);
    }
    if let Some(normalizer) = named(scope, checker) {
        return normalizer;
    }
    let weight = Lower::new(scope, checker).function();
    // The weight contains the score at each of its reads.
    let together = score.map_or(0, Expr::size).saturating_mul(reads(&weight));
    if together > MAX_OPERATIONS {
        let message = messages::too_many_operations(MAX_OPERATIONS);
        checker.cx.error(name, message);
    }
    Normalizer::Elementwise(weight)
}

/// The normalizer that is all of the function's value. `None` if that is something else.
fn named(scope: Scope<'_>, checker: &mut Checker<'_>) -> Option<Normalizer> {
    let key = Key::find("normalizer")?;
    if let [Stmt::Expr(value, None)] = scope.function.block.stmts.as_slice()
        && let Some((word, power)) = word::powered(bare(value), key.words())
    {
        checker
            .cx
            .error(value, messages::power_of_normalizer(word, value, power));
        return Some(Normalizer::Softmax);
    }
    let (name, is_called, value) = name_of(scope.function)?;
    if let Some(word) = word_of(name, is_called) {
        return Some(built_in(word, key, value.to_token_stream(), checker));
    }
    let is_meant = |word: &&Word| !is_called || !word.args.is_empty();
    let words = key.words().iter().filter(is_meant).map(|word| word.name);
    let near = nearest(&name.to_string(), words).filter(|_| !is_known(name, scope))?;
    checker
        .cx
        .error(name, messages::unknown_normalizer(name, near));
    Some(Normalizer::Softmax)
}

/// Whether the function's value names a normalizer.
pub(super) fn is_word(function: &FunctionDraft) -> bool {
    let word = name_of(function).and_then(|(name, is_called, _)| word_of(name, is_called));
    function.kind == FunctionKind::Normalize && word.is_some()
}

/// The name that is all of a function's value, whether it has arguments, and the value.
fn name_of(function: &FunctionDraft) -> Option<(&Ident, bool, &Syntax)> {
    let [Stmt::Expr(value, None)] = function.block.stmts.as_slice() else {
        return None;
    };
    let value = bare(value);
    match value {
        Syntax::Path(path) => Some((path.path.get_ident()?, false, value)),
        Syntax::Call(call) => match &*call.func {
            Syntax::Path(path) => Some((path.path.get_ident()?, true, value)),
            _ => None,
        },
        _ => None,
    }
}

/// The normalizer of this name, which no function has.
fn word_of(name: &Ident, is_called: bool) -> Option<&'static Word> {
    let is_function = is_called && Function::find(&name.to_string()).is_some();
    let mut words = Key::find("normalizer")?.words().iter();
    words.find(|word| name == word.name && !is_function)
}

/// The normalizer `word`, written as `tokens`.
fn built_in(
    word: &'static Word,
    key: &'static Key,
    tokens: TokenStream,
    checker: &mut Checker<'_>,
) -> Normalizer {
    if mentions_score(tokens.clone()) {
        let message = messages::normalizer_of_score(word);
        checker.cx.error(tokens, message);
        return Normalizer::Softmax;
    }
    match word::parse_single(&tokens, key, key.words(), checker.cx) {
        Some(mut call) => {
            call.constants()
                .for_each(|constant| checker.name_constant(constant));
            checker.normalizer_of(&call)
        }
        None => Normalizer::Softmax,
    }
}

fn mentions_score(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(name) => name == "score",
        TokenTree::Group(group) => mentions_score(group.stream()),
        _ => false,
    })
}

/// Without parentheses, and without the invisible ones of a macro.
fn bare(value: &Syntax) -> &Syntax {
    match value {
        Syntax::Paren(paren) => bare(&paren.expr),
        Syntax::Group(group) => bare(&group.expr),
        value => value,
    }
}

/// Capitals alone: `Softmax` is a word of another library.
fn is_constant(name: &Ident) -> bool {
    may_be_constant(name) && !name.to_string().chars().any(char::is_lowercase)
}

/// Whether the name means something in an expression.
fn is_known(name: &Ident, scope: Scope<'_>) -> bool {
    name == "score"
        || variable(name).is_some()
        || is_constant(name)
        || Function::find(&name.to_string()).is_some()
        || scope.tensors.iter().any(|tensor| tensor.name() == name)
        || scope.sizes.iter().any(|(size, _)| name == size)
}

/// The number of reads of the score.
fn reads(expr: &Expr) -> usize {
    match expr {
        Expr::Operand(_) => 1,
        other => other.children().into_iter().map(reads).sum(),
    }
}
