//! Fragments of `macro_rules!`: what `$name:kind` matched arrives in an invisible group, which no parser expects.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::{BinOp, Expr};

use crate::ops::{OPERATIONS, Operation};
use crate::spec::keys::{INITIALIZER_OF_MODEL, Key, KeyKind};

/// The tokens of `attention!` without such groups. A body is left as it is, since syn parses it.
pub(crate) fn of_layers(tokens: TokenStream) -> TokenStream {
    let notation = Notation {
        place: Place::Word,
        keeps_bodies: true,
        in_attribute: false,
    };
    notation.visible(tokens)
}

/// The same of `model!`, where a constant of several tokens stands in braces.
pub(crate) fn of_models(tokens: TokenStream) -> TokenStream {
    let notation = Notation {
        place: Place::Value,
        keeps_bodies: false,
        in_attribute: false,
    };
    notation.visible(tokens)
}

/// How a macro reads fragments.
#[derive(Clone, Copy)]
struct Notation {
    place: Place,
    keeps_bodies: bool,
    in_attribute: bool,
}

/// The position of a fragment. It decides the delimiters around an expression of several tokens, which keep operators beside it out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Among statements: a constant in braces, another value in parentheses.
    Value,
    /// In a header, in keys and in brackets: a constant in braces.
    Constant,
    /// Behind a key that takes words, and in a constant: in parentheses.
    Word,
}

impl Notation {
    fn visible(self, tokens: TokenStream) -> TokenStream {
        let mut before = Before::default();
        let mut flat = TokenStream::new();
        for token in tokens {
            match &token {
                TokenTree::Group(group) => {
                    let here = self.at(before.place(self.place));
                    flat.extend(here.group(group, before.sign()));
                }
                token => flat.extend([token.clone()]),
            }
            before.read(token);
        }
        flat
    }

    fn at(self, place: Place) -> Self {
        Notation { place, ..self }
    }

    /// A group behind the sign `before`, if there is one.
    fn group(self, group: &Group, before: Option<char>) -> TokenStream {
        let inside = match (group.delimiter(), self.place) {
            (Delimiter::None, _) => return self.fragment(group),
            (Delimiter::Brace, _) if self.keeps_bodies && before == Some('>') => {
                return TokenTree::from(group.clone()).into();
            }
            (Delimiter::Bracket, _) if before == Some('#') => Notation {
                in_attribute: true,
                ..self
            },
            (Delimiter::Bracket, Place::Value) => self.at(Place::Constant),
            (Delimiter::Brace, Place::Constant) => self.at(Place::Word),
            _ => self,
        };
        let mut visible = Group::new(group.delimiter(), inside.visible(group.stream()));
        visible.set_span(group.span());
        TokenTree::from(visible).into()
    }

    /// The tokens of a fragment. Delimiters enclose an expression of several tokens, unless it is one operand by itself. Visibilities, types,
    /// statements and attributes stay as they are.
    fn fragment(self, group: &Group) -> TokenStream {
        let tokens = group.stream();
        let expr = match self.in_attribute {
            true => None,
            false => long_expression(&tokens),
        };
        let (around, inside) = match (expr, self.place) {
            (None, _) => return self.visible(tokens),
            (Some(expr), place) if is_by_itself(&expr, place) => return self.visible(tokens),
            (Some(expr), Place::Value) if !is_constant(&expr) => {
                (Delimiter::Parenthesis, Place::Value)
            }
            // Within a constant, braces would be a statement.
            (_, Place::Value | Place::Constant) => (Delimiter::Brace, Place::Word),
            (_, Place::Word) => (Delimiter::Parenthesis, Place::Word),
        };
        let inner = self.at(inside).visible(tokens);
        let first = inner.clone().into_iter().next();
        let mut visible = Group::new(around, inner);
        visible.set_span(first.map_or_else(|| group.span(), |first| first.span()));
        TokenTree::from(visible).into()
    }
}

/// The tokens before a token, in the same group.
#[derive(Default)]
struct Before {
    last: Option<TokenTree>,
    /// The word before the name that is the last token: `struct`, `fn`.
    word: Option<Ident>,
    /// How many `<` of a header, of keys or of a type in these are open.
    depth: usize,
    /// `mask =`
    key: Option<Ident>,
}

