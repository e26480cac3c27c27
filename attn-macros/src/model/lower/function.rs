//! The functions of a model. All of them run the same layers: those that a function made when it was lowered, it has again where
//! another one calls it.

use std::rc::Rc;

use proc_macro2::Ident;
use quote::ToTokens;
use syn::ext::IdentExt;

use super::block::Block;
use super::scope::Changes;
use super::{Lowering, RegionBuilder, is_name_of_constant, not_none};
use crate::messages::model as messages;
use crate::model::graph::{
    Absent, Function, ModuleId, ParamPath, Region, Value, ValueId, method_of,
};
use crate::model::lengths::MadeAxis;
use crate::model::syntax::{BlockDraft, TypeDraft};
use crate::model::types::{Axis, Symbol, Type};
use crate::spec::Size;

/// The methods of `forward`. Each function has its own.
const METHODS: [&str; 17] = [
    "forward",
    "forward_mut",
    "try_forward",
    "try_forward_mut",
    "activation_bytes",
    "cache_bytes_per_token",
    "flops",
    "session",
    "sessions",
    "attention_maps",
    "try_attention_maps",
    "values",
    "try_values",
    "first_non_finite",
    "try_first_non_finite",
    // The one of `forward` is a handle.
    "composed",
    "try_composed",
];

/// The other names that every model has.
const OTHER_METHODS: [&str; 9] = [
    "alloc_grads",
    "graph_dot",
    "graph_svg",
    "PARAMS",
    "reset_params",
    "summary",
    "summary_of",
    "trainer",
    "zero_grads",
];

/// Words that begin an item or a statement of a function.
const WORDS: [&str; 3] = ["block", "param", "repeat"];

/// How far the lowering of a function is.
pub(super) enum Progress {
    /// It has not begun. That of a block never does.
    Waits,
    Begun,
    Done(Vec<ParamPath>),
}

/// The layers of a function, in the order in which its statements make them.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) places: Vec<ParamPath>,
    /// In a call, the number of the next one.
    next: Option<usize>,
}

impl Recording {
    /// The same layers again.
    pub(super) fn again(places: &[ParamPath]) -> Self {
        Recording {
            places: places.to_vec(),
            next: Some(0),
        }
    }

    /// The layer that is made next, if it is there already.
    pub(super) fn next(&mut self) -> Option<ParamPath> {
        let next = self.next.as_mut()?;
        let place = self.places.get(*next)?;
        *next += 1;
        Some(place.clone())
    }
}

/// A lowered function.
pub(super) struct LoweredFunction {
    /// Nothing of `forward`.
    pub(super) other: Option<Function>,
    pub(super) symbols: Vec<String>,
    pub(super) made: Vec<MadeAxis>,
    pub(super) inputs: Vec<ValueId>,
    pub(super) input_names: Vec<String>,
    pub(super) defaults: Vec<Option<Absent>>,
    pub(super) body: Region,
    pub(super) results: Vec<ValueId>,
    pub(super) result_names: Vec<String>,
    pub(super) signature: Option<Vec<Type>>,
}

impl LoweredFunction {
    pub(super) fn name(&self) -> String {
        let other = self.other.as_ref();
        other.map_or_else(|| "forward".to_owned(), |other| other.name.to_string())
    }
}

