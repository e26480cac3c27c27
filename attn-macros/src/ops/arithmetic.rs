//! The operators `+`, `-` and `*`: of two tensors of one shape, and of a tensor and a number.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::{Cost, Decode, Fusion, Gradient, Label, Op, Properties, Saved};
use crate::model::emit::{Composed, Extents, FusedNode, Gradients, Output, VertexKind};
use crate::model::graph::Model;
use crate::spec::Real;

pub(crate) struct Add;
pub(crate) struct Sub;
pub(crate) struct Mul;
/// By a number.
pub(crate) struct Scale(pub(crate) Real);
/// By a number that is added.
pub(crate) struct Shift(pub(crate) Real);

fn properties<'o>(label: String, saved: Saved, fusion: Fusion<'o>) -> Properties<'o> {
    Properties {
        label: Label::Text(label),
        vertex: VertexKind::Other,
        saved,
        kept: None,
        fusion,
        lookup: None,
        attention: None,
    }
}

/// `add(&x, &y)`, both of the result's type.
fn of_two(of: &Composed<'_>, method: &str) -> TokenStream {
    let method = format_ident!("{method}");
    let [x, y] = [0, 1].map(|index| of.operand_as(index, of.result_type()));
    quote!(#method(&#x, &#y))
}

/// `scale(&x, 2.0 as f64)`
fn with_number(of: &Composed<'_>, method: &str, number: &Real) -> TokenStream {
    let (method, x): (Ident, _) = (format_ident!("{method}"), of.operand(0));
    quote!(#method(&#x, (#number) as f64))
}

impl Op for Add {
    fn properties(&self) -> Properties<'_> {
        properties("+".to_owned(), Saved::Nothing, Fusion::Sum)
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Same, Gradient::Same]
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        of_two(of, "add")
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn forward(&self, _: &FusedNode<'_>, to: &Output<'_>) -> TokenStream {
        let terms = to.terms();
        let sum = to.slice();
        quote!(p::layers::add(#(#terms,)* #sum))
    }

    /// The gradients of the terms are that of the sum.
    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}

impl Op for Sub {
    fn properties(&self) -> Properties<'_> {
        properties("-".to_owned(), Saved::Nothing, Fusion::None)
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Same, Gradient::Computed]
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        of_two(of, "sub")
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output<'_>) -> TokenStream {
        let x = of.slice(0);
        let y = of.slice(1);
        let to = to.slice();
        quote!(p::layers::sub(#x, #y, #to))
    }

    fn backward(&self, _: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let d_y = gradients.slice();
        let to = gradients.targets();
        quote!(#(#to.add(-1.0, #d_y, gradients);)*)
    }
}

impl Op for Mul {
    fn properties(&self) -> Properties<'_> {
        properties("*".to_owned(), Saved::Operands, Fusion::None)
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::Computed]
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        of_two(of, "mul")
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output<'_>) -> TokenStream {
        let x = of.slice(0);
        let y = of.slice(1);
        let to = to.slice();
        quote!(p::layers::mul(#x, #y, #to))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let d_y = gradients.slice();
        let to = gradients.targets();
        let others = gradients.operands().map(|index| of.slice(1 - index));
        quote!(#(p::layers::mul_backward(#others, #d_y, &mut #to, gradients);)*)
    }
}

impl Op for Scale {
    fn properties(&self) -> Properties<'_> {
        properties(format!("* {}", self.0), Saved::Nothing, Fusion::None)
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        with_number(of, "scale", &self.0)
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output<'_>) -> TokenStream {
        let by = &self.0;
        let x = of.slice(0);
        let to = to.slice();
        quote!(p::layers::scale((#by) as f64, #x, #to))
    }

    fn backward(&self, _: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let by = &self.0;
        let d_y = gradients.slice();
        let to = gradients.targets();
        quote!(#(#to.add((#by) as f64, #d_y, gradients);)*)
    }
}

impl Op for Shift {
    fn properties(&self) -> Properties<'_> {
        properties(format!("+ {}", self.0), Saved::Nothing, Fusion::None)
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Same]
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        with_number(of, "shift", &self.0)
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output<'_>) -> TokenStream {
        let by = &self.0;
        let x = of.slice(0);
        let to = to.slice();
        quote!(p::layers::shift((#by) as f64, #x, #to))
    }

    /// The gradient of the operand is that of the result.
    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
