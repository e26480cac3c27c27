//! An operation where it stands in the fused form: how its lines read operands, and where they write.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{Fused, product, size};
use crate::emit::ExecMode;
use crate::model::graph::{Node, ParamPath, ValueId};
use crate::model::plan::Planned;
use crate::model::types::Axis;
use crate::ops::{Attention, Fusion};

/// An operation, perhaps with the dropout of its result.
pub(super) struct Computed<'m> {
    pub(super) node: &'m Node,
    pub(super) planned: &'m Planned,
    pub(super) dropout: Option<&'m Node>,
    /// The result of the operation on rows before it in its pass.
    pub(super) rows: Option<ValueId>,
}

impl Computed<'_> {
    pub(super) fn is_on_rows(&self) -> bool {
        matches!(self.node.fusion(), Fusion::Rows)
    }

    /// The value that is in memory.
    pub(super) fn result(&self) -> ValueId {
        self.dropout.unwrap_or(self.node).result
    }
}

/// A node of the fused form: its operands are slices.
pub(crate) struct FusedNode<'a> {
    pub(super) fused: &'a Fused<'a>,
    pub(super) node: &'a Node,
}

impl FusedNode<'_> {
    /// Which of the two passes forward is emitted.
    pub(crate) fn mode(&self) -> ExecMode {
        self.fused.mode
    }

    /// The numbers of an operand.
    pub(crate) fn slice(&self, operand: usize) -> TokenStream {
        self.fused.slice(self.node.operands[operand])
    }

    /// The same as a matrix.
    pub(crate) fn matrix(&self, operand: usize) -> TokenStream {
        self.fused.matrix(self.node.operands[operand])
    }

    /// The numbers of the result, which was kept.
    pub(crate) fn slice_of_result(&self) -> TokenStream {
        self.fused.slice(self.node.result)
    }

    /// The same as a matrix.
    pub(crate) fn matrix_of_result(&self) -> TokenStream {
        self.fused.matrix(self.node.result)
    }

    /// An operand of ids or lengths.
    pub(crate) fn ids(&self, operand: usize) -> TokenStream {
        self.fused.ids(self.node.operands[operand])
    }

    /// The field of `call.inputs` with an operand.
    pub(crate) fn input(&self, operand: usize) -> Ident {
        self.fused.input(self.node.operands[operand])
    }

    /// The type of its loop, if it is emitted.
    pub(crate) fn loop_name(&self) -> Ident {
        self.fused.loop_name(self.node)
    }

    /// Memory that was kept for the derivative.
    pub(crate) fn kept(&self) -> Ident {
        self.fused.kept(self.node.result)
    }

    /// `weights.attention`, or `blocks.attention` in the body of a loop.
    pub(crate) fn weights(&self, place: &ParamPath) -> TokenStream {
        self.fused.weights(place)
    }

    fn axes(&self, operand: usize) -> &[Axis] {
        &self.fused.ty(self.node.operands[operand]).axes
    }

    fn axes_of_result(&self) -> &[Axis] {
        &self.fused.ty(self.node.result).axes
    }

    pub(crate) fn sizes(&self, operand: usize) -> Vec<TokenStream> {
        self.axes(operand).iter().map(size).collect()
    }

    pub(crate) fn sizes_of_result(&self) -> Vec<TokenStream> {
        self.axes_of_result().iter().map(size).collect()
    }

    /// The last axis of an operand.
    pub(crate) fn width(&self, operand: usize) -> Option<TokenStream> {
        self.sizes(operand).pop()
    }

    pub(crate) fn width_of_result(&self) -> Option<TokenStream> {
        self.sizes_of_result().pop()
    }

    /// The length of the sequences of vectors of an operand.
    pub(crate) fn length(&self, operand: usize) -> TokenStream {
        length(self.axes(operand))
    }

    pub(crate) fn length_of_result(&self) -> TokenStream {
        length(self.axes_of_result())
    }

    /// The sequences of vectors of an operand, as an axis between others.
    pub(crate) fn sequence(&self, operand: usize) -> TokenStream {
        let axes = self.axes(operand);
        let outer = product(&axes[..axes.len() - 2]);
        let len = length(axes);
        let inner = axes.last().map(size);
        quote!(p::AxisOf { outer: #outer, len: #len, inner: #inner })
    }

    /// `<GptBlocksAttention<E> as p::FusedBlock<E, 1>>`
    pub(crate) fn attention(&self, attention: &Attention) -> TokenStream {
        self.fused.attention(attention)
    }

    /// The sizes of the axes batch, query and key.
    pub(crate) fn axes_of_attention(&self, attention: &Attention) -> TokenStream {
        self.fused.axes(self.node, attention)
    }

    /// `<GptBlocksAttention<E> as p::Decode<E>>`
    pub(crate) fn attention_in_session(&self, attention: &Attention) -> TokenStream {
        self.fused.attention_in_session(attention.index)
    }

    /// The state of the layer at this place in a session.
    pub(crate) fn past(&self, place: &ParamPath) -> TokenStream {
        self.fused.past_of(place)
    }
}

fn length(axes: &[Axis]) -> TokenStream {
    size(&axes[axes.len() - 2])
}

/// Where a result is written.
pub(crate) struct Output<'a> {
    fused: &'a Fused<'a>,
    computed: &'a Computed<'a>,
    pub(super) name: Ident,
    /// The term that stands there.
    in_place: Option<usize>,
    /// Of an operation on rows.
    pub(super) has_prologue: bool,
    pub(super) has_epilogue: bool,
}

