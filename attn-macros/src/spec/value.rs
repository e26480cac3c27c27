//! Sizes and numbers: known during expansion if possible, and otherwise evaluated by rustc.

use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Expr;

use super::arithmetic::{Known, eval_int, eval_real, inner};
use super::{not_constant, receiver, text};

/// A value that only rustc may be able to evaluate.
pub(crate) trait Constant {
    /// The item that evaluates the value under `name`, which replaces it; nothing if it is known. As a single typed constant, a
    /// mistake in it is one error, at its tokens.
    fn name(&mut self, name: &Ident) -> Option<TokenStream>;

    /// The type of that item.
    fn ty(&self) -> &'static str;

    /// The expression, if only rustc can evaluate it.
    fn later(&mut self) -> Option<&mut TokenStream>;
}

trait ReplaceBy {
    /// Puts `name` here, with the span of the replaced tokens, and returns both.
    fn replace_by(&mut self, name: &Ident) -> (Ident, TokenStream);
}

impl ReplaceBy for TokenStream {
    fn replace_by(&mut self, name: &Ident) -> (Ident, TokenStream) {
        let place = self.clone().into_iter().next();
        let place = place.map_or_else(Span::call_site, |token| token.span());
        let mut name = name.clone();
        name.set_span(name.span().located_at(place));
        let expr = std::mem::replace(self, name.to_token_stream());
        (name, expr)
    }
}

/// A compile-time size. `value` is known if the macro could compute it; `tokens` always evaluates to it, as `usize`.
#[derive(Clone)]
pub(crate) struct Size {
    pub(crate) value: Option<u64>,
    tokens: TokenStream,
    text: String,
    /// The tokens as the user wrote them, for errors. Empty for a derived size.
    pub(crate) origin: TokenStream,
    /// The name of an axis of this size, if it is declared with one.
    pub(crate) axis: Option<Rc<str>>,
}

impl Size {
    pub(crate) fn known(value: u64) -> Self {
        let literal = Literal::u64_unsuffixed(value);
        Size {
            value: Some(value),
            tokens: literal.to_token_stream(),
            text: value.to_string(),
            origin: TokenStream::new(),
            axis: None,
        }
    }

    /// The size that `expr` denotes, if it can be a size at all.
    pub(crate) fn from_expr(expr: &Expr) -> Option<Self> {
        let origin = expr.to_token_stream();
        let size = match eval_int(expr) {
            Known::Value(value) => Size::known(u64::try_from(value).ok()?),
            Known::Later => Size {
                value: None,
                tokens: receiver::with_types(inner(expr).to_token_stream()),
                text: text::of(&inner(expr).to_token_stream()),
                origin: TokenStream::new(),
                axis: None,
            },
            Known::Wrong => return None,
        };
        Some(Size { origin, ..size })
    }

