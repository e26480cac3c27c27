//! The lines of a function of a model.

use std::fmt::Write;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::node::OnnxNode;
use super::term::{Term, call_with, list};
use crate::messages::onnx as messages;
use crate::model::graph::{
    Holder, Model, ModuleId, Node, ParamPath, Region, Repeat, Step, Submodule, ValueId,
};
use crate::model::types::{Axis, Type, ValueKind};
use crate::ops::Label;
use crate::spec::{Real, Rotary, Size};

/// A function as a program, with the tables that its text refers to.
pub(crate) struct Writer<'m> {
    pub(super) krate: &'m TokenStream,
    pub(super) model: &'m Model,
    text: String,
    /// How many values have no name.
    unnamed: usize,
    pub(super) tables: Tables,
}

/// Tables of values that the text refers to by numbers.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) sizes: Table,
    pub(crate) numbers: Table,
    pub(crate) rotaries: Table,
    pub(crate) buffers: Table,
    pub(crate) proved: Table,
}

/// Expressions that rustc evaluates, each once.
#[derive(Default)]
pub(crate) struct Table(Vec<(String, TokenStream)>);

impl Table {
    /// The index of an expression.
    pub(super) fn index(&mut self, tokens: TokenStream) -> usize {
        let text = tokens.to_string();
        let known = self.0.iter().position(|(other, _)| *other == text);
        known.unwrap_or_else(|| {
            self.0.push((text, tokens));
            self.0.len() - 1
        })
    }
}

