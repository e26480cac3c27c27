//! A layer as the frame of its block: the lines read the inputs by their names, `call` and `weights`, and write `output`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::score::Score;
use super::{LayerFrame, var};
use crate::emit::block::{Access, BlockNode, Frame, Gradients, Rounds};
use crate::emit::tracked_code::{self, TrackedCode};
use crate::emit::{ComposedNode, ExecMode};
use crate::graph::block::is_by_key;
use crate::model::diff::GradTarget;
use crate::model::graph::{Node, Repeat, Scan, Step, ValueId};
use crate::model::passes::Passes;
use crate::model::types::Axis;
use crate::ops::attention_layer::{Attend, HeadTransform, LayerOp};
use crate::spec::Size;

impl Frame for LayerFrame<'_> {
    type Op = dyn LayerOp;

    type Composed<'c> = ComposedNode<'c>;

    fn passes(&self) -> &Passes<'_, dyn LayerOp> {
        self.passes
    }

    fn mode(&self) -> ExecMode {
        self.mode
    }

    fn input(&self, id: ValueId) -> Access {
        let name = self.value(id);
        Access {
            slice: quote!(#name.values()),
            matrix: quote!(#name),
        }
    }

    fn d_input(&self, id: ValueId) -> TokenStream {
        let name = self.gradient_name(id);
        quote!(*#name)
    }

    /// The gradient of an input is an argument.
    fn is_of_outside(&self, id: ValueId) -> bool {
        self.block().is_input(id)
    }

    fn result(&self, _: usize) -> Access {
        let name = self.value(self.layer.output());
        Access {
            slice: quote!(#name.values_mut()),
            matrix: quote!(#name),
        }
    }

    /// A layer drops weights only.
    fn len_of_batch(&self, _: ValueId) -> Option<TokenStream> {
        None
    }

    fn d_result(&self, _: usize, _: ValueId) -> Access {
        let name = self.gradient_name(self.layer.output());
        Access {
            slice: quote!(#name.values()),
            matrix: quote!(#name),
        }
    }

    fn emit_scan(&self, _: &mut TrackedCode, _: &Scan<dyn LayerOp>) {}

    fn emit_scan_backward(
        &self,
        _: &mut TrackedCode,
        _: &Scan<dyn LayerOp>,
        _: &[Option<Access>],
        _: &[(ValueId, GradTarget)],
    ) {
    }

    fn kept_of_scan(&self, _: &Scan<dyn LayerOp>) -> Vec<Ident> {
        Vec::new()
    }

    fn emit_product_of_step(&self, _: &Node<dyn LayerOp>, _: &Gradients) -> Option<TokenStream> {
        None
    }

    fn place_of_step(&self, _: ValueId) -> Option<TokenStream> {
        None
    }

    fn rows(&self, axes: &[Axis]) -> TokenStream {
        match is_by_key(axes) {
            true => quote!(sizes.keys()),
            false => quote!(sizes.queries()),
        }
    }

    fn extent(&self, symbol: &str) -> Ident {
        var(symbol)
    }

    /// The names are the layer's own: they hide no name of a user's.
    fn value(&self, id: ValueId) -> Ident {
        let memory = self.block().memory(id);
        var(&self.layer.value(memory).name)
    }

    /// Attention alone keeps something.
    fn kept(&self, _: ValueId) -> Ident {
        var("lse")
    }

    fn loop_name(&self, _: ValueId) -> Ident {
        var("Loop")
    }

    /// In a session the keys and values of a context are computed when it starts.
    fn emits(&self, step: &Step<dyn LayerOp>) -> bool {
        match step {
            Step::Node(node) => self.is_made(node.result),
            Step::Repeat(_) | Step::Scan(_) => true,
        }
    }

    fn is_made(&self, id: ValueId) -> bool {
        match self.mode {
            ExecMode::Forward => true,
            ExecMode::Session => !self.is_of_context(id),
            ExecMode::Start => self.is_of_context(id),
        }
    }

    fn rounds(&self, _: &Repeat<dyn LayerOp>) -> Option<Rounds> {
        None
    }
}

/// The gradient of a parameter, in memory of its own until all threads have added to it.
pub(crate) struct ParameterGradient {
    /// The line that makes it.
    pub(crate) make: TokenStream,
    pub(crate) footprints: Vec<TokenStream>,
    /// The argument of the kernel.
    pub(crate) argument: TokenStream,
    /// The lines that add it to that of the tape.
    pub(crate) add: TokenStream,
}

impl ParameterGradient {
    /// Nothing is learned.
    fn none() -> Self {
        ParameterGradient {
            make: TokenStream::new(),
            footprints: Vec::new(),
            argument: quote!(None),
            add: TokenStream::new(),
        }
    }
}

/// Parts that only a layer has.
impl BlockNode<'_, LayerFrame<'_>> {
    /// The projections whose results are that of the node.
    pub(crate) fn projection(&self) -> TokenStream {
        self.parameter(&self.frame.layer.value(self.result).name)
    }

    /// Whether the keys are those of another sequence.
    pub(crate) fn is_cross(&self) -> bool {
        self.frame.cx.graph.cross
    }

    /// A field of `Weights`.
    pub(crate) fn parameter(&self, name: &str) -> TokenStream {
        let name = var(name);
        quote!(weights.#name)
    }

    pub(crate) fn transform(&self, how: &HeadTransform) -> TokenStream {
        self.frame.emit_prepare(how)
    }

    /// `attention(call, weights)`
    pub(crate) fn attention(&self, attention: &Attend) -> TokenStream {
        self.frame.call_attention(attention)
    }

    /// The attention of the new tokens of a session, written into `y`.
    pub(crate) fn attention_of_tokens(
        &self,
        attention: &Attend,
        operands: &[TokenStream],
        y: &TokenStream,
    ) -> TokenStream {
        self.frame.call_attention_of_tokens(attention, operands, y)
    }

    /// The heads, and the width of their values.
    pub(crate) fn heads(&self) -> [&Size; 2] {
        let spec = self.frame.cx.spec;
        [&spec.heads, &spec.value_head_dim]
    }

    /// The gradient of the parameter of this field, if there is one, under a name, which the kernel takes by `view`.
    pub(crate) fn parameter_gradient(
        &self,
        field: Option<&'static str>,
        name: &str,
        view: &str,
    ) -> ParameterGradient {
        let Some(field) = field else {
            return ParameterGradient::none();
        };
        let [name, view] = [name, view].map(|name| format_ident!("{name}"));
        let param = self.frame.cx.graph.param(field);
        let tensors = param.map(|param| param.tensors());
        let sizes = tensors.iter().flatten().flat_map(|(_, dims, _)| dims);
        let sizes: Vec<_> = sizes.map(|size| quote!(#size)).collect();
        let field = self.parameter(field);
        ParameterGradient {
            make: quote!(let mut #name = #field.d_array();),
            footprints: vec![tracked_code::array(&sizes)],
            argument: quote!(#name.as_mut().map(p::Array::#view)),
            add: quote!(#field.add_array(#name, gradients);),
        }
    }

    /// The same for what the function of the score has learned.
    pub(crate) fn score_gradient(&self, attention: &Attend) -> ParameterGradient {
        let score = Score::new(self.frame.cx, attention);
        let gradient = score.and_then(|score| score.emit_gradient());
        gradient.unwrap_or_else(ParameterGradient::none)
    }
}
