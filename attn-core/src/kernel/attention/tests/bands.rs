//! The pairs of a tile that are multiplied.

use super::case::{Pairs, Pattern};
use super::tiles::{mask, tiles_of};
use crate::kernel::attention::Mask as _;
use crate::kernel::attention::bands::Side;
use crate::kernel::attention::plan::{BLOCK, Tile};
use crate::simd::{Matrix, MatrixMut};

/// How often a product with a row for each query, or for each key, reads each pair: `[queries, keys]`.
fn reads(tile: &Tile, side: Side) -> Vec<usize> {
    let [queries, keys] = [tile.queries.len(), tile.keys.len()];
    let mut reads = vec![0; queries * keys];
    let rows = match side {
        Side::Queries => queries,
        Side::Keys => keys,
    };
    let to = MatrixMut::<f32>::without_cols(rows);
    tile.bands().for_each_rows(side, to, |part, rows, depths| {
        assert_eq!(part.rows(), rows.len());
        let (queries, of_keys) = match side {
            Side::Queries => (rows, depths),
            Side::Keys => (depths, rows),
        };
        for q in queries {
            of_keys.clone().for_each(|k| reads[q * keys + k] += 1);
        }
    });
    reads
}

/// 1 where a pair is the result of a product, and what is written to the others.
fn written(tile: &Tile) -> Vec<f32> {
    let [queries, keys] = [tile.queries.len(), tile.keys.len()];
    let mut numbers = vec![f32::NAN; queries * keys];
    let to = MatrixMut::new(&mut numbers, queries, keys);
    tile.bands().for_each_part(to, |mut part, queries, keys| {
        assert_eq!([part.rows(), part.cols()], [queries.len(), keys.len()]);
        part.fill(1.0);
    });
    numbers
}

#[test]
fn attended_pairs_are_multiplied_once_and_the_rest_is_zero() {
    for pattern in [
        Pattern::Everything,
        Pattern::Nothing,
        Pattern::Causal,
        Pattern::CausalUpperLeft,
        Pattern::Window(5),
        Pattern::Window(100),
        Pattern::Islands,
        Pattern::SomeQueries,
        Pattern::Random(3),
    ] {
        for (query, key, exact, width) in [
            (1, 1, true, 64),
            (100, 700, true, 64),
            (200, 1100, false, 64),
            (97, 601, true, 8),
            (65, 0, true, 8),
        ] {
            let mask = Pairs {
                exact,
                ..mask(pattern, query, key)
            };
            for tile in tiles_of(&mask, width) {
                let written = written(&tile);
                let [of_queries, of_keys] =
                    [Side::Queries, Side::Keys].map(|side| reads(&tile, side));
                let written = Matrix::new(&written, tile.queries.len(), tile.keys.len());
                for (row, q) in tile.queries.clone().enumerate() {
                    for (col, k) in tile.keys.clone().enumerate() {
                        let at = row * tile.keys.len() + col;
                        let found = [of_queries[at], of_keys[at]];
                        let number = written.get(row, col);
                        match mask.attends(0, 0, q, k) {
                            true => assert_eq!((number, found), (1.0, [1; 2]), "{mask:?} {q} {k}"),
                            false => assert!(
                                (number == 0.0 || number == 1.0) && found.iter().all(|n| *n <= 1),
                                "{mask:?} {q} {k}: {number} {found:?}"
                            ),
                        }
                    }
                }
            }
        }
    }
}

/// At each edge, a strip and a block of keys have half of their pairs on the hidden side.
#[test]
fn few_hidden_pairs_are_multiplied() {
    let len = 2048;
    for (width, strip) in [(64, 12), (32, 24)] {
        for (pattern, attended, edges) in [
            (Pattern::Causal, len * (len + 1) / 2, 1),
            (Pattern::Window(256), len * 256, 2),
        ] {
            let mask = mask(pattern, len, len);
            let most = attended + edges * len * (strip + BLOCK) / 2;
            let tiles = tiles_of(&mask, width);
            let written = tiles.iter().flat_map(written).filter(|x| *x == 1.0);
            assert!(written.count() <= most, "{pattern:?}");
            for side in [Side::Queries, Side::Keys] {
                let reads = tiles.iter().flat_map(|tile| reads(tile, side));
                assert!(reads.sum::<usize>() <= most, "{pattern:?}");
            }
        }
    }
}
