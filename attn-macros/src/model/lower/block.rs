//! Calls of blocks. The operations of a block stand where it is called; its layers are in a module of their own, one for each call.
//!
//! A block is lowered anew at every call: its names stand for the axes and sizes of that call.

mod arguments;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use proc_macro2::Ident;
use quote::ToTokens;
use syn::ext::IdentExt;

use super::fields::{Made, Ties};
use super::function::{Progress, Recording, is_taken_by_model, method_of_another};
use super::results::Returned;
use super::scope::Scopes;
use super::{Lowering, RegionBuilder};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::model::graph::{ModuleId, ParamPath, Submodule, ValueId};
use crate::model::import::Library;
use crate::model::sizes::Sizes;
use crate::model::syntax::{BlockDraft, Call, NamedParts, Parameter, first, is_leading};
use crate::model::types::{Axis, Symbol, Type, tuple};
use crate::ops::Operation;
use crate::spec::Assertion;

/// The most calls of blocks in a model, those in blocks included. Each is emitted.
const MAX_CALLS: usize = 256;

/// Words that begin a statement or an item, and what every layer has.
const RESERVED: [&str; 5] = ["block", "forward", "name", "param", "repeat"];

/// A declared block, or a function.
pub(super) struct Block {
    pub(super) draft: BlockDraft,
    /// Whether it is a function of the model, with the layers of that.
    pub(super) is_function: bool,
    /// The declaration that it is of: 0 is this one.
    library: usize,
    /// Whether its signature has no mistake.
    is_sound: bool,
    is_called: Rc<Cell<bool>>,
    /// The mistakes that were reported at an earlier call.
    pub(super) reported: RefCell<HashSet<String>>,
}

/// The names that are known in a declaration.
#[derive(Default)]
pub(super) struct Declared {
    sizes: Sizes,
    /// Its blocks, and those that it uses, by their names there.
    blocks: Vec<(Ident, usize)>,
}

/// The meaning of names around a call, while those of the block hold.
pub(super) struct Outer {
    sizes: Sizes,
    scopes: Scopes,
    axes: Vec<(String, Symbol)>,
    renamed: Vec<Axis>,
    leading: Option<Vec<Axis>>,
    wrong_axes: Vec<String>,
    knows_variables: bool,
    knows_axes: bool,
}

impl Block {
    /// Each function and block of a declaration has a name of its own, and so have the parameters of a block.
    pub(super) fn check(functions: &[BlockDraft], library: &Library, cx: &Diagnostics) {
        let used = library.imports.iter().map(|import| &import.name);
        let blocks = library.blocks.iter().map(|block| &block.name);
        let names = functions.iter().map(|function| (&function.name, true));
        let names = names.chain(used.chain(blocks).map(|name| (name, false)));
        let mut known: Vec<&Ident> = Vec::new();
        for (index, (name, is_function)) in names.enumerate() {
            let text = name.unraw().to_string();
            let is_word = match is_function {
                true => is_taken_by_model(&text),
                false => RESERVED.contains(&text.as_str()),
            };
            let before = &functions[..index.min(functions.len())];
            let other = before.iter().filter(|_| is_function);
            let other = other.map(|function| &function.name);
            if Operation::find(&text).is_some() || is_word {
                cx.error(name, messages::block_named_as(name, is_function));
            } else if let Some(other) = method_of_another(name, other) {
                cx.error(name, messages::function_as_method(name, other));
            } else if known.contains(&name) {
                cx.error(name, messages::block_twice(name, is_function));
            }
            known.push(name);
        }
        let blocks = library.blocks.iter();
        blocks.for_each(|block| check_signature(block, cx));
    }

    fn function(draft: BlockDraft) -> Self {
        Block {
            is_sound: is_known(&draft),
            draft,
            is_function: true,
            library: 0,
            is_called: Rc::default(),
            reported: RefCell::default(),
        }
    }

    fn new(draft: BlockDraft, library: usize) -> Self {
        let quiet = Diagnostics::default();
        check_signature(&draft, &quiet);
        Block {
            is_sound: is_known(&draft) && quiet.count() == 0,
            draft,
            is_function: false,
            library,
            is_called: Rc::default(),
            reported: RefCell::default(),
        }
    }
}

