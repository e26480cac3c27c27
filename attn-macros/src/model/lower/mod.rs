//! From what was written to the graph: names are resolved, shapes inferred, rules applied.
//!
//! Lowering never fails: what is wrong is reported, stands for nothing, and is not reported again.

mod arguments;
mod attention;
mod axes;
mod call;
mod condition;
mod ids;
mod operators;
mod param;
mod parts;
mod scope;
mod statements;
mod tied;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::rc::Rc;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use super::constants::Constants;
use super::graph::{
    Field, Model, Module, ModuleId, Node, Opaque, ParamPath, Region, Step, Submodule, Value,
    ValueId,
};
use super::sizes::{self, Sizes};
use super::syntax::{ModelDraft, TypeDraft};
use super::types::{Axis, Same, Type, ValueKind};
use crate::diag::Diagnostics;
use crate::graph::AttentionLayer;
use crate::messages::model as messages;
use crate::ops::{ModelOp, Operation};
use crate::spec::{Assertion, Item, Size};
use scope::{Changes, Scopes};

pub(crate) use arguments::Arguments;
pub(crate) use call::is_without_bias;
pub(crate) use operators::named;

/// The network that `draft` declares.
///
/// `types` are its own name and those of the types that stand beside it: no layer of it gets these.
pub(crate) fn lower(
    draft: ModelDraft,
    types: &[String],
    krate: &TokenStream,
    cx: &Diagnostics,
) -> Model {
    let before = cx.count();
    let mut lowering = Lowering::new(&draft, types, krate, cx);
    lowering.declare_inputs(&draft);
    let declared = draft.results.as_ref().map(|types| -> Vec<Option<Type>> {
        let types = types.iter();
        types.map(|ty| lowering.declared_result(ty)).collect()
    });
    let declared_constants = lowering.constants.items.len();
    let mut body = RegionBuilder::new(ModuleId(0));
    let results = lowering.statements(&draft.statements, None, &mut body);
    let results = lowering.returned(results, declared.as_deref(), &draft);
    lowering.scopes.close(cx);
    if cx.count() == before && !draft.poisoned {
        lowering.sizes.report_unused(&draft.item.name, cx);
    }
    let poisoned = draft.poisoned || cx.count() > before;
    if poisoned {
        lowering.forget();
        lowering.constants.items.truncate(declared_constants);
        body = RegionBuilder::new(ModuleId(0));
    }
    let is_known = lowering.inputs.len() == draft.inputs.len() && !lowering.inputs.is_empty();
    let declared: Option<Vec<Type>> = declared.and_then(|types| types.into_iter().collect());
    Model {
        signature: declared.filter(|types| is_known && !types.is_empty()),
        symbols: lowering.symbols,
        inputs: lowering.inputs,
        values: lowering.values,
        modules: lowering.modules,
        attentions: lowering.attentions,
        opaques: lowering.opaques,
        grouped: Region::default(),
        body: body.region,
        results,
        constants: lowering.constants.items,
        assertions: lowering.assertions,
        poisoned,
        item: draft.item,
    }
}

/// The variables of the emitted code itself.
const OWN: [&str; 5] = ["__types", "model", "pass", "run", "tape"];

pub(crate) struct Lowering<'a> {
    pub(crate) cx: &'a Diagnostics,
    krate: &'a TokenStream,
    /// The model, with no attributes but `#[cfg]`s.
    pub(crate) item: Item,
    /// The names that are those of types, or may be called after them.
    types: HashSet<String>,
    sizes: Sizes,
    pub(crate) constants: Constants,
    symbols: Vec<String>,
    inputs: Vec<ValueId>,
    values: Vec<Value>,
    /// The axes of which computed ids are indices.
    below: HashMap<usize, Axis>,
    /// How many values of a name there are.
    names: HashMap<String, usize>,
    modules: Vec<Module>,
    attentions: Vec<AttentionLayer>,
    pub(crate) opaques: Vec<Opaque>,
    assertions: Vec<Assertion>,
    scopes: Scopes,
    /// Whether all that is written was understood.
    is_understood: bool,
    /// Whether the names of all variables were understood, and whether the axes of the inputs were: if not, names may be those that
    /// were not.
    knows_variables: bool,
    knows_axes: bool,
    /// Texts in the place of an axis that are none. They were reported.
    wrong_axes: Vec<String>,
}

