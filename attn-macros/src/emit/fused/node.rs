//! An operation where it stands: how its lines read operands, and where they write.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::score::Score;
use super::{Fused, var};
use crate::emit::ExecMode;
use crate::emit::tracked_code::{self, TrackedCode};
use crate::graph::steps::is_by_key;
use crate::model::diff::GradTarget;
use crate::model::graph::{Node, ValueId};
use crate::ops::fused::{Attend, FusedOp, HeadTransform};

pub(crate) struct LayerNode<'a> {
    pub(super) fused: &'a Fused<'a>,
    pub(super) node: &'a Node<dyn FusedOp>,
    pub(super) mode: ExecMode,
}

impl LayerNode<'_> {
    /// Which of the two passes forward is emitted.
    pub(crate) fn mode(&self) -> ExecMode {
        self.mode
    }

    /// An operand, to read.
    pub(crate) fn matrix(&self, operand: usize) -> TokenStream {
        self.fused.matrix(self.node.operands[operand])
    }

    /// The result, which was saved.
    pub(crate) fn matrix_of_result(&self) -> TokenStream {
        self.fused.matrix(self.node.result)
    }

    /// The number of tokens of a sequence of an operand.
    pub(crate) fn length(&self, operand: usize) -> TokenStream {
        let value = self.fused.steps.value(self.node.operands[operand]);
        match is_by_key(&value.ty) {
            true => quote!(sizes.key),
            false => quote!(sizes.query),
        }
    }

    /// The projections whose results are that of the node.
    pub(crate) fn projection(&self) -> TokenStream {
        self.parameter(&self.fused.steps.value(self.node.result).name)
    }

    /// A field of `Weights`.
    pub(crate) fn parameter(&self, name: &str) -> TokenStream {
        let name = var(name);
        quote!(weights.#name)
    }

    pub(crate) fn transform(&self, how: &HeadTransform) -> TokenStream {
        self.fused.emit_prepare(how)
    }

    /// `attention(call, weights)`, after the line that makes the function of the score, if there is one.
    pub(crate) fn attention(&self, attention: &Attend) -> (TokenStream, TokenStream) {
        self.fused.call_attention(attention)
    }

    /// Queries, keys and values, to read.
    pub(crate) fn vectors(&self) -> [TokenStream; 3] {
        let operands = self.node.operands.iter();
        let operands = operands.map(|id| self.fused.matrix(*id));
        with_vectors(operands.collect(), "Matrix")
    }

    /// The same of their gradients, to write.
    pub(crate) fn gradients_of_vectors(&self, lines: &mut TrackedCode) -> [TokenStream; 3] {
        with_vectors(self.gradients_mut(lines), "MatrixMut")
    }
}

