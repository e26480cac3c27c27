//! A network as a graph of layers: what [`lower`](super::lower) makes of a declaration, and what the emitters read.
//!
//! A [`Block`] is what the passes over a graph read. Its nodes are the operations of a model or of an attention layer.

mod scan;

use std::fmt;
use std::rc::Rc;

use proc_macro2::{Ident, TokenStream};
use syn::Attribute;
use syn::ext::IdentExt;

use super::budget::Budget;
use super::lengths::MadeAxis;
use super::lower::Lora;
use super::sizes::ConstValue;
use super::types::{Axis, Type};
use crate::graph::{AttentionLayer, CallData};
use crate::ops::{Attention, Fusion, Gradient, Layer, ModelOp, Op, Saved};
use crate::spec::{Assertion, Distribution, Item, Real, Size};

pub(crate) use scan::{Keep, Scan, Slice, State};

/// A network as one of its functions runs it. The functions share values and layers.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) item: Item,
    /// The function, if that is not `forward`.
    pub(crate) function: Option<Function>,
    /// The axes that are no constants, in the order of the inputs.
    pub(crate) symbols: Vec<String>,
    /// Those that operations make of them.
    pub(crate) made: Vec<MadeAxis>,
    pub(crate) inputs: Vec<ValueId>,
    /// Their names, if all are known.
    pub(crate) input_names: Vec<String>,
    /// For each input, what stands for it where a call leaves it out.
    pub(crate) defaults: Vec<Option<Absent>>,
    pub(crate) values: Rc<[Value]>,
    /// Where parameters are: the model itself, and then the body of every `repeat` and every call of a block.
    pub(crate) modules: Rc<[Module]>,
    pub(crate) attentions: Rc<[AttentionLayer]>,
    /// The projections that attentions compute in the fused form, and no operation by itself.
    pub(crate) taken: Rc<[ParamPath]>,
    pub(crate) opaques: Rc<[Opaque]>,
    pub(crate) buffers: Rc<[Buffer]>,
    /// An operation for each operator and call of the declaration.
    pub(crate) body: Region,
    /// The same for the fused form, with elementwise operations [grouped](super::group).
    pub(crate) grouped: Region,
    /// The values of first parts of loops, each with the one that it is a copy of.
    pub(crate) copies: Vec<(ValueId, ValueId)>,
    pub(crate) results: Vec<ValueId>,
    /// The names of the results, if they are given by name.
    pub(crate) result_names: Vec<String>,
    /// The declared types of the results, if these and the inputs were understood.
    pub(crate) signature: Option<Vec<Type>>,
    /// The constants of the header, by name.
    pub(crate) header: Rc<[(String, ConstValue)]>,
    /// The adapters of linear layers, if the header declares any.
    pub(crate) lora: Option<Rc<Lora>>,
    /// Constants that only rustc can evaluate, each under a name.
    pub(crate) constants: Vec<TokenStream>,
    pub(crate) assertions: Vec<Assertion>,
    /// The bound on its memory, if it has one.
    pub(crate) budget: Option<Budget>,
    /// Something was wrong: emit the item so that its uses compile.
    pub(crate) poisoned: bool,
}

/// The value of an input that a call leaves out.
#[derive(Clone)]
pub(crate) enum Absent {
    /// Floats: every element.
    Number(Real),
    /// Ids or lengths: every element, a number or the length of an axis.
    Length(Axis),
    /// Ids: they count along the last axis, from this number on.
    From(Size),
    /// A mask: every element.
    Marks(bool),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::Number(number) => write!(f, "{number} everywhere"),
            Absent::Length(axis) => write!(f, "{axis} everywhere"),
            Absent::From(start) => write!(f, "a count from {start} on along the last axis"),
            Absent::Marks(value) => write!(f, "{value} everywhere"),
        }
    }
}

/// A function beside `forward`.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: Ident,
    /// The stem of the names of its traits.
    pub(crate) stem: Ident,
    pub(crate) docs: Vec<Attribute>,
}