    /// The size as a const generic argument.
    pub(crate) fn arg(&self) -> TokenStream {
        match self.value {
            Some(_) => quote!(#self),
            None => quote!({ #self }),
        }
    }

    /// `self * other`
    pub(crate) fn times(&self, other: &Size) -> Size {
        if self.value == Some(1) {
            return other.derived();
        }
        if other.value == Some(1) {
            return self.derived();
        }
        let a = self;
        let b = other;
        let value = a.value.zip(b.value).and_then(|(a, b)| a.checked_mul(b));
        Size::derive(
            value,
            quote!(((#a) * (#b))),
            format!("{} * {}", a.factor(), b.factor()),
        )
    }

    /// `self + other`
    pub(crate) fn plus(&self, other: &Size) -> Size {
        let a = self;
        let b = other;
        let value = a.value.zip(b.value).and_then(|(a, b)| a.checked_add(b));
        Size::derive(value, quote!(((#a) + (#b))), format!("{a} + {b}"))
    }

    /// `self - other`, where `other` is at most `self`. If only rustc finds out that it is not, the assertion about it is the one error.
    pub(crate) fn minus(&self, other: &Size) -> Size {
        let a = self;
        let b = other;
        if b.value == Some(0) {
            return a.derived();
        }
        let value = a.value.zip(b.value).and_then(|(a, b)| a.checked_sub(b));
        Size::derive(
            value,
            quote!(usize::saturating_sub(#a, #b)),
            format!("{a} - {}", b.factor()),
        )
    }

    /// `self / other`, rounded down; but at least 1, so that one mistake stays one error.
    pub(crate) fn over(&self, other: &Size, krate: &TokenStream) -> Size {
        let a = self;
        let b = other;
        let value = a
            .value
            .zip(b.value)
            .map(|(a, b)| a.checked_div(b).unwrap_or(1).max(1));
        let tokens = quote!(#krate::__private::quotient(#a, #b));
        Size::derive(value, tokens, format!("{} / {}", a.factor(), b.factor()))
    }

    /// `self / other`, of which `other` is a divisor.
    pub(crate) fn in_groups(&self, other: &Size) -> Size {
        let (a, b) = (self, other);
        let value = a.value.zip(b.value).and_then(|(a, b)| a.checked_div(b));
        let text = format!("{} / {}", a.factor(), b.factor());
        Size::derive(value, quote!(((#a) / (#b))), text)
    }

    /// The largest power of two that is at most `self`.
    pub(crate) fn power_of_two_below(&self) -> Size {
        let value = self.value.map(|value| 1 << value.max(1).ilog2());
        let tokens = quote!((1usize << (#self).ilog2()));
        Size::derive(value, tokens, format!("2^floor(log2({self}))"))
    }

    /// A size that is computed from others with the given tokens, which are one expression wherever they stand.
    pub(crate) fn derive(value: Option<u64>, tokens: TokenStream, text: String) -> Size {
        match value {
            Some(value) => Size::known(value),
            None => Size {
                value,
                tokens,
                text,
                origin: TokenStream::new(),
                axis: None,
            },
        }
    }

    /// The same size, with these tokens for errors.
    pub(crate) fn at(self, origin: TokenStream) -> Size {
        Size { origin, ..self }
    }

    /// The same size under the name by which the user wrote it.
    pub(crate) fn written_as(self, origin: TokenStream) -> Size {
        let text = match self.value {
            Some(_) => self.text,
            None => text::of(&origin),
        };
        Size {
            text,
            origin,
            ..self
        }
    }

    /// The same size, as that of an axis with a name.
    pub(crate) fn called(mut self, name: &str) -> Size {
        self.axis = Some(name.into());
        self
    }

    /// The same expression, evaluated to a number.
    pub(crate) fn to_real(&self) -> Real {
        Real {
            value: self.value.map(|value| value as f64),
            tokens: self.tokens.clone(),
            text: self.text.clone(),
            origin: self.origin.clone(),
        }
    }

    /// The size as a number of type `f64`.
    pub(crate) fn to_number(&self) -> Real {
        let tokens = match self.value {
            Some(value) => Real::known(value as f64).tokens,
            None => quote!(((#self) as f64)),
        };
        Real {
            tokens,
            ..self.to_real()
        }
    }

    /// The same size, as the macro's own and no longer the user's tokens.
    fn derived(&self) -> Size {
        Size {
            origin: TokenStream::new(),
            axis: None,
            ..self.clone()
        }
    }

    fn factor(&self) -> String {
        if self.text.contains(' ') {
            format!("({})", self.text)
        } else {
            self.text.clone()
        }
    }

    /// The number, or else the expression, as the user wrote it: its tokens may be the name of its item by now.
    fn identity(&self) -> Result<u64, &str> {
        self.value.ok_or(&self.text)
    }
}

/// Equal sizes are equal for certain. Others may have the same number, as rustc finds.
impl PartialEq for Size {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Size {}

impl Ord for Size {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl PartialOrd for Size {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Constant for Size {
    fn name(&mut self, name: &Ident) -> Option<TokenStream> {
        self.value.is_none().then(|| {
            let (name, expr) = self.tokens.replace_by(name);
            quote!(const #name: usize = #expr;)
        })
    }

    fn ty(&self) -> &'static str {
        "usize"
    }

    fn later(&mut self) -> Option<&mut TokenStream> {
        self.value.is_none().then_some(&mut self.tokens)
    }
}

impl ToTokens for Size {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.tokens.to_tokens(tokens);
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A compile-time number, evaluated to `f64`.
#[derive(Clone)]
pub(crate) struct Real {
    pub(crate) value: Option<f64>,
    tokens: TokenStream,
    text: String,
    /// The tokens as the user wrote them, for errors. Empty for a derived number.
    pub(crate) origin: TokenStream,
}

impl Real {
    pub(crate) fn known(value: f64) -> Self {
        Real {
            value: Some(value),
            tokens: Literal::f64_unsuffixed(value).to_token_stream(),
            text: value.to_string(),
            origin: TokenStream::new(),
        }
    }

    /// The number that `expr` denotes, if it can be a number at all.
    pub(crate) fn from_expr(expr: &Expr) -> Option<Self> {
        let origin = expr.to_token_stream();
        let real = match eval_real(expr) {
            Known::Value(value) if value.is_finite() => Real::known(value),
            Known::Value(_) | Known::Wrong => return None,
            Known::Later => {
                let expr = inner(expr);
                Real {
                    value: None,
                    tokens: not_constant::with_roots(receiver::with_types(expr.to_token_stream())),
                    text: text::of(&expr.to_token_stream()),
                    origin: TokenStream::new(),
                }
            }
        };
        Some(Real { origin, ..real })
    }

    /// A number that the program computes, by an expression of type `f64`, with the same for people.
    pub(crate) fn computed(tokens: TokenStream, text: String) -> Self {
        Real {
            value: None,
            tokens,
            text,
            origin: TokenStream::new(),
        }
    }

    /// `1 / sqrt(size)`
    pub(crate) fn inverse_sqrt(size: &Size) -> Real {
        match size.value {
            Some(value) => Real::known(1.0 / (value.max(1) as f64).sqrt()),
            None => Real::computed(
                quote!((1.0 / ((#size) as f64).sqrt())),
                format!("1 / sqrt({size})"),
            ),
        }
    }
}

impl Real {
    /// The bits of the number, or else the expression, as those of a [`Size`].
    fn identity(&self) -> Result<u64, &str> {
        self.value.map(f64::to_bits).ok_or(&self.text)
    }
}

/// The same as for sizes; 0 and -0 are two numbers.
impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Real {}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Constant for Real {
    fn name(&mut self, name: &Ident) -> Option<TokenStream> {
        self.value.is_none().then(|| {
            let (name, expr) = self.tokens.replace_by(name);
            // The cast, too, fails at the user's tokens.
            let cast = quote_spanned!(name.span()=> (#expr) as f64);
            quote!(const #name: f64 = #cast;)
        })
    }

    fn ty(&self) -> &'static str {
        "f64"
    }

    fn later(&mut self) -> Option<&mut TokenStream> {
        self.value.is_none().then_some(&mut self.tokens)
    }
}

impl ToTokens for Real {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.tokens.to_tokens(tokens);
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A list of compile-time numbers: `[1.0, 1.25]`, or the name of an array of `f64`.
#[derive(Clone)]
pub(crate) struct Numbers {
    /// The numbers, if they stand there.
    pub(crate) list: Option<Vec<Real>>,
    /// An expression of an array, or of a reference to one.
    array: TokenStream,
    text: String,
    /// The tokens as the user wrote them, for errors.
    pub(crate) origin: TokenStream,
}

impl Numbers {
    /// The list that `expr` denotes, if it can be one at all. An array is named with or without `&`.
    pub(crate) fn from_expr(expr: &Expr) -> Option<Self> {
        let array = match inner(expr) {
            Expr::Reference(reference) if reference.mutability.is_none() => inner(&reference.expr),
            array => array,
        };
        let (list, elements) = match array {
            Expr::Array(array) => {
                let list = array.elems.iter().map(Real::from_expr);
                let list: Vec<Real> = list.collect::<Option<_>>()?;
                let elements = list.iter().map(|number| match number.value {
                    Some(_) => number.to_token_stream(),
                    None => quote!((#number) as f64),
                });
                let elements = quote_spanned!(array.bracket_token.span.join()=> [#(#elements),*]);
                (Some(list), elements)
            }
            Expr::Path(path) => (None, path.to_token_stream()),
            _ => return None,
        };
        Some(Numbers {
            list,
            array: elements,
            text: text::of(&array.to_token_stream()),
            origin: expr.to_token_stream(),
        })
    }

    /// The list where its name stands: in brackets, or as `&FACTORS`.
    pub(crate) fn argument(&self) -> TokenStream {
        match &self.list {
            Some(_) => self.origin.clone(),
            None => self.to_token_stream(),
        }
    }
}

/// A list is always an item of its own, so that a long one stands once.
impl Constant for Numbers {
    fn name(&mut self, name: &Ident) -> Option<TokenStream> {
        let (name, expr) = self.array.replace_by(name);
        let list = quote_spanned!(name.span()=> &#expr);
        Some(quote!(const #name: &[f64] = #list;))
    }

    fn ty(&self) -> &'static str {
        "&[f64]"
    }

    fn later(&mut self) -> Option<&mut TokenStream> {
        Some(&mut self.array)
    }
}

/// An expression of type `&[f64]`.
impl ToTokens for Numbers {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let array = &self.array;
        quote!(&#array).to_tokens(tokens);
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
