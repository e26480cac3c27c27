//! `attend::<mask = causal>(q, k, v) { body }`: attention to given keys and values.
//!
//! The layer beneath takes rows with the vectors of all heads side by side, `[batch, len, heads * width]`. A value `[batch, len, heads,
//! width]` is that in memory. In any other order of axes it is copied.

use std::ops::RangeInclusive;

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;

use super::arguments::Arguments;
use super::attention::{Called, read_positions};
use super::operators::named;
use super::{Lowering, RegionBuilder};
use crate::diag::Diagnostics;
use crate::graph::{self, Graph};
use crate::messages::attend as messages;
use crate::model::graph::ValueId;
use crate::model::syntax::Call;
use crate::model::types::{Axis, Same, Type};
use crate::ops::{Inputs, Rearrange};
use crate::score::{Data, Expr, Var};
use crate::spec::keys::{ATTEND_KEYS, Key};
use crate::spec::parse::{Draft, Entry, Value};
use crate::spec::{self, Dim, Position, Size, Spec};

/// Queries, keys or values, and the meaning of their axes.
pub(super) struct Vectors {
    pub(super) value: ValueId,
    pub(super) ty: Type,
    /// The index of the axis of the heads. `None` is one head.
    heads: Option<usize>,
    /// One vector, or one for each of a batch: there is no axis of the sequence.
    is_one: bool,
}

/// The meaning of an axis before the width.
pub(super) enum Role {
    Batch,
    Heads,
    Sequence,
}

impl Vectors {
    /// The meaning of the axis of this index, which is not the width.
    pub(super) fn role(&self, index: usize) -> Role {
        let mut others = self.others();
        let is_first = others.next() == Some(index);
        let before = self.axes().len() - 1;
        match (self.heads == Some(index), before) {
            (true, _) => Role::Heads,
            (false, 2) if is_first => Role::Batch,
            _ => Role::Sequence,
        }
    }

    /// The number of heads.
    pub(super) fn count(&self) -> Option<Size> {
        match self.heads {
            Some(index) => self.ty.axes[index].size().cloned(),
            None => Some(Size::known(1)),
        }
    }

    /// The axes but the heads: perhaps a batch, the sequence, the width.
    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ty.axes.len()).filter(|index| Some(*index) != self.heads)
    }

    /// The same axes, with the sequence of one vector.
    fn axes(&self) -> Vec<Axis> {
        let others = self.others().map(|index| self.ty.axes[index].clone());
        let mut axes: Vec<Axis> = others.collect();
        if self.is_one {
            axes.insert(axes.len() - 1, Axis::Size(Size::known(1)));
        }
        axes
    }

    pub(super) fn batch(&self) -> Type {
        let mut axes = self.axes();
        axes.truncate(axes.len() - 2);
        Type::floats(axes)
    }

    pub(super) fn len(&self) -> Axis {
        let mut axes = self.axes();
        axes.swap_remove(axes.len() - 2)
    }

    fn width(&self) -> Option<Size> {
        self.ty.width().cloned()
    }

    /// The order of axes in which the heads stand before the width.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = self.others().collect();
        order.splice(order.len() - 1..order.len() - 1, self.heads);
        order
    }
}

