//! From what was written to the graph: names are resolved, shapes inferred, rules applied.
//!
//! Lowering never fails: what is wrong is reported, stands for nothing, and is not reported again.

mod arguments;
mod attend;
mod attention;
mod axes;
mod bind;
mod block;
mod buffer;
mod call;
mod choice;
mod data;
mod declared;
mod default;
mod dot;
mod fields;
mod function;
mod ids;
mod index;
mod lora;
mod made;
mod operators;
mod param;
mod parts;
mod pattern;
mod rearrange;
mod refused;
mod rename;
mod results;
mod scan;
mod scope;
mod statements;
mod tied;
mod unread;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::rc::Rc;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use super::budget::Budgets;
use super::constants::Constants;
use super::graph::{
    Buffer, Holder, Model, Module, ModuleId, Node, Opaque, Region, Step, Value, ValueId,
};
use super::import::Library;
use super::lengths::MadeAxis;
use super::sizes::Sizes;
use super::syntax::{ModelDraft, first, is_name_of_constant};
use super::types::{Axis, Same, Symbol, Type};
use crate::diag::Diagnostics;
use crate::graph::AttentionLayer;
use crate::messages::model as messages;
use crate::ops::ModelOp;
use crate::spec::{Assertion, Item, Rules, Size};
use block::{Block, Declared};
use fields::Ties;
use function::{LoweredFunction, Progress, Recording};
use refused::{drop_refused, refused_names};
use scan::ScanBody;
use scope::Scopes;

pub(crate) use arguments::Arguments;
pub(crate) use axes::names_of_axes;
pub(crate) use call::is_without_bias;
pub(crate) use lora::{Lora, Projection};
pub(crate) use operators::named;

/// The network that `draft` declares: as its function `forward` runs it, and then as its others do.
///
/// `types` are its own name and those of the types that stand beside it: no layer of it gets these.
pub(crate) fn lower(
    mut draft: ModelDraft,
    types: &[String],
    krate: &TokenStream,
    cx: &Diagnostics,
) -> Vec<Model> {
    let before = cx.count();
    let mut functions = std::mem::take(&mut draft.functions);
    let budgets = functions.iter_mut();
    let budgets =
        budgets.filter_map(|function| Some((function.name.clone(), function.budget.take()?)));
    let budgets: Vec<_> = budgets.collect();
    let library = Library {
        sizes: Vec::new(),
        imports: std::mem::take(&mut draft.imports),
        blocks: std::mem::take(&mut draft.blocks),
    };
    Block::check(&functions, &library, cx);
    let refused = refused_names(&functions);
    let mut lowering = Lowering::new(&draft, types, krate, cx);
    let budgets = Budgets {
        of_model: draft
            .budget
            .as_ref()
            .and_then(|draft| lowering.budget(draft)),
        of_functions: (budgets.iter())
            .filter_map(|(name, draft)| Some((name.clone(), lowering.budget(draft)?)))
            .collect(),
    };
    lowering.lora = (draft.lora.as_ref())
        .and_then(|draft| lowering.lora(draft))
        .map(Rc::new);
    draft.poisoned |= !lowering.declare_blocks(functions, library);
    let start = (cx.mark(), cx.count());
    let rules = lowering.assertions.len();
    let mut functions = loop {
        let functions = lowering.functions();
        if lowering.computed_later.is_empty() {
            break functions;
        }
        lowering = lowering.again(&draft, types, rules);
        cx.take_back(start);
    };
    if cx.count() == before && !draft.poisoned {
        lowering.report_uncalled();
        lowering.report_modules(functions.len());
        lowering.report_budgets(&budgets, &functions);
        lowering.report_unadapted();
        lowering.find_saved();
    }
    if cx.count() == before && !draft.poisoned {
        lowering.skip_shared();
        lowering.sizes.report_unused(&draft.item.name, cx);
    }
    let poisoned = draft.poisoned || cx.count() > before;
    if poisoned {
        lowering.forget();
        lowering.forget_statements(&mut functions);
        drop_refused(&mut functions, &refused);
    }
    for function in &mut functions {
        unread::drop_unread(&mut function.body, &function.results);
    }
    lowering.drop_empty_blocks();
    for layer in &mut lowering.attentions {
        layer.fused = crate::pipeline::fuse_layer(&layer.graph);
    }
    let values: Rc<[Value]> = lowering.values.into();
    let modules: Rc<[Module]> = lowering.modules.into();
    let attentions: Rc<[AttentionLayer]> = lowering.attentions.into();
    let opaques: Rc<[Opaque]> = lowering.opaques.into();
    let buffers: Rc<[Buffer]> = lowering.buffers.into();
    let mut assertions = lowering.assertions;
    let constants = lowering.constants.items;
    let header: Rc<[_]> = lowering.sizes.values().collect();
    let lora = lowering.lora;
    let models = functions.into_iter().map(|function| Model {
        copies: Vec::new(),
        budget: budgets.of(&function.name(), &function.symbols).cloned(),
        signature: function.signature,
        symbols: function.symbols,
        made: function.made,
        inputs: function.inputs,
        input_names: function.input_names,
        defaults: function.defaults,
        values: Rc::clone(&values),
        modules: Rc::clone(&modules),
        attentions: Rc::clone(&attentions),
        taken: Rc::new([]),
        opaques: Rc::clone(&opaques),
        buffers: Rc::clone(&buffers),
        grouped: Region::default(),
        body: function.body,
        results: function.results,
        header: Rc::clone(&header),
        lora: lora.clone(),
        constants: constants.clone(),
        assertions: std::mem::take(&mut assertions),
        poisoned,
        function: function.other,
        result_names: function.result_names,
        item: draft.item.clone(),
    });
    models.collect()
}

