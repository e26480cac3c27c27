//! Expressions that are not allowed in a constant of Rust, although a user may expect it.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{BinOp, Expr, Lit, UnOp};

use super::arithmetic::inner;

/// The first mistake in an expression of sizes or numbers.
pub(crate) enum NotConstant {
    /// `sqrt(8.0)` or `x.sqrt()`: the name.
    Function(TokenStream),
    /// `a ** b`: the stars.
    Power(TokenStream),
    /// A name without capitals, as of a `let` or of a key.
    Name(Ident),
}

/// The function that constants may call by its name.
const SQRT: &str = "sqrt";

/// Functions of floats, none of which rustc evaluates in a constant.
const RUN_TIME: [&str; 9] = [
    SQRT, "exp", "ln", "log", "log2", "powf", "powi", "pow", "rsqrt",
];

/// A function of floats or a power in `expr`, a size.
pub(super) fn find(expr: &Expr) -> Option<NotConstant> {
    search(expr, &|_| false, &RUN_TIME)
}

/// The same in a number, where `sqrt(x)` is a function of the language.
pub(super) fn find_in_number(expr: &Expr) -> Option<NotConstant> {
    search(expr, &|_| false, &RUN_TIME[1..])
}

/// The argument of `sqrt(x)`.
pub(super) fn argument_of_root(expr: &Expr) -> Option<&Expr> {
    let Expr::Call(call) = expr else { return None };
    let is_root = name_of(&call.func).is_some_and(|name| name == SQRT);
    match call.args.len() {
        1 if is_root => call.args.first(),
        _ => None,
    }
}

