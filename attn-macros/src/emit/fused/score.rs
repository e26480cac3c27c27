//! The function of the score, as the kernels call it: its bias terms, its values and its derivatives.

mod gradient;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::var;
use crate::emit::Layer;
use crate::emit::expr::{flat_index, host, vectors};
use crate::emit::input::{data_name, declared_name, read_type};
use crate::graph::{CallData, Declared, Dim, InSession};
use crate::ops::attention_layer::Attend;
use crate::score::diff::{Wrt, diff};
use crate::score::split::{BiasTerm, BiasTermKind, bias_term_name, param_reads};
use crate::score::{Expr, Var};
use crate::spec::Size;

/// A score function that is not the identity.
pub(super) struct Score<'a> {
    cx: &'a Layer<'a>,
    value: &'a Expr,
    bias_terms: &'a [BiasTerm],
    /// Bias terms that are read element by element, not from a table.
    learned: Vec<Learned<'a>>,
}

/// A learned tensor or a value of the model, and where its gradient is added up.
struct Learned<'a> {
    name: &'a str,
    sums: Sums,
    /// The axes that the sums have: the others are those of which each has its own.
    axes: Vec<usize>,
    /// The number of sums.
    len: Size,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    /// The first index is the head: every head has its own sums.
    PerHead,
    Shared,
    /// An index is the sequence, perhaps another one the head.
    PerSequence,
}

impl<'a> Learned<'a> {
    /// `reads` are the indices of all reads.
    fn new(cx: &Layer<'_>, name: &'a str, reads: &[&[Expr]]) -> Self {
        let dims = cx.graph.dims(name);
        let is_all = |axis: usize, var: Var| {
            let var = Expr::Var(var);
            reads.iter().all(|index| index.get(axis) == Some(&var))
        };
        let batch = dims.iter().enumerate();
        let mut batch = batch.filter(|(axis, dim)| **dim == Dim::Batch && is_all(*axis, Var::B));
        let batch = batch.next().map(|(axis, _)| axis);
        let (sums, own) = match batch {
            Some(batch) => {
                let head = (0..dims.len()).find(|axis| is_all(*axis, Var::H));
                (Sums::PerSequence, [Some(batch), head])
            }
            None if is_all(0, Var::H) => (Sums::PerHead, [Some(0), None]),
            None => (Sums::Shared, [None, None]),
        };
        let axes: Vec<usize> = (0..dims.len())
            .filter(|axis| !own.contains(&Some(*axis)))
            .collect();
        let len = axes
            .iter()
            .fold(Size::known(1), |len, axis| len.times(&length(&dims[*axis])));
        Learned {
            name,
            sums,
            axes,
            len,
        }
    }
}

impl<'a> Score<'a> {
    pub(super) fn new(cx: &'a Layer<'a>, attention: &'a Attend) -> Option<Self> {
        let bias_terms = attention.bias_terms();
        let direct = bias_terms
            .iter()
            .filter(|bias_term| bias_term.kind != BiasTermKind::Distance);
        let reads = direct.flat_map(|bias_term| param_reads(&bias_term.expr));
        let reads: Vec<_> = reads.filter(|(name, _)| !is_of_pairs(cx, name)).collect();
        let mut learned: Vec<Learned<'a>> = Vec::new();
        for (name, _) in &reads {
            if !learned.iter().any(|known| known.name == *name) {
                let same = reads.iter().filter(|(other, _)| other == name);
                let same: Vec<_> = same.map(|(_, index)| *index).collect();
                learned.push(Learned::new(cx, name, &same));
            }
        }
        Some(Score {
            cx,
            value: attention.score()?,
            bias_terms,
            learned,
        })
    }

    /// The learned tensors that are read at all.
    pub(super) fn params(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self
            .bias_terms
            .iter()
            .flat_map(|bias_term| param_reads(&bias_term.expr))
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The data of the call that are read.
    pub(super) fn data(&self) -> Vec<&'a CallData> {
        let is_read = |data: &&CallData| {
            let mut bias_terms = self.bias_terms.iter();
            bias_terms.any(|bias_term| data.is_read(&bias_term.expr))
        };
        self.cx.graph.data.iter().filter(is_read).collect()
    }

    /// The bias terms that are tables, by their numbers.
    fn tables(&self) -> impl Iterator<Item = (usize, &'a BiasTerm)> {
        let bias_terms = self.bias_terms.iter().enumerate();
        bias_terms.filter(|(_, bias_term)| bias_term.kind == BiasTermKind::Distance)
    }