/// A field of emitted structs that have fields of values, too.
const OWN: &str = "__types";

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
    /// The progress of each block that is a function; those that are done; and the one that is lowered.
    progress: Vec<Progress>,
    lowered: Vec<LoweredFunction>,
    function: Option<usize>,
    stems: Vec<Ident>,
    /// The layers of the functions that are lowered, the innermost last.
    recordings: Vec<Recording>,
    /// In a loop that is tied to another one.
    ties: Option<Ties>,
    /// How often the steps of a loop stand in the functions.
    runs: HashMap<usize, usize>,
    pub(crate) constants: Constants,
    constants_of_header: usize,
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
    /// The axes of which computed ids are indices.
    below: HashMap<usize, Axis>,
    /// All names of values, and how many values were named after each.
    names: HashMap<String, usize>,
    modules: Vec<Module>,
    attentions: Vec<AttentionLayer>,
    /// Data of attentions that some call computes, each by the number of the layer and its name: they have a gradient in all calls. Those of
    /// which only a later call than the first one said so are known when the functions are lowered again.
    computed_data: HashSet<(usize, String)>,
    computed_later: HashSet<(usize, String)>,
    pub(crate) opaques: Vec<Opaque>,
    buffers: Vec<Buffer>,
    assertions: Vec<Assertion>,
    /// The adapters of linear layers, if the header declares any.
    lora: Option<Rc<Lora>>,
    scopes: Scopes,
    /// The scan whose body is lowered.
    scan: Option<ScanBody>,
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
    /// Whether they are those of a step of a scan.
    is_scan: bool,
}

impl RegionBuilder {
    fn new(module: ModuleId) -> Self {
        RegionBuilder {
            module,
            region: Region::default(),
            is_scan: false,
        }
    }

    fn of_scan(module: ModuleId) -> Self {
        RegionBuilder {
            is_scan: true,
            ..RegionBuilder::new(module)
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
            progress: Vec::new(),
            lowered: Vec::new(),
            function: None,
            stems: Vec::new(),
            recordings: Vec::new(),
            ties: None,
            runs: HashMap::new(),
            constants_of_header: 0,
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
            below: HashMap::new(),
            names: HashMap::from([(OWN.to_owned(), 1)]),
            modules: vec![model],
            attentions: Vec::new(),
            computed_data: HashSet::new(),
            computed_later: HashSet::new(),
            opaques: Vec::new(),
            buffers: Vec::new(),
            assertions: Vec::new(),
            lora: None,
            scopes: Scopes::new(draft.poisoned),
            scan: None,
            is_understood: !draft.poisoned,
            wrong_axes: Vec::new(),
            knows_variables: true,
            knows_axes: true,
        }
    }

    /// The same declarations, of which no function is lowered, with what is known by now of the data of attentions. `rules` of the assertions
    /// are those of the header.
    fn again(mut self, draft: &ModelDraft, types: &[String], rules: usize) -> Self {
        for block in self.blocks.iter() {
            block.reported.borrow_mut().clear();
        }
        self.assertions.truncate(rules);
        self.computed_data.extend(self.computed_later);
        Lowering {
            sizes: self.sizes,
            blocks: self.blocks,
            libraries: self.libraries,
            constants: self.constants,
            constants_of_header: self.constants_of_header,
            assertions: self.assertions,
            lora: self.lora,
            computed_data: self.computed_data,
            ..Lowering::new(draft, types, self.krate, self.cx)
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
            alias: None,
        });
        ValueId(self.values.len() - 1)
    }

    /// A name that no value has: `x`, `x_2` and so on.
    fn fresh(&mut self, name: &str) -> String {
        let name = &variable(name);
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
            others: Vec::new(),
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
        let value = self.memory(value);
        let source = self.values[value.0].alias.unwrap_or(value);
        let result = self.node(builder, op, vec![value], (name, ty));
        self.values[result.0].alias = Some(source);
        result
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

impl Rules for Lowering<'_> {
    fn require(
        &mut self,
        at: &TokenStream,
        holds: Option<bool>,
        condition: TokenStream,
        message: impl FnOnce() -> String,
    ) -> bool {
        match holds {
            Some(true) => {}
            Some(false) => self.cx.error(at, message()),
            None => self.assume(vec![condition], first(at), message()),
        }
        holds != Some(false)
    }
}

/// The names that the declaration of a type may take: its own, those of the traits of what it accepts, and that of the type variable of
/// a module.
fn names_of(ty: &impl Display) -> [String; 4] {
    ["", "Input", "InputMut", "Built"].map(|suffix| format!("{ty}{suffix}"))
}

/// A name as that of a variable, which is no word of Rust.
fn variable(name: &str) -> String {
    match syn::parse_str::<Ident>(name) {
        Ok(_) => name.to_owned(),
        Err(_) => format!("{name}_"),
    }
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
