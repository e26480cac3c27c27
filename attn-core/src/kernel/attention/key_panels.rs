//! The keys and values of a head in the layouts of the products of the backward pass.

use std::ops::Range;

use super::load::{AdditiveGradients, LoadColumns, LoadRows};
use super::masked_weights::MaskedWeights;
use super::plan::Tile;
use super::rounded::{Loaded, PairPanel};
use super::{Attention, Similarity};
use crate::kernel::panel::Panel;
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{run, transpose};

/// Transformed keys and values.
pub(super) struct KeyPanels<E: Pooled> {
    /// `[keys, width]`
    pub rows: Panel<E>,
    /// `[width, keys]`
    pub columns: Panel<E>,
    /// The values, `[value_width, keys]`.
    pub value_columns: Panel<E>,
}

/// The same, rounded to bf16.
pub(super) struct RoundedKeyPanels {
    /// `[pairs of keys, width]`
    pub rows: PairPanel,
    /// `[pairs of the width, keys]`
    pub columns: PairPanel,
    /// The values, `[pairs of the value_width, keys]`.
    pub value_columns: PairPanel,
}

/// The gradients that a tile adds to.
pub(super) struct TileGradients<'a, E> {
    /// `[queries, width]`
    pub q: MatrixMut<'a, E>,
    /// `[keys, width]`, or `[width, keys]` if the similarity is additive. The keys are those of all panels.
    pub k: MatrixMut<'a, E>,
    /// `[keys, value_width]`, of the same keys.
    pub v: MatrixMut<'a, E>,
    /// `[width]`, or nothing if the similarity has no weights.
    pub w: &'a mut [E],
}

impl<E: Pooled> KeyPanels<E> {
    /// Loads keys and values of a key head, of which the first has the position `first`.
    pub(super) fn load(
        attention: &Attention<'_, E>,
        kv: usize,
        [k, v]: [Matrix<'_, E>; 2],
        first: usize,
    ) -> Self {
        let mut rows = Panel::new(k.rows(), k.cols());
        run(LoadRows {
            transform: &attention.key.of_head(kv, k.cols()),
            x: k,
            first,
            to: rows.write(),
        });
        let mut columns = Panel::new(k.cols(), k.rows());
        transpose(rows.read(), columns.write());
        let mut value_columns = Panel::new(v.cols(), v.rows());
        run(LoadColumns {
            transform: &attention.value.of_head(kv, v.cols()),
            x: v,
            first,
            to: value_columns.write(),
        });
        Self {
            rows,
            columns,
            value_columns,
        }
    }

    /// Adds the gradients of values, keys and queries of a tile, from its weights and the gradient of its similarities. The keys of the tile are
    /// this range of those of the panels.
    pub(super) fn add_gradients(
        &self,
        attention: &Attention<'_, E>,
        tile: &Tile,
        range: Range<usize>,
        [weights, d]: [Matrix<'_, E>; 2],
        [q, d_out]: [Matrix<'_, E>; 2],
        to: TileGradients<'_, E>,
    ) {
        let masked = |matrix| MaskedWeights {
            mask: attention.mask,
            tile,
            matrix,
        };
        let d_v = to.v.some_rows(range.clone());
        masked(weights).add_transposed_matmul(E::ONE, d_out, d_v);
        match attention.similarity {
            Similarity::Dot { scale } => {
                let d = masked(d);
                d.add_transposed_matmul(scale, q, to.k.some_rows(range.clone()));
                d.add_matmul(scale, self.rows.read().some_rows(range), to.q);
            }
            Similarity::Additive { w } => run(AdditiveGradients {
                q,
                kt: self.columns.read().some_cols(range.clone()),
                w: w.row(tile.head.h),
                d,
                d_q: to.q,
                d_kt: to.k.some_cols(range),
                d_w: to.w,
            }),
        }
    }
}

impl RoundedKeyPanels {
    /// [`KeyPanels::load`]
    pub(super) fn load<E: Pooled>(
        attention: &Attention<'_, E>,
        kv: usize,
        [k, v]: [Matrix<'_, E>; 2],
        first: usize,
    ) -> Self {
        let [k, v] = [(&attention.key, k), (&attention.value, v)]
            .map(|(transform, x)| Loaded::new(&transform.of_head(kv, x.cols()), x, first));
        Self {
            rows: PairPanel::of_rows(k.rows()),
            columns: PairPanel::of_transpose(k.rows()),
            value_columns: PairPanel::of_transpose(v.rows()),
        }
    }
}