/// Queries, keys and values, where the first two may be missing: then they have no columns.
fn with_vectors(mut found: Vec<TokenStream>, ty: &str) -> [TokenStream; 3] {
    let values = found.pop().unwrap_or_default();
    let ty = var(ty);
    let [queries, keys] = found.try_into().unwrap_or_else(|_| {
        ["queries", "keys"]
            .map(var)
            .map(|rows| quote!(p::#ty::without_cols(sizes.#rows())))
    });
    [queries, keys, values]
}

// Gradients.
impl LayerNode<'_> {
    /// The gradient of an operand, as the target that a derivative writes or adds to.
    pub(crate) fn target(&self, to: GradTarget) -> TokenStream {
        let (buffer, mode) = match to {
            GradTarget::Input(id) => {
                let name = self.fused.gradient_name(id);
                return quote!(#name);
            }
            GradTarget::New(buffer)
            | GradTarget::Overwrite(buffer)
            | GradTarget::InPlace(buffer) => (buffer, quote!(Overwrite)),
            GradTarget::Add(buffer) => (buffer, quote!(Add)),
        };
        let name = self.fused.buffer(buffer);
        quote!(&mut p::GradTarget::array(&mut #name, p::WriteMode::#mode))
    }

    /// The gradient of an operand, as a matrix to overwrite.
    pub(crate) fn gradient_mut(&self, operand: usize) -> TokenStream {
        let id = self.node.operands[operand];
        let name = self.fused.gradient_name(id);
        match self.fused.steps.value(id).view {
            None => quote!(#name.view_mut()),
            Some(view) => {
                let part = Literal::usize_unsuffixed(view.part);
                quote!(#name.part_mut(#part))
            }
        }
    }

    /// The gradients of all operands, as matrices to overwrite at once. If they are parts of one array, a line splits it:
    /// `let [_, to_k, to_v] = d_q_k_v.parts_mut();`
    fn gradients_mut(&self, lines: &mut TrackedCode) -> Vec<TokenStream> {
        let steps = self.fused.steps;
        let name = |id: ValueId| format_ident!("to_{}", steps.value(id).name);
        let operands = &self.node.operands;
        let views = operands.iter().filter_map(|id| steps.value(*id).view);
        let mut split: Vec<ValueId> = views.map(|view| view.of).collect();
        split.dedup();
        for whole in split {
            let parts = steps.parts(whole).into_iter();
            let parts = parts.map(|part| match operands.contains(&part) {
                true => name(part),
                false => var("_"),
            });
            let gradient = self.fused.gradient_name(whole);
            lines.line(quote!(let [#(#parts),*] = #gradient.parts_mut();));
        }
        let gradients = operands.iter().enumerate().map(|(index, id)| {
            let name = name(*id);
            match steps.value(*id).view {
                Some(_) => quote!(#name),
                None => self.gradient_mut(index),
            }
        });
        gradients.collect()
    }

    /// An array for the gradient of a parameter, if there is one: the argument, which takes it by `view`, and the line that adds it
    /// to that of the tape.
    pub(crate) fn parameter_gradient(
        &self,
        lines: &mut TrackedCode,
        (name, view): (&str, &str),
        field: Option<&'static str>,
    ) -> [TokenStream; 2] {
        let Some(field) = field else {
            return [quote!(None), TokenStream::new()];
        };
        let [name, view] = [name, view].map(var);
        let param = self.fused.cx.graph.param(field);
        let tensors = param.map(|param| param.tensors());
        let sizes = tensors.iter().flatten().flat_map(|(_, dims, _)| dims);
        let sizes: Vec<_> = sizes.map(|size| quote!(#size)).collect();
        let field = self.parameter(field);
        lines.line(quote!(let mut #name = p::Array::<E>::like(#field.matrix());));
        lines.take(&name, tracked_code::array(&sizes));
        [
            quote!(Some(#name.#view())),
            quote!(p::accumulate(#field.gradient(gradients), #name.as_slice());),
        ]
    }

    /// The same for what the function of the score has learned.
    pub(crate) fn score_gradient(
        &self,
        lines: &mut TrackedCode,
        attention: &Attend,
    ) -> [TokenStream; 2] {
        let score = Score::new(self.fused.cx, attention);
        let gradient = score.and_then(|score| score.emit_gradient(lines));
        gradient.unwrap_or_else(|| [quote!(None), TokenStream::new()])
    }
}

// Memory beside values.
impl LayerNode<'_> {
    /// The array of the logarithms of the sums of the softmax.
    pub(crate) fn make_lse(&self, lines: &mut TrackedCode) -> Ident {
        let name = var("lse");
        let heads = &self.fused.cx.spec.heads;
        lines.line(
            quote!(let mut #name = p::Array::uninit(sizes.batch * sizes.heads, [sizes.query]);),
        );
        let axes = [quote!(batch), quote!(#heads), quote!(query)];
        lines.take(&name, tracked_code::array(&axes));
        name
    }

    /// What the kernel computes on the way for a sparse normalizer: as many numbers as are attended, and the thresholds again.
    pub(crate) fn centres(&self) -> TokenStream {
        let heads = &self.fused.cx.spec.heads;
        let width = &self.fused.cx.spec.value_head_dim;
        quote!(p::Footprint::backward_only(&[batch, #heads, query, (#width) + 1]))
    }
}
