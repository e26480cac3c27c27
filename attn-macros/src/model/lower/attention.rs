//! `attention::<keys>(x, context = y, values = z, padding = keep) { body }`: a layer of `attention!` inside of a model.

use proc_macro2::{Ident, Span};
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt;

use super::arguments::Arguments;
use super::operators::named;
use super::{Lowering, RegionBuilder};
use crate::graph::{self, AttentionLayer};
use crate::messages::{attend as attend_messages, grid as grid_messages, model as messages};
use crate::model::graph::{ParamPath, Step, Submodule, ValueId};
use crate::model::syntax::Call;
use crate::model::types::{Axis, Same, Type, ValueKind};
use crate::ops::{Attention, Inputs};
use crate::score::Var;
use crate::spec::keys::Key;
use crate::spec::parse::{Draft, Entry, Value};
use crate::spec::{self, Item, Size, Spec};

/// The keys of the widths of the sequences, in their order.
const WIDTHS: [&str; 3] = ["d_model", "d_context", "d_values"];

/// The operands by name of a call, as far as they are understood.
pub(super) type NamedOperands<'c> = Vec<(&'c Ident, Vec<Option<ValueId>>)>;

/// Where an attention stands in the model.
pub(super) struct Site {
    pub(super) place: ParamPath,
    pub(super) index: usize,
    pub(super) name_of_type: Ident,
}

/// A call of an attention, as far as its own keys go.
pub(super) struct Called<'c> {
    pub(super) call: &'c Call,
    pub(super) spec: Spec,
    pub(super) graph: graph::Graph,
    pub(super) inputs: Inputs,
    /// The types of the sequences of queries and of keys.
    pub(super) sequences: [&'c Type; 2],
    pub(super) result: Type,
    /// The axis of the heads of what is beside it.
    pub(super) heads: Axis,
    /// The names of the results.
    pub(super) names: &'c [Ident],
    /// No mistake was found.
    pub(super) complete: bool,
}

