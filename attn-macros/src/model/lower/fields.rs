//! The layers of a model as fields of its modules, with the names of these.

use std::collections::HashMap;

use proc_macro2::{Ident, Span};
use quote::format_ident;
use syn::ext::IdentExt;

use super::function::Recording;
use super::{Lowering, names_of};
use crate::messages::model as messages;
use crate::model::graph::{Field, Holder, Module, ModuleId, ParamPath, Submodule};
use crate::model::names::camel_case;
use crate::spec::Distribution;

/// A module of layers, and where it is.
pub(crate) struct Made {
    pub(crate) place: ParamPath,
    pub(crate) module: ModuleId,
    /// Not of a function that is called again.
    pub(crate) is_new: bool,
}

/// The layers of a loop that others run again, by their names. How many of a module have each name of a kind already.
pub(crate) struct Ties {
    counts: HashMap<(usize, String), usize>,
    /// The loop that runs them again.
    at: Span,
}

impl Ties {
    pub(super) fn new(at: Span) -> Self {
        Ties {
            counts: HashMap::new(),
            at,
        }
    }

    /// The name of the next layer of a kind, if no other was asked for.
    fn next(&mut self, module: ModuleId, kind: &str, asked: Option<&Ident>) -> String {
        if let Some(name) = asked {
            return name.unraw().to_string();
        }
        let count = self.counts.entry((module.0, kind.to_owned())).or_default();
        *count += 1;
        match count {
            1 => kind.to_owned(),
            count => format!("{kind}_{count}"),
        }
    }
}