/// `expr` with the root of the library in the place of each `sqrt(x)`.
pub(super) fn with_roots(expr: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = expr.into_iter().collect();
    let is_root = |index: usize| {
        let is_call = |next: &TokenTree| matches!(next, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
        let is_name = matches!(&tokens[index], TokenTree::Ident(name) if name == SQRT);
        let before = index.checked_sub(1).map(|before| &tokens[before]);
        let is_path =
            matches!(before, Some(TokenTree::Punct(punct)) if matches!(punct.as_char(), '.' | ':'));
        is_name && !is_path && tokens.get(index + 1).is_some_and(is_call)
    };
    let replaced = (0..tokens.len()).map(|index| match &tokens[index] {
        name if is_root(index) => quote_spanned!(name.span()=> p::square_root),
        TokenTree::Group(group) => {
            let mut inner = with_roots(group.stream());
            if index > 0 && is_root(index - 1) {
                inner = quote_spanned!(group.span()=> (#inner) as f64);
            }
            let mut group_with = Group::new(group.delimiter(), inner);
            group_with.set_span(group.span());
            group_with.to_token_stream()
        }
        token => token.to_token_stream(),
    });
    replaced.collect()
}

/// The same root by its whole path, for what stands outside of the block that imports the library as `p`.
pub(crate) fn with_paths_of_roots(krate: &TokenStream, tokens: TokenStream) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut replaced = TokenStream::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) if name == "p" && is_path_of_root(&tokens) => {
                replaced.extend(quote_spanned!(name.span()=> #krate::__private));
            }
            TokenTree::Group(group) => {
                let inner = with_paths_of_roots(krate, group.stream());
                let mut group_with = Group::new(group.delimiter(), inner);
                group_with.set_span(group.span());
                replaced.extend([TokenTree::Group(group_with)]);
            }
            token => replaced.extend([token]),
        }
    }
    replaced
}

/// Whether `:: square_root` follows.
fn is_path_of_root(behind: &(impl Iterator<Item = TokenTree> + Clone)) -> bool {
    let mut behind = behind.clone();
    let mut is = |wanted: &str| {
        behind
            .next()
            .is_some_and(|token| token.to_string() == wanted)
    };
    is(":") && is(":") && is("square_root")
}

/// The first name of one segment in `expr` that cannot be a constant: those are written in capitals.
pub(super) fn find_name(expr: &Expr) -> Option<Ident> {
    let is_variable = |name: &Ident| {
        let name = name.to_string();
        name != "self" && !name.starts_with("r#") && !name.chars().any(char::is_uppercase)
    };
    match search(expr, &is_variable, &RUN_TIME)? {
        NotConstant::Name(name) => Some(name),
        _ => None,
    }
}

fn search(
    expr: &Expr,
    is_variable: &impl Fn(&Ident) -> bool,
    run_time: &[&str],
) -> Option<NotConstant> {
    let search = |expr: &Expr| search(expr, is_variable, run_time);
    let is_run_time = |name: &Ident| run_time.iter().any(|function| name == function);
    match inner(expr) {
        Expr::Path(path) => {
            let name = path.path.get_ident()?;
            is_variable(name).then(|| NotConstant::Name(name.clone()))
        }
        Expr::Call(call) => match name_of(&call.func).filter(|name| is_run_time(name)) {
            Some(name) => Some(NotConstant::Function(name.to_token_stream())),
            None => call.args.iter().find_map(search),
        },
        Expr::MethodCall(call) if is_float_method(&call.method) => {
            Some(NotConstant::Function(call.method.to_token_stream()))
        }
        Expr::MethodCall(call) => {
            search(&call.receiver).or_else(|| call.args.iter().find_map(search))
        }
        Expr::Binary(binary) => match power(binary) {
            Some((stars, _)) => Some(NotConstant::Power(stars)),
            None => search(&binary.left).or_else(|| search(&binary.right)),
        },
        Expr::Unary(unary) => search(&unary.expr),
        Expr::Cast(cast) => search(&cast.expr),
        _ => None,
    }
}

/// Integers have a `pow` that is evaluated in constants.
fn is_float_method(name: &Ident) -> bool {
    name != "pow" && RUN_TIME.iter().any(|function| name == function)
}

fn name_of(function: &Expr) -> Option<&Ident> {
    match function {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

/// The stars of `a ** b`, which Rust reads as `a * (*b)`, and `b`.
fn power(binary: &syn::ExprBinary) -> Option<(TokenStream, &Expr)> {
    match (&binary.op, &*binary.right) {
        (BinOp::Mul(first), Expr::Unary(unary)) => match unary.op {
            UnOp::Deref(second) => Some((quote!(#first #second), &unary.expr)),
            _ => None,
        },
        _ => None,
    }
}

/// The number that `expr` stands for, if it consists of literals: for a help.
pub(crate) fn meant(expr: &Expr) -> Option<f64> {
    let value = match inner(expr) {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => int.base10_parse().ok()?,
            Lit::Float(float) => float.base10_parse().ok()?,
            _ => return None,
        },
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => -meant(&unary.expr)?,
        Expr::Cast(cast) => meant(&cast.expr)?,
        Expr::Binary(binary) => {
            let left = meant(&binary.left)?;
            match (power(binary), &binary.op) {
                (Some((_, exponent)), _) => left.powf(meant(exponent)?),
                (_, BinOp::Add(_)) => left + meant(&binary.right)?,
                (_, BinOp::Sub(_)) => left - meant(&binary.right)?,
                (_, BinOp::Mul(_)) => left * meant(&binary.right)?,
                (_, BinOp::Div(_)) => left / meant(&binary.right)?,
                _ => return None,
            }
        }
        Expr::Call(call) => apply(name_of(&call.func)?, call.args.iter())?,
        Expr::MethodCall(call) => {
            let receiver = [&*call.receiver].into_iter();
            apply(&call.method, receiver.chain(&call.args))?
        }
        _ => return None,
    };
    value.is_finite().then_some(value)
}

fn apply<'a>(function: &Ident, args: impl Iterator<Item = &'a Expr>) -> Option<f64> {
    let args: Vec<f64> = args.map(meant).collect::<Option<_>>()?;
    match (&*function.to_string(), args.as_slice()) {
        ("sqrt", [x]) => Some(x.sqrt()),
        ("rsqrt", [x]) => Some(1.0 / x.sqrt()),
        ("exp", [x]) => Some(x.exp()),
        ("ln" | "log", [x]) => Some(x.ln()),
        ("log2", [x]) => Some(x.log2()),
        ("powf" | "powi" | "pow", [x, n]) => Some(x.powf(*n)),
        _ => None,
    }
}
