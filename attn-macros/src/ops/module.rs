//! `module::<Type, out = [batch, seq, d_model]>(x)`: a module of which only its type is known, and what it is to return.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::parse::Parser;

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::messages::onnx as words;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, Opaque, ParamPath, Submodule, ValueId};
use crate::model::lower::{Arguments, Lowering, RegionBuilder};
use crate::model::signature::parse_type;
use crate::model::sizes;
use crate::model::syntax::first;
use crate::model::types::{Type, ValueKind};
use crate::onnx::{OnnxNode, Term};
use crate::spec::keys::{self, Key};
use crate::spec::text;

pub(super) static MODULE: Operation = Operation {
    name: "module",
    keys: &[
        Key {
            name: "type",
            kind: keys::KeyKind::Type,
            default: "required",
            doc: "What `build_module` takes: a builder of dfdx, a tuple, a layer of `attention!`, another model.",
        },
        Key {
            name: "out",
            kind: keys::KeyKind::Shape,
            default: "required",
            doc: "The shape of its result: `[batch, seq, d_model]`.",
        },
    ],
    positional: 1,
    may_be_tied: false,
    signature: "its operands, as a tuple if they are several, to `out`",
    doc: "Any module of dfdx. The first operand has the tape.",
    lower: Lower::Operands(1..=usize::MAX, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let module = module_type(lowering, call.at, call.arguments);
    let ty = declared_output(lowering, call.at, call.arguments);
    let module = module?;
    let ty = ty?;
    let text = text::of_type(&module);
    let layer = Submodule::Opaque {
        index: lowering.opaques.len(),
        ty: text.clone(),
    };
    let asked = (MODULE.name, call.arguments.name.as_ref());
    let place = lowering.field(builder.module, asked, layer, ty.to_string());
    let name = lowering.type_name(place.module, &place.field, call.at.span());
    let node = Module(place.clone());
    let operands: Vec<_> = call
        .operands
        .iter()
        .map(|id| lowering.memory(*id))
        .collect();
    let result = lowering.node(builder, node, operands.clone(), (call.result, ty));
    lowering.opaques.push(Opaque {
        ty: lowering.constants.with_names(&module),
        text,
        name,
        module: place.module,
        operands,
        result,
    });
    Some(result)
}

/// The type as written: rustc finds out what it means.
fn module_type(lowering: &Lowering<'_>, at: &Ident, arguments: &Arguments) -> Option<TokenStream> {
    let Some(tokens) = arguments.tokens("type") else {
        if !arguments.is_given("type") && arguments.complete {
            lowering.cx.error(at, messages::MODULE_WITHOUT_TYPE);
        }
        return None;
    };
    let tokens = without_braces(tokens);
    if syn::parse2::<syn::Type>(tokens.clone()).is_err() {
        let message = messages::expected_module(&tokens);
        lowering.cx.error(tokens, message);
        return None;
    }
    let model = &lowering.item.name;
    if let Some(itself) = sizes::names(&tokens).iter().find(|name| *name == model) {
        lowering.cx.error(itself, messages::contains_itself(model));
        return None;
    }
    Some(tokens)
}

/// A type without the braces in which a path stands that a macro of the user matched: it could be a constant as well.
fn without_braces(tokens: &TokenStream) -> TokenStream {
    let mut rest = tokens.clone().into_iter();
    let inner = match (rest.next(), rest.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::Brace => {
            group.stream()
        }
        _ => return tokens.clone(),
    };
    match syn::parse2::<syn::Type>(inner.clone()) {
        Ok(_) => inner,
        Err(_) => tokens.clone(),
    }
}

/// The shape that the module is to return.
fn declared_output(lowering: &mut Lowering<'_>, at: &Ident, arguments: &Arguments) -> Option<Type> {
    let Some(tokens) = arguments.tokens("out") else {
        if !arguments.is_given("out") && arguments.complete {
            lowering.cx.error(at, messages::MODULE_WITHOUT_OUT);
        }
        return None;
    };
    let Ok(draft) = parse_type.parse2(tokens.clone()) else {
        lowering.cx.error(tokens, messages::expected_output(tokens));
        return None;
    };
    let ty = lowering.declared_type(&draft)?;
    if ty.kind != ValueKind::Floats {
        lowering.error(first(tokens), messages::output_of_indices(&ty));
        return None;
    }
    Some(ty)
}

/// The operands: any.
struct Module(ParamPath);

impl Op for Module {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    /// dfdx's tape has the derivative.
    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        vec![Gradient::Computed; operands]
    }
}

impl ModelOp for Module {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.0),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, model: &Model) -> Result<Decode, String> {
        Err(messages::session_module(&model.path(&self.0)))
    }

    /// Unknown: a model with such a module has no constants of memory and FLOPs.
    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, _: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Err(words::MODULE.to_owned())
    }
}

impl Emit<ModelFrame<'_>> for Module {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        of.module(&self.0)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    /// A model with such a module has no fused form.
    fn forward(&self, _: &FusedNode<'_>, _: &Output) -> TokenStream {
        TokenStream::new()
    }

    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