impl Lowering<'_> {
    /// A field for a layer, under the name that was asked for, or that of its kind.
    pub(crate) fn field(
        &mut self,
        module: ModuleId,
        (kind, asked): (&str, Option<&Ident>),
        layer: Submodule,
        output: String,
    ) -> ParamPath {
        if let Some(place) = self.recordings.last_mut().and_then(Recording::next) {
            return place;
        }
        if let Some(field) = self.tied_field(module, (kind, asked), &layer) {
            let place = ParamPath { module, field };
            if let Some(recording) = self.recordings.last_mut() {
                recording.places.push(place.clone());
            }
            return place;
        }
        let fields = &mut self.modules[module.0].fields;
        let is_taken = |name: &str| fields.iter().any(|field| field.name == name);
        let field = match asked {
            Some(name) => {
                let text = name.unraw().to_string();
                if is_taken(&text) {
                    self.cx.error(name, messages::name_taken(name));
                }
                text
            }
            None => {
                let mut numbered = (2..).map(|number| format!("{kind}_{number}"));
                let first = Some(kind.to_owned()).filter(|name| !is_taken(name));
                first
                    .or_else(|| numbered.find(|name| !is_taken(name)))
                    .unwrap_or_default()
            }
        };
        fields.push(Field {
            name: field.clone(),
            saved: field.clone(),
            layer,
            init: None,
            output,
        });
        let place = ParamPath { module, field };
        if let Some(recording) = self.recordings.last_mut() {
            recording.places.push(place.clone());
        }
        place
    }

    /// A field for an attention. An `attend` that learns nothing has a field of its own in a loop that is tied to another one: there is nothing that it
    /// could share, and its widths may differ. The name that was asked for is one to begin with: the other loop may have it.
    pub(super) fn field_of_attention(
        &mut self,
        module: ModuleId,
        asked: (&str, Option<&Ident>),
        layer: Submodule,
        (output, learns): (String, bool),
    ) -> ParamPath {
        if learns {
            return self.field(module, asked, layer, output);
        }
        let mut ties = self.ties.take();
        if let Some(ties) = &mut ties {
            ties.next(module, asked.0, asked.1);
        }
        let name = asked.1.map(|name| name.unraw().to_string());
        let asked = match &name {
            Some(name) if ties.is_some() => (name.as_str(), None),
            _ => asked,
        };
        let place = self.field(module, asked, layer, output);
        self.ties = ties;
        place
    }

    /// In a loop that is tied to another one: the layer of that with the name that was asked for, or the next one of its kind.
    fn tied_field(
        &mut self,
        module: ModuleId,
        (kind, asked): (&str, Option<&Ident>),
        layer: &Submodule,
    ) -> Option<String> {
        let ties = self.ties.as_mut()?;
        let at = asked.map_or(ties.at, Ident::span);
        let name = ties.next(module, kind, asked);
        let Module { holder, fields, .. } = &self.modules[module.0];
        let (Holder::Variable(within) | Holder::Field(ParamPath { field: within, .. })) = holder;
        let found = fields.iter().find(|field| field.name == name);
        let message = match found {
            // It may be one without layers.
            None if matches!(layer, Submodule::Block { .. }) => return None,
            None => {
                let names = fields.iter().map(|field| field.name.as_str());
                Some(messages::no_layer_to_tie(&name, within, names))
            }
            Some(field) => {
                let labels = [field.layer.label(), layer.label()];
                let differ = labels[0] != labels[1];
                differ.then(|| messages::another_layer_to_tie(&name, within, &labels))
            }
        };
        let is_there = found.is_some();
        if let Some(message) = message {
            self.error(at, message);
        }
        is_there.then_some(name)
    }

    /// Begins the layer at a place so, if it is not that of a loop before.
    pub(crate) fn begin(&mut self, place: &ParamPath, init: Option<Distribution>) {
        if self.ties.is_some() {
            return;
        }
        if let Some(field) = self.field_at(place) {
            field.init = init;
        }
    }

    /// A block without parameters is no layer.
    pub(super) fn drop_empty_blocks(&mut self) {
        // The layers in a block follow it.
        for module in (0..self.modules.len()).rev() {
            let mut fields = std::mem::take(&mut self.modules[module].fields);
            fields.retain(|field| match field.layer {
                Submodule::Block { module, .. } => !self.modules[module.0].fields.is_empty(),
                _ => true,
            });
            self.modules[module].fields = fields;
        }
    }

    /// A field for a module of layers, and that module. `layer` makes the field of it.
    pub(crate) fn submodule(
        &mut self,
        outer: ModuleId,
        asked: (&str, Option<&Ident>),
        layer: impl FnOnce(ModuleId) -> Submodule,
        at: Span,
    ) -> Made {
        let module = ModuleId(self.modules.len());
        let layer = layer(module);
        let is_variable = matches!(layer, Submodule::Repeat { .. });
        let place = self.field(outer, asked, layer, String::new());
        let inner = self.field_at(&place).and_then(|field| field.layer.inner());
        if let Some((known, _)) = inner.filter(|(known, _)| *known != module) {
            return Made {
                place,
                module: known,
                is_new: false,
            };
        }
        let name = self.type_name(outer, &place.field, at);
        let holder = match is_variable {
            true => Holder::Variable(self.fresh(&place.field)),
            false => Holder::Field(place.clone()),
        };
        self.modules.push(Module {
            name,
            holder,
            docs: Vec::new(),
            fields: Vec::new(),
        });
        Made {
            place,
            module,
            is_new: true,
        }
    }

    /// The field at a place.
    pub(crate) fn field_at(&mut self, place: &ParamPath) -> Option<&mut Field> {
        let fields = &mut self.modules[place.module.0].fields;
        fields.iter_mut().find(|field| field.name == place.field)
    }

    /// The type of a struct inside of the model: the names on the way to it, in camel case.
    ///
    /// The parts have no underscores, so no field makes a name of the emitted code, which has several before it.
    pub(crate) fn type_name(&mut self, module: ModuleId, field: &str, at: Span) -> Ident {
        let outer = &self.modules[module.0].name;
        let inner = camel_case(field);
        let mut name = format_ident!("{outer}{inner}");
        while names_of(&name).iter().any(|of| self.types.contains(of)) {
            name = format_ident!("{name}Layer");
        }
        self.types.extend(names_of(&name));
        name.set_span(outer.span().resolved_at(outer.span()).located_at(at));
        name
    }
}
