//! `attention::<keys>(x, context = y, padding = lens) { body }`: a layer of `attention!` inside of a model.

use proc_macro2::Ident;
use quote::ToTokens;

use super::call::Arguments;
use super::operators::named;
use super::{Frame, Lowering};
use crate::graph::{self, CallData, Dim};
use crate::messages::model as messages;
use crate::model::graph::{Op, Submodule, ValueId};
use crate::model::syntax::Call;
use crate::model::types::{Axis, Kind, Type};
use crate::score;
use crate::spec::keys::Key;
use crate::spec::parse::{Draft, Entry, Value};
use crate::spec::{self, Item, Size};

impl Lowering<'_> {
    pub(super) fn attention(
        &mut self,
        call: &Call,
        arguments: Arguments,
        name: Option<&Ident>,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let mut named_operands = Vec::new();
        for (key, operand) in &call.named {
            let value = self.tensor(operand, None, frame);
            named_operands.push((key, value));
        }
        let [x] = call.operands.as_slice() else {
            for operand in &call.operands {
                self.tensor(operand, None, frame);
            }
            self.cx.error(
                &call.name,
                messages::attention_operands(call.operands.len()),
            );
            return None;
        };
        let x = self.floats(x, "attention", frame)?;
        let ty = self.ty(x).clone();
        let width = self.width(call, &ty)?;
        if !(2..=3).contains(&ty.axes.len()) {
            let takes = "[batch, seq, d_model] or [seq, d_model]";
            self.cx
                .error(&call.name, messages::takes(&call.name, takes, &ty));
            return None;
        }
        let context = named_operands.iter().position(|(key, _)| *key == "context");
        let context = context.map(|index| named_operands.remove(index).1);
        let context = match context {
            None => None,
            Some(value) => Some(self.context(call, &ty, value?)?),
        };
        let index = self.attentions.len();
        let asked = ("attention", arguments.name.as_ref());
        let layer = Submodule::Attention(index);
        let place = self.field(frame.module, asked, layer, ty.to_string());
        let name_of_type = self.type_name(frame.module, &place.field, call.name.span());
        let draft = self.draft(call, arguments, width.clone(), &context, name_of_type);
        let (before, draft) = (self.cx.count(), draft?);
        let spec = spec::check(draft, self.krate, self.cx);
        let graph = graph::build(&spec);
        let (found, expected) = (Axis::Size(width), Axis::Size(spec.d_model.clone()));
        let types = [found, expected].map(|axis| Type::floats(vec![axis]));
        let agrees = spec.poisoned
            || self.agree(&types[0], &types[1], call.name.span(), || {
                messages::attention_width(&spec.d_model, &ty)
            });
        let mut operands = vec![x];
        operands.extend(context.as_ref().map(|(value, _)| *value));
        let key = context.as_ref().map_or(&ty, |(_, ty)| ty).clone();
        let data = self.data(call, &graph, [&ty, &key], named_operands);
        let poisoned = spec.poisoned;
        self.attentions.push((spec, graph));
        operands.extend(data?);
        if poisoned || !agrees || self.cx.count() > before {
            return None;
        }
        let op = Op::Attention { place, index };
        Some(self.node(frame, op, operands, (&named(name, "attention"), ty)))
    }

    /// The second sequence: of the same batch.
    fn context(&mut self, call: &Call, x: &Type, value: ValueId) -> Option<(ValueId, Type)> {
        let ty = self.ty(value).clone();
        self.width(call, &ty)?;
        let same_batch = x.axes.len() == ty.axes.len()
            && (x.axes.len() == 2 || {
                let batch = |ty: &Type| Type::floats(ty.axes[..1].to_vec());
                let message = || messages::context_differs(x, &ty);
                self.agree(&batch(x), &batch(&ty), call.name.span(), message)
            });
        if x.axes.len() != ty.axes.len() {
            self.cx.error(&call.name, messages::context_differs(x, &ty));
        }
        same_batch.then_some((value, ty))
    }

    /// The declaration of the layer. Widths that were not written are those of the operands.
    fn draft(
        &mut self,
        call: &Call,
        arguments: Arguments,
        width: Size,
        context: &Option<(ValueId, Type)>,
        name: Ident,
    ) -> Option<Draft> {
        let mut entries = arguments.entries;
        if entries.iter().all(|entry| entry.key.name != "heads") {
            self.cx
                .error(&call.name, messages::missing_key_of(&call.name, "heads"));
            return None;
        }
        let mut infer = |key: &'static str, size: Size| {
            let is_given = entries.iter().any(|entry| entry.key.name == key);
            if let (false, Some(key)) = (is_given, Key::find(key)) {
                let origin = Ident::new(key.name, call.name.span());
                let at = call.name.to_token_stream();
                let value = Value::Size(size.at(at.clone()));
                entries.push(Entry::new(key, origin, value, at));
            }
        };
        infer("d_model", width);
        let d_context = context.as_ref().and_then(|(_, ty)| ty.width().cloned());
        match (context, d_context) {
            (Some(_), Some(size)) => infer("d_context", size),
            _ => {
                if let Some(entry) = entries.iter().find(|entry| entry.key.name == "d_context") {
                    self.cx.error(&entry.name, messages::CONTEXT_MISSING);
                    return None;
                }
            }
        }
        let mut attrs = self.item.attrs.clone();
        let doc = format!("An attention of [`{}`].", self.item.name);
        attrs.push(syn::parse_quote!(#[doc = #doc]));
        Some(Draft {
            item: Item {
                attrs,
                vis: self.item.vis.clone(),
                name,
            },
            entries,
            body: call.body.clone().unwrap_or_default(),
            complete: true,
            poisoned: false,
        })
    }

    /// The operands that the mask and the body read, in the order of the call.
    fn data(
        &mut self,
        call: &Call,
        graph: &graph::Graph,
        sequences: [&Type; 2],
        mut named: Vec<(&Ident, Option<ValueId>)>,
    ) -> Option<Vec<ValueId>> {
        let mut operands = Vec::new();
        for data in &graph.data {
            let (name, expected) = data_type(data, sequences);
            let refused = match data {
                CallData::Document if graph.cross => Some(messages::DOCUMENTS_OF_TWO),
                CallData::Padding if sequences[0].axes.len() < 3 => Some(messages::PADDING_ALONE),
                _ => None,
            };
            if let Some(message) = refused {
                named.retain(|(key, _)| **key != *name);
                self.cx.error(&call.name, message);
                operands.push(None);
                continue;
            }
            let Some(index) = named.iter().position(|(key, _)| **key == *name) else {
                self.cx
                    .error(&call.name, messages::data_missing(&name, &expected));
                operands.push(None);
                continue;
            };
            let (at, value) = named.remove(index);
            let fits = value.is_some_and(|value| {
                let found = self.ty(value).clone();
                let message = || messages::data_differs(&name, &expected, &found);
                self.agree(&expected, &found, at.span(), message)
            });
            operands.push(value.filter(|_| fits));
        }
        let known: Vec<String> = graph.data.iter().map(data_name).collect();
        for (key, _) in named {
            self.cx.error(key, messages::unknown_data(key, &known));
        }
        operands.into_iter().collect()
    }
}

