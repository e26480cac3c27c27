//! Elementwise operations: operators and activations, each an expression of the elements of its operands.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::expand::{expanded_axes, with_ones};
use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, ModelOp, Op, Properties, Saved,
};
use crate::emit::block::{BlockNode, Footprints, Frame, Gradients, Output};
use crate::emit::expr::{emit_elementwise, loop_values, slope_values};
use crate::emit::tracked_code;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::Model;
use crate::onnx::{OnnxNode, Term};
use crate::score::loops::{self, Derivative, Known, Loop, Match, Slope};
use crate::score::{Binary, Expr, Unary};
use crate::spec::Real;

/// An expression of the elements of the operands, which have the shape of the result or are repeated to it. No operand is there twice.
pub(crate) struct Elementwise {
    pub(crate) expr: Expr,
    /// The axes of the result that are those of an operand, if it is repeated, in ascending order.
    repeats: Vec<Option<Vec<usize>>>,
    /// Whether the derivative reads the result where that is a part of it.
    reads_result: bool,
}

impl Elementwise {
    /// With the operands `0..operands` of the expression.
    pub(crate) fn new(expr: Expr, operands: usize) -> Self {
        Self::repeating(expr, vec![None; operands])
    }

    /// The same with operands that are repeated along the other axes of the result.
    pub(crate) fn repeating(expr: Expr, repeats: Vec<Option<Vec<usize>>>) -> Self {
        Self {
            expr,
            repeats,
            reads_result: false,
        }
    }

    /// The same with a derivative that reads the result, if that is a part of it.
    pub(crate) fn reading_result(&self) -> Option<Self> {
        let of_result = Self {
            expr: self.expr.clone(),
            repeats: self.repeats.clone(),
            reads_result: true,
        };
        let reads = of_result.backward().reads;
        reads.contains(&self.operands()).then_some(of_result)
    }

    /// `f(x)`
    pub(crate) fn unary(op: Unary) -> Self {
        Self::new(Expr::Operand(0).unary(op), 1)
    }

    /// `x + number` and the like.
    pub(crate) fn with_number(op: Binary, number: &Real) -> Self {
        Self::new(Expr::Operand(0).binary(op, Expr::Float(number.clone())), 1)
    }

    /// How many operands there are.
    pub(crate) fn operands(&self) -> usize {
        self.repeats.len()
    }

    /// The axes of the result that are those of an operand, if it is repeated.
    pub(crate) fn repeats(&self, operand: usize) -> Option<&[usize]> {
        self.repeats[operand].as_deref()
    }

    /// Whether the derivative reads an operand.
    pub(crate) fn derivative_reads(&self, operand: usize) -> bool {
        self.backward().reads.contains(&operand)
    }

    /// The loop that computes it.
    pub(crate) fn forward(&self) -> Compiled {
        let (known, _, operands) = self.known();
        Compiled {
            known,
            reads: operands,
            of: Vec::new(),
        }
    }

