//! The fused form of a block as lines over slices: the forward pass and the derivative, a line or two per operation.
//!
//! A [`Frame`] is the function around the lines: that of a model or of an attention layer.

mod backward;
mod forward;
mod node;
mod strips;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};

use super::ExecMode;
use super::tracked_code::{self, TrackedCode};
use crate::model::diff::{Backward, BufferId, GradTarget};
use crate::model::graph::{Block, Node, Region, Repeat, Scan, Step, Value, ValueId};
use crate::model::passes::Passes;
use crate::model::plan::Forward;
use crate::model::recompute::keeps_memory;
use crate::model::types::{Axis, Type, ValueKind};
use crate::ops::{Emit, Kept, Op};

pub(crate) use backward::emit_backward;
pub(crate) use forward::{array, emit_forward};
pub(crate) use node::{BlockNode, Gradients, Output};

/// The memory of an operation beside values and gradients.
#[derive(Default)]
pub(crate) struct Footprints {
    /// In the forward pass, with that of what is kept.
    pub(crate) forward: Option<TokenStream>,
    pub(crate) backward: Option<TokenStream>,
}

impl Footprints {
    /// The same in both passes.
    pub(crate) fn of_both(footprint: TokenStream) -> Self {
        Footprints {
            forward: Some(footprint.clone()),
            backward: Some(footprint),
        }
    }
}

/// The function around the lines of a block: where these find inputs, parameters and results.
pub(crate) trait Frame: Sized {
    type Op: Emit<Self> + ?Sized;

    /// A node in the lines of the composed form.
    type Composed<'c>;

    fn passes(&self) -> &Passes<'_, Self::Op>;

    fn mode(&self) -> ExecMode;

    /// An input of floats, or a result that the derivative is given, to read.
    fn input(&self, id: ValueId) -> Access;

    /// The target of the gradient of an input, as a place.
    fn d_input(&self, id: ValueId) -> TokenStream;

    /// A result, to write.
    fn result(&self, index: usize) -> Access;

    /// The gradient of a result, to read as that of this value.
    fn d_result(&self, index: usize, of: ValueId) -> Access;

    /// The number of rows with these axes.
    fn rows(&self, axes: &[Axis]) -> TokenStream;

    /// How many numbers a value has, if its first axis is that of the batch.
    fn len_of_batch(&self, id: ValueId) -> Option<TokenStream>;

    /// The size of a symbolic axis as an argument of `footprint`.
    fn extent(&self, symbol: &str) -> Ident;

    /// The type of the loop of an operation that `attn-core` has not compiled.
    fn loop_name(&self, result: ValueId) -> Ident;

    /// The variables around a loop. A layer has no loops.
    fn rounds(&self, repeat: &Repeat<Self::Op>) -> Option<Rounds>;

    /// The forward pass of a loop over steps. A layer has none.
    fn emit_scan(&self, lines: &mut TrackedCode, scan: &Scan<Self::Op>);

