//! A network as a graph of layers: what [`lower`](super::lower) makes of a declaration, and what the emitters read.
//!
//! A [`Block`] is what the passes over a graph read. Its nodes are the operations of a model or of an attention layer.

mod region;
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
use crate::ops::Layer;
use crate::spec::{Assertion, Distribution, Item, Real, Size};

pub(crate) use region::{Block, Carried, Node, Part, Region, Repeat, Step};
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
        /// How many layers with numbers a round has, of a loop with an index. The fields of a round have their offsets as names.
        per_round: Option<usize>,
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
                per_round: Some(_),
                ..
            } => Some((*module, ".*")),
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

    /// Whether it is a round of a loop with an index.
    pub(crate) fn is_numbered(&self, id: ModuleId) -> bool {
        let mut fields = self.modules.iter().flat_map(|module| &module.fields);
        fields.any(|field| {
            matches!(field.layer, Submodule::Repeat { module, per_round: Some(_), .. } if module == id)
        })
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