impl Function {
    /// Its method that is this one of `forward`: `encode_mut` is `forward_mut`, `try_encode_values` is `try_values`.
    pub(crate) fn method(&self, of_forward: &str) -> String {
        method_of(&self.name, of_forward)
    }
}

/// The same for a function of this name.
pub(crate) fn method_of(function: &Ident, of_forward: &str) -> String {
    let name = function.unraw();
    match of_forward.strip_prefix("try_") {
        _ if of_forward.contains("forward") => of_forward.replace("forward", &name.to_string()),
        Some(method) => format!("try_{name}_{method}"),
        None => format!("{name}_{of_forward}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueId(pub(crate) usize);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ModuleId(pub(crate) usize);

#[derive(Clone)]
pub(crate) struct Value {
    /// Unique in the model.
    pub(crate) name: String,
    /// The variable that has it, or the kind of the operation that computes it.
    pub(crate) source: String,
    pub(crate) ty: Type,
    /// The value whose memory it is in. Then it has none of its own.
    pub(crate) view: Option<View>,
    /// The value whose numbers it is, without a gradient. Then it has no memory of its own, either.
    pub(crate) alias: Option<ValueId>,
}

/// The memory of another value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    pub(crate) of: ValueId,
    /// The part of a value that is several matrices side by side. Such a value is read by its parts alone, and each of them is read. `None`
    /// is all of the value, in another shape.
    pub(crate) part: Option<usize>,
}

impl View {
    pub(crate) fn is_part(&self) -> bool {
        self.part.is_some()
    }
}

/// A struct of layers.
pub(crate) struct Module {
    /// Its type.
    pub(crate) name: Ident,
    pub(crate) holder: Holder,
    /// The documentation of the block.
    pub(crate) docs: Vec<Attribute>,
    pub(crate) fields: Vec<Field>,
}

/// The variable that holds a module while the model runs.
pub(crate) enum Holder {
    /// A variable: it is the model itself, or a round of a loop.
    Variable(String),
    /// The module that it is a field of: it is a call of a block.
    Field(ParamPath),
}

/// A layer of a module.
pub(crate) struct Field {
    pub(crate) name: String,
    /// The name by which its parameters are saved. It is another one where a layer belongs to one beside it: `q_proj.lora_A`.
    pub(crate) saved: String,
    pub(crate) layer: Submodule,
    /// How its matrices begin. That of an attention is in its spec.
    pub(crate) init: Option<Distribution>,
    /// The operation as written, for the table of the docs.
    pub(crate) output: String,
}

pub(crate) enum Submodule {
    Layer(Box<dyn Layer>),
    /// By its index among the model's attentions.
    Attention(usize),
    /// By its index among the model's opaque modules, with its type for people.
    Opaque {
        index: usize,
        ty: String,
    },
    Repeat {
        module: ModuleId,
        count: Size,
        share: bool,
    },
    /// A call of the block of this name.
    Block {
        module: ModuleId,
        block: String,
    },
}

impl Submodule {
    /// In a word or two, with its sizes.
    pub(crate) fn label(&self) -> String {
        match self {
            Submodule::Layer(layer) => layer.label(),
            Submodule::Attention(_) => "attention".to_owned(),
            Submodule::Opaque { ty, .. } => format!("module {ty}"),
            Submodule::Block { block, .. } => format!("block {block}"),
            Submodule::Repeat { count, share, .. } => {
                let share = if *share {
                    ", one set of parameters"
                } else {
                    ""
                };
                format!("repeat {count}{share}")
            }
        }
    }

    /// The module that it is made of, with what stands between the names of both.
    pub(crate) fn inner(&self) -> Option<(ModuleId, &'static str)> {
        match self {
            Submodule::Repeat {
                module,
                share: false,
                ..
            } => Some((*module, ".*.")),
            Submodule::Repeat { module, .. } | Submodule::Block { module, .. } => {
                Some((*module, "."))
            }
            Submodule::Layer(_) | Submodule::Attention(_) | Submodule::Opaque { .. } => None,
        }
    }
}

/// A call of a module that the macro knows nothing of but its type, as the user wrote it.
pub(crate) struct Opaque {
    pub(crate) ty: TokenStream,
    /// The same for people.
    pub(crate) text: String,
    /// The stem of the names of the module's type variable and of the alias of its type.
    pub(crate) name: Ident,
    /// Whose field it is.
    pub(crate) module: ModuleId,
    pub(crate) operands: Vec<ValueId>,
    pub(crate) result: ValueId,
}

/// A tensor of constants.
pub(crate) struct Buffer {
    pub(crate) sizes: Vec<Size>,
    /// The number at a place: an expression of its indices `at`, which are floats.
    pub(crate) value: TokenStream,
}

/// Where the parameters of an operation are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParamPath {
    pub(crate) module: ModuleId,
    pub(crate) field: String,
}

/// Operations one after the other, with loops.
pub(crate) struct Region<O: ?Sized = dyn ModelOp> {
    pub(crate) steps: Vec<Step<O>>,
}

impl<O: ?Sized> Default for Region<O> {
    fn default() -> Self {
        Region { steps: Vec::new() }
    }
}

pub(crate) enum Step<O: ?Sized = dyn ModelOp> {
    Node(Node<O>),
    Repeat(Repeat<O>),
    Scan(Box<Scan<O>>),
}

pub(crate) struct Node<O: ?Sized = dyn ModelOp> {
    pub(crate) op: Rc<O>,
    pub(crate) operands: Vec<ValueId>,
    pub(crate) result: ValueId,
    /// Its results beside that, each at a place of its own. `None` is one that nobody reads: it is not computed.
    pub(crate) others: Vec<Option<ValueId>>,
    /// The user's name for it.
    pub(crate) name: Option<String>,
}

/// A loop over sets of parameters.
pub(crate) struct Repeat<O: ?Sized = dyn ModelOp> {
    pub(crate) place: ParamPath,
    pub(crate) module: ModuleId,
    pub(crate) count: Size,
    pub(crate) share: bool,
    /// The number of this one among the loops over the same parameters, from 1 on.
    pub(crate) run: usize,
    /// The rounds that it has of a loop, if not all.
    pub(crate) part: Option<Box<Part>>,
    pub(crate) carried: Vec<Carried>,
    pub(crate) body: Region<O>,
}

impl<O: ?Sized> Repeat<O> {
    /// Whether both are parts of one loop.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let [at, of_other] = [self, other].map(|of| of.part.as_ref().map(|part| &part.at));
        at.is_some() && at == of_other
    }
}

