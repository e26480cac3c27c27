//! `conv1d::<seq, out, kernel>(x)`, `conv2d`, and transposed ones.

mod keys;
mod layer;
mod lower;
mod onnx;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, ModelOp, Op, Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath};
use crate::model::types::{Axis, Type, same_axes};
use crate::onnx::{OnnxNode, Term};
use crate::spec::Size;

pub(super) use keys::{CONV_TRANSPOSE1D, CONV_TRANSPOSE2D, CONV1D, CONV2D};

#[derive(Clone, Copy)]
struct Kind {
    /// The number of axes that it goes along.
    axes: usize,
    is_transposed: bool,
}

/// How windows slide along an axis.
#[derive(Clone)]
struct Slide {
    kernel: Size,
    stride: Size,
    before: Size,
    after: Size,
    dilation: Size,
    more: Size,
}

impl Slide {
    /// The indices from the first to the last number of a window.
    fn reach(&self) -> Size {
        match self.dilation.value {
            Some(1) => self.kernel.clone(),
            _ => self.steps().plus(&Size::known(1)),
        }
    }

    fn steps(&self) -> Size {
        self.dilation.times(&self.kernel.minus(&Size::known(1)))
    }

    fn padding(&self) -> Size {
        sum(&self.before, &self.after)
    }

    /// As a type.
    fn ty(&self, krate: &TokenStream) -> TokenStream {
        let sizes = [
            &self.stride,
            &self.before,
            &self.after,
            &self.dilation,
            &self.more,
        ];
        let sizes = sizes.map(Size::arg);
        quote!(#krate::nn::Slide<#(#sizes),*>)
    }
}

/// `a + b`, without a 0.
fn sum(a: &Size, b: &Size) -> Size {
    match (a.value, b.value) {
        (Some(0), _) => b.clone(),
        (_, Some(0)) => a.clone(),
        _ => a.plus(b),
    }
}

/// The order of axes that the kernel knows: those that it does not go along, then the others and the channels.
struct Order {
    /// For each axis, which one of the operand it is.
    axes: Vec<usize>,
    layout: &'static str,
}

impl Order {
    fn of(x: &Type, along: &[usize], channels: usize) -> Self {
        let is_other = |index: &usize| !along.contains(index) && *index != channels;
        let others = || (0..x.axes.len()).filter(is_other);
        let axes = || along.iter().copied();
        let first: Vec<usize> = others().chain([channels]).chain(axes()).collect();
        let last: Vec<usize> = others().chain(axes()).chain([channels]).collect();
        match first.is_sorted() {
            true => Order {
                axes: first,
                layout: "First",
            },
            false => Order {
                axes: last,
                layout: "Last",
            },
        }
    }

    /// The place of an axis of the operand.
    fn place(&self, axis: usize) -> usize {
        let place = self.axes.iter().position(|other| *other == axis);
        place.unwrap_or(axis)
    }

    fn apply(&self, ty: &Type) -> Type {
        let axes = self.axes.iter().map(|axis| ty.axes[*axis].clone());
        Type::floats(axes.collect())
    }

    /// The order of the operand again.
    fn back(&self) -> Vec<usize> {
        (0..self.axes.len()).map(|axis| self.place(axis)).collect()
    }
}

struct Convolution {
    /// The name of the operation.
    name: &'static str,
    kind: Kind,
    place: ParamPath,
    /// The axes of tokens, if a session can go on along the last of them.
    tokens: Option<Vec<Axis>>,
    /// The axes that it goes along, and their indices.
    along: Vec<Axis>,
    indices: Vec<usize>,
    /// How long they must be, if only the call knows how long they are.
    least: Vec<Option<Size>>,
    /// Where the channels are: `First` or `Last`.
    layout: &'static str,
    /// The channels that the groups divide in the weight.
    channels: Size,
    groups: Size,
    kernel: Vec<Size>,
    slides: Vec<Slide>,
    bias: bool,
}

impl Convolution {
    fn layout(&self) -> TokenStream {
        let layout: Ident = format_ident!("{}", self.layout);
        quote!(p::layers::Channels::#layout)
    }

    /// The lines that find axes that are too short.
    fn check(&self, model: &str, len: impl Fn(usize) -> TokenStream) -> Option<TokenStream> {
        let lines = self.least.iter().enumerate().filter_map(|(index, least)| {
            let (axis, least) = (self.along[index].to_string(), least.as_ref()?);
            let len = len(index);
            Some(quote!(p::check_at_least(#model, #axis, #len, #least)?;))
        });
        let lines: Vec<_> = lines.collect();
        (!lines.is_empty()).then(|| quote!(#(#lines)*))
    }

    /// The sizes of the operand and of the result.
    fn sizes(&self, of: &FusedNode<'_>) -> TokenStream {
        let (from, to) = (of.sizes(0), of.sizes_of_result());
        quote!([&[#(#from),*], &[#(#to),*]])
    }
}

impl Op for Convolution {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Convolution {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Linear,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, model: &Model) -> Result<Decode, String> {
        let input = model.inputs.get(model.tokens());
        let input = input.map(|id| &model.value(*id).ty.axes);
        if let (Some(tokens), Some(input)) = (&self.tokens, input)
            && same_axes(tokens, input)
        {
            return Ok(Decode::WithPast);
        }
        for axis in &self.along {
            Decode::along(axis, self.name)?;
        }
        Ok(Decode::PerToken)
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let rows = match self.kind.is_transposed {
            false => of.result(),
            true => of.operand(0),
        };
        let (channels, groups, kernel) = (&self.channels, &self.groups, &self.kernel);
        let channels = match groups.value {
            Some(1) => quote!(#channels),
            _ => quote!(p::quotient(#channels, #groups)),
        };
        Cost {
            flops: Some(quote!(p::product(&[2, #(#rows,)* #channels, #(#kernel),*]))),
            ..Cost::none()
        }
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let sizes = of.sizes(0);
        Convolution::check(self, &of.label(), |index| {
            sizes[self.indices[index]].clone()
        })
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        self.write_onnx(of)
    }
}

impl Emit<ModelFrame<'_>> for Convolution {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let check = Convolution::check(self, &of.label(), |index| of.size(&self.along[index]));
        let (place, layout, shape) = (of.place(&self.place), self.layout(), of.shape(0));
        let line = of.define(&quote!(convolve(&#x, &#place, #layout, #shape)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        if of.mode() == ExecMode::Session && self.tokens.is_some() {
            let past = of.past(&self.place);
            let (x, y) = (of.matrix(0), to.matrix());
            return quote!(#past.convolve(&#weights, new, #x, #y));
        }
        let (x, sizes, layout, y) = (of.slice(0), self.sizes(of), self.layout(), to.slice());
        quote!(#weights.forward(#x, #sizes, #layout, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let (x, sizes, layout) = (of.slice(0), self.sizes(of), self.layout());
        let (d_y, d_x) = (gradients.slice(), gradients.targets());
        quote!(#weights.backward(#x, #sizes, #layout, #d_y, #(&mut #d_x,)* gradients);)
    }
}
