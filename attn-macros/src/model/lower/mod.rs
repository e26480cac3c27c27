//! From what was written to the graph: names are resolved, shapes inferred, rules applied.
//!
//! Lowering never fails: what is wrong is reported, stands for nothing, and is not reported again.

mod attention;
mod call;
mod opaque;
mod operators;
mod scope;
mod statements;
mod tied;

use std::collections::HashMap;

use proc_macro2::{Ident, Span, TokenStream};
use quote::format_ident;
use syn::ext::IdentExt;

use super::graph::{
    Field, Model, Module, ModuleId, Node, Op, Opaque, Place, Region, Step, Submodule, Value,
    ValueId,
};
use super::sizes::Sizes;
use super::syntax::{ModelDraft, TypeDraft};
use super::types::{Axis, Kind, Same, Type};
use crate::diag::Diagnostics;
use crate::graph::Graph;
use crate::messages::model as messages;
use crate::spec::{Assertion, Item, Size, Spec};
use scope::Scopes;

/// The network that `draft` declares.
pub(crate) fn lower(draft: ModelDraft, krate: &TokenStream, cx: &Diagnostics) -> Model {
    let before = cx.count();
    let mut lowering = Lowering::new(&draft, krate, cx);
    let inputs = lowering.inputs(&draft);
    let declared: Vec<Option<Type>> = draft
        .results
        .iter()
        .map(|ty| lowering.declared_result(ty))
        .collect();
    let mut body = Frame::new(ModuleId(0));
    let results = lowering.statements(&draft.statements, &mut body);
    let results = lowering.returned(results, &declared, &draft);
    lowering.scopes.close(cx);
    if cx.count() == before && !draft.poisoned {
        lowering.sizes.report_unused(cx);
    }
    let poisoned = draft.poisoned || cx.count() > before;
    if poisoned {
        lowering.forget();
        body = Frame::new(ModuleId(0));
    }
    Model {
        symbols: lowering.symbols,
        inputs,
        values: lowering.values,
        modules: lowering.modules,
        attentions: lowering.attentions,
        opaques: lowering.opaques,
        body: body.region,
        results,
        assertions: lowering.assertions,
        poisoned,
        item: draft.item,
    }
}

/// The variables of the emitted code itself.
const OWN: [&str; 5] = ["__types", "model", "pass", "run", "tape"];

pub(super) struct Lowering<'a> {
    cx: &'a Diagnostics,
    krate: &'a TokenStream,
    /// The model, with no attributes but `#[cfg]`s.
    item: Item,
    sizes: Sizes,
    symbols: Vec<String>,
    values: Vec<Value>,
    /// How many values of a name there are.
    names: HashMap<String, usize>,
    modules: Vec<Module>,
    attentions: Vec<(Spec, Graph)>,
    opaques: Vec<Opaque>,
    assertions: Vec<Assertion>,
    scopes: Scopes,
}

/// Where operations go: those of the model, or of the body of a `repeat`.
pub(super) struct Frame {
    module: ModuleId,
    region: Region,
}

impl Frame {
    fn new(module: ModuleId) -> Self {
        Frame {
            module,
            region: Region::default(),
        }
    }
}

impl<'a> Lowering<'a> {
    fn new(draft: &ModelDraft, krate: &'a TokenStream, cx: &'a Diagnostics) -> Self {
        let item = Item {
            attrs: draft.item.cfgs().cloned().collect(),
            vis: draft.item.vis.clone(),
            name: draft.item.name.clone(),
        };
        let model = Module {
            name: item.name.clone(),
            var: "model".to_owned(),
            fields: Vec::new(),
        };
        Lowering {
            cx,
            krate,
            item,
            sizes: Sizes::new(&draft.sizes, cx),
            symbols: Vec::new(),
            values: Vec::new(),
            names: OWN.map(|name| (name.to_owned(), 1)).into(),
            modules: vec![model],
            attentions: Vec::new(),
            opaques: Vec::new(),
            assertions: Vec::new(),
            scopes: Scopes::default(),
        }
    }

    /// After a mistake: what was understood of the layers stands for nothing.
    fn forget(&mut self) {
        self.modules.truncate(1);
        self.modules
            .iter_mut()
            .for_each(|model| model.fields.clear());
        self.attentions.clear();
        self.opaques.clear();
        self.assertions.clear();
    }

    fn inputs(&mut self, draft: &ModelDraft) -> Vec<ValueId> {
        let mut inputs = Vec::new();
        if draft.item.name == "E" || draft.item.name == "D" {
            self.cx.error(
                &draft.item.name,
                messages::name_of_a_type_variable(&draft.item.name),
            );
        }
        if draft.inputs.is_empty() && !draft.poisoned {
            self.cx.error(&draft.item.name, messages::NO_INPUT);
        }
        for input in &draft.inputs {
            if let Some(clash) = self.scopes.find(&input.name) {
                let name = clash.name.clone();
                self.cx.error(&input.name, messages::input_twice(&name));
                continue;
            }
            self.add_symbols(&input.ty);
            let ty = self.declared_type(&input.ty);
            let value = ty.map(|ty| self.value(&input.name.unraw().to_string(), ty));
            inputs.extend(value);
            self.scopes.declare(&input.name, value, false);
        }
        inputs
    }

    /// What is no size is the name of an axis.
    fn add_symbols(&mut self, ty: &TypeDraft) {
        for axis in &ty.axes {
            let Ok(name) = syn::parse2::<Ident>(axis.clone()) else {
                continue;
            };
            let text = name.unraw().to_string();
            let is_constant = text.to_uppercase() == text;
            if !self.sizes.has(&name) && !is_constant && !self.symbols.contains(&text) {
                self.symbols.push(text);
            }
        }
    }