/// The rounds of a loop before one of them, or from that one on.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) is_last: bool,
    /// The variable with the number of the first rounds.
    pub(crate) at: Ident,
    /// The number of all rounds.
    pub(crate) whole: Size,
}

/// A variable that a loop changes.
#[derive(Clone)]
pub(crate) struct Carried {
    /// Its value before the loop.
    pub(crate) before: ValueId,
    /// Its value when a round begins, and after the last one.
    pub(crate) value: ValueId,
    /// Its value when a round ends.
    pub(crate) after: ValueId,
}

/// The operations from some inputs to some results.
pub(crate) struct Block<'m, O: ?Sized = dyn ModelOp> {
    pub(crate) values: &'m [Value],
    pub(crate) inputs: &'m [ValueId],
    pub(crate) body: &'m Region<O>,
    pub(crate) results: &'m [ValueId],
    /// Whether the caller hands the results to the derivative. Then they are not kept.
    pub(crate) results_are_given: bool,
}

impl<O: ?Sized> Clone for Block<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: ?Sized> Copy for Block<'_, O> {}

impl<'m, O: ?Sized> Block<'m, O> {
    pub(crate) fn value(&self, id: ValueId) -> &'m Value {
        &self.values[id.0]
    }

    /// Whether the memory of a value is that of an input, or the value is one: the body of a scan has detached values as inputs.
    pub(crate) fn is_input(&self, id: ValueId) -> bool {
        self.inputs.contains(&self.memory(id)) || self.inputs.contains(&id)
    }

    /// Whether the memory of a value is that of a result which the derivative is given.
    pub(crate) fn is_given(&self, id: ValueId) -> bool {
        let id = self.memory(id);
        let mut results = self.results.iter();
        self.results_are_given && results.any(|result| self.memory(*result) == id)
    }

    /// The parts of a value, or the value itself.
    pub(crate) fn parts(&self, id: ValueId) -> Vec<ValueId> {
        let all = (0..self.values.len()).map(ValueId);
        let is_part = |view: View| view.of == id && view.is_part();
        let parts = all.filter(|part| self.value(*part).view.is_some_and(is_part));
        let parts: Vec<_> = parts.collect();
        match parts.as_slice() {
            [] => vec![id],
            _ => parts,
        }
    }

    /// The value of which this one is another shape, or the value itself.
    pub(crate) fn whole(&self, id: ValueId) -> ValueId {
        match self.value(id).view {
            Some(View { of, part: None }) => of,
            _ => id,
        }
    }

    /// The value whose memory a value is in.
    pub(crate) fn memory(&self, id: ValueId) -> ValueId {
        let Value { view, alias, .. } = self.value(id);
        match alias.or(view.map(|view| view.of)) {
            Some(of) => self.memory(of),
            None => id,
        }
    }

    /// The value whose gradient has that of this one. That of a detached value is of the value itself, and nobody reads it.
    pub(crate) fn holder(&self, id: ValueId) -> ValueId {
        self.value(id).view.map_or(id, |view| view.of)
    }

    /// The value that has its numbers.
    pub(crate) fn source(&self, id: ValueId) -> ValueId {
        self.value(id).alias.unwrap_or(id)
    }

    /// Whether it is another value without a gradient.
    pub(crate) fn is_alias(&self, id: ValueId) -> bool {
        self.value(id).alias.is_some()
    }
}