    /// The tables as fields of `Call`, with their values: `bias_term_0: p::DistanceTable<E>`.
    pub(super) fn tables_of_call(&self) -> Vec<(String, TokenStream)> {
        self.tables_for(|_| true)
    }

    /// Those that read values of the model: a session has these when it has tokens.
    pub(super) fn tables_of_values(&self) -> Vec<(String, TokenStream)> {
        self.tables_for(|bias_term| {
            let mut reads = param_reads(&bias_term.expr).into_iter();
            reads.any(|(name, _)| self.cx.graph.is_given(name))
        })
    }

    /// The tables for which this is true, of the lengths in `sizes`.
    fn tables_for(&self, suits: impl Fn(&BiasTerm) -> bool) -> Vec<(String, TokenStream)> {
        let heads = &self.cx.spec.heads;
        let table = |(index, bias_term): (usize, &BiasTerm)| {
            let [h, q_idx, kv_idx] = arguments(&bias_term.expr);
            let (reads, value) = (
                self.reads(&bias_term.expr, None, &|field| match self.is_given(field) {
                    true => quote!(#field),
                    false => quote!(weights.#field.values()),
                }),
                host(&bias_term.expr, 0),
            );
            let function = quote!({ #reads move |#h, #q_idx, #kv_idx| #value });
            let table = quote!(p::DistanceTable::new(#heads, sizes.query, sizes.key, #function));
            (bias_term_name(index).into_owned(), table)
        };
        let tables = self.tables().filter(|(_, bias_term)| suits(bias_term));
        tables.map(table).collect()
    }

    /// The bias terms that read a value with a number for every pair: their gradients are kept pair by pair.
    fn terms_of_pairs(&self) -> impl Iterator<Item = (usize, &'a BiasTerm)> {
        let bias_terms = self.bias_terms.iter().enumerate();
        bias_terms.filter(|(_, bias_term)| {
            let mut reads = param_reads(&bias_term.expr).into_iter();
            bias_term.kind != BiasTermKind::Distance
                && reads.any(|(name, _)| {
                    is_of_pairs(self.cx, name) && !is_zero(&diff(&bias_term.expr, Wrt::Param(name)))
                })
        })
    }

    /// The lengths of the axes of values of the model, of a place that has `sizes`.
    fn lengths(&self, of: &TokenStream) -> Option<TokenStream> {
        (!self.cx.graph.given.is_empty()).then(|| {
            quote! {
                #[allow(unused_variables)]
                let p::Sizes { batch, query, key, .. } = #of.sizes;
            }
        })
    }

    /// `let param_slope = |i0: i64| p::number(self.slope[(i0) as usize]);` for every tensor that `expr` reads. The rows of queries
    /// begin at `first_row`, if not at 0.
    fn reads(
        &self,
        expr: &Expr,
        first_row: Option<&TokenStream>,
        values: &dyn Fn(&Ident) -> TokenStream,
    ) -> TokenStream {
        let mut done: Vec<&str> = Vec::new();
        let mut lines = TokenStream::new();
        for (name, index) in param_reads(expr) {
            if done.contains(&name) {
                continue;
            }
            done.push(name);
            let args: Vec<_> = (0..index.len()).map(|i| format_ident!("i{i}")).collect();
            let of = InSession::of(&self.cx.graph.dims(name));
            let of = of.filter(|_| self.cx.graph.is_given(name));
            let places = args.iter().enumerate();
            let places = places.map(|(axis, arg)| match first_row {
                Some(first_row) if of == Some(InSession::Queries(axis)) => {
                    quote!((#arg + #first_row))
                }
                _ => quote!(#arg),
            });
            let index = flat_index(self.cx, name, places);
            let closure = param_field(&var(name));
            let values = values(&closure);
            let number = match self.is_of_keys(&closure) {
                true => quote!(p::KeyNumbers::at(&#values, #index)),
                false => quote!(#values[#index]),
            };
            lines.extend(quote!(let #closure = |#(#args: i64),*| p::number(#number);));
        }
        lines
    }

    /// ```text
    /// struct Modified<'a, E> { .. }
    ///
    /// impl<E: p::Element> p::Score<E> for Modified<'_, E> { .. }
    ///
    /// fn modified(call, weights) -> Modified<E>
    /// ```
    ///
    /// Where a session remembers values of keys, it has them in pages, and a call of all tokens in a slice: their type is a parameter `K`.
    pub(super) fn emit(&self) -> TokenStream {
        let structure = self.emit_struct();
        let value = vectors(self.value);
        let derivative = vectors(&diff(self.value, Wrt::Operand(0)));
        let bias_terms = self.emit_bias_terms();
        let learned = self.emit_learned();
        let [parameter, argument] = self.type_of_keys();
        quote! {
            #structure

            #[allow(unused_variables)]
            impl<E: p::Element #parameter> p::Score<E> for Modified<'_, E #argument> {
                #bias_terms

                #[inline(always)]
                fn value<V: p::Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
                    #value
                }

                #[inline(always)]
                fn derivative<V: p::Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
                    #derivative
                }

                #learned
            }
        }
    }

    /// The numbers of the place, if there are any.
    fn emit_bias_terms(&self) -> Option<TokenStream> {
        let count = Literal::usize_unsuffixed(self.bias_terms.len());
        let bias_terms = self.bias_terms.iter().enumerate();
        let writes = bias_terms.filter(|(_, bias_term)| bias_term.kind != BiasTermKind::Distance);
        let writes = writes.map(|(index, bias_term)| self.write(index, bias_term));
        let stored = self.tables().map(|(index, _)| {
            let number = Literal::usize_unsuffixed(index);
            let table = var(&bias_term_name(index));
            quote!(#number => Some(self.#table.row(at, len)),)
        });
        let rows = self.bias_terms.iter().enumerate();
        let rows = rows.filter_map(|(index, bias_term)| self.row(index, bias_term));
        let stored = stored.chain(rows);
        (!self.bias_terms.is_empty()).then(|| {
            quote! {
                const BIAS_TERMS: usize = #count;

                #[inline(always)]
                fn stored(&self, bias_term: usize, at: p::TileOrigin, len: usize) -> Option<&[E]> {
                    match bias_term { #(#stored)* _ => None }
                }

                #[inline(always)]
                fn bias_term(&self, bias_term: usize, at: p::TileOrigin, to: &mut [E]) {
                    let [b, h, q_idx, kv_idx] = at.indices();
                    match bias_term { #(#writes)* _ => {} }
                }
            }
        })
    }

    /// The arm for a bias term whose numbers stand side by side in a value of the model.
    fn row(&self, index: usize, bias_term: &'a BiasTerm) -> Option<TokenStream> {
        let (name, start) = self.start_of_row(bias_term)?;
        let number = Literal::usize_unsuffixed(index);
        let variables = self.variables(&bias_term.expr, &quote!(self));
        let values = param_field(&var(name));
        let row = match self.is_of_keys(&values) {
            true => quote!(p::KeyNumbers::row(&self.#values, #start, len)),
            false => quote!(Some(&self.#values[#start..][..len])),
        };
        Some(quote! {
            #number => {
                let [b, h, q_idx, kv_idx] = at.indices();
                #variables
                #row
            }
        })
    }

    /// The value of the model in which the numbers of a bias term of all keys stand side by side, and where they begin.
    fn start_of_row(&self, bias_term: &'a BiasTerm) -> Option<(&'a str, TokenStream)> {
        let Expr::Param { name, index } = &bias_term.expr else {
            return None;
        };
        let (last, others) = index.split_last()?;
        let is_row = self.cx.graph.is_given(name)
            && self.cx.graph.dims(name).last() == Some(&Dim::Key)
            && *last == Expr::Var(Var::KvIdx)
            && !others.iter().any(|index| index.reads(Var::KvIdx));
        is_row.then(|| {
            let index = index.iter().map(|index| host(index, 9));
            (&**name, flat_index(self.cx, name, index))
        })
    }

    /// The gradients of bias terms, if any is learned.
    fn emit_learned(&self) -> Option<TokenStream> {
        let bias_terms = self.bias_terms.iter().enumerate();
        let learned: Vec<_> = bias_terms
            .filter(|(_, bias_term)| is_learned(bias_term))
            .collect();
        let numbers = learned
            .iter()
            .map(|(index, _)| Literal::usize_unsuffixed(*index));
        let numbers: Vec<_> = numbers.collect();
        let derivatives = learned.iter().map(|(index, _)| {
            let name = bias_term_name(*index);
            let derivative = vectors(&diff(self.value, Wrt::Param(&name)));
            quote!({ #derivative })
        });
        let adds = learned
            .iter()
            .map(|(index, bias_term)| self.add(*index, bias_term));
        let per_head = self.total(Sums::PerHead);
        let shared = self.total(Sums::Shared);
        let per_sequence = self.total(Sums::PerSequence);
        let pairs = Literal::usize_unsuffixed(self.terms_of_pairs().count());
        let lengths = self.lengths(&quote!(self));
        (!learned.is_empty()).then(|| {
            quote! {
                #[inline(always)]
                fn is_learned(&self, bias_term: usize) -> bool {
                    ::core::matches!(bias_term, #(#numbers)|*)
                }

                #[inline(always)]
                fn bias_term_derivative<V: p::Vector<Element = E>>(&self, bias_term: usize, score: V, bias_terms: &[V]) -> V {
                    match bias_term { #(#numbers => #derivatives,)* _ => V::zero() }
                }

                #[inline(always)]
                fn add_gradient(&self, bias_term: usize, at: p::TileOrigin, d: &[E], sums: p::ScoreSums<'_, E>) {
                    let [b, h, q_idx, kv_idx] = at.indices();
                    match bias_term { #(#numbers => #adds)* _ => {} }
                }

                fn sums(&self) -> p::SumLens {
                    #lengths
                    p::SumLens {
                        per_head: #per_head,
                        shared: #shared,
                        per_sequence: #per_sequence,
                        pairs: #pairs,
                    }
                }
            }
        })
    }

    fn emit_struct(&self) -> TokenStream {
        let lengths: Vec<_> = [(Var::QLen, "query"), (Var::KvLen, "key")]
            .into_iter()
            .filter(|(length, _)| {
                self.bias_terms.iter().any(|bias_term| {
                    bias_term.kind != BiasTermKind::Distance && bias_term.expr.reads(*length)
                })
            })
            .collect();
        let (names, sizes): (Vec<_>, Vec<_>) = lengths
            .iter()
            .map(|(length, size)| (format_ident!("{length}"), format_ident!("{size}")))
            .unzip();
        let tables: Vec<_> = self
            .tables()
            .map(|(index, _)| var(&bias_term_name(index)))
            .collect();
        let direct = self.bias_terms.iter();
        let direct = direct.filter(|bias_term| bias_term.kind != BiasTermKind::Distance);
        let mut learned: Vec<Ident> = Vec::new();
        for (name, _) in direct.flat_map(|bias_term| param_reads(&bias_term.expr)) {
            let field = param_field(&var(name));
            if !learned.contains(&field) {
                learned.push(field);
            }
        }
        let values = learned.iter().map(|field| match self.is_given(field) {
            true => quote!(#field),
            false => quote!(weights.#field.values()),
        });
        let type_of = |field: &Ident| match self.is_of_keys(field) {
            true => quote!(K),
            false => quote!(&'a [E]),
        };
        let types_of_learned: Vec<_> = learned.iter().map(type_of).collect();
        let given = self.given();
        let types_of_given: Vec<_> = given.iter().map(type_of).collect();
        let [parameter, argument] = self.type_of_keys();
        let element = match argument.is_empty() {
            true => quote!(&'a E),
            false => quote!((&'a E #argument)),
        };
        let has_sizes = !given.is_empty();
        let sizes_of = has_sizes.then(|| {
            quote! {
                sizes: p::Sizes,
                /// Where the rows of queries begin: a session has those of new tokens alone.
                first_row: i64,
            }
        });
        let sizes_are = has_sizes.then(|| quote!(sizes: call.sizes, first_row: 0,));
        let data = self.data();
        let (data, types): (Vec<_>, Vec<_>) = data
            .into_iter()
            .map(|data| (data_name(data), read_type(data)))
            .unzip();
        quote! {
            /// The function of a score, and its derivatives.
            struct Modified<'a, E: p::Element #parameter> {
                #(#names: i64,)*
                #(#tables: &'a p::DistanceTable<E>,)*
                #(#learned: #types_of_learned,)*
                #(#data: &'a #types,)*
                #sizes_of
                element: p::PhantomData<#element>,
            }

            #[allow(unused_variables)]
            fn modified<'a, E: p::Element #parameter>(
                call: &'a Call<E>,
                weights: &'a Weights<E>,
                #(#given: #types_of_given,)*
            ) -> Modified<'a, E #argument> {
                Modified {
                    #(#names: call.sizes.#sizes as i64,)*
                    #(#tables: &call.#tables,)*
                    #(#learned: #values,)*
                    #(#data: &call.#data,)*
                    #sizes_are
                    element: p::PhantomData,
                }
            }
        }
    }

    /// The variables that `expr` reads of the call and of the layer, which are in `of`: lengths, data, learned tensors.
    fn variables(&self, expr: &Expr, of: &TokenStream) -> TokenStream {
        let sizes = self.lengths(of);
        let first_row = quote!(#of.first_row);
        let lengths = [Var::QLen, Var::KvLen].into_iter();
        let lengths = lengths.filter(|var| expr.reads(*var));
        let lengths = lengths.map(|var| format_ident!("{var}"));
        let data = self.cx.graph.declared().map(|declared| &declared.name);
        let data = data.filter(|name| expr.reads_data(name));
        let data = data.map(|name| declared_name(name));
        let params = self.reads(expr, Some(&first_row), &|field| quote!(#of.#field));
        quote!(#sizes #(let #lengths = #of.#lengths;)* #(let #data = #of.#data;)* #params)
    }

    /// The arm that writes a bias term.
    fn write(&self, index: usize, bias_term: &BiasTerm) -> TokenStream {
        let number = Literal::usize_unsuffixed(index);
        let variables = self.variables(&bias_term.expr, &quote!(self));
        let value = host(&bias_term.expr, 0);
        let value = quote!(<E as p::Element>::of(#value));
        let write = match bias_term.kind {
            BiasTermKind::Row => quote!(to.fill(#value);),
            _ => quote!(for (kv_idx, to) in (kv_idx..).zip(to) { *to = #value; }),
        };
        quote!(#number => { #variables #write })
    }

    /// The block that adds the gradient of a bias term to that of what it read.
    fn add(&self, index: usize, bias_term: &BiasTerm) -> TokenStream {
        if bias_term.kind == BiasTermKind::Distance {
            let table = var(&bias_term_name(index));
            let start = self.table_start(index, &quote!(self));
            return quote!({ self.#table.add_gradient(at, d, &mut sums.per_head[#start..]); });
        }
        let variables = self.variables(&bias_term.expr, &quote!(self));
        let number = self.number_of_pairs(index);
        let of_pairs = number
            .map(|number| quote!(if let Some(pairs) = sums.pairs { pairs.write(#number, at, d); }));
        let adds = param_reads(&bias_term.expr).into_iter().filter_map(|(name, read)| {
            let derivative = diff(&bias_term.expr, Wrt::Param(name));
            let sum = self.sum_of(name, read)?;
            let factor = host(&derivative, 0);
            (!is_zero(&derivative)).then(|| match bias_term.kind {
                BiasTermKind::Row => quote!(#sum += d * <E as p::Element>::of(#factor);),
                _ => quote!(for (kv_idx, d) in (kv_idx..).zip(d) { #sum += *d * <E as p::Element>::of(#factor); }),
            })
        });
        let adds: Vec<_> = adds.collect();
        match bias_term.kind {
            // The factor of a gradient of 0 may be anything.
            BiasTermKind::Row => quote!({
                #variables
                #of_pairs
                let d = p::sum_of_gradients(d);
                if d != <E as p::Element>::of(0.0) { #(#adds)* }
            }),
            _ => quote!({ #variables #of_pairs #(#adds)* }),
        }
    }

    /// The place of the gradient of an element.
    fn sum_of(&self, name: &str, read: &[Expr]) -> Option<TokenStream> {
        let learned = self.learned.iter().find(|learned| learned.name == name)?;
        let dims = self.cx.graph.dims(name);
        let axes = learned.axes.iter();
        let index = axes.map(|axis| (host(&read[*axis], 9), length(&dims[*axis])));
        let flat = index.fold(None, |flat: Option<TokenStream>, (index, dim)| {
            Some(match flat {
                None => index,
                Some(flat) => quote!((#flat) * (#dim) as i64 + #index),
            })
        });
        let flat = flat.unwrap_or_else(|| quote!(0));
        let start = self.start(learned);
        let sums = match learned.sums {
            Sums::PerHead => quote!(per_head),
            Sums::Shared => quote!(shared),
            Sums::PerSequence => quote!(per_sequence),
        };
        Some(quote!(sums.#sums[#start + (#flat) as usize]))
    }

    /// The number of a bias term among those whose gradients are kept pair by pair.
    fn number_of_pairs(&self, index: usize) -> Option<Literal> {
        let number = self.terms_of_pairs().position(|(of, _)| of == index)?;
        Some(Literal::usize_unsuffixed(number))
    }

    /// The offset of the sums of a tensor.
    fn start(&self, learned: &Learned<'_>) -> Size {
        let before = self
            .learned
            .iter()
            .take_while(|other| other.name != learned.name);
        let before = before.filter(|other| other.sums == learned.sums);
        before.fold(Size::known(0), |start, other| plus(&start, &other.len))
    }

    /// The number of sums of tensors.
    fn len(&self, sums: Sums) -> Size {
        let some = self.learned.iter().filter(|learned| learned.sums == sums);
        some.fold(Size::known(0), |len, learned| plus(&len, &learned.len))
    }

    /// The offset of the sums of a table: after those of the tensors and of the earlier tables.
    fn table_start(&self, index: usize, score: &TokenStream) -> TokenStream {
        let len = self.len(Sums::PerHead);
        let before = self
            .tables()
            .filter(|(other, bias_term)| *other < index && is_learned(bias_term));
        let before = before.map(|(other, _)| var(&bias_term_name(other)));
        quote!(#len #(+ #score.#before.distances())*)
    }

    fn total(&self, sums: Sums) -> TokenStream {
        let len = self.len(sums);
        let tables = self
            .tables()
            .filter(|(_, bias_term)| sums == Sums::PerHead && is_learned(bias_term));
        let tables = tables.map(|(index, _)| var(&bias_term_name(index)));
        quote!(#len #(+ self.#tables.distances())*)
    }

    /// `K` as a parameter of a type or a function, and as an argument, each behind a comma, if a session remembers values of keys.
    pub(super) fn type_of_keys(&self) -> [TokenStream; 2] {
        let mut given = self.cx.graph.given.iter();
        match given.any(Declared::is_remembered) {
            true => [quote!(, K: p::KeyNumbers<E>), quote!(, K)],
            false => Default::default(),
        }
    }

    /// Whether a session remembers this value for each key.
    fn is_of_keys(&self, field: &Ident) -> bool {
        let mut given = self.cx.graph.given.iter();
        given.any(|given| given.is_remembered() && param_field(&var(&given.name)) == *field)
    }

    fn is_given(&self, field: &Ident) -> bool {
        self.given().contains(field)
    }

    /// The inputs that the body reads.
    fn given(&self) -> Vec<Ident> {
        let given = self.cx.graph.given.iter();
        given.map(|given| param_field(&var(&given.name))).collect()
    }
}

/// The number of distances between the queries and the keys of a sequence: how many numbers a row of a table has.
pub(super) fn distances() -> TokenStream {
    quote!((query.saturating_add(key)).saturating_sub(1))
}

/// A learned tensor in the emitted code: none of the other names of that.
pub(super) fn param_field(name: &Ident) -> Ident {
    format_ident!("param_{name}")
}

fn plus(a: &Size, b: &Size) -> Size {
    let value = a.value.zip(b.value).map(|(a, b)| a + b);
    Size::derive(value, quote!((#a + #b)), format!("{a} + {b}"))
}

/// The length of an axis, where `batch`, `query` and `key` are variables.
fn length(dim: &Dim) -> Size {
    let (name, text) = match dim {
        Dim::Size(size) => return size.clone(),
        Dim::Batch => ("batch", "batch"),
        Dim::Query => ("query", "q_len"),
        Dim::Key => ("key", "kv_len"),
    };
    let name = var(name);
    Size::derive(None, quote!(#name), text.to_owned())
}

/// Whether it is a value of the model with a number for every pair of a query and a key.
fn is_of_pairs(cx: &Layer<'_>, name: &str) -> bool {
    let dims = cx.graph.dims(name);
    dims.contains(&Dim::Query) && dims.contains(&Dim::Key)
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::Float(value) if value.value == Some(0.0))
}

/// Whether a bias term changes with anything that is learned.
fn is_learned(bias_term: &BiasTerm) -> bool {
    let names = param_reads(&bias_term.expr).into_iter();
    names
        .map(|(name, _)| diff(&bias_term.expr, Wrt::Param(name)))
        .any(|derivative| !is_zero(&derivative))
}

/// The arguments of a function of the head and the place, those that are not read with an underscore.
fn arguments(expr: &Expr) -> [Ident; 3] {
    [Var::H, Var::QIdx, Var::KvIdx].map(|var| {
        let hidden = if expr.reads(var) { "" } else { "_" };
        format_ident!("{hidden}{var}")
    })
}
