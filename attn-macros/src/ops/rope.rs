//! `rope::<seq>(x)`: rotary position embeddings.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type, ValueKind};
use crate::onnx::{OnnxNode, Term};
use crate::spec::rope_keys::{self, ROPE_KEYS};
use crate::spec::{self, Rotary};

pub(super) static ROPE: Operation = Operation {
    name: "rope",
    keys: ROPE_KEYS,
    positional: 1,
    may_be_tied: false,
    signature: "`[.., seq, d]` or `[.., seq, heads, d]`, perhaps with `ids[..]`, to the same",
    doc: "Rotates the pairs of numbers of every vector by its position (Su et al. 2021), as `position = rope` of an attention does with queries and keys. The second operand are the positions: ids with some of the axes of `x`. PyTorch: `apply_rotary_pos_emb` of `transformers`.",
    lower: Lower::Operands(1..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.floats_of(call)?;
    let width = lowering.width(call.at, &ty)?;
    let word = spec::Call::of_values(&rope_keys::ROPE, call.at.to_token_stream(), |key| {
        call.arguments.value(key)
    });
    let rotary = Rotary::of_vectors(lowering, &word, &width);
    let index = axis(lowering, call, &ty)?;
    let positions = match call.operands.get(1) {
        Some(ids) => Positions::Given(shared(lowering, call, &ty, *ids)?),
        None => Positions::Along(ty.axes[index].clone(), index),
    };
    let op = Rope {
        rotary: rotary?,
        positions,
    };
    Some(lowering.node(builder, op, call.operands.clone(), (call.result, ty)))
}

/// The axis of the positions: the one that is named, or else the last one of any length, or the one before the last.
fn axis(lowering: &mut Lowering<'_>, call: &CallSite<'_>, ty: &Type) -> Option<usize> {
    let vectors = ty.axes.len() - 1;
    let index = match call.arguments.is_given("axis") {
        true => lowering.axis_or_last(call, ty)?,
        // The positions of the call stand for it.
        false if call.operands.len() == 2 => return Some(0),
        false => {
            let is_symbol = |axis: &Axis| matches!(axis, Axis::Symbol(_));
            let last = ty.axes[..vectors].iter().rposition(is_symbol);
            last.or(vectors.checked_sub(1)).unwrap_or(vectors)
        }
    };
    if index == vectors {
        let message = messages::rope_along_vectors(ty);
        lowering.error(call.at.span(), message);
        return None;
    }
    Some(index)
}

/// For each axis of the positions, the one of the vectors that it is.
fn shared(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    ty: &Type,
    ids: ValueId,
) -> Option<Vec<usize>> {
    let found = lowering.ty(ids).clone();
    let vectors = Type::floats(ty.axes[..ty.axes.len() - 1].to_vec());
    let shared = found
        .axes
        .iter()
        .map(|axis| match *vectors.candidates(axis) {
            [index] => Some(index),
            _ => None,
        });
    let shared: Option<Vec<usize>> = shared.collect();
    let is_once = |shared: &Vec<usize>| {
        let mut sorted = shared.clone();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len() == shared.len()
    };
    let named = match call.arguments.is_given("axis") {
        true => Some(lowering.axis_or_last(call, ty)?),
        false => None,
    };
    let has_named = |shared: &Vec<usize>| named.is_none_or(|named| shared.contains(&named));
    let shared = shared.filter(|shared| is_once(shared) && has_named(shared));
    if shared.is_none() || found.kind != ValueKind::Ids {
        let message = messages::positions_of_rope(&vectors, named.map(|at| &ty.axes[at]), &found);
        lowering.error(call.at.span(), message);
        return None;
    }
    shared
}

/// Rotates every vector along the last axis.
struct Rope {
    rotary: Rotary,
    positions: Positions,
}

/// Where the position of a vector stands.
enum Positions {
    /// It is the place along an axis, which has this index.
    Along(Axis, usize),
    /// In the second operand. For each axis of that, the one of the vectors that it is.
    Given(Vec<usize>),
}

impl Rope {
    /// `&[0, 2]`
    fn shared(shared: &[usize]) -> TokenStream {
        let shared = shared.iter().map(|axis| Literal::usize_unsuffixed(*axis));
        quote!(&[#(#shared),*])
    }

    fn positions(&self, of: &FusedNode<'_>, sizes: &[TokenStream]) -> TokenStream {
        match &self.positions {
            Positions::Along(Axis::Symbol(_), _) if of.mode() == ExecMode::Session => {
                quote!(p::layers::Positions::of(new.positions()))
            }
            Positions::Along(_, index) => {
                let axis = of.axis_of_result(*index);
                quote!(p::layers::Positions::along(#axis))
            }
            Positions::Given(shared) => {
                let ids = of.ids(1);
                let shared = Self::shared(shared);
                quote!(p::layers::Positions::given(#ids, &[#(#sizes),*], #shared))
            }
        }
    }

    /// `128, &p::Rotary { .. }, &p::layers::Positions::along(..)`
    fn arguments(&self, of: &FusedNode<'_>) -> TokenStream {
        let sizes = of.sizes_of_result();
        let width = sizes.last();
        let mut rotary = self.rotary.tokens();
        if of.mode() == ExecMode::Session
            && self.rotary.depends_on_len()
            && let Positions::Along(Axis::Symbol(_), _) = &self.positions
        {
            // Keys that were rotated before must not be rotated again.
            rotary = quote!(#rotary.for_len(new.capacity()));
        }
        let positions = self.positions(of, &sizes);
        quote!(#width, &#rotary, &#positions)
    }
}

impl Op for Rope {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: match self.positions {
                Positions::Along(..) => Saved::Nothing,
                Positions::Given(_) => Saved::Reads(vec![1]),
            },
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        let mut gradients = vec![Gradient::None; operands];
        gradients[0] = Gradient::Computed;
        gradients
    }
}

impl ModelOp for Rope {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(match &self.positions {
                Positions::Along(axis, _) => format!("rope {axis}"),
                Positions::Given(_) => "rope".to_owned(),
            }),
            vertex: VertexKind::Embedding,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, model: &Model) -> Result<Decode, String> {
        match &self.positions {
            Positions::Along(Axis::Symbol(axis), _) => {
                if model.sequence() != Some(&axis.length) {
                    return Err(messages::session_along("rope", &axis.name));
                }
                if self.rotary.changes_with_len() {
                    return Err(messages::session_length("rope", "rotation"));
                }
                Ok(Decode::PerToken)
            }
            Positions::Given(_) if self.rotary.depends_on_len() => {
                Err(messages::session_length("rope", "rotation"))
            }
            _ => Ok(Decode::PerToken),
        }
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let axes = &of.operand_type(0).axes;
        let Some((Axis::Size(width), rows)) = axes.split_last() else {
            return Ok(of.operand(0));
        };
        let positions = match &self.positions {
            Positions::Along(axis, index) => {
                let behind: Vec<usize> = (1..axes.len() - index).collect();
                of.indices(axis).unsqueeze(&behind)
            }
            Positions::Given(shared) => of.operand(1).at_axes(shared, rows.len() + 1),
        };
        of.rotate(of.operand(0), &self.rotary, width, positions)
    }
}

impl Emit<ModelFrame<'_>> for Rope {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let rotary = self.rotary.tokens();
        of.define(&match &self.positions {
            Positions::Along(_, index) => {
                let axis = Literal::isize_unsuffixed(*index as isize);
                quote!(rope(&#x, p::shapes::Axis::<#axis>, &#rotary))
            }
            Positions::Given(shared) => {
                let ids = of.operand(1);
                let shared = Self::shared(shared);
                quote!(rope_at(&#x, &#rotary, &p::Ids::read(&#ids), #shared))
            }
        })
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let arguments = self.arguments(of);
        let y = to.slice();
        quote!(p::layers::rope(#x, #arguments, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let arguments = self.arguments(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::rope_backward(#arguments, #d_y, #(&mut #d_x,)* gradients);)
    }
}