    /// Its derivative, with the gradients of its results, and where those of its operands go.
    fn emit_scan_backward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan<Self::Op>,
        d_results: &[Option<Access>],
        to: &[(ValueId, GradTarget)],
    );

    /// What it keeps for its derivative.
    fn kept_of_scan(&self, scan: &Scan<Self::Op>) -> Vec<Ident>;

    /// Whether the lines of this pass have those of a step. A session computes some when it starts, and the others for each token.
    fn emits(&self, _: &Step<Self::Op>) -> bool {
        true
    }

    /// Whether a value is made by lines of this pass.
    fn is_made(&self, _: ValueId) -> bool {
        true
    }

    fn block(&self) -> Block<'_, Self::Op> {
        self.passes().block
    }

    fn plan(&self) -> &Forward {
        self.passes().plan(self.mode())
    }

    fn derivative(&self) -> &Backward<'_, Self::Op> {
        &self.passes().backward
    }

    /// The variable of a value. It is no name of the emitted code: whatever a user calls a value, it hides nothing.
    fn value(&self, id: ValueId) -> Ident {
        hidden(&self.name(self.block().memory(id)))
    }

    /// The name of a value, from which those of other variables are derived.
    fn name(&self, id: ValueId) -> String {
        name_of(self.block().value(id))
    }

    /// The variable of a gradient.
    fn buffer(&self, id: BufferId) -> Ident {
        let buffers = &self.derivative().buffers;
        let same = |other: &&ValueId| **other == buffers[id.0];
        let number = buffers[..id.0].iter().filter(same).count() + 1;
        let of = self.name(buffers[id.0]);
        // `d_x_2` is that of `x_2`.
        let name = match number {
            1 => format!("d_{of}"),
            number => format!("d{number}_{of}"),
        };
        let name = match self.is_of_outside(buffers[id.0]) {
            true => format!("{name}_here"),
            false => name,
        };
        hidden(&name)
    }

    /// Whether there is a gradient of this value outside of the lines, which has its name.
    fn is_of_outside(&self, _: ValueId) -> bool {
        false
    }

    /// Whether a node runs again for the derivative, which has nothing else of it.
    fn is_again(&self, node: &Node<Self::Op>) -> bool {
        self.mode() == ExecMode::Forward && self.passes().is_again(node.result)
    }

    /// The variable with the seeds that a node drew, if it runs again and draws some itself.
    fn seeds(&self, node: &Node<Self::Op>) -> Option<Ident> {
        let kept = node.op.properties().kept;
        let draws = matches!(kept, Some(Kept::Hidden | Kept::Attention));
        let of = self.name(node.result);
        (draws && self.is_again(node)).then(|| hidden(&format!("{of}_seeds")))
    }

    /// The variable of what the operation keeps that has this result.
    fn kept(&self, result: ValueId) -> Ident {
        let of = self.name(result);
        hidden(&format!("{of}_kept"))
    }

    /// A variable of the emitted code itself, such as `result_0`, by a name that no value has.
    fn own(&self, name: &str, index: usize) -> Ident {
        format_ident!("{}", self.unique(format!("{name}_{index}")))
    }

    /// A name that no value has.
    fn unique(&self, mut name: String) -> String {
        while self
            .block()
            .values
            .iter()
            .any(|value| name_of(value) == name)
        {
            name.push('_');
        }
        name
    }

    fn ty(&self, id: ValueId) -> &Type {
        &self.block().values[id.0].ty
    }

    /// The number of rows of a value as a matrix, and its number of columns.
    fn extents(&self, id: ValueId) -> [TokenStream; 2] {
        let axes = &self.ty(id).axes;
        let width = axes.last().map_or(quote!(1), size);
        [self.rows(&axes[..axes.len().saturating_sub(1)]), width]
    }

    /// Whether the lines of the derivative are a function of their own, which may end before the last of them.
    fn may_end(&self) -> bool {
        false
    }

    /// The parameters of an operation, outside of loops.
    fn parameters(&self, _: &Node<Self::Op>) -> Option<TokenStream> {
        None
    }

    /// Those of all rounds of a loop.
    fn parameters_of_rounds(&self, _: &Repeat<Self::Op>) -> Option<TokenStream> {
        None
    }

    /// The same of all rounds, if a loop has a part of them.
    fn parameters_of_loop(&self, _: &Repeat<Self::Op>) -> Option<TokenStream> {
        None
    }

    /// The derivative of a product in a scan by its operand. That by the weights is computed behind the steps, of all of them.
    fn emit_product_of_step(&self, _: &Node<Self::Op>, _: &Gradients) -> Option<TokenStream>;

    /// Where a value stands that a step of a scan keeps: `x_all.at_mut(step)`.
    fn place_of_step(&self, id: ValueId) -> Option<TokenStream>;

    /// `let mut name = p::Array::<E>::uninit(rows, [width]);`
    fn make(&self, lines: &mut TrackedCode, name: &Ident, how: &str, id: ValueId) {
        if self.ty(id).kind == ValueKind::Ids {
            let count = self.rows(&self.ty(id).axes);
            lines.line(quote!(let mut #name = p::IdArray::zeros(#count);));
            return lines.take(name, self.footprint_of(id));
        }
        let how = format_ident!("{how}");
        let parts = self.block().parts(id);
        let [rows, _] = self.extents(id);
        let widths = parts.iter().map(|part| self.extents(*part)[1].clone());
        let ty = match parts.len() {
            1 => quote!(p::Array::<E>),
            _ => quote!(p::Array::<E, _>),
        };
        lines.line(quote!(let mut #name = #ty::#how(#rows, [#(#widths),*]);));
        lines.take(name, self.footprint_of(id));
    }

    /// The footprint of a value.
    fn footprint_of(&self, id: ValueId) -> TokenStream {
        let axes = self.ty(id).axes.iter().map(|axis| match axis {
            Axis::Symbol(symbol) => {
                let name = self.extent(&symbol.length);
                quote!(#name)
            }
            Axis::Size(size) => quote!(#size),
        });
        let axes = axes.collect::<Vec<_>>();
        match self.ty(id).kind {
            ValueKind::Ids => quote!(p::Footprint::ids::<E>(&[#(#axes),*])),
            _ => tracked_code::array(&axes),
        }
    }

    /// A value of floats, to read.
    fn read(&self, id: ValueId) -> Access {
        let block = self.block();
        let name = self.value(id);
        let memory = match block.is_input(id) || block.is_given(id) {
            true => self.input(block.memory(id)),
            false => Access {
                slice: quote!(#name.as_slice()),
                matrix: quote!(#name.view()),
            },
        };
        let Some(view) = block.value(block.source(id)).view else {
            return memory;
        };
        let matrix = match view.part {
            None => self.reshaped(&memory.slice, id),
            Some(part) => {
                let part = Literal::usize_unsuffixed(part);
                quote!(#name.part(#part))
            }
        };
        Access { matrix, ..memory }
    }

    /// These numbers as the matrix that a value is.
    fn reshaped(&self, numbers: &TokenStream, id: ValueId) -> TokenStream {
        let [rows, width] = self.extents(id);
        quote!(p::Matrix::new(#numbers, #rows, #width))
    }

    /// The same, to write.
    fn reshaped_mut(&self, numbers: &TokenStream, id: ValueId) -> TokenStream {
        let [rows, width] = self.extents(id);
        quote!(p::MatrixMut::new(#numbers, #rows, #width))
    }

    /// Whether the array of one value has the rows and columns of another. Two values in one memory may differ.
    fn is_alike(&self, a: ValueId, b: ValueId) -> bool {
        let [a, b] = [a, b].map(|id| self.extents(id).map(|size| size.to_string()));
        a == b
    }
}

/// The ways to a value of floats: its numbers, and the same as a matrix.
pub(crate) struct Access {
    pub(crate) slice: TokenStream,
    pub(crate) matrix: TokenStream,
}

/// The variables around a loop.
pub(crate) struct Rounds {
    /// The parameters of a round.
    pub(crate) weights: Ident,
    /// The pattern of what a round has of the iterator: the parameters, and in a session the state.
    pub(crate) each: TokenStream,
    pub(crate) forward: TokenStream,
    /// The parameters, the last round first.
    pub(crate) backward: TokenStream,
    /// The type of what a round keeps for the derivative.
    pub(crate) saved: Ident,
    /// The variable with that of all rounds.
    pub(crate) kept: Ident,
}

/// The name of a value as that of a variable. None is like those that are derived of it, as `d_x` and `x_kept` are: so two of these are one
/// name only if they are of one value.
pub(crate) fn name_of(value: &Value) -> String {
    let name = &value.name;
    match is_like_derived(name) {
        true => format!("named_{name}_"),
        false => name.clone(),
    }
}

/// Whether a name begins or ends as one that is derived of another. `d` alone does, since `d_kept` is of `kept`.
fn is_like_derived(name: &str) -> bool {
    let begin = name.split('_').next().unwrap_or_default();
    let number = begin.strip_prefix('d');
    let is_gradient = number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let is_begun = is_gradient || ["all", "before", "named"].contains(&begin);
    is_begun || ENDS.iter().any(|end| name.ends_with(end))
}

/// The ends of derived names.
const ENDS: [&str; 13] = [
    "_again",
    "_all",
    "_by_rows",
    "_here",
    "_kept",
    "_next",
    "_of_steps",
    "_past",
    "_rounds",
    "_seeds",
    "_starts",
    "_states",
    "_weights",
];

/// A name of a user's, which hides no name of the emitted code.
pub(crate) fn hidden(name: &str) -> Ident {
    let span = Span::mixed_site();
    match syn::parse_str::<Ident>(name) {
        Ok(_) => Ident::new(name, span),
        Err(_) => format_ident!("{name}_", span = span),
    }
}

/// The size of an axis while the code runs.
pub(crate) fn size(axis: &Axis) -> TokenStream {
    match axis {
        Axis::Symbol(symbol) => {
            let name = field(&symbol.length);
            quote!(sizes.#name)
        }
        Axis::Size(size) => quote!(#size),
    }
}

/// A user's name as that of a field.
pub(crate) fn field(name: &str) -> Ident {
    match name {
        // rustc reports them where they are written: `r#self`.
        "self" | "Self" | "super" | "crate" | "_" => format_ident!("{name}_"),
        name => syn::parse_str(name).unwrap_or_else(|_| Ident::new_raw(name, Span::call_site())),
    }
}

pub(crate) fn product(axes: &[Axis]) -> TokenStream {
    let product = axes.iter().map(size).reduce(|a, b| quote!(#a * #b));
    product.unwrap_or(quote!(1))
}

/// The fields of what a block keeps for its derivative: `a, b_kept, blocks_rounds`.
pub(crate) fn saved<F: Frame>(frame: &F) -> Vec<Ident> {
    saved_fields(frame, frame.block().body, &frame.plan().saved)
}

/// The same of a region.
fn saved_fields<F: Frame>(frame: &F, region: &Region<F::Op>, saved: &[ValueId]) -> Vec<Ident> {
    let values = saved.iter().map(|id| frame.value(*id));
    values.chain(kept_fields(frame, region)).collect()
}

/// What its operations keep beside values.
fn kept_fields<F: Frame>(frame: &F, region: &Region<F::Op>) -> Vec<Ident> {
    let kept = region.steps.iter().flat_map(|step| match step {
        Step::Node(node) if keeps_memory(node) && frame.is_again(node) => {
            frame.seeds(node).into_iter().collect()
        }
        Step::Node(node) => {
            let kept = node.op.properties().kept;
            kept.map(|_| frame.kept(node.result)).into_iter().collect()
        }
        Step::Repeat(repeat) => {
            let rounds = frame.rounds(repeat).map(|rounds| rounds.kept);
            rounds.into_iter().collect()
        }
        Step::Scan(scan) => frame.kept_of_scan(scan),
    });
    kept.collect()
}

/// The fields of what a step of a scan keeps beside floats.
pub(crate) fn kept_of_step<F: Frame>(frame: &F) -> Vec<Ident> {
    let saved = frame.plan().saved.iter();
    let ids = saved.filter(|id| frame.ty(**id).kind == ValueKind::Ids);
    let ids = ids.map(|id| frame.value(*id));
    ids.chain(kept_fields(frame, frame.block().body)).collect()
}
