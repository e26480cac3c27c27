//! An operation where it stands: how its lines read operands, and where they write.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::strips::StripNames;
use super::{Access, Frame, product, size};
use crate::emit::{ExecMode, var};
use crate::model::diff::GradTarget;
use crate::model::graph::{Node, ValueId, View};
use crate::model::strips::{Repetition, repetition};
use crate::model::types::Axis;
use crate::ops::Elementwise;

/// A node of a block in a frame.
pub(crate) struct BlockNode<'a, F> {
    pub(crate) frame: &'a F,
    pub(crate) operands: &'a [ValueId],
    pub(crate) result: ValueId,
    /// The results beside that.
    pub(crate) others: &'a [Option<ValueId>],
    /// The pass that computes it for some rows at a time.
    pub(super) strips: Option<&'a StripNames>,
}

impl<'a, F: Frame> BlockNode<'a, F> {
    pub(crate) fn new(frame: &'a F, node: &'a Node<F::Op>) -> Self {
        BlockNode {
            frame,
            operands: &node.operands,
            result: node.result,
            others: &node.others,
            strips: None,
        }
    }

    pub(super) fn in_strips(self, strips: Option<&'a StripNames>) -> Self {
        BlockNode { strips, ..self }
    }

    /// Whether the lines compute some rows.
    pub(crate) fn is_in_strips(&self) -> bool {
        self.strips.is_some()
    }

    /// The forward pass that is emitted, one of two.
    pub(crate) fn mode(&self) -> ExecMode {
        self.frame.mode()
    }

    /// The numbers of an operand.
    pub(crate) fn slice(&self, operand: usize) -> TokenStream {
        self.numbers(self.operands[operand])
    }

    /// The numbers of a value, or those of these rows.
    pub(super) fn numbers(&self, id: ValueId) -> TokenStream {
        match self.strips {
            None => self.frame.read(id).slice,
            Some(strips) => strips.numbers(self.frame, id),
        }
    }

    /// The same as a matrix.
    pub(crate) fn matrix(&self, operand: usize) -> TokenStream {
        self.frame.read(self.operands[operand]).matrix
    }

    /// All operands as matrices.
    pub(crate) fn matrices(&self) -> Vec<TokenStream> {
        let operands = 0..self.operands.len();
        operands.map(|operand| self.matrix(operand)).collect()
    }

    /// The numbers of the result, which was saved.
    pub(crate) fn slice_of_result(&self) -> TokenStream {
        self.numbers(self.result)
    }

    /// The same as a matrix.
    pub(crate) fn matrix_of_result(&self) -> TokenStream {
        self.frame.read(self.result).matrix
    }

    /// The numbers of a result beside that, which was saved.
    pub(crate) fn slice_of_other(&self, place: usize) -> Option<TokenStream> {
        let other = self.others.get(place).copied().flatten();
        other.map(|id| self.numbers(id))
    }

    /// The type of its loop, if it is emitted.
    pub(crate) fn loop_name(&self) -> Ident {
        self.frame.loop_name(self.result)
    }

    /// Memory that was kept for the derivative.
    pub(crate) fn kept(&self) -> Ident {
        self.frame.kept(self.result)
    }