impl Lowering<'_> {
    /// All functions, `forward` first. Without one, it is a function without inputs.
    pub(super) fn functions(&mut self) -> Vec<LoweredFunction> {
        self.progress = self.blocks.iter().map(|_| Progress::Waits).collect();
        self.stems = self.stems_of_functions();
        for index in 0..self.blocks.len() {
            if self.blocks[index].is_function {
                self.lower_function(index);
            }
        }
        let mut functions = std::mem::take(&mut self.lowered);
        let mut is_forward = functions.iter().map(|function| function.other.is_none());
        match is_forward.position(|is_forward| is_forward) {
            Some(forward) => functions[..=forward].rotate_right(1),
            None => functions.insert(0, LoweredFunction::nothing()),
        }
        functions
    }

    /// How the names of the types of each function begin. Those of its layers are others.
    fn stems_of_functions(&mut self) -> Vec<Ident> {
        let blocks = Rc::clone(&self.blocks);
        let stems = blocks.iter().enumerate().map(|(index, block)| {
            let Block {
                draft, is_function, ..
            } = block;
            if !is_function {
                return draft.name.clone();
            }
            let stem = match self.is_forward(index) {
                true => self.item.name.clone(),
                false => {
                    let name = draft.name.unraw().to_string();
                    self.type_name(ModuleId(0), &name, draft.name.span())
                }
            };
            if draft.operands().count() > 1 {
                self.types.insert(format!("{}Inputs", stem.unraw()));
            }
            if !draft.names.is_empty() {
                self.types.insert(format!("{}Output", stem.unraw()));
            }
            stem
        });
        stems.collect()
    }

    /// Lowers a function as the user calls it, if that is not done yet. Then its layers are there.
    pub(super) fn lower_function(&mut self, index: usize) {
        if !matches!(self.progress[index], Progress::Waits) {
            return;
        }
        self.progress[index] = Progress::Begun;
        let blocks = Rc::clone(&self.blocks);
        let draft = &blocks[index].draft;
        let calls = std::mem::take(&mut self.calls);
        let ties = self.ties.take();
        let outer = self.enter(0);
        let caller = self.function.replace(index);
        let symbols = std::mem::take(&mut self.symbols);
        let made = std::mem::take(&mut self.made);
        let inputs = std::mem::take(&mut self.inputs);
        self.recordings.push(Recording::default());
        let start = self.cx.mark();
        let function = self.statements_of_function(draft, index);
        // A call finds the same mistakes.
        self.cx
            .forget_repeated(start, &mut blocks[index].reported.borrow_mut());
        let places = self.recordings.pop().map(|recording| recording.places);
        self.progress[index] = Progress::Done(places.unwrap_or_default());
        self.lowered.push(function);
        self.symbols = symbols;
        self.made = made;
        self.inputs = inputs;
        self.function = caller;
        self.leave(outer);
        self.ties = ties;
        self.calls = calls;
    }

    fn statements_of_function(&mut self, draft: &BlockDraft, index: usize) -> LoweredFunction {
        let is_forward = self.is_forward(index);
        let at = match is_forward {
            true => self.item.name.clone(),
            false => draft.name.clone(),
        };
        self.knows_variables = draft.operands().all(|input| input.name.is_some());
        self.knows_axes = draft.operands().all(|input| input.ty.is_some());
        self.declare_inputs(draft, &at);
        let defaults = self.defaults(draft);
        let before = self.cx.count();
        let mut declared = self.declared_before(draft.results.as_deref(), &draft.statements);
        let mut body = RegionBuilder::new(ModuleId(0));
        let results = self.statements(&draft.statements, None, &mut body);
        if declared.is_none() && self.cx.count() == before {
            declared = self.declared_results(draft.results.as_deref());
        }
        let results = self.returned(results, declared.as_deref(), draft, &at);
        self.scopes.close(self.cx);
        let inputs = std::mem::take(&mut self.inputs);
        let is_known = inputs.len() == draft.operands().count() && !inputs.is_empty();
        let declared: Option<Vec<Type>> = declared.and_then(|types| types.into_iter().collect());
        let other = (!is_forward).then(|| Function {
            name: draft.name.clone(),
            stem: self.stems[index].clone(),
            docs: draft.docs.clone(),
        });
        LoweredFunction {
            other,
            symbols: std::mem::take(&mut self.symbols),
            made: std::mem::take(&mut self.made),
            inputs,
            input_names: names_of_inputs(draft),
            defaults,
            body: body.region,
            results,
            result_names: names_of_results(draft),
            signature: declared.filter(|types| is_known && !types.is_empty()),
        }
    }

    /// Whether a function is the one that the model is called by. After a mistake, the only one is.
    fn is_forward(&self, index: usize) -> bool {
        let functions = self.blocks.iter().filter(|block| block.is_function);
        self.blocks[index].draft.name == "forward" || functions.count() == 1
    }

    /// After a mistake: what stands in the functions is nothing. Constants in it may be wrong, too.
    pub(super) fn forget_statements(&mut self, functions: &mut [LoweredFunction]) {
        for function in &mut *functions {
            function.body = Region::default();
        }
        let sizes = functions
            .iter()
            .flat_map(|function| function.sizes(&self.values));
        let sizes = sizes.map(ToTokens::to_token_stream).collect();
        self.constants.keep(self.constants_of_header, sizes);
    }

    /// A module has one shape of operands for all functions.
    pub(super) fn report_modules(&self, functions: usize) {
        if functions > 1
            && let Some(opaque) = self.opaques.first()
        {
            self.cx.error(&opaque.ty, messages::MODULE_AND_FUNCTIONS);
        }
    }

    fn declare_inputs(&mut self, draft: &BlockDraft, at: &Ident) {
        if draft.operands().next().is_none() && self.is_understood {
            self.cx.error(at, messages::no_input(&draft.name));
        }
        let types = draft.operands().filter_map(|input| input.ty.as_ref());
        types.for_each(|ty| self.add_symbols(ty));
        for input in draft.operands() {
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
                self.axes.push((text.clone(), Symbol::of_inputs(&text)));
                self.symbols.push(text);
            }
        }
    }
}

