//! Low-rank adapters: each chosen linear layer becomes `W x + b + scale · B A dropout(x)` (Hu et al. 2021, section 4.1), of operations that
//! there are. An attention or a feed-forward layer with such a projection becomes its parts.

use std::cell::{Cell, RefCell};

use proc_macro2::Span;
use quote::{format_ident, quote};
use syn::LitStr;

use super::attention::{Called, NamedOperands, Site};
use super::{Lowering, RegionBuilder};
use crate::graph::{self, ParamKind};
use crate::messages::model as messages;
use crate::model::graph::{Holder, Module, ModuleId, ParamPath, Submodule, ValueId};
use crate::model::syntax::{LoraDraft, first};
use crate::ops::{Affine, Dropout, Elementwise, Inputs, Linear, check_probability};
use crate::score::{Binary, Expr};
use crate::spec::{Distribution, Real, Rules, Score, Size};

/// The adapters of a model.
pub(crate) struct Lora {
    pub(crate) rank: Size,
    pub(crate) alpha: Real,
    pub(crate) dropout: Option<Real>,
    /// Whether the scale is `alpha / sqrt(rank)` (Kalajdzievski 2023).
    pub(crate) rslora: bool,
    on: Vec<Pattern>,
    save: Vec<Pattern>,
    /// The names of all linear layers, and whether they get adapters.
    names: RefCell<Vec<(String, bool)>>,
    /// The names of the layers that are trained whole, with a `*` for each round of a loop.
    pub(crate) saved: RefCell<Vec<String>>,
}

/// The last parts of names.
struct Pattern {
    text: LitStr,
    is_used: Cell<bool>,
}

impl Pattern {
    fn new(text: LitStr) -> Self {
        Self {
            text,
            is_used: Cell::new(false),
        }
    }

    /// `*` is any part. In a loop, that is the only name of its rounds.
    fn matches(&self, name: &str) -> bool {
        let text = self.text.value();
        let wanted = text.split('.').rev();
        let mut parts = name.split('.').rev();
        wanted.into_iter().all(|wanted| {
            let part = parts.next();
            part.is_some_and(|part| wanted == "*" || wanted == part)
        })
    }
}

