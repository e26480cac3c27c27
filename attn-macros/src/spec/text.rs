//! Tokens as formatted source text, on one line.

use proc_macro2::{Delimiter, Punct, Spacing, TokenStream, TokenTree};
use syn::{Attribute, Expr, ExprLit, Lit, Meta, MetaNameValue};

/// `tokens` with blanks around binary operators and after commas, and no others.
pub(crate) fn of(tokens: &TokenStream) -> String {
    let mut writer = Writer {
        text: String::new(),
        glued: true,
        operand: false,
        and: false,
    };
    let mut tokens = tokens.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        writer.write(&token, tokens.peek().is_none());
    }
    writer.text
}

/// A type as formatted source text: no blanks inside of `<>`.
pub(crate) fn of_type(tokens: &TokenStream) -> String {
    let text = of(tokens);
    let text = text.replace(" < ", "<").replace(" <", "<");
    text.replace("< ", "<").replace(" >", ">")
}

/// The text of the doc comments among `attrs`, line by line.
pub(crate) fn documentation(attrs: &[Attribute]) -> String {
    let line = |attr: &Attribute| match &attr.meta {
        Meta::NameValue(MetaNameValue {
            path,
            value:
                Expr::Lit(ExprLit {
                    lit: Lit::Str(text),
                    ..
                }),
            ..
        }) if path.is_ident("doc") => Some(text.value().trim().to_owned()),
        _ => None,
    };
    let lines: Vec<_> = attrs.iter().filter_map(line).collect();
    lines.join("\n")
}

struct Writer {
    text: String,
    /// No blank before the next token.
    glued: bool,
    /// Whether the tokens so far can be the left operand of an operator, or be called.
    operand: bool,
    /// Whether the last token is the first half of `&&` between operands.
    and: bool,
}

impl Writer {
    fn write(&mut self, token: &TokenTree, last: bool) {
        match token {
            TokenTree::Punct(punct) => self.write_punct(punct, last),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{ ", " }"),
                    Delimiter::None => ("", ""),
                };
                let called = self.operand && group.delimiter() != Delimiter::Brace;
                let inner = of(&group.stream());
                self.push(&format!("{open}{inner}{close}"), called);
                self.operand = true;
            }
            other => {
                self.push(&other.to_string(), false);
                self.operand = true;
            }
        }
    }

    fn write_punct(&mut self, punct: &Punct, last: bool) {
        let symbol = punct.as_char();
        let joint = punct.spacing() == Spacing::Joint;
        // A sign, a negation or a borrow is attached to the token after it.
        let is_second = symbol == '&' && std::mem::take(&mut self.and);
        self.and = symbol == '&' && joint && self.operand;
        let prefix = !self.operand
            && !is_second
            && matches!(symbol, '-' | '!' | '&' | '*' | '\'' | '#' | '$');
        let tight = matches!(symbol, '.' | ':');
        let trailing = matches!(symbol, ',' | ';' | '?' | '!') && self.operand && !joint;
        self.push(&symbol.to_string(), tight || trailing || last);
        self.glued = joint || prefix || tight || symbol == '!';
        self.operand = symbol == '!' && trailing;
    }

    fn push(&mut self, text: &str, glued: bool) {
        if !self.glued && !glued {
            self.text.push(' ');
        }
        self.text.push_str(text);
        self.glued = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_as_it_was_written() {
        for text in [
            "8",
            "HEADS",
            "config::KV_HEADS",
            "{ HEADS * WIDTH }",
            "-ONE",
            "2 * (N - 1)",
            "x - -1",
            "[q, k]",
            "sizes[0].max(2)",
            "sliding_window(3, symmetric) & !(causal | padding)",
            "10%",
            "0..2",
            "a == b",
            "a != b",
            "a && b > 3",
            "a && !b",
            "&a[0]",
            "'a",
            "concat!(x)",
            "rope(theta = 100.0)",
        ] {
            let tokens = text.parse().expect("these are tokens");
            assert_eq!(of(&tokens), text);
        }
    }

    #[test]
    fn a_type_is_as_it_was_written() {
        for text in [
            "Linear<8, 3>",
            "(Linear<8, 16>, ReLU, Repeated<(Linear<16, 16>, Tanh), 2>)",
            "dfdx::nn::builders::Linear<{ 4 * WIDTH }, 3>",
            "<Net as Built>::Type",
            "Net",
        ] {
            let tokens = text.parse().expect("these are tokens");
            assert_eq!(of_type(&tokens), text);
        }
    }
}
