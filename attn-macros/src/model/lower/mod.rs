//! From what was written to the graph: names are resolved, shapes inferred, rules applied.
//!
//! Lowering never fails: what is wrong is reported, stands for nothing, and is not reported again.

mod arguments;
mod attention;
mod axes;
mod bind;
mod block;
mod buffer;
mod call;
mod choice;
mod made;
mod operators;
mod param;
mod parts;
mod pattern;
mod rearrange;
mod rename;
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
    Buffer, Field, Holder, Model, Module, ModuleId, Node, Opaque, ParamPath, Region, Step,
    Submodule, Value, ValueId,
};
use super::import::Library;
use super::lengths::MadeAxis;
use super::sizes::{self, ConstValue, Sizes};
use super::syntax::{ModelDraft, TypeDraft, is_leading, is_name_of_constant};
use super::types::{Axis, Same, Symbol, Type, ValueKind};
use crate::diag::Diagnostics;
use crate::graph::AttentionLayer;
use crate::messages::model as messages;
use crate::ops::{ModelOp, Operation};
use crate::spec::{Assertion, Item, Size};
use block::{Block, Declared};
use scope::{Changes, Scopes};

pub(crate) use arguments::Arguments;
pub(crate) use axes::names_of_axes;
pub(crate) use buffer::WAVES;
pub(crate) use call::is_without_bias;

