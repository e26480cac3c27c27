//! A model as the frame of its block: the lines read `call` and `weights`, and write `result_0`.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::{ModelFrame, decode};
use crate::emit::ExecMode;
use crate::emit::block::{self, Access, BlockNode, Frame, Gradients, Rounds, field, product};
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::GradTarget;
use crate::model::emit::{ComposedNode, Extents, length};
use crate::model::given::DependsOn;
use crate::model::graph::{Holder, ModuleId, Node, ParamPath, Part, Repeat, Scan, Step, ValueId};
use crate::model::passes::Passes;
use crate::model::types::Axis;
use crate::ops::{Attention, ModelOp};

impl Frame for ModelFrame<'_> {
    type Op = dyn ModelOp;

    type Composed<'c> = ComposedNode<'c>;

    fn passes(&self) -> &Passes<'_> {
        self.passes
    }

    fn mode(&self) -> ExecMode {
        self.mode
    }

    fn input(&self, id: ValueId) -> Access {
        if let Some(step) = &self.step {
            return step.input(self, id);
        }
        let name = self.input_field(id);
        Access {
            slice: quote!(call.inputs.#name.values()),
            matrix: quote!(call.inputs.#name.matrix()),
        }
    }

    fn d_input(&self, id: ValueId) -> TokenStream {
        if let Some(step) = &self.step {
            return step.d_input(self, id);
        }
        let name = self.input_field(id);
        quote!(call.inputs.#name.target())
    }

    fn result(&self, index: usize) -> Access {
        if let Some(step) = &self.step {
            return step.result(self, index);
        }
        block::array(&format_ident!("result_{index}"))
    }

    fn d_result(&self, index: usize, of: ValueId) -> Access {
        if let Some(step) = &self.step {
            return step.d_result(self, index, of);
        }
        let name = format_ident!("d_result_{index}");
        let [rows, width] = self.extents(of);
        Access {
            slice: quote!(#name),
            matrix: quote!(p::Matrix::new(#name, #rows, #width)),
        }
    }

    fn rows(&self, axes: &[Axis]) -> TokenStream {
        product(axes)
    }

    /// The batch is the first axis of the first input, if a call chooses its length.
    fn len_of_batch(&self, id: ValueId) -> Option<TokenStream> {
        let first = *self.model().inputs.first()?;
        let first = self.model().value(first).ty.axes.first()?;
        let axes = &self.ty(id).axes;
        match (first, axes.first()?) {
            (Axis::Symbol(batch), Axis::Symbol(axis)) if batch.length == axis.length => {
                Some(product(axes))
            }
            _ => None,
        }
    }

    fn extent(&self, symbol: &str) -> Ident {
        length(self.model(), symbol)
    }

    fn emit_scan(&self, lines: &mut TrackedCode, scan: &Scan) {
        self.scan(lines, scan);
    }

    fn emit_scan_backward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        d_results: &[Option<Access>],
        to: &[(ValueId, GradTarget)],
    ) {
        self.scan_backward(lines, scan, d_results, to);
    }

    fn kept_of_scan(&self, scan: &Scan) -> Vec<Ident> {
        let fields = self.fields_of_scan(scan).into_iter();
        fields.map(|(name, _)| name).collect()
    }

    fn emit_product_of_step(&self, node: &Node, gradients: &Gradients) -> Option<TokenStream> {
        self.step.as_ref()?.product(self, node, gradients)
    }

    fn may_end(&self) -> bool {
        self.step.is_none()
    }

    fn parameters(&self, node: &Node) -> Option<TokenStream> {
        self.weights_outside(node.op.parameters()?)
    }

    fn parameters_of_rounds(&self, repeat: &Repeat) -> Option<TokenStream> {
        let all = self.weights_outside(&repeat.place)?;
        // A slice has no size: a reference to it has.
        let is_slice = repeat.part.is_some() && !repeat.share;
        let sets = sets_of(all, repeat);
        Some(if is_slice { quote!(&#sets) } else { sets })
    }

    fn parameters_of_loop(&self, repeat: &Repeat) -> Option<TokenStream> {
        self.weights_outside(&repeat.place)
    }

    fn place_of_step(&self, id: ValueId) -> Option<TokenStream> {
        self.step.as_ref()?.place(self, id)
    }

    /// A name that no layer can give a type.
    fn loop_name(&self, result: ValueId) -> Ident {
        let result = self.model().original(result);
        let index = self.cx.loops.iter().position(|other| *other == result);
        format_ident!("___Loop{}", index.unwrap_or(0))
    }

    fn is_of_outside(&self, id: ValueId) -> bool {
        self.step.is_some() && self.block().is_input(id)
    }

    fn emits(&self, step: &Step) -> bool {
        let kind = match step {
            Step::Node(node) => self.given.depends_on(self.block(), node.result),
            Step::Repeat(repeat) => self.given.body(self.block(), &repeat.body),
            Step::Scan(scan) => self.given.body(self.block(), &scan.body),
        };
        self.computes(kind)
    }

    fn is_made(&self, id: ValueId) -> bool {
        self.computes(self.given.depends_on(self.block(), id))
    }

    fn rounds(&self, repeat: &Repeat) -> Option<Rounds> {
        let module = self.body_of(repeat);
        let weights = self.module_var(module);
        let sets = sets_of(self.weights(&repeat.place), repeat);
        let forward = decode::rounds(&sets, &repeat.count, repeat.share);
        // The last set of parameters comes first.
        let backward = match repeat.share {
            true => forward.clone(),
            false => quote!(#forward.rev()),
        };
        let (forward, each) = match self.mode {
            ExecMode::Forward | ExecMode::Start => (forward, quote!(#weights)),
            ExecMode::Session => self.with_past(repeat, forward, &weights),
        };
        Some(Rounds {
            weights,
            each,
            forward,
            backward,
            saved: self.saved_type(repeat),
            kept: self.kept_of_rounds(repeat),
        })
    }
}

/// The sets of parameters of the rounds that a loop has: `weights.blocks[again_0..]`.
fn sets_of(all: TokenStream, repeat: &Repeat) -> TokenStream {
    match repeat.part.as_deref() {
        Some(Part { is_last, at, .. }) if !repeat.share => match is_last {
            true => quote!(#all[#at..]),
            false => quote!(#all[..#at]),
        },
        _ => all,
    }
}

impl ModelFrame<'_> {
    /// Whether this pass computes what depends on this.
    fn computes(&self, what: DependsOn) -> bool {
        match self.mode {
            ExecMode::Forward => true,
            ExecMode::Session => what != DependsOn::Given,
            ExecMode::Start => what != DependsOn::Tokens,
        }
    }

    /// `weights.attention`, or `blocks.attention` in the body of a loop, `weights.mlp.linear` in a block.
    pub(super) fn weights(&self, path: &ParamPath) -> TokenStream {
        let field = field(&path.field);
        let module = self.weights_of(path.module);
        quote!(#module.#field)
    }

    /// [`weights`](Self::weights), unless they are those of a round of a loop.
    fn weights_outside(&self, path: &ParamPath) -> Option<TokenStream> {
        let mut module = path.module;
        while let Holder::Field(place) = &self.model().module(module).holder {
            module = place.module;
        }
        let model = &self.model().modules[0];
        std::ptr::eq(self.model().module(module), model).then(|| self.weights(path))
    }

    /// The weights of a module.
    pub(super) fn weights_of(&self, id: ModuleId) -> TokenStream {
        let module = self.model().module(id);
        match &module.holder {
            Holder::Variable(_) => self.module_var(module).into_token_stream(),
            Holder::Field(place) => self.weights(place),
        }
    }
}

/// Parts that only a model has.
impl BlockNode<'_, ModelFrame<'_>> {
    /// The name of the model.
    pub(crate) fn label(&self) -> String {
        self.frame.cx.label()
    }

    /// The parameters at a path.
    pub(crate) fn weights(&self, path: &ParamPath) -> TokenStream {
        self.frame.weights(path)
    }

    /// The parameters of a product, if they are packed for the steps of a scan.
    pub(crate) fn packed(&self) -> Option<TokenStream> {
        self.frame.packed(self.result)
    }

    pub(crate) fn extents(&self) -> Extents<'_> {
        Extents {
            model: self.frame.model(),
            operands: self.operands,
            result: self.result,
        }
    }

    /// How many rows the first operand has, if it has the axis of the batch in front.
    pub(crate) fn rows_of_batch(&self) -> Option<TokenStream> {
        let first = self.operands[0];
        self.frame.len_of_batch(first)?;
        let [rows, _] = self.frame.extents(first);
        Some(rows)
    }

    /// An operand of ids or lengths.
    pub(crate) fn ids(&self, operand: usize) -> TokenStream {
        self.frame.ids(self.operands[operand])
    }

    /// The field of `call.inputs` with an operand.
    pub(crate) fn input(&self, operand: usize) -> Ident {
        self.frame.input_field(self.operands[operand])
    }

    /// `<GptBlocksAttention<E> as p::FusedBlock<E, 1, 1>>`
    pub(crate) fn attention(&self, attention: &Attention) -> TokenStream {
        self.frame.attention(attention)
    }

    /// The sizes of the axes batch, query and key.
    pub(crate) fn axes_of_attention(&self, attention: &Attention) -> TokenStream {
        self.frame.axes(self.operands, attention)
    }

    /// `call.data.0`: what the attention here reads of the call.
    pub(crate) fn data_of_attention(&self) -> TokenStream {
        let attentions = self.frame.attentions();
        let result = self.frame.model().original(self.result);
        let place = attentions.iter().position(|node| node.result == result);
        let place = syn::Index::from(place.unwrap_or_default());
        quote!(call.data.#place)
    }

    /// `<GptBlocksAttention<E> as p::Decode<E, 1>>`
    pub(crate) fn attention_in_session(&self, attention: &Attention) -> TokenStream {
        self.frame.attention_in_session(attention.index)
    }

    /// The state of the layer at this place in a session.
    pub(crate) fn past(&self, path: &ParamPath) -> TokenStream {
        self.frame.past_of(path)
    }
}
