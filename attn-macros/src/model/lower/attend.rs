//! `attend::<mask = causal>(q, k, v) { body }`: attention to given keys and values.
//!
//! The layer beneath takes rows with the vectors of all heads side by side, `[batch, len, heads * width]`. A value `[batch, len, heads,
//! width]` is that in memory. In any other order of axes it is copied.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;

use super::arguments::Arguments;
use super::attention::{Called, read_positions};
use super::operators::named;
use super::{Lowering, RegionBuilder};
use crate::graph;
use crate::messages::attend as messages;
use crate::model::graph::ValueId;
use crate::model::syntax::Call;
use crate::model::types::{Axis, Same, Type};
use crate::ops::{Inputs, Rearrange};
use crate::spec::keys::{ATTEND_KEYS, Key};
use crate::spec::parse::{Entry, Value};
use crate::spec::{self, Size};

/// Queries, keys or values, and the meaning of their axes.
struct Vectors {
    value: ValueId,
    ty: Type,
    /// The index of the axis of the heads. `None` is one head.
    heads: Option<usize>,
}

impl Vectors {
    /// The number of heads.
    fn count(&self) -> Option<Size> {
        match self.heads {
            Some(index) => self.ty.axes[index].size().cloned(),
            None => Some(Size::known(1)),
        }
    }

    /// The axes but the heads: perhaps a batch, the sequence, the width.
    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ty.axes.len()).filter(|index| Some(*index) != self.heads)
    }

    fn axes(&self) -> Vec<&Axis> {
        self.others().map(|index| &self.ty.axes[index]).collect()
    }

    fn batch(&self) -> Type {
        let axes = self.axes();
        let batch = axes[..axes.len() - 2].iter();
        Type::floats(batch.map(|axis| (*axis).clone()).collect())
    }

    fn len(&self) -> &Axis {
        let axes = self.axes();
        axes[axes.len() - 2]
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
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
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
        let q = self.queries(call, q, heads.as_ref())?;
        let k = self.keys(call, k, &q, kv_heads.as_ref())?;
        let v = self.keys(call, v, &q, kv_heads.as_ref())?;
        let is_cross = self.check_vectors(call, [&q, &k, &v])?;
        let result = named(name, "attend");
        let asked = ("attend", arguments.name.as_ref());
        let ty = q.ty.ending_in_axis(v.ty.axes.last()?.clone());
        let site = self.site(asked, ty.to_string(), call.name.span(), builder);
        let before = self.cx.count();
        let entries = entries(call, arguments, [&q, &k, &v], is_cross)?;
        let mut draft = self.draft_of(call, entries, q.width(), site.name_of_type.clone());
        let given = self.give(&mut draft, site.index, &mut named_operands);
        let spec = spec::check(draft, self.krate, self.cx);
        let graph = graph::build(&spec);
        let complete = complete && self.cx.count() == before;
        let rows = [(&q, "queries"), (&k, "keys"), (&v, "values")];
        let rows =
            rows.map(|(vectors, of)| self.rows(vectors, &format!("{of}_of_{result}"), builder));
        let types = rows.map(|rows| self.ty(rows).clone());
        let given = self.values_given(call, (&spec, &graph), [&types[0], &types[2]], &given);
        let complete = complete && given.is_some();
        let attended = match q.heads {
            Some(_) => types[0].ending_in(spec.d_model.clone()),
            None => ty.clone(),
        };
        let called = Called {
            call,
            spec,
            inputs: Inputs::vectors().and(graph.given.len()),
            graph,
            sequences: [&types[0], &types[2]],
            result: attended,
            complete,
        };
        let of_rows = match q.heads {
            Some(_) => format!("rows_of_{result}"),
            None => result.clone(),
        };
        let given = given.into_iter().flatten();
        let attended = self.attention_node(
            called,
            site,
            rows.into_iter().chain(given).collect(),
            named_operands,
            &of_rows,
            builder,
        )?;
        Some(self.heads_apart(attended, &q, ty, &result, builder))
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
        self.vectors(call, Vectors { value, ty, heads }, "heads")
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
        self.vectors(call, Vectors { value, ty, heads }, "kv_heads")
    }

    /// Checks that there are a sequence and a width, perhaps a batch, and perhaps heads.
    fn vectors(&mut self, call: &Call, vectors: Vectors, key: &str) -> Option<Vectors> {
        let Vectors { ty, heads, .. } = &vectors;
        let last = ty.axes.len().checked_sub(1);
        let message = match (vectors.others().count(), heads) {
            (2 | 3, _) if *heads == last => messages::heads_last(ty),
            (2 | 3, Some(index)) if ty.axes[*index].size().is_none() => {
                messages::heads_of_any_number(&ty.axes[*index], ty)
            }
            (2 | 3, _) => {
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
        let seq = |of: &Vectors| Type::floats(vec![of.len().clone()]);
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
        let is_same = matches!(q.len().same(k.len()), Same::Yes) && !q.len().is_another(k.len());
        fits.then_some(!is_same)
    }

    /// The vectors of all heads side by side: `[batch, len, heads * width]`.
    fn rows(&mut self, vectors: &Vectors, name: &str, builder: &mut RegionBuilder) -> ValueId {
        let (Some(_), Some(heads), Some(width)) = (vectors.heads, vectors.count(), vectors.width())
        else {
            return vectors.value;
        };
        let ty = &vectors.ty;
        let mut axes: Vec<Axis> = vectors.axes().into_iter().cloned().collect();
        axes.pop();
        axes.push(Axis::Size(heads.times(&width)));
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
        if q.heads.is_none() {
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