impl Lora {
    /// The factor of the adapters.
    fn scale(&self) -> Real {
        let Lora {
            rank,
            alpha,
            rslora,
            ..
        } = self;
        if let (Some(rank), Some(alpha)) = (rank.value, alpha.value) {
            let rank = rank as f64;
            return Real::known(alpha / if *rslora { rank.sqrt() } else { rank });
        }
        match rslora {
            true => Real::computed(
                quote!((((#alpha) as f64) / ((#rank) as f64).sqrt())),
                format!("{alpha} / sqrt({rank})"),
            ),
            false => Real::computed(
                quote!((((#alpha) as f64) / ((#rank) as f64))),
                format!("{alpha} / {rank}"),
            ),
        }
    }
}

/// Whether a layer is `A` or `B` of another one.
fn is_adapter(name: &str) -> bool {
    ['A', 'B']
        .iter()
        .any(|letter| name.ends_with(&end_of_adapter(*letter)))
}

/// The suffix of the name of an adapter.
fn end_of_adapter(letter: char) -> String {
    format!(".lora_{letter}")
}

/// A linear layer to be, with the name of its field and the one by which it is saved.
pub(crate) struct Projection<'a> {
    pub(crate) field: &'a str,
    pub(crate) saved: &'a str,
    pub(crate) layer: Affine,
    pub(crate) init: Option<Distribution>,
}

impl Lowering<'_> {
    /// The adapters as declared.
    pub(super) fn lora(&mut self, draft: &LoraDraft) -> Option<Lora> {
        let before = self.cx.count();
        let rank = self.size(&draft.rank, "rank")?;
        let at = first(&draft.rank);
        self.at_least_one(&rank, at, messages::zero_size("rank"));
        let alpha = match &draft.alpha {
            Some(tokens) => {
                let alpha = self.number(tokens)?;
                self.is_positive(&alpha, messages::ALPHA_NOT_POSITIVE);
                alpha
            }
            None => rank.to_real(),
        };
        let dropout = match &draft.dropout {
            Some(tokens) => {
                let p = self.number(tokens)?;
                Some(check_probability(self, &p)?)
            }
            None => None,
        };
        let patterns = |names: &[LitStr]| names.iter().cloned().map(Pattern::new).collect();
        let lora = Lora {
            rank,
            alpha,
            dropout: dropout.filter(|p| p.value != Some(0.0)),
            rslora: draft.rslora,
            on: patterns(&draft.on),
            save: patterns(&draft.save),
            names: RefCell::default(),
            saved: RefCell::default(),
        };
        (self.cx.count() == before).then_some(lora)
    }

    /// Reports names that no layer has.
    pub(super) fn report_unadapted(&self) {
        let Some(lora) = &self.lora else { return };
        for pattern in lora.on.iter().filter(|pattern| !pattern.is_used.get()) {
            let text = pattern.text.value();
            let names: Vec<_> = lora
                .names
                .borrow()
                .iter()
                .map(|(name, _)| name.clone())
                .collect();
            let message = messages::nothing_adapted(&text, &names);
            self.cx.error(&pattern.text, message);
        }
    }

    /// Finds the layers that are trained whole, and reports names that no layer has.
    pub(super) fn find_saved(&self) {
        let Some(lora) = &self.lora else { return };
        let fields = self.modules.iter().enumerate().flat_map(|(module, of)| {
            let module = ModuleId(module);
            of.fields
                .iter()
                .map(move |field| self.name_in_model(module, &field.saved))
        });
        let mut names: Vec<String> = fields.filter(|name| !is_adapter(name)).collect();
        names.sort();
        names.dedup();
        for pattern in &lora.save {
            let fitting: Vec<_> = names.iter().filter(|name| pattern.matches(name)).collect();
            if fitting.is_empty() {
                let message = messages::nothing_saved(&pattern.text.value(), &names);
                self.cx.error(&pattern.text, message);
            }
            let adapted = lora.names.borrow();
            let mut both = fitting.iter().filter(|name| {
                let inside = format!("{name}.");
                let is_inside = |layer: &str| layer == ***name || layer.starts_with(&inside);
                adapted
                    .iter()
                    .any(|(layer, is_adapted)| *is_adapted && is_inside(layer))
            });
            if let Some(name) = both.next() {
                let message = messages::adapted_and_saved(name);
                self.cx.error(&pattern.text, message);
            }
            let mut saved = lora.saved.borrow_mut();
            let new = fitting.into_iter().filter(|name| !saved.contains(name));
            let new: Vec<_> = new.cloned().collect();
            saved.extend(new);
        }
    }

    /// Whether the layer at a place, or the part of it with this name, gets adapters.
    fn is_adapted(&self, place: &ParamPath, part: Option<&str>) -> bool {
        let Some(lora) = &self.lora else {
            return false;
        };
        let mut name = self.name_of_place(place);
        if let Some(part) = part {
            name = format!("{name}.{part}");
        }
        let fitting = lora.on.iter().filter(|pattern| pattern.matches(&name));
        let count = fitting.map(|pattern| pattern.is_used.set(true)).count();
        let mut names = lora.names.borrow_mut();
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, is_adapted)) => *is_adapted |= count > 0,
            None => names.push((name, count > 0)),
        }
        count > 0
    }

    /// Whether one of the projections of a layer gets adapters.
    pub(crate) fn are_adapted<'p>(
        &self,
        place: &ParamPath,
        parts: impl IntoIterator<Item = &'p str>,
    ) -> bool {
        let parts = parts.into_iter();
        parts
            .filter(|part| self.is_adapted(place, Some(part)))
            .count()
            > 0
    }

    /// The name by which a layer is saved, with a `*` for each round of a loop.
    fn name_of_place(&self, place: &ParamPath) -> String {
        let fields = &self.modules[place.module.0].fields;
        let field = fields.iter().find(|field| field.name == place.field);
        let name = field.map_or(&place.field, |field| &field.saved);
        self.name_in_model(place.module, name)
    }

    /// The name in the model of what has this one in a module.
    fn name_in_model(&self, mut module: ModuleId, name: &str) -> String {
        let mut name = name.to_owned();
        while let Some((outer, before)) = self.module_around(module) {
            name = format!("{before}{name}");
            module = outer;
        }
        without_numbers(&name)
    }

    /// The module of which this one is a field, and what stands in front of its names there.
    fn module_around(&self, module: ModuleId) -> Option<(ModuleId, String)> {
        let outer = self.modules[..module.0].iter().enumerate();
        let mut found = outer.flat_map(|(index, outer)| {
            let of = outer.fields.iter().filter_map(move |field| {
                let (inner, between) = field.layer.inner()?;
                let name = format!("{}{between}", field.saved);
                (inner == module).then_some((ModuleId(index), name))
            });
            of.collect::<Vec<_>>()
        });
        found.next()
    }

    /// A new linear layer, of `x`, with its adapters.
    pub(crate) fn projected(
        &mut self,
        projection: Projection<'_>,
        (x, result): (ValueId, &str),
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let Affine {
            input,
            output,
            bias,
        } = projection.layer.clone();
        let ty = self.ty(x).ending_in(output.clone());
        let layer = Submodule::Layer(Box::new(projection.layer));
        let asked = (projection.field, None);
        let place = self.field(builder.module, asked, layer, ty.to_string());
        if let Some(field) = self.field_at(&place) {
            projection.saved.clone_into(&mut field.saved);
        }
        self.begin(&place, projection.init);
        self.linear(&place, (bias, [input, output]), (x, result), builder)
    }

    /// The linear layer at a place, of `x`, with its adapters if it gets any.
    pub(crate) fn linear(
        &mut self,
        place: &ParamPath,
        (bias, sizes): (bool, [Size; 2]),
        (x, result): (ValueId, &str),
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let ty = self.ty(x).ending_in(sizes[1].clone());
        let linear = Linear::new(place.clone(), bias);
        let lora = self.lora.clone();
        let Some(lora) = lora.filter(|_| self.is_adapted(place, None)) else {
            return self.node(builder, linear, vec![x], (result, ty));
        };
        let [input, output] = sizes;
        self.check_rank(&lora, place, [&input, &output]);
        let base = format!("{result}_base");
        let base = self.node(builder, linear, vec![x], (&base, ty.clone()));
        let dropped = match &lora.dropout {
            Some(p) => {
                let name = format!("{result}_lora_dropout");
                let of_x = self.ty(x).clone();
                self.node(builder, Dropout(p.clone()), vec![x], (&name, of_x))
            }
            None => x,
        };
        let rank = lora.rank.clone();
        let down = self.adapter(
            (place, 'A'),
            [input, rank.clone()],
            (dropped, result),
            builder,
        );
        let up = self.adapter((place, 'B'), [rank, output], (down, result), builder);
        let scale = Elementwise::with_number(Binary::Mul, &lora.scale());
        let name = format!("{result}_lora");
        let scaled = self.node(builder, scale, vec![up], (&name, ty.clone()));
        let sum = Expr::Operand(0) + Expr::Operand(1);
        self.elementwise(sum, &[base, scaled], (result, ty), builder)
    }

    /// `A` or `B` of the layer at a place. As in PEFT, `A` begins as any linear layer, and `B` with zeros.
    fn adapter(
        &mut self,
        (place, letter): (&ParamPath, char),
        [input, output]: [Size; 2],
        (x, result): (ValueId, &str),
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let of = self.field_at(place).map(|field| field.saved.clone());
        let of = of.unwrap_or_default();
        let small = letter.to_ascii_lowercase();
        let field = format!("{}_lora_{small}", place.field);
        let saved = format!("{of}{}", end_of_adapter(letter));
        let ty = self.ty(x).ending_in(output.clone());
        let layer = Affine {
            input,
            output,
            bias: false,
        };
        let layer = Submodule::Layer(Box::new(layer));
        let adapter = self.field(place.module, (&field, None), layer, ty.to_string());
        if let Some(field) = self.field_at(&adapter) {
            field.saved = saved;
        }
        let init = (letter == 'B').then_some(Distribution::Zeros);
        self.begin(&adapter, init);
        let name = format!("{result}_lora_{small}");
        let linear = Linear::new(adapter, false);
        self.node(builder, linear, vec![x], (&name, ty))
    }

    /// A product of a rank as large as the layer has as many numbers as that.
    fn check_rank(&mut self, lora: &Lora, place: &ParamPath, sizes: [&Size; 2]) {
        let Lora { rank, .. } = lora;
        let at = first(&rank.origin);
        let message = messages::rank_too_large(rank, &self.name_of_place(place), sizes);
        for size in sizes {
            match rank.value.zip(size.value) {
                Some((rank, size)) if rank >= size => {
                    return self.error(at, message);
                }
                Some(_) => {}
                None => self.assume(vec![quote!(#rank < #size)], at, message.clone()),
            }
        }
    }

    /// The module of the parts of a layer, in place of it.
    pub(crate) fn apart(&mut self, place: &ParamPath, kind: &str, at: Span) -> ModuleId {
        let known = self.field_at(place).and_then(|field| {
            field.init = None;
            field.layer.inner()
        });
        if let Some((module, _)) = known {
            return module;
        }
        let module = ModuleId(self.modules.len());
        let name = self.type_name(place.module, &place.field, at);
        self.modules.push(Module {
            name,
            holder: Holder::Field(place.clone()),
            docs: Vec::new(),
            fields: Vec::new(),
        });
        if let Some(field) = self.field_at(place) {
            field.layer = Submodule::Block {
                module,
                block: kind.to_owned(),
            };
        }
        module
    }

    /// Whether a projection of this attention gets adapters.
    pub(super) fn is_attention_adapted(&self, called: &Called<'_>, site: &Site) -> bool {
        let params = called.graph.params.iter();
        let projections = params.filter(|param| matches!(param.kind, ParamKind::Linear { .. }));
        let fields = projections.map(|param| &*param.field);
        self.are_adapted(&site.place, fields)
    }

    /// An attention as projections and an `attend` between them, which has its other parameters. The projections are beside it, with the names
    /// that they have in it.
    pub(super) fn attention_apart(
        &mut self,
        called: Called<'_>,
        site: Site,
        operands: Vec<ValueId>,
        named_operands: NamedOperands<'_>,
        result: &str,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let Called {
            call,
            mut spec,
            graph: whole,
            ..
        } = called;
        if spec.score == Score::OfPlaces {
            self.cx.error(&call.name, messages::LORA_OF_PLACES);
            return None;
        }
        let place = site.place.clone();
        let sequences = operands.len() - whole.given.len();
        // Keys and values are of the last sequence before them.
        let inputs = [0, 1, 2].map(|of: usize| operands[of.min(sequences - 1)]);
        let vectors = ["q_proj", "k_proj", "v_proj"].into_iter().zip(inputs);
        let mut vectors = vectors
            .map(|(field, x)| {
                let name = format!("{}_of_{result}", &field[..1]);
                self.part_of_attention(&place, &whole, field, (x, &name), builder)
            })
            .collect::<Option<Vec<_>>>()?;
        let width = spec.heads.times(&spec.value_head_dim);
        spec.d_model = width.clone();
        spec.of_operands = Some(spec.head_dim.clone());
        spec.d_values = None;
        if spec.d_context.is_some() {
            spec.d_context = Some(spec.kv_heads.times(&spec.value_head_dim));
        }
        let graph = graph::build(&spec);
        let types = [vectors[0], vectors[2]].map(|id| self.ty(id).clone());
        vectors.extend(&operands[sequences..]);
        let attended = types[0].ending_in(width);
        let called = Called {
            inputs: Inputs::vectors().and(graph.given.len()),
            sequences: [&types[0], &types[1]],
            result: attended,
            spec,
            graph,
            ..called
        };
        let name = format!("attended_of_{result}");
        let mut results =
            self.attention_node(called, site, vectors, named_operands, &name, builder)?;
        let output = (results[0], result);
        results[0] = self.part_of_attention(&place, &whole, "o_proj", output, builder)?;
        Some(results)
    }

    /// A projection of an attention at a place, as a layer beside it.
    fn part_of_attention(
        &mut self,
        place: &ParamPath,
        graph: &graph::Graph,
        field: &str,
        of: (ValueId, &str),
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let ParamKind::Linear {
            input,
            output,
            bias,
            init,
        } = &graph.param(field)?.kind
        else {
            return None;
        };
        let saved = self.field_at(place)?.saved.clone();
        let projection = Projection {
            field: &format_ident!("{}_{field}", place.field).to_string(),
            saved: &format!("{saved}.{field}"),
            layer: Affine {
                input: input.clone(),
                output: output.clone(),
                bias: *bias,
            },
            init: Some(init.distribution()),
        };
        Some(self.projected(projection, of, builder))
    }
}

/// The layers of a round with numbers are as rounds are: `blocks.*+3.linear` and `blocks.*+3.*.linear` are `blocks.*.linear`.
fn without_numbers(name: &str) -> String {
    let mut names = Vec::new();
    let mut parts = name.split('.').peekable();
    while let Some(part) = parts.next() {
        match part.split_once('+') {
            None => names.push(part),
            Some((rounds, _)) => {
                names.push(rounds);
                parts.next_if_eq(&"*");
            }
        }
    }
    names.join(".")
}