    /// `p::loops::Scale { by: (2.0) as f64 }, [p::read(x.as_slice())], y.as_mut_slice()`
    pub(crate) fn arguments(&self, emitted: &Ident, to: &Output) -> TokenStream {
        let compiled = self.forward();
        let of = loop_value(compiled.known.as_ref(), "", emitted);
        let x = compiled.reads.iter().map(|index| to.read(*index));
        let to = to.slice();
        quote!(#of, [#(#x),*], #to)
    }

    /// The same without a result: `p::loops::Scale { by: (2.0) as f64 }, [p::read(x.as_slice())]`
    pub(crate) fn terms(&self, emitted: &Ident, reads: &[TokenStream]) -> TokenStream {
        let compiled = self.forward();
        let of = loop_value(compiled.known.as_ref(), "", emitted);
        let x = compiled.reads.iter().map(|index| &reads[*index]);
        quote!(#of, [#(#x),*])
    }

    /// The loop that computes the gradients of its operands.
    pub(crate) fn backward(&self) -> Compiled {
        if self.reads_result {
            let derivative = self.derivative();
            return Compiled {
                known: None,
                reads: derivative.reads,
                of: derivative.of,
            };
        }
        let (known, expr, operands) = self.known();
        let derivative = Derivative::of(&expr, self.operands(), false);
        let of_node = |of_loop: Vec<usize>| of_loop.into_iter().map(|index| operands[index]);
        Compiled {
            known,
            reads: of_node(derivative.reads).collect(),
            of: of_node(derivative.of).collect(),
        }
    }

    /// Whether one of its loops is none of the known ones.
    pub(crate) fn is_emitted(&self) -> bool {
        self.reads_result || self.known().0.is_none()
    }

    /// The loop of the gradients if it is emitted.
    fn derivative(&self) -> Derivative {
        Derivative::of(&self.expr, self.operands(), self.reads_result)
    }

    /// The derivative by each operand, of the expression that is compiled: its numbers may be any.
    fn slopes(&self) -> Vec<Slope> {
        let (_, expr, operands) = self.known();
        let mut slopes = vec![Slope::Zero; self.operands()];
        for (slope, operand) in loops::slopes(&expr, self.operands())
            .into_iter()
            .zip(operands)
        {
            slopes[operand] = slope;
        }
        slopes
    }

    /// The known loop that it is, if there is one, the expression that is compiled, and the operands in its order.
    fn known(&self) -> (Option<Match>, Expr, Vec<usize>) {
        let known = Known::find(&self.expr).filter(|_| !self.divides_by_repeated());
        match known {
            Some(found) => {
                let expr = found.known.expr();
                let operands = found.operands.clone();
                (Some(found), expr, operands)
            }
            None => (None, self.expr.clone(), (0..self.operands()).collect()),
        }
    }
}

impl Elementwise {
    /// Whether it divides by an operand that is repeated. The derivative is better then if it is known which operands are numbers of rows.
    fn divides_by_repeated(&self) -> bool {
        let is_repeated =
            |expr: &Expr| matches!(expr, Expr::Operand(index) if self.repeats(*index).is_some());
        self.expr
            .any(&|expr| matches!(expr, Expr::Binary(Binary::Div, _, by) if by.any(&is_repeated)))
    }

    /// The operands that have one number for each row of a result with so many axes.
    fn numbers(&self, axes: usize) -> Vec<usize> {
        let is_number = |index: &usize| {
            let places = self.repeats(*index);
            places.is_some_and(|places| axes > 0 && !places.contains(&(axes - 1)))
        };
        (0..self.operands()).filter(is_number).collect()
    }
}

/// A loop over the operands of a node.
pub(crate) struct Compiled {
    /// Compiled in `attn-core`; otherwise it is emitted.
    pub(crate) known: Option<Match>,
    /// Its operands, as those of the node, behind which is the result. In a derivative the gradient of the result is one more.
    pub(crate) reads: Vec<usize>,
    /// In a derivative, the operands of the node whose gradients are its values.
    pub(crate) of: Vec<usize>,
}

/// `p::loops::Scale { by: (2.0) as f64 }`, or the loop that is emitted under another name.
fn loop_value(known: Option<&Match>, suffix: &str, emitted: &Ident) -> TokenStream {
    let Some(found) = known else {
        let name = format_ident!("{emitted}{suffix}");
        return quote!(#name);
    };
    let name = format_ident!("{}{suffix}", found.known.name);
    let fields = found.known.numbers.iter().zip(&found.numbers);
    let fields = fields.map(|(field, number)| {
        let field = format_ident!("{field}");
        quote!(#field: (#number) as f64)
    });
    let fields: Vec<_> = fields.collect();
    match fields.as_slice() {
        [] => quote!(p::loops::#name),
        _ => quote!(p::loops::#name { #(#fields),* }),
    }
}

/// The types of the loops of a node whose result has so many axes, unless `attn-core` has compiled them.
///
/// ```text
/// struct Loop0;
/// impl p::Loop<2, 1> for Loop0 { .. }
/// struct Loop0Backward;
/// impl p::Loop<3, 2> for Loop0Backward { .. }
/// ```
pub(crate) fn emit_loops(op: &Elementwise, name: &Ident, axes: usize) -> TokenStream {
    let numbers = op.numbers(axes);
    let forward = op.forward().known.is_none().then(|| {
        let forward = Loop::of(&op.expr);
        emit_loop(name, &forward, &numbers, loop_values(&forward.values))
    });
    let Derivative { reads, body, .. } = op.derivative();
    let places = reads.iter().enumerate();
    let numbers = places.filter(|(_, read)| numbers.contains(read));
    let numbers: Vec<_> = numbers.map(|(place, _)| place).collect();
    let backward = format_ident!("{name}Backward");
    let values = slope_values(&body.values, &numbers);
    let is_computed = !body.values.is_empty() && op.backward().known.is_none();
    let backward = is_computed.then(|| emit_loop(&backward, &body, &numbers, values));
    quote!(#forward #backward)
}

/// A loop with these values. Some operands are numbers of rows.
fn emit_loop(name: &Ident, of: &Loop, numbers: &[usize], values: TokenStream) -> TokenStream {
    let operands = Literal::usize_unsuffixed(of.operands);
    let count = Literal::usize_unsuffixed(of.values.len());
    let names = (0..of.operands).map(|index| format_ident!("x{index}"));
    let bits = numbers.iter().fold(0_u32, |bits, index| bits | 1 << index);
    let bits = Literal::u32_unsuffixed(bits);
    let numbers = (!numbers.is_empty()).then(|| quote!(const NUMBERS: u32 = #bits;));
    quote! {
        struct #name;

        impl p::Loop<#operands, #count> for #name {
            #numbers

            #[inline(always)]
            fn values<E: p::Real, V: p::Vector<Element = E>>(&self, [#(#names),*]: [V; #operands]) -> [V; #count] {
                #values
            }
        }
    }
}

impl Op for Elementwise {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Reads(self.backward().reads),
            kept: None,
            fusion: Fusion::Elementwise(self),
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        let first = self.backward().of.first().copied();
        let slopes = self.slopes().into_iter().enumerate();
        let gradients = slopes.map(|(index, slope)| match slope {
            Slope::Zero => Gradient::None,
            // A sum.
            _ if self.repeats(index).is_some() => Gradient::Computed,
            Slope::One => Gradient::Same,
            // The loop reads the gradient of the result before it writes its first result.
            Slope::Other(_) if first == Some(index) => Gradient::InPlace,
            Slope::Other(_) => Gradient::Computed,
        });
        gradients.collect()
    }
}

impl ModelOp for Elementwise {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(label(&self.expr)),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let operands = of.operands();
        Ok(of.elements(&self.expr, &operands))
    }
}

impl Emit<ModelFrame<'_>> for Elementwise {
    /// An operation of `attn::ops`, if there is one: only the fused form makes several of a declaration one expression.
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        of.define(&match Call::of(&self.expr) {
            Some(Call::WithNumber(method, x, number)) => {
                let (method, x) = (format_ident!("{method}"), of.operand(x));
                quote!(#method(&#x, (#number) as f64))
            }
            // Both of the result's type.
            Some(Call::OfTwo(method, operands)) => {
                let method = format_ident!("{method}");
                let [x, y] = operands.map(|index| of.operand_as(index, of.result_type()));
                quote!(#method(&#x, &#y))
            }
            Some(Call::Activation(ty, x)) => {
                let (nn, ty, x) = (of.nn(), format_ident!("{ty}"), of.operand(x));
                quote!(activate::<#nn::#ty, _, _, _>(&#x))
            }
            None => {
                let operands = 0..self.operands();
                let operands = operands.map(|index| of.operand_as(index, of.result_type()));
                let value = emit_elementwise(&self.expr, &operands.collect::<Vec<_>>(), &of.nn());
                quote!(with_tape(|tape| #value))
            }
        })
    }

    /// The sums before the loop, the gradients that it makes, and then the sums of these.
    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let extents = of.extents();
        let result = extents.result();
        let sum = |index: &usize| {
            let from = with_ones(self.repeats(*index)?, extents.operand(*index), result.len());
            Some(quote!(p::layers::expand_footprint(&[#(#from),*], &[#(#result),*])))
        };
        let before: Vec<_> = self.summed_before().iter().filter_map(sum).collect();
        let behind: Vec<_> = self.backward().of.iter().filter_map(sum).collect();
        let arrays: Vec<_> = behind
            .iter()
            .map(|_| tracked_code::array(&result))
            .collect();
        Footprints {
            forward: None,
            backward: tracked_code::at_once(&before, &arrays, &behind),
        }
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let arguments = self.arguments(&of.loop_name(), to);
        quote!(p::layers::elementwise(&#arguments))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        if of.is_in_strips() {
            return self.emit_gradients_of_strip(of, gradients);
        }
        let whole = self.emit_whole_gradients(of, gradients);
        let sum = |index: usize, d_whole: &TokenStream| {
            let target = gradients.target(index)?;
            let axes = expanded_axes(self.repeats(index)?, of, index);
            Some(quote!(p::layers::expand_backward(#axes, #d_whole, &mut #target, gradients);))
        };
        let before = self.summed_before().into_iter();
        let before = before.filter_map(|index| sum(index, gradients.slice()));
        let others = self.backward().of.into_iter();
        let behind = others.filter_map(|index| {
            let name = whole_gradient(index);
            sum(index, &quote!(#name.as_slice()))
        });
        let behind: Vec<_> = behind.collect();
        match behind.as_slice() {
            [] => quote!(#(#before)* #whole),
            // The memory of the gradients goes with the block.
            _ => quote!({ #(#before)* #whole #(#behind)* }),
        }
    }
}

impl Elementwise {
    /// The repeated operands whose gradient is a sum of that of the result: this may be overwritten by the loop.
    fn summed_before(&self) -> Vec<usize> {
        let slopes = self.slopes().into_iter().enumerate();
        let sums = slopes
            .filter(|(index, slope)| matches!(slope, Slope::One) && self.repeats(*index).is_some());
        sums.map(|(index, _)| index).collect()
    }

    /// The same for some rows: a loop writes sums as it computes their terms.
    fn emit_gradients_of_strip(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let d_y = gradients.slice();
        let before = self.summed_before().into_iter();
        let before = before.filter_map(|index| of.written(self, index, gradients));
        let before =
            before.map(|to| quote!(p::compute_here(&p::loops::Copy, [p::read(#d_y)], [#to]);));
        let before: TokenStream = before.collect();
        let compiled = self.backward();
        if compiled.of.is_empty() {
            return before;
        }
        let (body, x) = self.backward_loop(of, &compiled);
        let d_y = gradients.read();
        let d_x = compiled.of.iter();
        let d_x = d_x.filter_map(|index| of.written(self, *index, gradients));
        quote!(#before p::compute_here(&#body, [#(#x,)* #d_y], [#(#d_x),*]);)
    }

    /// The loop of the derivative, and what it reads before the gradient of the result.
    fn backward_loop(
        &self,
        of: &FusedNode<'_>,
        compiled: &Compiled,
    ) -> (TokenStream, Vec<TokenStream>) {
        let body = loop_value(compiled.known.as_ref(), "Backward", &of.loop_name());
        let x = compiled.reads.iter().map(|index| {
            if *index == self.operands() {
                let result = of.slice_of_result();
                return quote!(p::read(#result));
            }
            let numbers = of.slice(*index);
            self.read(*index, of, numbers)
        });
        (body, x.collect())
    }

    /// The gradients of operands in the shape of the result, by one loop.
    fn emit_whole_gradients(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let compiled = self.backward();
        // The derivative by each operand is 0 or 1.
        if compiled.of.is_empty() {
            return TokenStream::new();
        }
        let (body, x) = self.backward_loop(of, &compiled);
        let d_y = gradients.read();
        let repeated = compiled.of.iter().copied();
        let repeated = repeated.filter(|index| self.repeats(*index).is_some());
        let [rows, width] = of.extents_of_result();
        let makes = repeated.map(|index| {
            let name = whole_gradient(index);
            quote!(let mut #name = p::Array::<E>::uninit(#rows, [#width]);)
        });
        let d_x = compiled
            .of
            .iter()
            .filter_map(|index| match self.repeats(*index) {
                None => gradients.target(*index).cloned(),
                Some(_) => {
                    let name = whole_gradient(*index);
                    Some(quote!(p::GradTarget::array(&mut #name, p::WriteMode::Overwrite)))
                }
            });
        quote! {
            #(#makes)*
            p::layers::elementwise_backward(&#body, [#(#x,)* #d_y], [#(&mut #d_x),*], gradients);
        }
    }

    /// `p::read(numbers)`, or `p::repeated(..)`: an operand of the loop.
    pub(crate) fn read<F: Frame>(
        &self,
        operand: usize,
        of: &BlockNode<'_, F>,
        numbers: TokenStream,
    ) -> TokenStream {
        let repeated = of.repeated(self, operand, &numbers);
        let numbers = repeated.unwrap_or(numbers);
        quote!(p::read(#numbers))
    }
}

/// The variable with the gradient of a repeated operand in the shape of the result.
fn whole_gradient(operand: usize) -> Ident {
    format_ident!("whole_{operand}")
}

/// A method of `Pass` that an expression is, of operands alone.
#[derive(Debug, PartialEq)]
enum Call<'e> {
    /// `scale(&x, number)`
    WithNumber(&'static str, usize, &'e Real),
    /// `add(&x, &y)`
    OfTwo(&'static str, [usize; 2]),
    /// `activate::<Silu>(&x)`
    Activation(&'static str, usize),
}

impl<'e> Call<'e> {
    fn of(expr: &'e Expr) -> Option<Self> {
        Some(match expr {
            Expr::Binary(op, x, by) => match (op, &**x, &**by) {
                (Binary::Mul, Expr::Operand(x), Expr::Float(by)) => {
                    Call::WithNumber("scale", *x, by)
                }
                (Binary::Add, Expr::Operand(x), Expr::Float(by)) => {
                    Call::WithNumber("shift", *x, by)
                }
                (op, Expr::Operand(x), Expr::Operand(y)) => {
                    let method = match op {
                        Binary::Add => "add",
                        Binary::Sub => "sub",
                        Binary::Mul => "mul",
                        _ => return None,
                    };
                    Call::OfTwo(method, [*x, *y])
                }
                _ => return None,
            },
            Expr::Unary(op, x) => match &**x {
                Expr::Operand(x) => Call::Activation(function_type(*op)?, *x),
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// The type of a function in `attn::nn`, if it is a nonlinearity.
fn function_type(op: Unary) -> Option<&'static str> {
    match op {
        Unary::Activation(activation) => Some(activation.ty()),
        Unary::Sigmoid => Some("Sigmoid"),
        Unary::Tanh => Some("Tanh"),
        _ => None,
    }
}

/// An operation for people.
fn label(expr: &Expr) -> String {
    match expr {
        Expr::Unary(op, _) => match function_type(*op) {
            Some(ty) => ty.to_owned(),
            None => format!("{op:?}").to_lowercase(),
        },
        Expr::Binary(Binary::Min | Binary::Max | Binary::Pow, ..) => expr.to_string(),
        Expr::Binary(op, _, by) => {
            let sign = op.symbol().map_or("", |(sign, _)| sign);
            match &**by {
                Expr::Float(by) => format!("{sign} {by}"),
                _ => sign.to_owned(),
            }
        }
        Expr::Select(..) => "select".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Activation;

    /// `silu(a) * b` is no product of two operands, nor is `silu(a * b)` the function of one.
    #[test]
    fn a_method_is_called_for_operands_alone() {
        let silu = |x: Expr| x.unary(Unary::Activation(Activation::Silu));
        let [a, b] = [Expr::Operand(0), Expr::Operand(1)];
        let product = |x: &Expr, y: &Expr| x.clone().binary(Binary::Mul, y.clone());
        assert_eq!(Call::of(&product(&a, &b)), Some(Call::OfTwo("mul", [0, 1])));
        assert_eq!(Call::of(&product(&b, &a)), Some(Call::OfTwo("mul", [1, 0])));
        assert_eq!(
            Call::of(&silu(a.clone())),
            Some(Call::Activation("Silu", 0))
        );
        let two = Expr::Float(Real::known(2.0));
        assert!(matches!(
            Call::of(&product(&a, &two)),
            Some(Call::WithNumber("scale", 0, _))
        ));
        for expr in [
            product(&silu(a.clone()), &b),
            product(&silu(a.clone()), &two),
            silu(product(&a, &b)),
            product(&a, &silu(b)),
        ] {
            assert_eq!(Call::of(&expr), None, "{expr}");
        }
    }
}
