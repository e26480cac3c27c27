//! The products of a tile in the backward pass, over numbers of the model or over rounded ones.

use std::ops::Range;

use super::Attention;
use super::key_panels::{KeyPanels, RoundedKeyPanels, TileGradients};
use super::plan::Tile;
use super::queries::BlockVectors;
use super::rounded::{MaskedPairs, PairPanel, RoundedVectors, multiply_tile};
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode, product};

/// The transformed keys and values of a block of keys.
pub(super) enum KeyVectors<E: Pooled> {
    Whole(KeyPanels<E>),
    /// Rounded to bf16.
    Rounded(RoundedKeyPanels),
}

/// The operands of the products of a tile, from its block of keys and its block of queries.
pub(super) enum TileOperands<'a, E: Pooled> {
    Whole {
        panels: &'a KeyPanels<E>,
        /// `[queries, width]`
        q: Matrix<'a, E>,
        /// `[queries, value_width]`
        d_out: Matrix<'a, E>,
    },
    /// Rounded to bf16, the queries times the scale.
    Rounded {
        panels: &'a RoundedKeyPanels,
        q: RoundedVectors<'a>,
        d_out: RoundedVectors<'a>,
    },
}

impl<E: Pooled> KeyVectors<E> {
    /// [`KeyPanels::load`]
    pub(super) fn load(
        attention: &Attention<'_, E>,
        kv: usize,
        vectors: [Matrix<'_, E>; 2],
        first: usize,
    ) -> Self {
        match attention.rounded_scale() {
            None => Self::Whole(KeyPanels::load(attention, kv, vectors, first)),
            Some(_) => Self::Rounded(RoundedKeyPanels::load(attention, kv, vectors, first)),
        }
    }
}

impl<'a, E: Pooled> TileOperands<'a, E> {
    pub(super) fn new(keys: &'a KeyVectors<E>, queries: &'a BlockVectors<'_, E>) -> Self {
        match (keys, queries) {
            (KeyVectors::Whole(panels), BlockVectors::Whole { q, d_out }) => Self::Whole {
                panels,
                q: q.rows(),
                d_out: d_out.rows(),
            },
            (KeyVectors::Rounded(panels), BlockVectors::Rounded { q, d_out }) => Self::Rounded {
                panels,
                q: *q,
                d_out: *d_out,
            },
            _ => unreachable!("an attention has one dtype"),
        }
    }

    /// The similarities of queries and keys, `[queries, keys]`. The keys of the tile are this range of those of their block.
    pub(super) fn similarities(
        &self,
        attention: &Attention<'_, E>,
        tile: &Tile,
        range: Range<usize>,
        to: MatrixMut<'_, E>,
    ) {
        match self {
            Self::Whole { panels, q, .. } => {
                let kt = panels.columns.read().some_cols(range);
                attention.similarities(tile, *q, kt, to);
            }
            Self::Rounded { panels, q, .. } => {
                multiply_tile(tile, to, q.rows, &panels.columns, range.start);
            }
        }
    }

    /// The gradient of the weights, `dout vᵀ`.
    pub(super) fn weight_gradients(&self, tile: &Tile, range: Range<usize>, to: MatrixMut<'_, E>) {
        match self {
            Self::Whole { panels, d_out, .. } => {
                let vt = panels.value_columns.read().some_cols(range);
                tile.bands().for_each_part(to, |to, queries, keys| {
                    let (d_out, vt) = (d_out.some_rows(queries), vt.some_cols(keys));
                    product(to, WriteMode::Overwrite, E::ONE, d_out, vt, Threads::One);
                });
            }
            Self::Rounded { panels, d_out, .. } => {
                multiply_tile(tile, to, d_out.rows, &panels.value_columns, range.start);
            }
        }
    }

    /// [`KeyPanels::add_gradients`]. The gradient of rounded queries lacks the scale.
    pub(super) fn add_gradients(
        &self,
        attention: &Attention<'_, E>,
        tile: &Tile,
        range: Range<usize>,
        pairs: [Matrix<'_, E>; 2],
        to: TileGradients<'_, E>,
    ) {
        match self {
            Self::Whole { panels, q, d_out } => {
                panels.add_gradients(attention, tile, range, pairs, [*q, *d_out], to);
            }
            Self::Rounded { panels, q, d_out } => {
                let [weights, d] = pairs;
                let mask = attention.mask;
                let masked = MaskedPairs { mask, tile };
                let of_keys = PairPanel::of_rows(weights);
                let d_v = to.v.some_rows(range.clone());
                masked.add_transposed_matmul(of_keys.read(), d_out.depths, d_v);
                let of_keys = PairPanel::of_rows(d);
                let d_k = to.k.some_rows(range.clone());
                masked.add_transposed_matmul(of_keys.read(), q.depths, d_k);
                let of_queries = PairPanel::of_columns(d);
                let rows = range.start / 2..range.end.div_ceil(2);
                let rows = panels.rows.read().some_rows(rows);
                masked.add_matmul(of_queries.read(), rows, to.q);
            }
        }
    }
}