/// The network that `draft` declares.
///
/// `types` are its own name and those of the types that stand beside it: no layer of it gets these.
pub(crate) fn lower(
    mut draft: ModelDraft,
    types: &[String],
    krate: &TokenStream,
    cx: &Diagnostics,
) -> Model {
    let before = cx.count();
    let library = Library {
        sizes: Vec::new(),
        imports: std::mem::take(&mut draft.imports),
        blocks: std::mem::take(&mut draft.blocks),
    };
    Block::check(&library, cx);
    let mut lowering = Lowering::new(&draft, types, krate, cx);
    draft.poisoned |= !lowering.declare_blocks(library);
    lowering.declare_inputs(&draft);
    let forward = &draft.forward;
    let mut declared = lowering.declared_before(forward.results.as_deref(), &forward.statements);
    let declared_constants = lowering.constants.items.len();
    let mut body = RegionBuilder::new(ModuleId(0));
    let results = lowering.statements(&forward.statements, None, &mut body);
    if declared.is_none() && cx.count() == before {
        declared = lowering.declared_results(forward.results.as_deref());
    }
    let results = lowering.returned(results, declared.as_deref(), &draft.item.name);
    lowering.scopes.close(cx);
    if cx.count() == before && !draft.poisoned {
        lowering.report_uncalled();
    }
    if cx.count() == before && !draft.poisoned {
        lowering.skip_shared();
        lowering.sizes.report_unused(&draft.item.name, cx);
    }
    let poisoned = draft.poisoned || cx.count() > before;
    if poisoned {
        lowering.forget();
        lowering.constants.items.truncate(declared_constants);
        body = RegionBuilder::new(ModuleId(0));
    }
    let inputs = &draft.forward.inputs;
    let is_known = lowering.inputs.len() == inputs.len() && !lowering.inputs.is_empty();
    let declared: Option<Vec<Type>> = declared.and_then(|types| types.into_iter().collect());
    Model {
        signature: declared.filter(|types| is_known && !types.is_empty()),
        symbols: lowering.symbols,
        made: lowering.made,
        inputs: lowering.inputs,
        values: lowering.values,
        modules: lowering.modules,
        attentions: lowering.attentions,
        opaques: lowering.opaques,
        buffers: lowering.buffers,
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
    /// The sizes that names stand for here.
    sizes: Sizes,
    /// The blocks of this declaration and of those that it uses, and what is known in each of these declarations.
    blocks: Rc<[Block]>,
    libraries: Vec<Declared>,
    /// The blocks whose calls are lowered, the innermost last, and how many calls there were.
    calls: Vec<usize>,
    expansions: usize,
    pub(crate) constants: Constants,
    symbols: Vec<String>,
    /// The names of axes of any length here, each with what it stands for.
    axes: Vec<(String, Symbol)>,
    /// The axes that `..` stands for in a block.
    leading: Option<Vec<Axis>>,
    /// The keys of a block whose defaults read axes that are not bound yet.
    later_keys: Vec<Ident>,
    /// The axes that have their names from an `as`.
    renamed: Vec<Axis>,
    made: Vec<MadeAxis>,
    inputs: Vec<ValueId>,
    values: Vec<Value>,
    /// Values that are another one with other names for its axes, each with that one. Nothing but the lowering knows of them.
    aliases: HashMap<usize, ValueId>,
    /// All names of values, and how many values were named after each.
    names: HashMap<String, usize>,
    modules: Vec<Module>,
    attentions: Vec<AttentionLayer>,
    pub(crate) opaques: Vec<Opaque>,
    buffers: Vec<Buffer>,
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
            holder: Holder::Variable("model".to_owned()),
            docs: Vec::new(),
            fields: Vec::new(),
        };
        let mut constants = Constants::new(&item.name.unraw());
        let sizes = Sizes::new(&draft.sizes, &mut constants, cx);
        let inputs = &draft.forward.inputs;
        Lowering {
            cx,
            krate,
            item,
            types: types.iter().flat_map(names_of).collect(),
            sizes,
            blocks: Rc::default(),
            libraries: Vec::new(),
            calls: Vec::new(),
            expansions: 0,
            constants,
            symbols: Vec::new(),
            axes: Vec::new(),
            leading: None,
            later_keys: Vec::new(),
            renamed: Vec::new(),
            made: Vec::new(),
            inputs: Vec::new(),
            values: Vec::new(),
            aliases: HashMap::new(),
            names: OWN.map(|name| (name.to_owned(), 1)).into(),
            modules: vec![model],
            attentions: Vec::new(),
            opaques: Vec::new(),
            buffers: Vec::new(),
            assertions: Vec::new(),
            scopes: Scopes::new(draft.poisoned),
            is_understood: !draft.poisoned,
            wrong_axes: Vec::new(),
            knows_variables: inputs.iter().all(|input| input.name.is_some()),
            knows_axes: inputs.iter().all(|input| input.ty.is_some()),
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
        self.buffers.clear();
        self.assertions.clear();
    }

    fn declare_inputs(&mut self, draft: &ModelDraft) {
        let inputs = &draft.forward.inputs;
        if inputs.is_empty() && !draft.poisoned {
            self.cx.error(&draft.item.name, messages::NO_INPUT);
        }
        let types = inputs.iter().filter_map(|input| input.ty.as_ref());
        types.for_each(|ty| self.add_symbols(ty));
        for input in inputs {
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
                let symbol = Symbol::of_inputs(&text);
                self.axes.push((text.clone(), symbol));
                self.symbols.push(text);
            }
        }
    }

    fn kind(&self, draft: &TypeDraft) -> Option<ValueKind> {
        Some(match &draft.kind {
            None => ValueKind::Floats,
            Some(kind) if kind == "ids" => ValueKind::Ids,
            Some(kind) if kind == "lens" => ValueKind::Lens,
            Some(kind) if kind == "bool" => ValueKind::Bools,
            Some(kind) => {
                self.cx.error(kind, messages::unknown_kind(kind));
                return None;
            }
        })
    }

    pub(crate) fn declared_type(&mut self, draft: &TypeDraft) -> Option<Type> {
        let kind = self.kind(draft)?;
        let (has_leading, axes) = draft.behind_leading();
        let axes: Option<Vec<Axis>> = axes.iter().map(|axis| self.axis(axis)).collect();
        let axes = axes?;
        if has_leading {
            let Some(leading) = self.leading.clone() else {
                self.wrong_axis(&draft.axes[0]);
                return None;
            };
            let axes = leading.into_iter().chain(axes).collect();
            return Some(Type { kind, axes });
        }
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
            let message = messages::result_of_indices(&self.current(), &ty);
            self.cx.error(&draft.kind, message);
            return None;
        }
        Some(ty)
    }

    /// A size of the header, a constant, or a name of the inputs.
    fn axis(&mut self, tokens: &TokenStream) -> Option<Axis> {
        if let Ok(name) = syn::parse2::<Ident>(tokens.clone()).and_then(not_none) {
            if self.sizes.has(&name) {
                return self.size_of_header(&name).map(Axis::Size);
            }
            let text = name.unraw().to_string();
            if let Some(axis) = self.axis_of_name(&text) {
                return Some(axis);
            }
            if !is_name_of_constant(&text) {
                if self.knows_axes {
                    let sizes: Vec<_> = self.sizes.names().collect();
                    let axes: Vec<_> = self.axes.iter().map(|(name, _)| name.clone()).collect();
                    let of = if self.calls.is_empty() {
                        "input"
                    } else {
                        "operand"
                    };
                    let message = messages::unknown_axis(&name, of, &axes, &sizes);
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

    /// The size of the header with this name, which is that of a constant.
    fn size_of_header(&self, name: &Ident) -> Option<Size> {
        match self.sizes.get(name)? {
            ConstValue::Size(size) => Some(size),
            value => {
                self.cx.error(name, messages::no_size(name, &value));
                None
            }
        }
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

    /// Why `..` cannot stand here.
    fn leading_axes_elsewhere(&self) -> String {
        if self.calls.is_empty() {
            messages::LEADING_AXES_OF_FORWARD.to_owned()
        } else if self.leading.is_some() {
            messages::LEADING_AXES_FIRST.to_owned()
        } else {
            messages::no_leading_axes(&self.current())
        }
    }

    /// Once for the inputs and the result, where an axis has the same mistake.
    fn wrong_axis(&mut self, tokens: &TokenStream) {
        let text = tokens.to_string();
        if !self.wrong_axes.contains(&text) {
            let message = match is_leading(tokens) {
                true => self.leading_axes_elsewhere(),
                false => messages::no_axis(tokens),
            };
            self.cx.error(tokens, message);
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
            !self.sizes.has(name) && self.axis_of_name(&name.unraw().to_string()).is_some()
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
            let message = messages::operation_as_constant(name, &self.item.name);
            self.cx.error(name, message);
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
    fn at_least_one(&mut self, size: &Size, at: Span, message: String) -> bool {
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
        let message = if self.axis_of_name(&text).is_some() {
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
        let source = name.to_owned();
        let name = self.fresh(name);
        self.values.push(Value {
            name,
            source,
            ty,
            view: None,
        });
        ValueId(self.values.len() - 1)
    }

    /// A name that no value has: `x`, `x_2` and so on.
    fn fresh(&mut self, name: &str) -> String {
        let mut count = self.names.get(name).copied().unwrap_or_default();
        let fresh = loop {
            count += 1;
            let numbered = match count {
                1 => break name.to_owned(),
                count => format!("{name}_{count}"),
            };
            // The user may have called another value so.
            if !self.names.contains_key(&numbered) {
                break numbered;
            }
        };
        self.names.insert(fresh.clone(), 1);
        self.names.insert(name.to_owned(), count);
        fresh
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
        let operands = operands.into_iter().map(|id| self.memory(id)).collect();
        builder.region.steps.push(Step::Node(Node {
            op: Rc::new(op),
            operands,
            result,
            name: None,
        }));
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

    /// Whether two sizes are equal; if that is for rustc to find out, the rule is noted.
    pub(crate) fn equal(&mut self, a: &Size, b: &Size, at: Span, message: String) -> bool {
        let same = Axis::Size(a.clone()).same(&Axis::Size(b.clone()));
        match same {
            Same::Yes => {}
            Same::No => self.error(at, &message),
            Same::If(ref conditions) => self.assume(conditions.clone(), at, message),
        }
        !matches!(same, Same::No)
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