impl Before {
    fn sign(&self) -> Option<char> {
        match &self.last {
            Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
            _ => None,
        }
    }

    /// The position of the next token, in a group at `around`.
    fn place(&self, around: Place) -> Place {
        let takes_words = || self.key.as_ref().is_some_and(takes_words);
        match around {
            Place::Word => Place::Word,
            _ if self.depth == 1 && takes_words() => Place::Word,
            Place::Value if self.depth == 0 => Place::Value,
            _ => Place::Constant,
        }
    }

    fn read(&mut self, token: TokenTree) {
        let sign = self.sign();
        match &token {
            TokenTree::Punct(punct) => match punct.as_char() {
                // Other signs compare.
                '<' if self.depth > 0 || sign == Some(':') || self.is_declaration() => {
                    self.depth += 1;
                    self.key = None;
                }
                '>' if sign != Some('-') => self.depth = self.depth.saturating_sub(1),
                '=' => self.key = self.name().cloned(),
                ',' => self.key = None,
                ';' => self.depth = 0,
                _ => {}
            },
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Parenthesis && sign == Some('>') =>
            {
                self.depth = 0;
            }
            _ => {}
        }
        self.word = self.name().cloned();
        self.last = Some(token);
    }

    /// The last token, if it is a name.
    fn name(&self) -> Option<&Ident> {
        match &self.last {
            Some(TokenTree::Ident(name)) => Some(name),
            _ => None,
        }
    }

    /// `struct Name`, `fn name`
    fn is_declaration(&self) -> bool {
        let word = self.word.as_ref();
        self.name().is_some() && word.is_some_and(|word| word == "struct" || word == "fn")
    }
}

/// Whether the values of a key of this name are words of the language.
fn takes_words(key: &Ident) -> bool {
    let name = key.to_string();
    let of_operations = OPERATIONS
        .iter()
        .filter_map(|operation| operation.key(&name));
    let mut keys = Key::find(&name).into_iter().chain(of_operations);
    keys.any(|key| matches!(key.kind, KeyKind::Word(_) | KeyKind::Mask(_)))
}

/// The expression that these are, if they are several tokens. A fragment in it is an operand to syn.
fn long_expression(tokens: &TokenStream) -> Option<Expr> {
    tokens.clone().into_iter().nth(1)?;
    syn::parse2(tokens.clone()).ok()
}

/// Whether this stands without delimiters: no operator beside it reaches into it, or none stands beside it.
fn is_by_itself(expr: &Expr, place: Place) -> bool {
    match expr {
        Expr::Call(_) => is_call_of_operation(expr),
        Expr::If(_) | Expr::Closure(_) => place == Place::Value,
        Expr::Range(_) | Expr::Reference(_) => place != Place::Word,
        // Statements.
        Expr::Let(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::DivAssign(_)
        ),
        _ => false,
    }
}

/// The function that an expression calls by its name.
fn callee(expr: &Expr) -> Option<&Ident> {
    let Expr::Call(call) = expr else {
        return None;
    };
    let Expr::Path(path) = &*call.func else {
        return None;
    };
    match path.path.segments.len() {
        1 => path.path.segments.first().map(|segment| &segment.ident),
        _ => None,
    }
}

/// `gelu(x)`, `linear::<4>(x)`, `normal(0.02)`
fn is_call_of_operation(expr: &Expr) -> bool {
    callee(expr).is_some_and(|name| {
        let name = name.to_string();
        let mut initial = INITIALIZER_OF_MODEL.words().iter();
        Operation::find(&name).is_some() || initial.any(|word| word.name == name)
    })
}