/// Whether the types of what it takes and returns could be read.
fn is_known(draft: &BlockDraft) -> bool {
    draft.results.is_some() && draft.operands().all(|operand| operand.ty.is_some())
}

fn check_signature(block: &BlockDraft, cx: &Diagnostics) {
    let mut names: Vec<&Ident> = Vec::new();
    for parameter in &block.parameters {
        let (name, is_key) = match parameter {
            Parameter::Operand(operand) => (operand.name.as_ref(), false),
            Parameter::Key { name, .. } => (Some(name), true),
        };
        let Some(name) = name else { continue };
        if is_key && name == "name" {
            cx.error(name, messages::KEY_CALLED_NAME);
        }
        if names.contains(&name) {
            cx.error(name, messages::parameter_twice(&block.name, name));
        }
        names.push(name);
    }
    if block.operands().next().is_none() {
        cx.error(&block.name, messages::block_without_operand(&block.name));
    }
    let operands = block.operands().filter_map(|operand| operand.ty.as_ref());
    for ty in operands.chain(block.results.iter().flatten()) {
        let behind = ty.axes.iter().skip(1);
        for axis in behind.filter(|axis| is_leading(axis)) {
            cx.error(axis, messages::LEADING_AXES_FIRST);
        }
    }
}

impl Lowering<'_> {
    /// The blocks of this declaration, and of those that it uses. Returns whether these have no mistakes.
    pub(super) fn declare_blocks(&mut self, functions: Vec<BlockDraft>, library: Library) -> bool {
        let names = functions.iter().map(|function| function.name.clone());
        let names: Vec<(Ident, usize)> = names.zip(0..).collect();
        let mut blocks: Vec<Block> = functions.into_iter().map(Block::function).collect();
        let sizes = self.sizes.clone();
        let is_sound = self.declare_library(library, sizes, &mut blocks);
        self.libraries[0].blocks.splice(0..0, names);
        self.blocks = blocks.into();
        self.constants_of_header = self.constants.items.len();
        is_sound
    }

    fn declare_library(&mut self, library: Library, sizes: Sizes, all: &mut Vec<Block>) -> bool {
        let index = self.libraries.len();
        self.libraries.push(Declared {
            sizes,
            blocks: Vec::new(),
        });
        for draft in library.blocks {
            let name = draft.name.clone();
            self.libraries[index].blocks.push((name, all.len()));
            all.push(Block::new(draft, index));
        }
        let mut is_sound = true;
        for import in library.imports {
            let first = all.len();
            match import.library {
                Some(inner) => {
                    let sizes = Sizes::new(&inner.sizes, &mut self.constants, self.cx);
                    let sizes = sizes.of_library(&suffix(self.libraries.len()));
                    is_sound &= self.declare_library(inner, sizes, all);
                }
                None => {
                    is_sound = false;
                    all.push(Block::new(BlockDraft::unknown(&import.name), index));
                }
            }
            all[first].draft.name = import.name.clone();
            all[first].is_called = import.is_called;
            self.libraries[index].blocks.push((import.name, first));
        }
        is_sound
    }

    /// The declaration whose names hold: that of the block whose body is lowered, or this one.
    fn library(&self) -> &Declared {
        &self.libraries[self.index_of_library(self.calls.last())]
    }

    fn index_of_library(&self, block: Option<&usize>) -> usize {
        block.map_or(0, |block| self.blocks[*block].library)
    }

    /// The block of this name.
    pub(super) fn block(&self, name: &Ident) -> Option<usize> {
        let mut blocks = self.library().blocks.iter();
        blocks
            .find(|(known, _)| known == name)
            .map(|(_, index)| *index)
    }

    pub(super) fn block_names(&self) -> Vec<String> {
        let current = self.current();
        let names = self.library().blocks.iter();
        let names = names.map(|(name, _)| name.to_string());
        names.filter(|name| *name != current).collect()
    }

    /// The block whose body is lowered, or else the function of the model, for messages.
    pub(super) fn current(&self) -> String {
        match self.calls.last().or(self.function.as_ref()) {
            Some(index) => self.blocks[*index].draft.name.to_string(),
            None => "forward".to_owned(),
        }
    }

    /// A block for others reads its names, whether this model calls it or not.
    pub(super) fn skip_shared(&self) {
        let shared = self.blocks.iter().filter(|block| block.library == 0);
        let shared = shared.filter(|block| block.draft.is_shared());
        shared.for_each(|block| self.sizes.skip(&block.draft.tokens));
    }

    /// A block that nothing calls is no part of the model.
    pub(super) fn report_uncalled(&self) {
        let own = self.libraries[0].blocks.iter();
        let own = own.map(|(_, index)| &self.blocks[*index]);
        for block in own.filter(|block| block.library == 0 && !block.draft.is_shared()) {
            let name = &block.draft.name;
            if !block.is_function && !block.is_called.get() && !name.to_string().starts_with('_') {
                self.cx.error(name, messages::uncalled_block(name));
            }
        }
    }

    /// Notes that a block is called, although nothing becomes of it: the call stands in a branch that is not taken.
    pub(super) fn skip_call(&mut self, call: &Call) {
        let blocks = Rc::clone(&self.blocks);
        let block = self.block(&call.name).map(|index| &blocks[index]);
        if call.arguments.iter().any(|argument| argument.is_rest()) {
            let keys = block.into_iter().flat_map(|block| block.draft.keys());
            keys.for_each(|(key, _)| self.sizes.skip(&key.to_token_stream()));
        }
        let is_new = |block: &&Block| !block.is_called.replace(true) && block.library == 0;
        if let Some(block) = block.filter(is_new) {
            self.skip(&block.draft.statements);
        }
    }

    /// The only result of a call.
    pub(super) fn result_of_block(
        &mut self,
        call: &Call,
        index: usize,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let results = self.results_of_block(call, index, builder)?;
        match *results {
            [result] if self.blocks[index].draft.names.is_empty() => Some(result),
            _ if !self.blocks[index].draft.names.is_empty() => {
                let names = &self.blocks[index].draft.names;
                let message = messages::parts_by_name(&call.name, names);
                self.cx.error(&call.name, message);
                None
            }
            _ => {
                let message = messages::several_results_of(&call.name, results.len());
                self.cx.error(&call.name, message);
                None
            }
        }
    }

    /// `let (a, b) = block(x);`
    pub(super) fn parts_of_block(
        &mut self,
        call: &Call,
        index: usize,
        (names, of): (&[Ident], Option<&NamedParts>),
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let blocks = Rc::clone(&self.blocks);
        let results = self.results_of_block(call, index, builder)?;
        let places = self.named_parts(of, &blocks[index].draft, &call.name)?;
        let results: Vec<ValueId> = places.into_iter().map(|place| results[place]).collect();
        if results.len() != names.len() {
            let message = messages::number_of_names(&call.name, results.len(), names.len());
            self.cx.error(&call.name, message);
            return None;
        }
        Some(results)
    }

    /// The results of a call: as many as the block declares.
    pub(super) fn results_of_block(
        &mut self,
        call: &Call,
        index: usize,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let blocks = Rc::clone(&self.blocks);
        let block = &blocks[index];
        block.is_called.set(true);
        if !self.may_call(call, index) || !block.is_sound {
            let named = call.named.iter().flat_map(|(_, values)| values);
            self.read_all(call.operands.iter().chain(named), builder);
            return None;
        }
        let operands = self.operands_of_block(call, &block.draft, builder);
        let arguments = self.arguments_of_block(call, &block.draft, block.is_function);
        let (operands, arguments) = (operands?, arguments?);
        if !self.has_keys(call, &block.draft, &arguments) {
            return None;
        }
        // This lowers a function that is declared behind its caller. What is reported there is no repetition.
        let places = match block.is_function {
            true => Some(self.places(call, index)?),
            false => None,
        };
        let start = self.cx.mark();
        let assertions = self.assertions.len();
        let before = self.cx.count();
        let outer = self.enter(block.library);
        self.calls.push(index);
        let types: Vec<Type> = operands.iter().map(|id| self.ty(*id).clone()).collect();
        let is_bound = self.bind(call, &block.draft, &operands, arguments.keys);
        let results = is_bound
            .then(|| match places {
                Some(places) => self.body_of_function(block, &places, builder),
                None => {
                    let named = (arguments.name.as_ref(), arguments.tied.as_ref());
                    self.body_of_block(call, block, named, builder)
                }
            })
            .flatten();
        if self.cx.count() == before {
            self.report_unused_keys(&block.draft);
        }
        self.calls.pop();
        self.leave(outer);
        for (id, ty) in operands.iter().zip(types).rev() {
            self.values[id.0].ty = ty;
        }
        self.cx
            .forget_repeated(start, &mut block.reported.borrow_mut());
        self.forget_repeated_assertions(assertions);
        let results = results.filter(|_| self.cx.count() == before)?;
        let results = results.into_iter().map(|(id, ty)| {
            if !operands.contains(&id) {
                self.values[id.0].ty = ty;
            }
            id
        });
        Some(results.collect())
    }

    /// Whether a call comes to an end.
    fn may_call(&mut self, call: &Call, index: usize) -> bool {
        self.expansions += 1;
        if let Some(first) = self.calls.iter().position(|other| *other == index) {
            let inner = self.calls[first..].iter();
            let names: Vec<String> = inner
                .chain([&index])
                .map(|index| self.blocks[*index].draft.name.to_string())
                .collect();
            self.cx.error(&call.name, messages::recursive_block(&names));
            return false;
        }
        if self.expansions == MAX_CALLS + 1 {
            self.cx
                .error(&call.name, messages::too_many_calls(MAX_CALLS));
        }
        self.expansions <= MAX_CALLS
    }

    /// From here on names are those of a block.
    pub(super) fn enter(&mut self, library: usize) -> Outer {
        let sizes = self.libraries[library].sizes.clone();
        let scopes = Scopes::new(!self.is_understood);
        Outer {
            sizes: std::mem::replace(&mut self.sizes, sizes),
            scopes: std::mem::replace(&mut self.scopes, scopes),
            axes: std::mem::take(&mut self.axes),
            renamed: std::mem::take(&mut self.renamed),
            leading: self.leading.take(),
            wrong_axes: std::mem::take(&mut self.wrong_axes),
            knows_variables: std::mem::replace(&mut self.knows_variables, true),
            knows_axes: std::mem::replace(&mut self.knows_axes, true),
        }
    }

    pub(super) fn leave(&mut self, outer: Outer) {
        self.sizes = outer.sizes;
        self.scopes = outer.scopes;
        self.axes = outer.axes;
        self.renamed = outer.renamed;
        self.leading = outer.leading;
        self.wrong_axes = outer.wrong_axes;
        self.knows_variables = outer.knows_variables;
        self.knows_axes = outer.knows_axes;
    }

    /// The operations of a block whose parameters are bound. Returns the results, with the types that they have for the caller.
    fn body_of_block(
        &mut self,
        call: &Call,
        block: &Block,
        (asked, tied): (Option<&Ident>, Option<&Ident>),
        builder: &mut RegionBuilder,
    ) -> Option<Vec<(ValueId, Type)>> {
        let draft = &block.draft;
        let before = self.declared_before(draft.results.as_deref(), &draft.statements);
        let name = draft.name.unraw().to_string();
        let layer = |module| Submodule::Block {
            module,
            block: name.clone(),
        };
        let made = match tied {
            Some(tied) => self.call_to_tie(tied, &name, builder)?,
            None => self.submodule(builder.module, (&name, asked), layer, call.name.span()),
        };
        let module = made.module;
        let outer = std::mem::replace(&mut builder.module, module);
        let is_new = made.is_new;
        if is_new {
            self.modules[module.0].docs = draft.docs.clone();
        }
        let ties = tied.map(|_| self.ties.replace(Ties::new(call.name.span())));
        let returned = self.statements(&draft.statements, None, builder);
        if let Some(ties) = ties {
            self.ties = ties;
        }
        builder.module = outer;
        let declared = before.or_else(|| self.declared_results(draft.results.as_deref()))?;
        let results = self.checked_results(returned, &declared, draft)?;
        self.describe_block(&made.place, &results);
        Some(results)
    }

    /// The call of this block before this one whose layers run again.
    fn call_to_tie(&mut self, tied: &Ident, block: &str, builder: &RegionBuilder) -> Option<Made> {
        let fields = &self.modules[builder.module.0].fields;
        let calls = fields.iter().filter_map(|field| match &field.layer {
            Submodule::Block { module, block: of } if of == block => Some((&field.name, *module)),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        let Some((name, module)) = calls.iter().find(|(name, _)| *tied == name.as_str()) else {
            let names = calls.iter().map(|(name, _)| name.as_str());
            self.cx
                .error(tied, messages::no_call_to_tie(tied, block, names));
            return None;
        };
        Some(Made {
            place: ParamPath {
                module: builder.module,
                field: (*name).clone(),
            },
            module: *module,
            is_new: false,
        })
    }

    /// The results of a body, with the types that they have for the caller.
    fn checked_results(
        &mut self,
        returned: Option<Returned<'_>>,
        declared: &[Option<Type>],
        draft: &BlockDraft,
    ) -> Option<Vec<(ValueId, Type)>> {
        let results = self.returned(returned, Some(declared), draft, &draft.name);
        self.scopes.close(self.cx);
        let declared: Vec<&Type> = declared.iter().map(Option::as_ref).collect::<Option<_>>()?;
        if results.len() != declared.len() {
            return None;
        }
        let pairs = results.into_iter().zip(declared);
        let results = pairs.map(|(id, declared)| (id, self.for_caller(self.ty(id), declared)));
        Some(results.collect())
    }

    /// The layers that a function has, wherever it is called.
    fn places(&mut self, call: &Call, index: usize) -> Option<Vec<ParamPath>> {
        self.lower_function(index);
        match &self.progress[index] {
            Progress::Done(places) => Some(places.clone()),
            _ => {
                let name = call.name.to_string();
                let names = [name.clone(), self.current(), name];
                let names = match names[0] == names[1] {
                    true => &names[1..],
                    false => &names[..],
                };
                self.cx.error(&call.name, messages::recursive_block(names));
                None
            }
        }
    }

    /// The operations of a function, on the layers that it has already.
    fn body_of_function(
        &mut self,
        block: &Block,
        places: &[ParamPath],
        builder: &mut RegionBuilder,
    ) -> Option<Vec<(ValueId, Type)>> {
        let draft = &block.draft;
        let before = self.declared_before(draft.results.as_deref(), &draft.statements);
        let outer = std::mem::replace(&mut builder.module, ModuleId(0));
        self.recordings.push(Recording::again(places));
        let returned = self.statements(&draft.statements, None, builder);
        self.recordings.pop();
        builder.module = outer;
        let declared = before.or_else(|| self.declared_results(draft.results.as_deref()))?;
        self.checked_results(returned, &declared, draft)
    }

    /// The results in the table of the docs.
    fn describe_block(&mut self, place: &ParamPath, results: &[(ValueId, Type)]) {
        let types: Vec<String> = results.iter().map(|(_, ty)| ty.to_string()).collect();
        if let Some(field) = self.field_at(place) {
            field.output = tuple(&types);
        }
    }

    /// The type of a result for the caller: its axes have the names of the declared ones, but for those that only the block knows.
    fn for_caller(&self, found: &Type, declared: &Type) -> Type {
        let own = self.own_axis("");
        let [caller, block] = [
            self.calls.len().checked_sub(2),
            self.calls.len().checked_sub(1),
        ]
        .map(|depth| self.index_of_library(depth.and_then(|depth| self.calls.get(depth))));
        let of_library = suffix(block);
        let is_unknown =
            |name: &Rc<str>| name.ends_with(&own) || caller != block && name.ends_with(&of_library);
        let axes = found.axes.iter().zip(&declared.axes);
        let axes = axes.map(|(found, declared)| match found {
            Axis::Symbol(_) => found.clone(),
            Axis::Size(size) => {
                let name = declared.size().and_then(|size| size.axis.clone());
                let mut size = size.clone();
                size.axis = name.filter(|name| !is_unknown(name));
                Axis::Size(size)
            }
        });
        Type::floats(axes.collect())
    }

    /// A rule that is noted again at another call of a block is one rule.
    fn forget_repeated_assertions(&mut self, from: usize) {
        let text = |assertion: &Assertion| {
            let span = first(&assertion.at);
            format!("{span:?} {} {}", assertion.condition, assertion.message)
        };
        let later = self.assertions.split_off(from);
        let mut known: HashSet<String> = self.assertions.iter().map(text).collect();
        let new = later.into_iter().filter(|rule| known.insert(text(rule)));
        self.assertions.extend(new);
    }
}

/// The end of the names of axes that are sizes of another declaration.
fn suffix(library: usize) -> String {
    format!("@@{library}")
}