impl Lowering<'_> {
    pub(crate) fn attention(
        &mut self,
        call: &Call,
        arguments: Arguments,
        names: &[Ident],
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let (mut named_operands, complete) =
            self.operands_by_name(call, arguments.complete, Key::find, builder);
        let [x] = call.operands.as_slice() else {
            for operand in &call.operands {
                self.tensor(operand, None, builder);
            }
            self.cx.error(
                &call.name,
                messages::attention_operands(call.operands.len()),
            );
            return None;
        };
        let x = self.floats(x, "attention", builder)?;
        let ty = self.ty(x).clone();
        self.width(&call.name, &ty)?;
        if !(2..=3).contains(&ty.axes.len()) {
            let takes = "[batch, seq, d_model] or [seq, d_model]";
            self.takes(&call.name, takes, &ty);
            return None;
        }
        if self.scan.is_some() && ty.axes.len() == 2 {
            self.cx
                .error(&call.name, messages::attention_of_a_step(&ty));
            return None;
        }
        let sources = self.sources(call, &ty, &mut named_operands)?;
        let asked = ("attention", arguments.name.as_ref());
        let output = (ty.to_string(), true);
        let site = self.site(asked, output, call.name.span(), builder);
        let name_of_type = site.name_of_type.clone();
        let place = site.index;
        let is_understood = arguments.complete;
        let draft = self.draft(call, arguments, &ty, &sources, name_of_type);
        let before = self.cx.count();
        let (mut draft, differ) = draft?;
        draft.poisoned = !is_understood;
        // They are mistakes here. What they read is not unused.
        if !draft.body.dots().is_empty() {
            self.scopes.reads_unknown();
        }
        let given = self.give(&mut draft, place, &mut named_operands);
        let spec = spec::check(draft, self.krate, self.cx);
        let graph = graph::build(&spec);
        let differ = differ.into_iter().filter(|_| !spec.poisoned);
        differ.for_each(|(key, message)| self.cx.error(key, message));
        let key = sources.first().map_or(&ty, |(_, ty)| ty).clone();
        let fills = spec.poisoned || self.fills_grid(&spec, [&ty, &key], call);
        let mut operands = vec![x];
        operands.extend(sources.iter().map(|(value, _)| *value));
        let given = self.values_given(call, (&spec, &graph), [&ty, &key], &given);
        let inputs = Inputs::sequences(operands.len()).and(graph.given.len());
        let complete = complete && fills && given.is_some();
        let complete = complete && self.cx.count() == before;
        operands.extend(given.into_iter().flatten());
        let called = Called {
            call,
            heads: Axis::Size(spec.heads.clone()),
            spec,
            graph,
            inputs,
            sequences: [&ty, &key],
            result: ty.clone(),
            names,
            complete,
        };
        let result = named(names.first(), "attention");
        if called.complete && !called.spec.poisoned && self.is_attention_adapted(&called, &site) {
            return self.attention_apart(called, site, operands, named_operands, &result, builder);
        }
        self.attention_node(called, site, operands, named_operands, &result, builder)
    }

    /// The operands by name, and whether they and the keys are all understood. `key` finds a key of the operation.
    pub(super) fn operands_by_name<'c>(
        &mut self,
        call: &'c Call,
        complete: bool,
        key_of: impl Fn(&str) -> Option<&'static Key>,
        builder: &mut RegionBuilder,
    ) -> (NamedOperands<'c>, bool) {
        let mut named_operands = Vec::new();
        let mut complete = complete;
        for (key, values) in &call.named {
            // A body may declare a name that is also a key.
            if call.body.is_none() && key_of(&key.to_string()).is_some() {
                self.cx
                    .error(key, messages::key_as_operand(&call.name, key, values));
                complete = false;
                continue;
            }
            let values = values.iter().map(|value| self.tensor(value, None, builder));
            let values: Vec<_> = values.collect();
            if named_operands.iter().any(|(other, _)| *other == key) {
                self.cx.error(key, messages::operand_twice(key));
                complete = false;
                continue;
            }
            named_operands.push((key, values));
        }
        (named_operands, complete)
    }

    /// Takes the values that the body reads as data, and that have a gradient, out of the operands by name. All calls of a layer, the one of this
    /// number, have the same inputs. If a call is the first that computes such data, all functions are lowered again.
    pub(super) fn give<'c>(
        &mut self,
        draft: &mut Draft,
        number: usize,
        named: &mut NamedOperands<'c>,
    ) -> Vec<(&'c Ident, ValueId)> {
        let mut given = Vec::new();
        named.retain(|(name, values)| {
            let [Some(value)] = values.as_slice() else {
                return true;
            };
            let is_float = self.ty(*value).kind == ValueKind::Floats;
            let is_given =
                is_float && self.has_gradient(*value, number, name) && draft.body.give(name);
            if is_given {
                given.push((*name, *value));
            }
            !is_given
        });
        if let Some(known) = self.attentions.get(number) {
            let names = given.iter().map(|(name, _)| name.unraw().to_string());
            let later = names.filter(|name| !known.graph.is_given(name));
            let later = later.map(|name| (number, name));
            let later = later.filter(|data| !self.computed_data.contains(data));
            self.computed_later.extend(later);
        }
        given
    }

    /// Whether these data of an attention are computed by this call or by another one.
    fn has_gradient(&self, value: ValueId, number: usize, name: &Ident) -> bool {
        if !self.is_input(value) || self.has_tape(value) {
            return true;
        }
        let name = name.unraw().to_string();
        match self.attentions.get(number) {
            Some(known) => known.graph.is_given(&name),
            None => self.computed_data.contains(&(number, name)),
        }
    }

    /// Whether it is the input that carries the tape, of floats.
    fn has_tape(&self, value: ValueId) -> bool {
        let value = self.memory(value);
        self.inputs.first() == Some(&value) && self.ty(value).kind == ValueKind::Floats
    }

    /// The field of an attention, its number, and its type, for an output, and whether it learns anything. A function that is called again has
    /// them already.
    pub(super) fn site(
        &mut self,
        asked: (&str, Option<&Ident>),
        output: (String, bool),
        at: Span,
        builder: &RegionBuilder,
    ) -> Site {
        let index = self.attentions.len();
        let layer = Submodule::Attention(index);
        let place = self.field_of_attention(builder.module, asked, layer, output);
        let index = match self.field_at(&place).map(|field| &field.layer) {
            Some(Submodule::Attention(known)) => *known,
            _ => index,
        };
        let name_of_type = match self.attentions.get(index) {
            Some(known) => known.spec.item.name.clone(),
            None => self.type_name(builder.module, &place.field, at),
        };
        Site {
            place,
            index,
            name_of_type,
        }
    }

    /// The node of a checked attention, of its sequences and its data. Returns its results, as many as there are names.
    pub(super) fn attention_node(
        &mut self,
        called: Called<'_>,
        site: Site,
        mut operands: Vec<ValueId>,
        named_operands: NamedOperands<'_>,
        result: &str,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let Called {
            call,
            spec,
            graph,
            inputs,
            sequences,
            result: ty,
            heads,
            names,
            complete,
        } = called;
        // The result has its axes in any case, so that what follows is checked.
        let known = self.attentions.get(site.index);
        // After a call that computes data, nothing of this pass over the functions is kept.
        let is_tied = self.ties.is_some() && self.computed_later.is_empty();
        let known = known.filter(|known| is_tied && !known.spec.poisoned && !spec.poisoned);
        if let Some(written) = known.and_then(|known| known.spec.difference(&spec)) {
            let message = messages::another_attention_to_tie(&site.place.field, &written);
            self.cx.error(&call.name, message);
        }
        let before = self.cx.count();
        if let (Some(lse), false) = (names.get(2), spec.poisoned)
            && !spec.normalizer.has_sum()
        {
            self.cx.error(lse, attend_messages::no_sum(&call.name));
        }
        let data = self.data(call, (&spec, &graph), sequences, named_operands);
        let is_sound = complete && !spec.poisoned && self.cx.count() == before;
        let attention = Attention {
            place: site.place,
            index: site.index,
            inputs,
            dropout: spec.dropout.is_some(),
        };
        if site.index == self.attentions.len() {
            self.attentions.push(AttentionLayer {
                spec,
                graph,
                fused: None,
                operands: Vec::new(),
                values_in_keys: None,
            });
        }
        operands.extend(data?);
        if !is_sound {
            return None;
        }
        let attended = self.node(builder, attention, operands, (result, ty));
        let beside = self.beside(names, heads, sequences);
        if let Some(Step::Node(node)) = builder.region.steps.last_mut() {
            node.others = beside.iter().copied().map(Some).collect();
        }
        Some([attended].into_iter().chain(beside).collect())
    }

    /// The values beside the attended ones, for the names behind the first: the weights `[batch, heads, q, kv]`, and the logarithms of
    /// their sums `[batch, heads, q]`.
    fn beside(
        &mut self,
        names: &[Ident],
        heads: Axis,
        [queries, keys]: [&Type; 2],
    ) -> Vec<ValueId> {
        let [batch @ .., query, _] = queries.axes.as_slice() else {
            return Vec::new();
        };
        let rows = [batch, &[heads, query.clone()]].concat();
        let keys = self.axis_of_keys(&rows, &keys.axes[keys.axes.len() - 2]);
        let types = [[rows.clone(), vec![keys]].concat(), rows].map(Type::floats);
        let names = names.iter().skip(1).zip(types);
        let values = names.map(|(name, ty)| self.value(&named(Some(name), ""), ty));
        values.collect()
    }

    /// The axis of the keys beside these axes. In self-attention it has the length of the queries, and is called `kv`.
    fn axis_of_keys(&mut self, others: &[Axis], keys: &Axis) -> Axis {
        let is_taken = |name: &str| others.iter().any(|axis| axis.name() == Some(name));
        if !keys.name().is_some_and(is_taken) {
            return keys.clone();
        }
        let numbered = (2..).map(|number| format!("kv_{number}"));
        for name in ["kv".to_owned()].into_iter().chain(numbered) {
            let known = match self.sizes.has(&format_ident!("{name}")) {
                true => None,
                false => Some(self.axis_of_name(&name)),
            };
            let renamed = keys.named(&name);
            match known {
                _ if is_taken(&name) => {}
                Some(None) => {
                    self.renamed.push(renamed.clone());
                    return renamed;
                }
                Some(Some(known)) if matches!(known.same(keys), Same::Yes) => return renamed,
                _ => {}
            }
        }
        keys.clone()
    }

    /// Whether sequences of a known length fill the grid on which they are. The call checks the others.
    pub(super) fn fills_grid(&mut self, spec: &Spec, sequences: [&Type; 2], call: &Call) -> bool {
        let Some(grid) = &spec.grid else {
            return true;
        };
        let both = [Var::QIdx, Var::KvIdx].into_iter().zip(sequences);
        let distinct = if spec.d_context.is_some() { 2 } else { 1 };
        both.take(distinct).all(|(of, ty)| {
            let Axis::Size(length) = &ty.axes[ty.axes.len() - 2] else {
                return true;
            };
            let places = grid.len(of);
            let types = [length, &places].map(|size| Type::floats(vec![Axis::Size(size.clone())]));
            self.agree(&types[0], &types[1], call.name.span(), || {
                grid_messages::length_differs(length, &places, ty)
            })
        })
    }

    /// The sequences besides `x`: the context, and the values with one for every key. They are taken out of the operands.
    fn sources(
        &mut self,
        call: &Call,
        x: &Type,
        named: &mut Vec<(&Ident, Vec<Option<ValueId>>)>,
    ) -> Option<Vec<(ValueId, Type)>> {
        let mut sources = Vec::new();
        let mut complete = true;
        for name in ["context", "values"] {
            let Some(index) = named.iter().position(|(key, _)| *key == name) else {
                continue;
            };
            let (key, values) = named.remove(index);
            let [value] = values.as_slice() else {
                self.cx.error(key, messages::one_value(key, values.len()));
                complete = false;
                continue;
            };
            let source = match (name, sources.first()) {
                ("context", _) => self.context(call, x, (*value)?),
                (_, Some((_, context))) => {
                    let context = Type::clone(context);
                    self.values(key, &context, (*value)?)
                }
                (_, None) => {
                    if complete {
                        self.cx.error(key, messages::VALUES_WITHOUT_CONTEXT);
                    }
                    None
                }
            };
            complete &= source.is_some();
            sources.extend(source);
        }
        complete.then_some(sources)
    }

    /// The third sequence: a value for every key.
    fn values(&mut self, name: &Ident, context: &Type, value: ValueId) -> Option<(ValueId, Type)> {
        let ty = self.ty(value).clone();
        self.width(name, &ty)?;
        let message = || messages::values_differ(context, &ty);
        if ty.axes.len() != context.axes.len() {
            self.cx.error(name, message());
            return None;
        }
        let vectors = |ty: &Type| Type::floats(ty.axes[..ty.axes.len() - 1].to_vec());
        let agrees = self.agree(&vectors(context), &vectors(&ty), name.span(), message);
        agrees.then_some((value, ty))
    }

    /// The second sequence: of the same batch.
    fn context(&mut self, call: &Call, x: &Type, value: ValueId) -> Option<(ValueId, Type)> {
        let ty = self.ty(value).clone();
        self.width(&call.name, &ty)?;
        let same_batch = x.axes.len() == ty.axes.len()
            && (x.axes.len() == 2 || {
                let batch = |ty: &Type| Type::floats(ty.axes[..1].to_vec());
                let message = || messages::context_differs(x, &ty);
                self.agree(&batch(x), &batch(&ty), call.name.span(), message)
            });
        if x.axes.len() != ty.axes.len() {
            self.cx.error(&call.name, messages::context_differs(x, &ty));
        }
        same_batch.then_some((value, ty))
    }

    /// The declaration of the layer, and what differs of its widths.
    fn draft(
        &mut self,
        call: &Call,
        arguments: Arguments,
        x: &Type,
        sources: &[(ValueId, Type)],
        name: Ident,
    ) -> Option<(Draft, Vec<(Ident, String)>)> {
        let mut entries = arguments.entries;
        read_positions(call, &mut entries);
        if entries.iter().all(|entry| entry.key.name != "heads") {
            if arguments.complete {
                self.cx
                    .error(&call.name, messages::missing_key_of(&call.name, "heads"));
            }
            return None;
        }
        for key in &WIDTHS[1 + sources.len()..] {
            if let Some(entry) = entries.iter().find(|entry| entry.key.name == *key) {
                self.cx.error(&entry.name, messages::source_missing(key));
                return None;
            }
        }
        let operands = [x].into_iter().chain(sources.iter().map(|(_, ty)| ty));
        let differ = self.widths(call, operands, &mut entries);
        Some((self.draft_of(call, entries, None, name), differ))
    }

    /// Adds the widths that were not written: they are those of the operands. Returns the keys of the others that differ, with their messages.
    /// If only rustc can compare a width, that of the operand stands in its place, so that a difference is one error.
    fn widths<'t>(
        &mut self,
        call: &Call,
        operands: impl Iterator<Item = &'t Type>,
        entries: &mut Vec<Entry>,
    ) -> Vec<(Ident, String)> {
        let mut differ = Vec::new();
        for (name, ty) in WIDTHS.into_iter().zip(operands) {
            let (Some(key), Some(width)) = (Key::find(name), ty.width().cloned()) else {
                continue;
            };
            let Some(entry) = entries.iter_mut().find(|entry| entry.key.name == name) else {
                let origin = Ident::new(key.name, call.name.span());
                let at = call.name.to_token_stream();
                let value = Value::Size(width.at(at.clone()));
                entries.push(Entry::new(key, origin, value, at));
                continue;
            };
            let Value::Size(written) = &mut entry.value else {
                continue;
            };
            let message = messages::attention_width(name, written, ty);
            match Axis::Size(written.clone()).same(&Axis::Size(width.clone())) {
                Same::Yes => {}
                Same::No => differ.push((entry.name.clone(), message)),
                Same::If(conditions) => {
                    *written = width.at(written.origin.clone());
                    self.assume(conditions, entry.name.span(), message);
                }
            }
        }
        differ
    }

    /// The declaration of an attention with these keys.
    pub(super) fn draft_of(
        &self,
        call: &Call,
        entries: Vec<Entry>,
        of_operands: Option<Size>,
        name: Ident,
    ) -> Draft {
        let mut attrs = self.item.attrs.clone();
        let doc = format!("An attention of [`{}`].", self.item.name);
        attrs.push(syn::parse_quote!(#[doc = #doc]));
        Draft {
            item: Item {
                attrs,
                vis: self.item.vis.clone(),
                name,
            },
            entries,
            body: call.body.clone().unwrap_or_default(),
            sizes_around: self.sizes.declared_sizes().collect(),
            of_operands,
            complete: true,
            poisoned: false,
        }
    }
}

/// A rotation reads the positions that the call passes.
pub(super) fn read_positions(call: &Call, entries: &mut [Entry]) {
    let has_positions = call.named.iter().any(|(key, _)| key == "position_ids");
    let rotation = entries
        .iter_mut()
        .find(|entry| entry.key.name == "position");
    if let Some(Entry {
        value: Value::Word(rotation),
        ..
    }) = rotation.filter(|_| has_positions)
    {
        rotation.set_true("position_ids");
    }
}