impl ToTokens for Table {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let entries = self.0.iter().map(|(_, tokens)| tokens);
        tokens.extend(quote!(&[#(#entries),*]));
    }
}

/// The program of a function, or why there is none: the first operation that has no words in ONNX.
pub(crate) fn write(krate: &TokenStream, model: &Model) -> (Result<String, String>, Tables) {
    let mut writer = Writer {
        krate,
        model,
        text: String::new(),
        unnamed: 0,
        tables: Tables::default(),
    };
    let written = writer.write();
    (written.map(|()| writer.text), writer.tables)
}

impl<'m> Writer<'m> {
    fn write(&mut self) -> Result<(), String> {
        for (index, id) in self.model.inputs.iter().enumerate() {
            let value = self.model.value(*id);
            let name = self.model.input_names.get(index).unwrap_or(&value.name);
            let described = self.described(&value.ty);
            self.line(format_args!("input {name} {described}"));
            if *name != value.name {
                self.line(format_args!("{} = {name}", value.name));
            }
        }
        let model = self.model;
        self.region(&model.body)?;
        for (index, id) in model.results.iter().enumerate() {
            let value = model.value(*id);
            let name = match (model.result_names.get(index), model.results.len()) {
                (Some(name), _) => name.clone(),
                (None, 1) => "output".to_owned(),
                (None, _) => format!("output_{index}"),
            };
            let described = self.described(&value.ty);
            self.line(format_args!("output {name} {} {described}", value.name));
        }
        Ok(())
    }

    /// `E [batch,seq,16]`
    fn described(&mut self, ty: &Type) -> String {
        let axes: Vec<String> = ty.axes.iter().map(|axis| self.axis(axis)).collect();
        let kind = match ty.kind {
            ValueKind::Floats => "E",
            ValueKind::Ids | ValueKind::Lens => "I64",
            ValueKind::Bools => "BOOL",
        };
        format!("{kind} {}", list(axes))
    }

    fn axis(&mut self, axis: &Axis) -> String {
        match axis {
            Axis::Size(size) => self.size(size),
            Axis::Symbol(symbol) => symbol.length.clone(),
        }
    }

    pub(super) fn line(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{line}");
    }

    /// A term that may stand in several places.
    pub(super) fn name(&mut self, term: Term) -> Term {
        if term.is_atom() {
            return term;
        }
        self.unnamed += 1;
        let name = format!(".{}", self.unnamed);
        self.line(format_args!("{name} = {term}"));
        Term::new(name)
    }

    fn region(&mut self, region: &'m Region) -> Result<(), String> {
        for step in &region.steps {
            match step {
                Step::Node(node) => self.node(node)?,
                Step::Repeat(repeat) => self.repeat(repeat)?,
                Step::Scan(scan) => return Err(messages::scan(&scan.axis.to_string())),
            }
        }
        Ok(())
    }

    fn repeat(&mut self, repeat: &'m Repeat) -> Result<(), String> {
        let name = |id: ValueId| &self.model.value(id).name;
        let carried = repeat.carried.iter();
        let carried = carried.map(|of| [of.value, of.before, of.after].map(name));
        let carried: Vec<_> = carried.collect();
        let count = self.size(&repeat.count);
        let shared = if repeat.share { " shared" } else { "" };
        self.line(format_args!(
            "repeat {count} {}{shared}",
            repeat.place.field
        ));
        for [value, before, _] in &carried {
            self.line(format_args!("carry {value} {before}"));
        }
        self.region(&repeat.body)?;
        for [value, _, after] in &carried {
            self.line(format_args!("next {value} {after}"));
        }
        self.line("end");
        Ok(())
    }

    fn node(&mut self, node: &'m Node) -> Result<(), String> {
        let model = self.model;
        let description = node.op.description();
        let place = match description.label {
            Label::Layer(place) => model.path(place),
            Label::Text(_) => model.value(node.result).source.clone(),
        };
        let operands = node.operands.iter();
        let operands: Vec<_> = operands
            .map(|id| {
                let value = model.value(*id);
                (Term::new(&*value.name), &value.ty)
            })
            .collect();
        let result = model.value(node.result);
        let wanted = node.others.iter().map(Option::is_some).collect();
        let mut of = OnnxNode::new(self, node, operands, &result.ty, wanted);
        let value = node.op.onnx(&mut of);
        let value = value.map_err(|reason| messages::at(&place, &reason))?;
        let beside = of.into_beside();
        self.line(format_args!("{} = {value}", result.name));
        for (id, value) in node.others.iter().flatten().zip(beside) {
            self.line(format_args!("{} = {value}", model.value(*id).name));
        }
        Ok(())
    }

    /// A size where an integer may stand.
    pub(crate) fn size(&mut self, size: &Size) -> String {
        match size.value {
            Some(value) => value.to_string(),
            None => format!("#{}", self.tables.sizes.index(size.to_token_stream())),
        }
    }

    /// A number as an attribute or constant.
    pub(crate) fn real(&mut self, real: &Real) -> String {
        match real.value {
            Some(value) => format!("{value:?}"),
            None => {
                let tokens = quote!((#real) as f64);
                format!("~{}", self.tables.numbers.index(tokens))
            }
        }
    }

    /// A part of a rotation of vectors of a width.
    pub(super) fn rope(&mut self, rotary: &Rotary, width: &Size, part: &str) -> Term {
        let of = self.tables.rotaries.index(rotary.tokens());
        let width = self.size(width);
        let attributes = format!("of={of},width={width},part=\"{part}\"");
        call_with("Rope", attributes, [])
    }

    /// The weight of a layer: `%blocks.*.linear.weight`.
    pub(crate) fn weight(&self, place: &ParamPath, tensor: &str) -> Term {
        Term::new(format!("%{}.{tensor}", self.path(place)))
    }

    /// The path by which the parameters of a layer are saved.
    pub(super) fn path(&self, place: &ParamPath) -> String {
        let fields = &self.model.module(place.module).fields;
        let field = fields.iter().find(|field| field.name == place.field);
        let saved = field.map_or(&place.field, |field| &field.saved);
        format!("{}{saved}", self.prefix(place.module))
    }

    /// The prefix of the names of the layers of a module.
    fn prefix(&self, id: ModuleId) -> String {
        let model = self.model;
        if let Holder::Field(place) = &model.module(id).holder {
            return format!("{}.", self.path(place));
        }
        let modules = model.modules.iter().enumerate();
        let mut holders = modules.flat_map(|(index, module)| {
            let fields = module.fields.iter();
            fields.map(move |field| (ModuleId(index), field))
        });
        let found = holders.find_map(|(outer, field)| match &field.layer {
            Submodule::Repeat {
                module,
                share,
                per_round,
                ..
            } if *module == id => {
                let of_loop = format!("{}{}", self.prefix(outer), field.saved);
                Some(match per_round {
                    Some(layers) => format!("{of_loop}.*{layers}"),
                    None if field.saved.starts_with('+') => format!("{of_loop}+*."),
                    None if *share => format!("{of_loop}."),
                    None => format!("{of_loop}.*."),
                })
            }
            _ => None,
        });
        found.unwrap_or_default()
    }
}