impl Model {
    /// Whether all of it is known: then it has a fused form.
    pub(crate) fn is_known(&self) -> bool {
        !self.poisoned && self.opaques.is_empty()
    }

    /// The operations of the fused form.
    pub(crate) fn block(&self) -> Block<'_> {
        Block {
            values: &self.values,
            inputs: &self.inputs,
            body: &self.grouped,
            results: &self.results,
            results_are_given: false,
        }
    }

    pub(crate) fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// The default of the input of this index.
    pub(crate) fn default_of(&self, input: usize) -> Option<&Absent> {
        self.defaults.get(input)?.as_ref()
    }

    /// The names of all axes that are no constants.
    pub(crate) fn axes(&self) -> impl Iterator<Item = &str> {
        let made = self.made.iter().map(|axis| axis.name.as_str());
        self.symbols.iter().map(String::as_str).chain(made)
    }

    pub(crate) fn made(&self, name: &str) -> Option<&MadeAxis> {
        self.made.iter().find(|axis| axis.name == name)
    }

    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// The value of the declaration that a value is a copy of, or the value itself.
    pub(crate) fn original(&self, id: ValueId) -> ValueId {
        let mut copies = self.copies.iter();
        let found = copies.find(|(copy, _)| *copy == id);
        found.map_or(id, |(_, of)| *of)
    }

    /// The operations, those in loops included.
    pub(crate) fn nodes(&self) -> Vec<&Node> {
        self.body.nodes()
    }

    /// The modules that are structs: blocks without parameters are none.
    pub(crate) fn structs(&self) -> impl Iterator<Item = ModuleId> {
        let modules = self.modules.iter().enumerate();
        let structs = modules.filter(|(_, module)| match module.holder {
            Holder::Variable(_) => true,
            Holder::Field(_) => !module.fields.is_empty(),
        });
        structs.map(|(index, _)| ModuleId(index))
    }

    /// The types of the layers, and the model itself.
    pub(crate) fn types(&self) -> impl Iterator<Item = String> {
        let modules = self.modules.iter().map(|module| &module.name);
        let attentions = self.attentions.iter().map(|layer| &layer.spec.item.name);
        modules.chain(attentions).map(Ident::to_string)
    }

    /// The opaque modules that are fields of a module, or of what is inside of it.
    pub(crate) fn opaques_in(&self, module: ModuleId) -> Vec<&Opaque> {
        let inside = |opaque: &&Opaque| self.contains(module, opaque.module);
        self.opaques.iter().filter(inside).collect()
    }

    fn contains(&self, outer: ModuleId, inner: ModuleId) -> bool {
        let mut fields = self.module(outer).fields.iter();
        outer == inner
            || fields.any(|field| match field.layer {
                Submodule::Repeat { module, .. } | Submodule::Block { module, .. } => {
                    self.contains(module, inner)
                }
                _ => false,
            })
    }

    /// The data that an attention reads besides sequences, each with its operands.
    pub(crate) fn data<'a>(&'a self, node: &'a Node) -> Vec<(&'a CallData, &'a [ValueId])> {
        let Some(attention) = node.attention() else {
            return Vec::new();
        };
        let graph = &self.attentions[attention.index].graph;
        let mut operands = &node.operands[attention.inputs.len()..];
        let data = graph.data.iter().map(|data| {
            let (of_it, others) = operands.split_at(data.tensors(graph.cross));
            operands = others;
            (data, of_it)
        });
        data.collect()
    }

    /// `blocks.attention`, `blocks.mlp.linear`
    pub(crate) fn path(&self, place: &ParamPath) -> String {
        let fields = self.fields(place);
        match self.round_of(place.module) {
            ModuleId(0) => fields,
            round => format!("{}.{fields}", self.module(round).var()),
        }
    }

    /// The fields from the round or the model on: `mlp.linear`.
    pub(crate) fn fields(&self, place: &ParamPath) -> String {
        match &self.module(place.module).holder {
            Holder::Variable(_) => place.field.clone(),
            Holder::Field(outer) => format!("{}.{}", self.fields(outer), place.field),
        }
    }

    /// The round, or else the model, that a module is a part of.
    pub(crate) fn round_of(&self, module: ModuleId) -> ModuleId {
        match &self.module(module).holder {
            Holder::Variable(_) => module,
            Holder::Field(outer) => self.round_of(outer.module),
        }
    }

    pub(crate) fn layer(&self, place: &ParamPath) -> Option<&Submodule> {
        let fields = &self.module(place.module).fields;
        let field = fields.iter().find(|field| field.name == place.field);
        field.map(|field| &field.layer)
    }
}

