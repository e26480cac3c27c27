//! A network as a graph of layers: what [`lower`](super::lower) makes of a declaration, and what the emitters read.

use std::rc::Rc;

use proc_macro2::{Ident, TokenStream};

use super::types::Type;
use crate::graph::{CallData, Graph};
use crate::ops::{Attention, Fusion, Gradient, Layer, Op, Saved};
use crate::spec::{Assertion, Init, Item, Size, Spec};

/// Everything that is emitted.
pub(crate) struct Model {
    pub(crate) item: Item,
    /// The axes that are no constants, in the order of the inputs.
    pub(crate) symbols: Vec<String>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) values: Vec<Value>,
    /// Where parameters are: the model itself, and then the body of every `repeat`.
    pub(crate) modules: Vec<Module>,
    pub(crate) attentions: Vec<(Spec, Graph)>,
    pub(crate) opaques: Vec<Opaque>,
    /// An operation for each operator and call of the declaration.
    pub(crate) body: Region,
    /// The same with elementwise operations [grouped](super::group), for the fused form.
    pub(crate) grouped: Region,
    pub(crate) results: Vec<ValueId>,
    /// The declared types of the results, if these and the inputs were understood.
    pub(crate) signature: Option<Vec<Type>>,
    /// Constants that only rustc can evaluate, each under a name.
    pub(crate) constants: Vec<TokenStream>,
    pub(crate) assertions: Vec<Assertion>,
    /// Something was wrong: emit the item so that its uses compile.
    pub(crate) poisoned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueId(pub(crate) usize);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ModuleId(pub(crate) usize);

pub(crate) struct Value {
    /// Unique in the model.
    pub(crate) name: String,
    pub(crate) ty: Type,
}

/// A struct of layers.
pub(crate) struct Module {
    /// Its type.
    pub(crate) name: Ident,
    /// The variable that holds it while the model runs.
    pub(crate) var: String,
    pub(crate) fields: Vec<Field>,
}

/// A layer of a module, under the name by which its parameters are saved.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) layer: Submodule,
    /// How its matrices begin. That of an attention is in its spec.
    pub(crate) init: Init,
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

/// Where the parameters of an operation are.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) module: ModuleId,
    pub(crate) field: String,
}

/// Operations one after the other, with loops.
#[derive(Default)]
pub(crate) struct Region {
    pub(crate) steps: Vec<Step>,
}

pub(crate) enum Step {
    Node(Node),
    Repeat(Repeat),
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) op: Rc<dyn Op>,
    pub(crate) operands: Vec<ValueId>,
    pub(crate) result: ValueId,
    /// The user's name for it.
    pub(crate) name: Option<String>,
}

/// A loop over sets of parameters.
pub(crate) struct Repeat {
    pub(crate) place: Place,
    pub(crate) module: ModuleId,
    pub(crate) count: Size,
    pub(crate) share: bool,
    pub(crate) carried: Vec<Carried>,
    pub(crate) body: Region,
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

impl Model {
    pub(crate) fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// The operations, those in loops included.
    pub(crate) fn nodes(&self) -> Vec<&Node> {
        self.body.nodes()
    }

    /// The types of the layers, and the model itself.
    pub(crate) fn types(&self) -> impl Iterator<Item = String> {
        let modules = self.modules.iter().map(|module| &module.name);
        let attentions = self.attentions.iter().map(|(spec, _)| &spec.item.name);
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
                Submodule::Repeat { module, .. } => self.contains(module, inner),
                _ => false,
            })
    }

    /// The data that an attention reads besides sequences, each with its operands.
    pub(crate) fn data<'a>(&'a self, node: &'a Node) -> Vec<(&'a CallData, &'a [ValueId])> {
        let Some(attention) = node.attention() else {
            return Vec::new();
        };
        let graph = &self.attentions[attention.index].1;
        let mut operands = &node.operands[attention.sequences()..];
        let data = graph.data.iter().map(|data| {
            let (of_it, others) = operands.split_at(data.tensors(graph.cross));
            operands = others;
            (data, of_it)
        });
        data.collect()
    }

    /// `blocks.attention`
    pub(crate) fn path(&self, place: &Place) -> String {
        match place.module {
            ModuleId(0) => place.field.clone(),
            module => format!("{}.{}", self.module(module).var, place.field),
        }
    }

    pub(crate) fn layer(&self, place: &Place) -> Option<&Submodule> {
        let fields = &self.module(place.module).fields;
        let field = fields.iter().find(|field| field.name == place.field);
        field.map(|field| &field.layer)
    }
}

impl Region {
    /// The operations, those in loops included.
    pub(crate) fn nodes(&self) -> Vec<&Node> {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Node(node) => vec![node],
            Step::Repeat(repeat) => repeat.body.nodes(),
        });
        steps.collect()
    }
}

impl Node {
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
                operands.map(|index| self.operands[index]).collect()
            }
            Saved::Result => vec![self.result],
            Saved::OperandsAndResult => operands.chain([self.result]).collect(),
        }
    }

    pub(crate) fn attention(&self) -> Option<&Attention> {
        self.op.properties().attention
    }

    pub(crate) fn fusion(&self) -> Fusion<'_> {
        self.op.properties().fusion
    }
}