/// Where operations go: those of the model, or of the body of a `repeat`.
pub(crate) struct RegionBuilder {
    pub(crate) module: ModuleId,
    region: Region,
}

impl RegionBuilder {
    fn new(module: ModuleId) -> Self {
        RegionBuilder {
            module,
            region: Region::default(),
        }
    }
}

impl<'a> Lowering<'a> {
    fn new(
        draft: &ModelDraft,
        types: &[String],
        krate: &'a TokenStream,
        cx: &'a Diagnostics,
    ) -> Self {
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
        let mut constants = Constants::new(&item.name.unraw());
        Lowering {
            cx,
            krate,
            item,
            types: types.iter().flat_map(names_of).collect(),
            sizes: Sizes::new(&draft.sizes, &mut constants, cx),
            constants,
            symbols: Vec::new(),
            inputs: Vec::new(),
            values: Vec::new(),
            below: HashMap::new(),
            names: OWN.map(|name| (name.to_owned(), 1)).into(),
            modules: vec![model],
            attentions: Vec::new(),
            opaques: Vec::new(),
            assertions: Vec::new(),
            scopes: Scopes::new(draft.poisoned),
            is_understood: !draft.poisoned,
            wrong_axes: Vec::new(),
            knows_variables: draft.inputs.iter().all(|input| input.name.is_some()),
            knows_axes: draft.inputs.iter().all(|input| input.ty.is_some()),
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

    fn declare_inputs(&mut self, draft: &ModelDraft) {
        if draft.inputs.is_empty() && !draft.poisoned {
            self.cx.error(&draft.item.name, messages::NO_INPUT);
        }
        let types = draft.inputs.iter().filter_map(|input| input.ty.as_ref());
        types.for_each(|ty| self.add_symbols(ty));
        for input in &draft.inputs {
            let Some(name) = &input.name else { continue };
            if let Some(clash) = self.scopes.find(name) {
                let name = clash.name.clone();
                self.cx.error(&input.name, messages::input_twice(&name));
                continue;
            }
            let ty = input.ty.as_ref().and_then(|ty| self.declared_type(ty));
            let value = ty.map(|ty| self.value(&name.unraw().to_string(), ty));
            self.inputs.extend(value);
            let changes = match input.mutable {
                true => Changes::Allowed,
                false => Changes::OfInput,
            };
            self.scopes.declare(name, value, changes);
        }
    }

    /// A name that is no size is an axis.
    fn add_symbols(&mut self, ty: &TypeDraft) {
        for axis in &ty.axes {
            let Ok(name) = syn::parse2::<Ident>(axis.clone()).and_then(not_none) else {
                continue;
            };
            let text = name.unraw().to_string();
            let is_new = !self.sizes.has(&name) && !self.symbols.contains(&text);
            if is_new && !is_name_of_constant(&text) {
                self.symbols.push(text);
            }
        }
    }

    pub(crate) fn declared_type(&mut self, draft: &TypeDraft) -> Option<Type> {
        let kind = match &draft.kind {
            None => ValueKind::Floats,
            Some(kind) if kind == "ids" => ValueKind::Ids,
            Some(kind) if kind == "lens" => ValueKind::Lens,
            Some(kind) if kind == "bool" => ValueKind::Bools,
            Some(kind) => {
                self.cx.error(kind, messages::unknown_kind(kind));
                return None;
            }
        };
        let axes: Option<Vec<Axis>> = draft.axes.iter().map(|axis| self.axis(axis)).collect();
        let axes = axes?;
        let (least, most) = match kind {
            ValueKind::Floats | ValueKind::Ids | ValueKind::Bools => (1, 4),
            ValueKind::Lens => (1, 2),
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
        if ty.kind != ValueKind::Floats {
            self.cx.error(&draft.kind, messages::result_of_indices(&ty));
            return None;
        }
        Some(ty)
    }

    /// A size of the header, a constant, or a name of the inputs.
    fn axis(&mut self, tokens: &TokenStream) -> Option<Axis> {
        if let Ok(name) = syn::parse2::<Ident>(tokens.clone()).and_then(not_none) {
            if self.sizes.has(&name) {
                return self.sizes.get(&name).map(Axis::Size);
            }
            let text = name.unraw().to_string();
            if self.symbols.contains(&text) {
                return Some(Axis::Symbol(text));
            }
            if !is_name_of_constant(&text) {
                if self.knows_axes {
                    let sizes: Vec<_> = self.sizes.names().collect();
                    let message = messages::unknown_axis(&name, &self.symbols, &sizes);
                    self.cx.error(&name, message);
                }
                return None;
            }
        }
        if !self.is_size(tokens) {
            self.wrong_axis(tokens);
            return None;
        }
        self.size(tokens, "an axis").map(Axis::Size)
    }

    /// Whether a constant can be a size at all.
    fn is_size(&self, tokens: &TokenStream) -> bool {
        let quiet = Diagnostics::default();
        if tokens.to_string() == NONE {
            return false;
        }
        !self.sizes.is_sound(tokens)
            || crate::spec::parse_size(&self.sizes.substitute(tokens), "", &quiet).is_some()
    }

    /// Once for the inputs and the result, where an axis has the same mistake.
    fn wrong_axis(&mut self, tokens: &TokenStream) {
        let text = tokens.to_string();
        if !self.wrong_axes.contains(&text) {
            self.cx.error(tokens, messages::no_axis(tokens));
            self.wrong_axes.push(text);
        }
        self.knows_axes = false;
    }

    /// A constant that is a size.
    fn size(&mut self, tokens: &TokenStream, what: &str) -> Option<Size> {
        let size = self.sizes.substitute(tokens);
        if !self.is_constant(tokens) {
            return None;
        }
        let mut size = crate::spec::parse_size(&size, what, self.cx)?;
        self.constants.name(&mut size);
        size.axis = self.sizes.axis(tokens);
        Some(size)
    }

    /// Whether a constant is one: an axis has no length that is known, and a size with a mistake has no value. Notes what it names.
    fn is_constant(&self, constant: &TokenStream) -> bool {
        let names = sizes::names(constant);
        self.sizes.mention(&names);
        let is_axis = |name: &&Ident| {
            !self.sizes.has(name) && self.symbols.contains(&name.unraw().to_string())
        };
        if let Some(name) = names.iter().find(is_axis) {
            let message = messages::axis_as_constant(name, &self.item.name);
            self.cx.error(name, message);
            return false;
        }
        let is_own = |name: &&Ident| !self.sizes.has(name);
        if let [name] = names.as_slice()
            && is_own(&name)
            && let Ok(alone) = syn::parse2::<Ident>(constant.clone())
            && Operation::find(&alone.to_string()).is_some()
        {
            self.cx.error(name, messages::operation_as_constant(name));
            return false;
        }
        let variable = names
            .iter()
            .filter(is_own)
            .find_map(|name| self.scopes.find(name));
        if let Some(variable) = variable {
            if variable.value.is_some() {
                let name = names.iter().find(|name| **name == variable.name);
                self.cx.error(
                    name,
                    messages::variable_as_size(&variable.name, &self.item.name),
                );
            }
            return false;
        }
        self.sizes.is_sound(constant)
    }

    /// Whether a size is not 0; if that is for rustc to find out, the rule is noted.
    pub(crate) fn at_least_one(&mut self, size: &Size, at: Span, message: String) -> bool {
        match size.value {
            Some(0) => self.error(at, message),
            Some(_) => {}
            None => self.assume(vec![quote!(#size >= 1)], at, message),
        }
        size.value != Some(0)
    }

    /// A name that stands for no value.
    fn unknown_variable(&mut self, name: &Ident) {
        self.scopes.reads_unknown();
        if !self.knows_variables {
            return;
        }
        let text = name.unraw().to_string();
        let message = if self.symbols.contains(&text) {
            messages::axis_as_constant(name, &self.item.name)
        } else if text.to_uppercase() == text {
            messages::constant_as_variable(name)
        } else {
            messages::unknown_variable(name, self.scopes.names())
        };
        self.cx.error(name, message);
        self.scopes.declare_unknown(name);
    }

    /// A new value, named after `name`.
    fn value(&mut self, name: &str, ty: Type) -> ValueId {
        let count = self.names.entry(name.to_owned()).or_default();
        *count += 1;
        let name = match count {
            1 => name.to_owned(),
            count => format!("{name}_{count}"),
        };
        self.values.push(Value {
            name,
            ty,
            view: None,
            alias: None,
        });
        ValueId(self.values.len() - 1)
    }

    pub(crate) fn ty(&self, id: ValueId) -> &Type {
        &self.values[id.0].ty
    }

    /// The result of an operation.
    pub(crate) fn node(
        &mut self,
        builder: &mut RegionBuilder,
        op: impl ModelOp + 'static,
        operands: Vec<ValueId>,
        (name, ty): (&str, Type),
    ) -> ValueId {
        let result = self.value(name, ty);
        builder.region.steps.push(Step::Node(Node {
            op: Rc::new(op),
            operands,
            result,
            name: None,
        }));
        result
    }

    /// The same numbers without a gradient, as the result of an operation.
    pub(crate) fn alias(
        &mut self,
        builder: &mut RegionBuilder,
        op: impl ModelOp + 'static,
        value: ValueId,
        name: &str,
    ) -> ValueId {
        let ty = self.ty(value).clone();
        let source = self.values[value.0].alias.unwrap_or(value);
        let result = self.node(builder, op, vec![value], (name, ty));
        self.values[result.0].alias = Some(source);
        result
    }

    /// A field for a layer, under the name that was asked for, or that of its kind.
    pub(crate) fn field(
        &mut self,
        module: ModuleId,
        (kind, asked): (&str, Option<&Ident>),
        layer: Submodule,
        output: String,
    ) -> ParamPath {
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
            init: None,
            output,
        });
        ParamPath { module, field }
    }

    /// The type of a struct inside of the model: the names on the way to it, in camel case.
    ///
    /// The parts have no underscores, so no field makes a name of the emitted code, which has several before it.
    pub(crate) fn type_name(&mut self, module: ModuleId, field: &str, at: Span) -> Ident {
        let parts = field.split('_').map(|part| {
            let mut chars = part.chars();
            let first = chars.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(chars).collect::<String>()
        });
        let outer = &self.modules[module.0].name;
        let inner = parts.collect::<String>();
        let mut name = format_ident!("{outer}{inner}");
        while names_of(&name).iter().any(|of| self.types.contains(of)) {
            name = format_ident!("{name}Layer");
        }
        self.types.extend(names_of(&name));
        name.set_span(outer.span().resolved_at(outer.span()).located_at(at));
        name
    }

    /// Whether two types are equal; if that is for rustc to find out, the rule is noted.
    pub(crate) fn agree(
        &mut self,
        a: &Type,
        b: &Type,
        at: Span,
        message: impl FnOnce() -> String,
    ) -> bool {
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
    pub(crate) fn assume(&mut self, conditions: Vec<TokenStream>, at: Span, message: String) {
        let mut place = format_ident!("here");
        place.set_span(at);
        self.assertions.push(Assertion {
            at: quote!(#place),
            condition: quote!(#(#conditions)&&*),
            message,
        });
    }

    pub(crate) fn error(&self, at: Span, message: impl Display) {
        self.cx.push(syn::Error::new(at, message));
    }
}

/// The names that the declaration of a type may take: its own, those of the traits of what it accepts, and that of the type variable of
/// a module.
fn names_of(ty: &impl Display) -> [String; 4] {
    ["", "Input", "InputMut", "Built"].map(|suffix| format!("{ty}{suffix}"))
}

/// In other libraries an axis of any length. Here two axes of one name have one length.
const NONE: &str = "None";

/// The name, if it may be that of an axis.
fn not_none(name: Ident) -> syn::Result<Ident> {
    match name == NONE {
        true => Err(syn::Error::new(name.span(), "")),
        false => Ok(name),
    }
}

/// Whether a name in a shape is a constant of the user, as `WIDTH` is. A single letter, as `B` or `T`, is an axis.
fn is_name_of_constant(name: &str) -> bool {
    name.to_uppercase() == name && name.chars().count() > 1
}