fn data_name(data: &CallData) -> String {
    match data {
        CallData::Padding => "padding".to_owned(),
        CallData::Document => "document".to_owned(),
        CallData::Declared(declared) => declared.name.to_string(),
    }
}

/// What is passed for data of the call.
fn data_type(data: &CallData, [query, key]: [&Type; 2]) -> (String, Type) {
    let batch = query.axes[..query.axes.len() - 2].to_vec();
    let length = |ty: &Type| ty.axes[ty.axes.len() - 2].clone();
    let ty = match data {
        CallData::Padding => Type {
            kind: Kind::Lens,
            axes: batch,
        },
        CallData::Document => Type {
            kind: Kind::Ids,
            axes: batch.into_iter().chain([length(query)]).collect(),
        },
        CallData::Declared(declared) => {
            let axes = declared.dims.iter().flat_map(|dim| match dim {
                Dim::Batch => batch.clone(),
                Dim::Query => vec![length(query)],
                Dim::Key => vec![length(key)],
                Dim::Size(size) => vec![Axis::Size(size.clone())],
            });
            Type {
                kind: match declared.ty {
                    score::Type::Int => Kind::Ids,
                    _ => Kind::Floats,
                },
                axes: axes.collect(),
            }
        }
    };
    (data_name(data), ty)
}