/// Whether this is a constant, and not a value or a condition: it reads no variable, or has operators that are those of constants alone.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(paren) => is_constant(&paren.expr),
        Expr::Group(group) => is_constant(&group.expr),
        Expr::Unary(unary) => is_constant(&unary.expr),
        Expr::Binary(binary) => match binary.op {
            BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_) | BinOp::Rem(_) => {
                is_constant(&binary.left) && is_constant(&binary.right)
            }
            BinOp::Shl(_)
            | BinOp::Shr(_)
            | BinOp::BitAnd(_)
            | BinOp::BitOr(_)
            | BinOp::BitXor(_) => true,
            _ => false,
        },
        // A `const` is written in capitals.
        Expr::Path(path) => path.path.get_ident().is_none_or(|name| {
            let name = name.to_string();
            name.to_uppercase() == name
        }),
        Expr::Call(call) => !is_call_of_operation(expr) && call.args.iter().all(is_constant),
        Expr::MethodCall(call) => is_constant(&call.receiver),
        Expr::Field(field) => is_constant(&field.base),
        Expr::Index(index) => is_constant(&index.expr),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    /// `tokens` as the fragment of another macro hands them on.
    fn fragment(tokens: TokenStream) -> Group {
        Group::new(Delimiter::None, tokens)
    }

    #[test]
    fn attributes_and_visibilities_stand_as_they_are() {
        let meta = fragment(quote!(doc = "A layer."));
        for vis in [quote!(), quote!(pub), quote!(pub(crate))] {
            let fragment = fragment(vis.clone());
            let tokens = quote!([::attn] #[#meta] #fragment struct A; #fragment struct B;);
            let expected =
                quote!([::attn] #[doc = "A layer."] #vis struct A; #vis struct B;).to_string();
            assert_eq!(of_layers(tokens.clone()).to_string(), expected);
            assert_eq!(of_models(tokens).to_string(), expected);
        }
    }

    #[test]
    fn an_expression_stands_in_delimiters() {
        let sum = fragment(quote!(1 + 1));
        let nested = fragment(quote!(#sum * 2));
        let one = fragment(quote!(8));
        let tokens = quote!(struct A<a = #sum, b = #nested, c = #one, d = [#sum]>;);
        assert_eq!(
            of_layers(tokens.clone()).to_string(),
            quote!(struct A<a = (1 + 1), b = ((1 + 1) * 2), c = 8, d = [(1 + 1)]>;).to_string()
        );
        assert_eq!(
            of_models(tokens).to_string(),
            quote!(struct A<a = { 1 + 1 }, b = { (1 + 1) * 2 }, c = 8, d = [{ 1 + 1 }]>;)
                .to_string()
        );
    }

    #[test]
    fn a_value_stands_in_parentheses() {
        let body = fragment(quote!(gelu(x) + y));
        let nested = fragment(quote!(#body * 2));
        let constant = fragment(quote!(WIDTH as f32 / 2.0));
        let call = fragment(quote!(linear::<4>(x)));
        let tokens = quote!({ let z = #nested; if z < #constant { #call } else { #body - z } });
        assert_eq!(
            of_models(tokens).to_string(),
            quote!({
                let z = ((gelu(x) + y) * 2);
                if z < { WIDTH as f32 / 2.0 } {
                    linear::<4>(x)
                } else {
                    (gelu(x) + y) - z
                }
            })
            .to_string()
        );
    }

    #[test]
    fn words_stand_in_parentheses() {
        let mask = fragment(quote!(causal & sliding_window(3)));
        let size = fragment(quote!(2 * d));
        let init = fragment(quote!(normal(0.02)));
        let tokens = quote! {
            let y = attention::<#size, mask = #mask & padding>(x) * #size;
            linear::<#size, init = #init>(y)
        };
        assert_eq!(
            of_models(tokens).to_string(),
            quote! {
                let y = attention::<{ 2 * d }, mask = (causal & sliding_window(3)) & padding>(x) * (2 * d);
                linear::<{ 2 * d }, init = normal(0.02)>(y)
            }
            .to_string()
        );
    }

    #[test]
    fn a_constant_in_a_shape_or_a_type_stands_in_braces() {
        let size = fragment(quote!(1 + d));
        let tokens = quote!(module::<Linear<#size, 4>, out = [batch, #size]>(x)[d = #size] + #size);
        assert_eq!(
            of_models(tokens).to_string(),
            quote!(module::<Linear<{ 1 + d }, 4>, out = [batch, { 1 + d }]>(x)[d = { 1 + d }] + (1 + d))
                .to_string()
        );
    }

    #[test]
    fn a_type_stands_as_it_is() {
        let ty = fragment(quote!(Linear<4, 4>));
        let tokens = quote!(module::<#ty, out = [batch, 4]>(x));
        let expected = quote!(module::<Linear<4, 4>, out = [batch, 4]>(x)).to_string();
        assert_eq!(of_models(tokens).to_string(), expected);
    }
}