    /// A dropout: of the elements of these rows.
    pub(crate) fn dropout(&self) -> TokenStream {
        let kept = self.kept();
        match self.strips {
            None => quote!(#kept),
            Some(strips) => strips.dropout(&kept, self.axes_of_result()),
        }
    }

    /// An operand of a loop that repeats it: `p::repeated(x.as_slice(), &[1, 4], &[sizes.n, 4])`.
    pub(crate) fn repeated(
        &self,
        op: &Elementwise,
        operand: usize,
        numbers: &TokenStream,
    ) -> Option<TokenStream> {
        let places = op.repeats(operand)?;
        let to = self.sizes_of_result();
        let mut from = vec![quote!(1); to.len()];
        for (place, size) in places.iter().zip(self.sizes(operand)) {
            from[*place] = size;
        }
        let Some(strips) = self.strips else {
            return Some(quote!(p::repeated(#numbers, &[#(#from),*], &[#(#to),*])));
        };
        let width = strips.width(self.axes_of_result());
        Some(match self.repetition(op, operand) {
            Some(Repetition::AlongRows) => {
                quote!(p::repeated(#numbers, &[strip.rows, 1], &[strip.rows, #width]))
            }
            Some(Repetition::AlongColumn) if strips.are_rows(self.axes_of_result()) => {
                quote!(p::repeated(#numbers, &[1, #width], &[strip.rows, #width]))
            }
            _ => quote!(strip.repeated(#numbers, &[#(#from),*], &[#(#to),*], #width)),
        })
    }

    fn repetition(&self, op: &Elementwise, operand: usize) -> Option<Repetition> {
        repetition(op, operand, self.axes(operand), self.axes_of_result())
    }

    /// In a strip, where a loop writes the gradient of an operand.
    pub(crate) fn written(
        &self,
        op: &Elementwise,
        operand: usize,
        gradients: &Gradients,
    ) -> Option<TokenStream> {
        let (name, mode) = gradients.local(operand)?;
        let width = self.width_of_result();
        Some(match self.repetition(op, operand) {
            None => quote!(p::Write::with_mode(#name.as_mut_slice(), p::WriteMode::#mode)),
            Some(Repetition::AlongRows) => {
                quote!(p::row_sums(#name.as_mut_slice(), p::WriteMode::#mode, #width))
            }
            Some(_) => quote!(p::column_sums(#name.as_mut_slice(), strip.rows)),
        })
    }

    fn axes(&self, operand: usize) -> &[Axis] {
        &self.frame.ty(self.operands[operand]).axes
    }

    fn axes_of_result(&self) -> &[Axis] {
        &self.frame.ty(self.result).axes
    }

    /// The number of rows and of columns of the result as a matrix.
    pub(crate) fn extents_of_result(&self) -> [TokenStream; 2] {
        self.frame.extents(self.result)
    }

    pub(crate) fn sizes(&self, operand: usize) -> Vec<TokenStream> {
        self.axes(operand).iter().map(size).collect()
    }

    pub(crate) fn sizes_of_result(&self) -> Vec<TokenStream> {
        self.axes_of_result().iter().map(size).collect()
    }

    /// The last axis of the result.
    pub(crate) fn width_of_result(&self) -> Option<TokenStream> {
        self.sizes_of_result().pop()
    }

    /// The size of an axis of an operand.
    pub(crate) fn len(&self, operand: usize, axis: usize) -> TokenStream {
        size(&self.axes(operand)[axis])
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
        self.axis(operand, self.axes(operand).len() - 2)
    }

    /// An axis of an operand, between the product of those before it and that of those after it.
    pub(crate) fn axis(&self, operand: usize, index: usize) -> TokenStream {
        match self.strips {
            None => axis_between(self.axes(operand), index),
            Some(_) => {
                let len = size(&self.axes(operand)[index]);
                quote!(p::Axis { outer: strip.rows, len: #len, inner: 1 })
            }
        }
    }

    /// An axis of the result.
    pub(crate) fn axis_of_result(&self, index: usize) -> TokenStream {
        axis_between(self.axes_of_result(), index)
    }

    /// The gradients of all operands, as matrices to overwrite at once, behind the lines that split an array of several:
    /// `let [_, to_k, to_v] = d_q_k_v.parts_mut();`, and that take those of inputs.
    /// That of the last operands, as many as `others`, is none of these.
    pub(crate) fn gradients_mut(
        &self,
        gradients: &Gradients,
        others: usize,
    ) -> (TokenStream, Vec<TokenStream>) {
        let count = self.operands.len() - others;
        let block = self.frame.block();
        let name = |id: ValueId| format_ident!("to_{}", self.frame.name(id));
        let buffers = gradients.to.iter().filter_map(|(operand, to)| {
            let operand = self.operands[*operand];
            let view = block.value(operand).view.filter(View::is_part)?;
            Some((view.of, self.frame.buffer(to.buffer()?)))
        });
        let mut split: Vec<(ValueId, Ident)> = buffers.collect();
        split.dedup();
        let lines = split.iter().map(|(whole, gradient)| {
            let parts = block.parts(*whole).into_iter();
            let parts = parts.map(|part| match self.operands.contains(&part) {
                true => name(part),
                false => var("_"),
            });
            quote!(let [#(#parts),*] = #gradient.parts_mut();)
        });
        let inputs = gradients.to.iter().zip(&gradients.targets);
        let inputs = inputs.filter_map(|((operand, to), target)| match to {
            GradTarget::Input(_) if *operand < count => {
                Some((name(self.operands[*operand]), target))
            }
            _ => None,
        });
        let (names, targets): (Vec<_>, Vec<_>) = inputs.unzip();
        let taken = (!names.is_empty()).then(|| {
            quote!(let [#(#names),*] = p::GradTarget::overwritten([#(&mut #targets),*], gradients);)
        });
        let matrices = (0..count).map(|operand| {
            let id = self.operands[operand];
            let to = name(id);
            match block.value(id).view.filter(View::is_part) {
                Some(_) => quote!(#to),
                None if names.contains(&to) => self.frame.reshaped_mut(&quote!(#to), id),
                None => self.gradient_mut(gradients, operand),
            }
        });
        (lines.chain(taken).collect(), matrices.collect())
    }

    /// The gradient of an operand, as a matrix to overwrite.
    pub(crate) fn gradient_mut(&self, gradients: &Gradients, operand: usize) -> TokenStream {
        let mut to = gradients.to.iter();
        let buffer = to
            .find(|(index, _)| *index == operand)
            .and_then(|(_, to)| to.buffer());
        let Some(buffer) = buffer else {
            return TokenStream::new();
        };
        let name = self.frame.buffer(buffer);
        let id = self.operands[operand];
        let view = self.frame.block().value(id).view;
        let of = self.frame.derivative().of(buffer);
        match view.and_then(|view| view.part) {
            Some(part) if of != id => {
                let part = Literal::usize_unsuffixed(part);
                quote!(#name.part_mut(#part))
            }
            _ if self.frame.is_alike(of, id) => quote!(#name.view_mut()),
            _ => self.frame.reshaped_mut(&quote!(#name.as_mut_slice()), id),
        }
    }
}

fn axis_between(axes: &[Axis], index: usize) -> TokenStream {
    let outer = product(&axes[..index]);
    let len = size(&axes[index]);
    let inner = product(&axes[index + 1..]);
    quote!(p::Axis { outer: #outer, len: #len, inner: #inner })
}

fn length(axes: &[Axis]) -> TokenStream {
    size(&axes[axes.len() - 2])
}

/// Where a result is written.
pub(crate) struct Output {
    pub(super) to: Access,
    /// The same for the results beside the first one.
    pub(super) others: Vec<Option<Access>>,
    /// The operands of a loop.
    pub(super) reads: Vec<TokenStream>,
    /// The loop that computes the terms of a reduction, with its operands.
    pub(super) terms: Option<TokenStream>,
    pub(super) is_in_place: bool,
    /// The result is written over the rows of the operation before it in its pass.
    pub(super) is_over_rows: bool,
    /// The loops in the pass of an operation on rows.
    pub(super) has_prologue: bool,
    pub(super) has_epilogue: bool,
    /// Nobody reads the result: it runs again for what it keeps beside that.
    pub(super) is_unread: bool,
}

impl Output {
    /// The loop that computes the operand of a reduction, if that is nowhere in memory: `p::loops::Square, [p::read(x)]`.
    pub(crate) fn terms(&self) -> Option<&TokenStream> {
        self.terms.as_ref()
    }

    /// Whether nobody reads the result, and there is no memory for it.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Its numbers, of which some are dropped as they are written, if dropout is all that reads them.
    pub(crate) fn slice(&self) -> &TokenStream {
        &self.to.slice
    }

    pub(crate) fn matrix(&self) -> &TokenStream {
        &self.to.matrix
    }

    /// The numbers of a result beside the first one, if it is read.
    pub(crate) fn other(&self, place: usize) -> Option<&TokenStream> {
        let other = self.others.get(place)?.as_ref();
        other.map(|to| &to.slice)
    }

    /// The results beside the first one, as matrices.
    pub(crate) fn other_matrices(&self) -> impl Iterator<Item = &TokenStream> {
        self.others.iter().flatten().map(|to| &to.matrix)
    }

    /// The source and the sink of an operation on rows: its operand and its result as matrices, or with the loops of its pass.
    pub(crate) fn rows<F: Frame>(&self, of: &BlockNode<'_, F>) -> [TokenStream; 2] {
        let x = match self.has_prologue {
            true => quote!(&mut prologue),
            false => of.matrix(0),
        };
        let y = self.matrix();
        let y = match self.has_epilogue {
            true => quote!((#y, &mut epilogue)),
            false => quote!(#y),
        };
        [x, y]
    }

    /// Whether the operand stands where the result is written.
    pub(crate) fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    /// An operand of a loop: `p::read(x.as_slice())`, or `p::read(x_kept.of(p::InPlace))`.
    pub(crate) fn read(&self, operand: usize) -> &TokenStream {
        &self.reads[operand]
    }
}

/// The gradient of a result, and where those of operands go.
pub(crate) struct Gradients {
    /// The operands whose gradients are computed.
    pub(super) to: Vec<(usize, GradTarget)>,
    /// Where they go, as places.
    pub(super) targets: Vec<TokenStream>,
    /// In a strip, their variables and modes.
    pub(super) local: Vec<[Ident; 2]>,
    /// In a strip, the operands whose gradient is one number for each row.
    pub(super) for_all: Vec<usize>,
    pub(super) d_result: Access,
    /// Those of the results beside that, where they have one.
    pub(super) d_others: Vec<Option<Access>>,
}

impl Gradients {
    /// The operands whose gradients are computed.
    pub(crate) fn operands(&self) -> impl Iterator<Item = usize> {
        self.to.iter().map(|(operand, _)| *operand)
    }

    /// Where the gradients of operands go, in the same order.
    pub(crate) fn targets(&self) -> &[TokenStream] {
        &self.targets
    }

    /// Where the gradient of an operand goes.
    pub(crate) fn target(&self, operand: usize) -> Option<&TokenStream> {
        let index = self.operands().position(|index| index == operand);
        index.map(|index| &self.targets[index])
    }

    /// In a strip, the variable of the gradient of an operand, if that is one number for all elements of a row.
    pub(crate) fn for_all(&self, operand: usize) -> Option<&Ident> {
        let (name, _) = self.local(operand)?;
        self.for_all.contains(&operand).then_some(name)
    }

    /// In a strip, the variable of the gradient of an operand, and its mode.
    fn local(&self, operand: usize) -> Option<(&Ident, &Ident)> {
        let index = self.operands().position(|index| index == operand)?;
        let [name, mode] = self.local.get(index)?;
        Some((name, mode))
    }

    /// The gradient of the result as an operand of a loop.
    pub(crate) fn read(&self) -> TokenStream {
        let mut to = self.to.iter();
        let slice = &self.d_result.slice;
        // It may stand where the gradient of an operand goes.
        match to.any(|(_, to)| matches!(to, GradTarget::InPlace(_))) {
            true => quote!(p::read(p::InPlace)),
            false => quote!(p::read(#slice)),
        }
    }

    /// The numbers of the gradient of a result beside the first one, if it has one.
    pub(crate) fn other(&self, place: usize) -> Option<&TokenStream> {
        let other = self.d_others.get(place)?.as_ref();
        other.map(|d| &d.slice)
    }

    /// The gradients of all results as matrices, of those that have one: `Some(d_a.view()), None`
    pub(crate) fn parts(&self) -> impl Iterator<Item = TokenStream> {
        let first = Some(&self.d_result);
        let all = std::iter::once(first).chain(self.d_others.iter().map(Option::as_ref));
        all.map(|d| match d.map(|d| &d.matrix) {
            Some(d) => quote!(Some(#d)),
            None => quote!(None),
        })
    }

    /// The numbers of the gradient of the result.
    pub(crate) fn slice(&self) -> &TokenStream {
        &self.d_result.slice
    }

    /// The same as a matrix.
    pub(crate) fn matrix(&self) -> &TokenStream {
        &self.d_result.matrix
    }
}
