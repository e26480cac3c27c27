//! Types of literals in front of a method: `16.div_ceil(2)`, where rustc does not choose one.

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};
use syn::Lit;

/// Words behind which parentheses are no arguments.
const KEYWORDS: [&str; 6] = ["as", "if", "in", "match", "return", "while"];

/// `tokens`, where the receiver of a method has the type `usize` if whole numbers without a type are all that it is made of.
pub(crate) fn with_types(tokens: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let typed = tokens.iter().enumerate().map(|(index, token)| match token {
        number if is_receiver(&tokens, index) && is_whole(number) => as_usize(number),
        TokenTree::Group(group) => replaced(group, with_types(group.stream())),
        other => other.clone(),
    });
    typed.collect()
}

/// Whether `.name` follows, and this is a whole operand: no field, and not the arguments of a call.
fn is_receiver(tokens: &[TokenTree], index: usize) -> bool {
    let is_method = is_sign(tokens.get(index + 1), '.')
        && matches!(tokens.get(index + 2), Some(TokenTree::Ident(_)));
    let before = index.checked_sub(1).map(|before| &tokens[before]);
    let is_operand = match (before, &tokens[index]) {
        (Some(TokenTree::Punct(sign)), TokenTree::Group(_)) => match sign.as_char() {
            // The arguments of a macro, or of a function with types.
            '!' => false,
            '>' => !tokens[..index]
                .iter()
                .any(|token| is_sign(Some(token), ':')),
            _ => true,
        },
        (Some(TokenTree::Punct(sign)), _) => sign.as_char() != '.',
        (Some(TokenTree::Ident(word)), TokenTree::Group(_)) => {
            KEYWORDS.iter().any(|keyword| word == keyword)
        }
        (Some(TokenTree::Group(_)), TokenTree::Group(_)) => false,
        _ => true,
    };
    is_method && is_operand
}

/// Whether this is a whole number without a type, or arithmetic with such numbers in parentheses. A negative one is no `usize`.
fn is_whole(token: &TokenTree) -> bool {
    match token {
        TokenTree::Literal(literal) => match syn::parse_str(&literal.to_string()) {
            Ok(Lit::Int(int)) => int.suffix().is_empty(),
            _ => false,
        },
        TokenTree::Group(group) => {
            let is_around = matches!(group.delimiter(), Delimiter::Parenthesis | Delimiter::None);
            is_around && is_arithmetic(group.stream())
        }
        TokenTree::Ident(_) | TokenTree::Punct(_) => false,
    }
}

fn is_arithmetic(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_part = |(index, token): (usize, &TokenTree)| match token {
        TokenTree::Punct(sign) => {
            let before = index.checked_sub(1).map(|before| &tokens[before]);
            match (before, sign.as_char()) {
                (Some(TokenTree::Punct(first)), second @ ('<' | '>')) => first.as_char() == second,
                (Some(TokenTree::Punct(_)) | None, _) => false,
                (_, sign) => "+-*/%&|^<>".contains(sign),
            }
        }
        number => is_whole(number),
    };
    !tokens.is_empty() && tokens.iter().enumerate().all(is_part)
}

fn is_sign(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// A whole number with the type, or all of them in parentheses.
fn as_usize(token: &TokenTree) -> TokenTree {
    match token {
        TokenTree::Literal(literal) => {
            let typed = format!("{literal}usize").parse::<Literal>();
            let mut typed = typed.unwrap_or_else(|_| literal.clone());
            typed.set_span(literal.span());
            typed.into()
        }
        TokenTree::Group(group) => {
            let inner = group.stream().into_iter();
            replaced(group, inner.map(|token| as_usize(&token)).collect())
        }
        other => other.clone(),
    }
}

fn replaced(group: &Group, inner: TokenStream) -> TokenTree {
    let mut with = Group::new(group.delimiter(), inner);
    with.set_span(group.span());
    with.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::text;

    fn tokens(source: &str) -> TokenStream {
        source.parse().expect("these are tokens")
    }

    fn typed(source: &str) -> String {
        text::of(&with_types(tokens(source)))
    }

    #[test]
    fn a_receiver_of_literals_has_a_type() {
        for (source, expected) in [
            ("16.div_ceil(2)", "16usize.div_ceil(2)"),
            (
                "(8 * 16 / 3).next_multiple_of(256)",
                "(8usize * 16usize / 3usize).next_multiple_of(256)",
            ),
            (
                "((1 << 4) + 2).pow(2)",
                "((1usize << 4usize) + 2usize).pow(2)",
            ),
            ("2 * 16.pow(2)", "2 * 16usize.pow(2)"),
            ("f(16.pow(2))", "f(16usize.pow(2))"),
            ("{ 0x10.max(3) }", "{ 0x10usize.max(3) }"),
            ("N > (2 * 4).pow(2)", "N > (2usize * 4usize).pow(2)"),
        ] {
            assert_eq!(typed(source), expected);
        }
    }

    #[test]
    fn what_has_a_type_or_may_have_another_one_stays() {
        for source in [
            "16u32.pow(2)",
            "(16 * N).pow(2)",
            "f(16).pow(2)",
            "2usize.pow(3)",
            "(-4).abs()",
            "(4 * -1).abs()",
            "SIZES.0.pow(2)",
            "2.5.floor()",
            "(16, 8).0",
            "8 * 16",
            "f::<4>(5).max(6)",
        ] {
            assert_eq!(typed(source), text::of(&tokens(source)));
        }
    }
}