impl Module {
    /// The variable that holds it, or the field.
    pub(crate) fn var(&self) -> &str {
        match &self.holder {
            Holder::Variable(name) => name,
            Holder::Field(place) => &place.field,
        }
    }
}

/// The values of the variables of loops, and those that are read to carry them.
#[derive(Default)]
pub(crate) struct CarriedValues {
    pub(crate) values: Vec<ValueId>,
    pub(crate) reads: Vec<ValueId>,
}

impl<O: ?Sized> Region<O> {
    /// The variables of the loops in it.
    pub(crate) fn carried(&self) -> CarriedValues {
        let mut all = CarriedValues::default();
        for step in &self.steps {
            if let Step::Repeat(repeat) = step {
                let inner = repeat.body.carried();
                all.values.extend(inner.values);
                all.reads.extend(inner.reads);
                for carried in &repeat.carried {
                    all.values.push(carried.value);
                    all.reads.extend([carried.before, carried.after]);
                }
            }
        }
        all
    }

    /// The operations, those in loops included.
    pub(crate) fn nodes(&self) -> Vec<&Node<O>> {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Node(node) => vec![node],
            Step::Repeat(repeat) => repeat.body.nodes(),
            Step::Scan(scan) => scan.body.nodes(),
        });
        steps.collect()
    }

    /// The loops over sets of parameters, those in other loops included.
    pub(crate) fn repeats(&self) -> Vec<&Repeat<O>> {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Node(_) => Vec::new(),
            Step::Repeat(repeat) => {
                let inside = repeat.body.repeats();
                std::iter::once(repeat).chain(inside).collect()
            }
            Step::Scan(scan) => scan.body.repeats(),
        });
        steps.collect()
    }

    /// The scans, those in loops included.
    pub(crate) fn scans(&self) -> Vec<&Scan<O>> {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Node(_) => Vec::new(),
            Step::Repeat(repeat) => repeat.body.scans(),
            Step::Scan(scan) => vec![&**scan],
        });
        steps.collect()
    }
}