    fn declared_type(&mut self, draft: &TypeDraft) -> Option<Type> {
        let kind = match &draft.kind {
            None => Kind::Floats,
            Some(kind) if kind == "ids" => Kind::Ids,
            Some(kind) if kind == "lens" => Kind::Lens,
            Some(kind) if kind == "bool" => Kind::Bools,
            Some(kind) => {
                self.cx.error(kind, messages::unknown_kind(kind));
                return None;
            }
        };
        let axes: Option<Vec<Axis>> = draft.axes.iter().map(|axis| self.axis(axis)).collect();
        let axes = axes?;
        let (least, most) = match kind {
            Kind::Floats | Kind::Ids | Kind::Bools => (1, 4),
            Kind::Lens => (1, 2),
        };
        if !(least..=most).contains(&axes.len()) {
            let message = messages::number_of_axes(kind, axes.len(), least, most);
            self.cx.push(syn::Error::new(draft.span, message));
            return None;
        }
        Some(Type { kind, axes })
    }

    fn declared_result(&mut self, draft: &TypeDraft) -> Option<Type> {
        let ty = self.declared_type(draft)?;
        if ty.kind != Kind::Floats {
            self.cx.error(&draft.kind, messages::result_of_indices(&ty));
            return None;
        }
        Some(ty)
    }

    /// A size of the header, a constant, or a name of the inputs.
    fn axis(&mut self, tokens: &TokenStream) -> Option<Axis> {
        if let Ok(name) = syn::parse2::<Ident>(tokens.clone()) {
            if self.sizes.has(&name) {
                return self.sizes.get(&name).map(Axis::Size);
            }
            let text = name.unraw().to_string();
            if self.symbols.contains(&text) {
                return Some(Axis::Symbol(text));
            }
            if text.to_uppercase() != text {
                self.cx
                    .error(&name, messages::unknown_axis(&name, &self.symbols));
                return None;
            }
        }
        self.size(tokens, "an axis").map(Axis::Size)
    }

    /// A constant that is a size.
    fn size(&self, tokens: &TokenStream, what: &str) -> Option<Size> {
        crate::spec::parse_size(&self.sizes.substitute(tokens), what, self.cx)
    }

    /// A new value, named after `name`.
    fn value(&mut self, name: &str, ty: Type) -> ValueId {
        let count = self.names.entry(name.to_owned()).or_default();
        *count += 1;
        let name = match count {
            1 => name.to_owned(),
            count => format!("{name}_{count}"),
        };
        self.values.push(Value { name, ty });
        ValueId(self.values.len() - 1)
    }

    fn ty(&self, id: ValueId) -> &Type {
        &self.values[id.0].ty
    }

    /// The result of an operation.
    fn node(
        &mut self,
        frame: &mut Frame,
        op: Op,
        operands: Vec<ValueId>,
        (name, ty): (&str, Type),
    ) -> ValueId {
        let result = self.value(name, ty);
        frame.region.steps.push(Step::Node(Node {
            op,
            operands,
            result,
        }));
        result
    }

    /// A field for a layer, under the name that was asked for, or that of its kind.
    fn field(
        &mut self,
        module: ModuleId,
        (kind, asked): (&str, Option<&Ident>),
        layer: Submodule,
        output: String,
    ) -> Place {
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
            layer,
            output,
        });
        Place { module, field }
    }

    /// The type of a struct inside of the model: the names on the way to it, in camel case.
    fn type_name(&self, module: ModuleId, field: &str, at: Span) -> Ident {
        let parts = field.split('_').map(|part| {
            let mut chars = part.chars();
            let first = chars.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(chars).collect::<String>()
        });
        let (outer, inner) = (&self.modules[module.0].name, parts.collect::<String>());
        let mut name = format_ident!("{outer}{inner}");
        while self.is_emitted(&name) {
            name = format_ident!("{name}Layer");
        }
        name.set_span(outer.span().resolved_at(outer.span()).located_at(at));
        name
    }

    /// Whether a type, or a trait of what one accepts, has the name, or this type's trait would have that of one.
    fn is_emitted(&self, name: &Ident) -> bool {
        let layers = self.attentions.iter().map(|(spec, _)| &spec.item.name);
        let mut types = self.modules.iter().map(|module| &module.name).chain(layers);
        types.any(|ty| {
            let traits = ["Input", "InputMut"].map(|suffix| format_ident!("{ty}{suffix}"));
            ty == name || traits.contains(name) || *ty == format!("{name}Input")
        })
    }

    /// Whether two types are equal; if that is for rustc to find out, the rule is noted.
    fn agree(&mut self, a: &Type, b: &Type, at: Span, message: impl FnOnce() -> String) -> bool {
        match a.same(b) {
            Same::Yes => true,
            Same::No => {
                self.cx.push(syn::Error::new(at, message()));
                false
            }
            Same::If(conditions) => {
                self.assume(conditions, at, message());
                true
            }
        }
    }

    /// Leaves a rule to rustc.
    fn assume(&mut self, conditions: Vec<TokenStream>, at: Span, message: String) {
        let mut place = format_ident!("here");
        place.set_span(at);
        self.assertions.push(Assertion {
            at: quote::quote!(#place),
            condition: quote::quote!(#(#conditions)&&*),
            message,
        });
    }

    fn error(&self, at: Span, message: impl std::fmt::Display) {
        self.cx.push(syn::Error::new(at, message));
    }
}