/// Whether a function cannot have this name.
pub(super) fn is_taken_by_model(name: &str) -> bool {
    let mut methods = METHODS[1..].iter().chain(&OTHER_METHODS).chain(&WORDS);
    methods.any(|method| *method == name)
}

/// The function among those before this one that has a method of its name.
pub(super) fn method_of_another<'f>(
    name: &Ident,
    mut before: impl Iterator<Item = &'f Ident>,
) -> Option<&'f Ident> {
    let methods_of = |name| {
        METHODS[1..]
            .iter()
            .map(move |method| method_of(name, method))
    };
    let text = name.unraw().to_string();
    before.find(|other| {
        let its_own = other.unraw().to_string();
        methods_of(*other).any(|method| method == text)
            || methods_of(name).any(|method| method == its_own)
    })
}

/// Nothing if one is not known, or stands for two inputs.
fn names_of_inputs(draft: &BlockDraft) -> Vec<String> {
    let names = draft.operands().map(|input| input.name.as_ref());
    let names: Option<Vec<&Ident>> = names.collect();
    let names = names.unwrap_or_default();
    let is_again = |(index, name): (usize, &&Ident)| names[..index].contains(name);
    match names.iter().enumerate().any(is_again) {
        true => Vec::new(),
        false => names.iter().map(|name| name.unraw().to_string()).collect(),
    }
}

fn names_of_results(draft: &BlockDraft) -> Vec<String> {
    let names = draft.names.iter();
    names.map(|name| name.unraw().to_string()).collect()
}

impl LoweredFunction {
    /// The sizes in its signature.
    fn sizes<'a>(&'a self, values: &'a [Value]) -> impl Iterator<Item = &'a Size> {
        let inputs = self.inputs.iter().map(|id| &values[id.0].ty);
        let types = inputs.chain(self.signature.iter().flatten());
        types.flat_map(|ty| &ty.axes).filter_map(Axis::size)
    }

    fn nothing() -> Self {
        LoweredFunction {
            other: None,
            symbols: Vec::new(),
            made: Vec::new(),
            inputs: Vec::new(),
            input_names: Vec::new(),
            defaults: Vec::new(),
            body: Region::default(),
            results: Vec::new(),
            result_names: Vec::new(),
            signature: None,
        }
    }
}