// `O` itself need not be `Clone`.
impl<O: ?Sized> Clone for Region<O> {
    fn clone(&self) -> Self {
        Region {
            steps: self.steps.clone(),
        }
    }
}

impl<O: ?Sized> Clone for Step<O> {
    fn clone(&self) -> Self {
        match self {
            Step::Node(node) => Step::Node(node.clone()),
            Step::Repeat(repeat) => Step::Repeat(repeat.clone()),
            Step::Scan(scan) => Step::Scan(scan.copy(scan.body.clone())),
        }
    }
}

impl<O: ?Sized> Clone for Repeat<O> {
    fn clone(&self) -> Self {
        Repeat {
            place: self.place.clone(),
            module: self.module,
            count: self.count.clone(),
            share: self.share,
            run: self.run,
            part: self.part.clone(),
            carried: self.carried.clone(),
            body: self.body.clone(),
        }
    }
}

impl<O: ?Sized> Clone for Node<O> {
    fn clone(&self) -> Self {
        Node {
            op: Rc::clone(&self.op),
            operands: self.operands.clone(),
            result: self.result,
            others: self.others.clone(),
            name: self.name.clone(),
        }
    }
}

impl<O: ?Sized> Node<O> {
    /// All results.
    pub(crate) fn results(&self) -> impl Iterator<Item = ValueId> + use<'_, O> {
        let others = self.others.iter().copied();
        [self.result].into_iter().chain(others.flatten())
    }
}

impl<O: Op + ?Sized> Node<O> {
    /// The operands that have a gradient, with what that is.
    pub(crate) fn gradients(&self) -> impl Iterator<Item = (usize, Gradient)> {
        let gradients = self.op.gradients(self.operands.len());
        let gradients = gradients.into_iter().enumerate();
        gradients.filter(|(_, gradient)| *gradient != Gradient::None)
    }

    /// The values of floats that its derivative reads.
    pub(crate) fn saved(&self) -> Vec<ValueId> {
        let operands = self.gradients().map(|(index, _)| self.operands[index]);
        match self.op.properties().saved {
            Saved::Nothing => Vec::new(),
            Saved::Operands => operands.collect(),
            Saved::Reads(operands) => {
                let operands = operands.into_iter();
                operands
                    .map(|index| self.operands.get(index).copied().unwrap_or(self.result))
                    .collect()
            }
            Saved::Result => vec![self.result],
            Saved::OperandsAndResult => operands.chain([self.result]).collect(),
            Saved::OperandsAndWeights { with_result } => {
                let result = with_result.then_some(self.result);
                let weights = self.others.first().copied().flatten();
                operands.chain(result).chain(weights).collect()
            }
        }
    }

    pub(crate) fn fusion(&self) -> Fusion<'_> {
        self.op.properties().fusion
    }
}

impl Node {
    pub(crate) fn attention(&self) -> Option<&Attention> {
        self.op.description().attention
    }
}