impl Lowering<'_> {
    pub(crate) fn attend(
        &mut self,
        call: &Call,
        arguments: Arguments,
        names: &[Ident],
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let key_of = |name: &str| ATTEND_KEYS.iter().find(|key| key.name == name);
        let (mut named_operands, complete) =
            self.operands_by_name(call, arguments.complete, key_of, builder);
        let [q, k, v] = call.operands.as_slice() else {
            self.read_all(&call.operands, builder);
            self.cx
                .error(&call.name, messages::operands(call.operands.len()));
            return None;
        };
        let values = [q, k, v].map(|value| self.floats(value, "attend", builder));
        let [Some(q), Some(k), Some(v)] = values else {
            return None;
        };
        let heads_of = |key: &str| arguments.tokens(key).cloned();
        let [heads, kv_heads] = ["heads", "kv_heads"].map(heads_of);
        let mut q = self.queries(call, q, heads.as_ref())?;
        let k = self.keys(call, k, &q, kv_heads.as_ref())?;
        let v = self.keys(call, v, &q, kv_heads.as_ref())?;
        let [of_q, of_k] = [&q, &k].map(|vectors| vectors.others().count());
        q.is_one = of_q + 1 == of_k;
        let message = match (of_q, of_k) {
            (1, 3) => Some(messages::differ(
                [&q.ty, &k.ty, &v.ty],
                "the batches of q and k",
            )),
            (1, 1) => Some(messages::axes(&k.ty)),
            // The axis of a batch would be read as that of a sequence.
            (2, 2) if self.scan.is_some() => Some(messages::of_a_step(&k.ty)),
            _ => None,
        };
        if let Some(message) = message {
            self.cx.error(&call.name, message);
            return None;
        }
        let is_cross = self.check_vectors(call, [&q, &k, &v])?;
        let result = named(names.first(), "attend");
        let name = arguments.name.clone();
        let asked = ("attend", name.as_ref());
        let ty = q.ty.ending_in_axis(v.ty.axes.last()?.clone());
        let before = self.cx.count();
        let is_understood = arguments.complete;
        let entries = entries(call, arguments, [&q, &k, &v], is_cross)?;
        let mut draft = self.draft_of(call, entries, q.width(), call.name.clone());
        draft.poisoned = !is_understood;
        let products = self.products(call, &mut draft, [&q, &k], builder);
        let learns = self.ties.is_some() && self.learns(&draft);
        let output = (ty.to_string(), learns);
        let site = self.site(asked, output, call.name.span(), builder);
        draft.item.name = site.name_of_type.clone();
        let mut given = self.give(&mut draft, site.index, &mut named_operands);
        given.extend(products.iter().map(|(name, value)| (name, *value)));
        let spec = spec::check(draft, self.krate, self.cx);
        let graph = graph::build(&spec);
        if q.is_one && self.scan.is_some() && !spec.poisoned {
            self.has_place(call, &spec, &graph);
        }
        let complete = complete && self.cx.count() == before;
        let rows = [(&q, "queries"), (&k, "keys"), (&v, "values")];
        let rows =
            rows.map(|(vectors, of)| self.rows(vectors, &format!("{of}_of_{result}"), builder));
        let types = rows.map(|rows| self.ty(rows).clone());
        let given = self.values_given(call, (&spec, &graph), [&types[0], &types[2]], &given);
        let fills = spec.poisoned || self.fills_grid(&spec, [&types[0], &types[2]], call);
        let complete = complete && fills && given.is_some();
        let is_of_rows = q.heads.is_some() || q.is_one;
        let attended = match is_of_rows {
            true => types[0].ending_in(spec.d_model.clone()),
            false => ty.clone(),
        };
        let called = Called {
            call,
            spec,
            inputs: Inputs::vectors().and(graph.given.len()),
            graph,
            sequences: [&types[0], &types[2]],
            result: attended,
            heads: match q.heads {
                Some(index) => q.ty.axes[index].clone(),
                None => Axis::Size(Size::known(1)),
            },
            names,
            complete,
        };
        let of_rows = match is_of_rows {
            true => format!("rows_of_{result}"),
            false => result.clone(),
        };
        let given = given.into_iter().flatten();
        let results = self.attention_node(
            called,
            site,
            rows.into_iter().chain(given).collect(),
            named_operands,
            &of_rows,
            builder,
        )?;
        let results = results.into_iter().enumerate();
        let results = results.map(|(index, value)| match index {
            0 => self.heads_apart(value, &q, ty.clone(), &result, builder),
            _ => self.beside_queries(value, &q, &names[index], builder),
        });
        Some(results.collect())
    }

    /// Reports what reads the place of the query, which a step does not have.
    fn has_place(&self, call: &Call, spec: &Spec, graph: &Graph) {
        let attention = graph.attention();
        let is_read = |expr: Option<&Expr>| expr.is_some_and(|expr| reads_place(expr, graph));
        let mut functions = attention.into_iter().flat_map(|of| &of.functions);
        let message = match &spec.position {
            Position::Rope(rotary) if !rotary.position_ids => messages::rotation_at_a_step(),
            Position::Alibi => messages::place_of_a_step("`position = alibi`"),
            Position::RelPosBias { .. } => messages::place_of_a_step("`position = rel_pos_bias`"),
            _ if is_read(graph.mask()) => messages::place_of_a_step("the mask"),
            _ if functions.any(|function| is_read(Some(function))) => {
                messages::place_of_a_step("the score")
            }
            _ if is_read(spec.normalizer.weight()) => messages::place_of_a_step("the normalizer"),
            _ => return,
        };
        self.cx.error(&call.name, message);
    }

    /// Whether an attention has parameters.
    fn learns(&self, draft: &Draft) -> bool {
        let spec = spec::check(draft.clone(), self.krate, &Diagnostics::default());
        !graph::build(&spec).params.is_empty()
    }

    /// A value beside the attended ones, without the axis of heads or of the sequence if the queries have none.
    fn beside_queries(
        &mut self,
        value: ValueId,
        q: &Vectors,
        name: &Ident,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        if q.heads.is_some() && !q.is_one {
            return value;
        }
        let ty = self.ty(value).clone();
        let heads = q.batch().axes.len();
        let is_kept = |index: &usize| match index.checked_sub(heads) {
            Some(0) => q.heads.is_some(),
            Some(1) => !q.is_one,
            _ => true,
        };
        let kept = (0..ty.axes.len()).filter(is_kept);
        let axes = kept.map(|index| ty.axes[index].clone()).collect();
        let op = Rearrange::of_axes(ty.axes.clone(), (0..ty.axes.len()).collect());
        let result = (&*named(Some(name), ""), Type::floats(axes));
        self.node(builder, op, vec![value], result)
    }

    /// The queries, with the axis of their heads.
    fn queries(
        &mut self,
        call: &Call,
        value: ValueId,
        heads: Option<&TokenStream>,
    ) -> Option<Vectors> {
        let ty = self.ty(value).clone();
        let heads = match heads {
            Some(tokens) => Some(self.index_of_axis(tokens, &ty)?),
            None => ty.axes.iter().position(|axis| axis.name() == Some("heads")),
        };
        let queries = Vectors {
            value,
            ty,
            heads,
            is_one: false,
        };
        self.vectors(call, queries, ("heads", 1..=3))
    }

    /// Keys or values, with the axis of their heads: the one that is named, or that of the queries.
    fn keys(
        &mut self,
        call: &Call,
        value: ValueId,
        q: &Vectors,
        heads: Option<&TokenStream>,
    ) -> Option<Vectors> {
        let ty = self.ty(value).clone();
        let named = |name: &str| ty.axes.iter().position(|axis| axis.name() == Some(name));
        let heads = match (heads, q.heads) {
            (Some(tokens), _) => Some(self.index_of_axis(tokens, &ty)?),
            (None, Some(of_queries)) => named("kv_heads").or_else(|| {
                let axis = &q.ty.axes[of_queries];
                match *ty.candidates(axis) {
                    [index] if index + 1 < ty.axes.len() => Some(index),
                    _ => None,
                }
            }),
            (None, None) => named("kv_heads"),
        };
        let keys = Vectors {
            value,
            ty,
            heads,
            is_one: false,
        };
        self.vectors(call, keys, ("kv_heads", 2..=3))
    }

    /// Checks that there are a sequence and a width, perhaps a batch, and perhaps heads.
    fn vectors(
        &mut self,
        call: &Call,
        vectors: Vectors,
        (key, counts): (&str, RangeInclusive<usize>),
    ) -> Option<Vectors> {
        let Vectors { ty, heads, .. } = &vectors;
        let last = ty.axes.len().checked_sub(1);
        let message = match (vectors.others().count(), heads) {
            (count, _) if counts.contains(&count) && *heads == last => messages::heads_last(ty),
            (count, Some(index)) if counts.contains(&count) && ty.axes[*index].size().is_none() => {
                messages::heads_of_any_number(&ty.axes[*index], ty)
            }
            (count, _) if counts.contains(&count) => {
                self.width(&call.name, ty)?;
                return Some(vectors);
            }
            (4, None) => messages::heads_unknown(ty, key),
            _ => messages::axes(ty),
        };
        self.cx.error(&call.name, message);
        None
    }

    /// Whether keys are of another sequence than queries. `None` if the shapes do not fit.
    fn check_vectors(&mut self, call: &Call, [q, k, v]: [&Vectors; 3]) -> Option<bool> {
        let at = call.name.span();
        let all = [&q.ty, &k.ty, &v.ty];
        let one = |size: Option<Size>| Type::floats(size.map(Axis::Size).into_iter().collect());
        let seq = |of: &Vectors| Type::floats(vec![of.len()]);
        let pairs = [
            (q.batch(), k.batch(), "the batches of q and k"),
            (q.batch(), v.batch(), "the batches of q and v"),
            (seq(k), seq(v), "the lengths of k and v"),
            (one(q.width()), one(k.width()), "the widths of q and k"),
            (one(k.count()), one(v.count()), "the heads of k and v"),
        ];
        let mut fits = true;
        for (a, b, what) in pairs {
            fits &= self.agree(&a, &b, at, || messages::differ(all, what));
        }
        let [q_len, k_len] = [q.len(), k.len()];
        let is_same = matches!(q_len.same(&k_len), Same::Yes) && !q_len.is_another(&k_len);
        fits.then_some(q.is_one || !is_same)
    }

    /// The vectors of all heads side by side: `[batch, len, heads * width]`.
    fn rows(&mut self, vectors: &Vectors, name: &str, builder: &mut RegionBuilder) -> ValueId {
        let ty = &vectors.ty;
        let mut axes = vectors.axes();
        match (vectors.heads, vectors.count(), vectors.width()) {
            (Some(_), Some(heads), Some(width)) => {
                axes.pop();
                axes.push(Axis::Size(heads.times(&width)));
            }
            _ if vectors.is_one => {}
            _ => return vectors.value,
        }
        let op = Rearrange::of_axes(ty.axes.clone(), vectors.order());
        self.node(builder, op, vec![vectors.value], (name, Type::floats(axes)))
    }

    /// The other way round: the result in the shape of the queries.
    fn heads_apart(
        &mut self,
        attended: ValueId,
        q: &Vectors,
        ty: Type,
        name: &str,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        if q.heads.is_none() && !q.is_one {
            return attended;
        }
        let order = q.order();
        let split = order.iter().map(|index| ty.axes[*index].clone()).collect();
        let place = |axis: usize| order.iter().position(|other| *other == axis);
        let back = (0..order.len()).filter_map(place).collect();
        let op = Rearrange::of_axes(split, back);
        self.node(builder, op, vec![attended], (name, ty))
    }
}