impl<'a> Output<'a> {
    pub(super) fn new(
        fused: &'a Fused<'a>,
        computed: &'a Computed<'a>,
        name: Ident,
        in_place: Option<usize>,
    ) -> Self {
        Output {
            fused,
            computed,
            name,
            in_place,
            has_prologue: false,
            has_epilogue: false,
        }
    }

    /// Its numbers, of which some are dropped as they are written, if dropout is all that reads them.
    pub(crate) fn slice(&self) -> TokenStream {
        let name = &self.name;
        let numbers = match self.is_over_rows() {
            true => quote!(p::InPlace),
            false => quote!(#name.as_mut_slice()),
        };
        self.fused.written(self.computed, numbers)
    }

    pub(crate) fn matrix(&self) -> TokenStream {
        let name = &self.name;
        quote!(#name.view_mut())
    }

    /// What an operation on rows reads, and where it writes: its operand and its result as matrices, or with the loops of its pass.
    pub(crate) fn rows(&self, of: &FusedNode<'_>) -> [TokenStream; 2] {
        let x = match self.has_prologue {
            true => quote!(&mut prologue),
            false => of.matrix(0),
        };
        let y = self.matrix();
        let y = match self.has_epilogue {
            true => quote!((#y, &mut epilogue)),
            false => y,
        };
        [x, y]
    }

    /// Whether the result is written over the rows before it.
    pub(super) fn is_over_rows(&self) -> bool {
        let terms = &self.computed.planned.terms;
        let in_place = self.in_place.map(|index| terms[index].value);
        in_place.is_some() && in_place == self.computed.rows
    }

    /// Whether the operand stands where the result is written.
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// An operand of a loop: `p::read(x.as_slice())`, or `p::read(x_kept.of(p::InPlace))`.
    pub(crate) fn read(&self, operand: usize) -> TokenStream {
        let term = &self.computed.planned.terms[operand];
        let numbers = match self.in_place {
            _ if self.computed.rows == Some(term.value) => quote!(p::Rows),
            Some(index) if index == operand => quote!(p::InPlace),
            _ => self.fused.slice(term.value),
        };
        self.fused.read(term.dropout, &numbers)
    }
}

/// The gradient of a result, and where those of operands go.
pub(crate) struct Gradients {
    /// The operands whose gradients are computed, with where they go.
    pub(super) targets: Vec<(usize, TokenStream)>,
    /// The gradient of the result stands where one of them goes.
    pub(super) is_in_place: bool,
    pub(super) slice: TokenStream,
    pub(super) matrix: TokenStream,
}

impl Gradients {
    /// The operands whose gradients are computed.
    pub(crate) fn operands(&self) -> impl Iterator<Item = usize> {
        self.targets.iter().map(|(operand, _)| *operand)
    }

    /// Where the gradients of operands go, in the same order.
    pub(crate) fn targets(&self) -> Vec<&TokenStream> {
        self.targets.iter().map(|(_, target)| target).collect()
    }

    /// Where the gradient of an operand goes.
    pub(crate) fn target(&self, operand: usize) -> Option<&TokenStream> {
        let mut targets = self.targets.iter();
        let found = targets.find(|(index, _)| *index == operand);
        found.map(|(_, target)| target)
    }

    /// The gradient of the result as an operand of a loop.
    pub(crate) fn read(&self) -> TokenStream {
        let slice = &self.slice;
        match self.is_in_place {
            true => quote!(p::read(p::InPlace)),
            false => quote!(p::read(#slice)),
        }
    }

    /// The numbers of the gradient of the result.
    pub(crate) fn slice(&self) -> &TokenStream {
        &self.slice
    }

    /// The same as a matrix.
    pub(crate) fn matrix(&self) -> &TokenStream {
        &self.matrix
    }
}