/// Whether a function depends on the place of the query. What has numbers of each query has those of the one query there is at its place.
fn reads_place(expr: &Expr, graph: &Graph) -> bool {
    let place = Expr::Var(Var::QIdx);
    let (index, dims) = match expr {
        Expr::Param { name, index } => (index, Some(graph.dims(name))),
        Expr::Data {
            data: Data::Declared { name, .. },
            index,
        } => {
            let mut declared = graph.declared();
            let declared = declared.find(|declared| declared.name == *name);
            (index, declared.map(|declared| declared.dims.clone()))
        }
        // That of the header's masks.
        Expr::Data { index, .. } => (index, None),
        expr if *expr == place => return true,
        expr => {
            let mut children = expr.children().into_iter();
            return children.any(|child| reads_place(child, graph));
        }
    };
    let is_of_queries = |axis: usize| {
        dims.as_ref()
            .is_none_or(|dims| dims.get(axis) == Some(&Dim::Query))
    };
    let mut index = index.iter().enumerate();
    index.any(|(axis, index)| {
        let is_own = *index == place && is_of_queries(axis);
        !is_own && reads_place(index, graph)
    })
}

/// The keys of the layer beneath: those of the call, and the sizes of the operands.
fn entries(
    call: &Call,
    arguments: Arguments,
    [q, k, v]: [&Vectors; 3],
    is_cross: bool,
) -> Option<Vec<Entry>> {
    let mut entries = arguments.entries;
    entries.retain(|entry| !matches!(entry.key.name, "heads" | "kv_heads"));
    read_positions(call, &mut entries);
    let (heads, kv_heads, width) = (q.count()?, k.count()?, v.width()?);
    let output = heads.times(&width);
    let keys = kv_heads.times(&width);
    let sizes = [
        ("heads", heads),
        ("kv_heads", kv_heads),
        ("d_model", output),
        ("value_head_dim", width),
    ];
    let context = is_cross.then_some(("d_context", keys));
    for (key, size) in sizes.into_iter().chain(context) {
        let key = Key::find(key)?;
        let origin = Ident::new(key.name, call.name.span());
        let at = call.name.to_token_stream();
        let value = Value::Size(size.at(at.clone()));
        entries.push(Entry::new(key, origin, value, at));
    }
    Some(entries)
}
