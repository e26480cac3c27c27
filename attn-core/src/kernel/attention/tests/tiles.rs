//! The tiles that are visited.

use super::case::{Case, Pairs, Pattern};
use crate::kernel::attention::plan::{BLOCK, Head, QUERIES, TILE, Tile, chunks, tiles};
use crate::kernel::attention::{Mask, Sizes, TileMask};

pub(super) fn mask(pattern: Pattern, query: usize, key: usize) -> Pairs {
    let sizes = Sizes {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        query,
        key,
        width: 1,
        value_width: 1,
    };
    Case::plain(sizes, pattern).mask
}

pub(super) fn tiles_of(mask: &Pairs, width: usize) -> Vec<Tile> {
    let head = Head { b: 0, h: 0 };
    chunks(0..mask.query, QUERIES)
        .flat_map(|queries| {
            tiles(
                mask as &dyn TileMask<f32>,
                head,
                queries,
                0..mask.key,
                width,
            )
            .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn attended_pairs_are_visited_once_and_others_are_masked() {
    for pattern in [
        Pattern::Everything,
        Pattern::Nothing,
        Pattern::Causal,
        Pattern::CausalUpperLeft,
        Pattern::Window(100),
        Pattern::Islands,
        Pattern::Random(3),
    ] {
        for (query, key) in [(1, 1), (100, 700), (200, 1100), (65, 0)] {
            let mask = mask(pattern, query, key);
            let mut visits = vec![0; query * key];
            for tile in tiles_of(&mask, 64) {
                assert!(!tile.keys.is_empty() && tile.keys.len() <= TILE);
                let partial: Vec<usize> = tile.partial_columns().flatten().collect();
                for q in tile.queries.clone() {
                    for k in tile.keys.clone() {
                        visits[q * key + k] += 1;
                        let known = partial.contains(&(k - tile.keys.start));
                        assert!(known || mask.attends(0, 0, q, k), "{pattern:?} {q} {k}");
                    }
                }
            }
            for (i, visits) in visits.into_iter().enumerate() {
                let attended = mask.attends(0, 0, i / key, i % key);
                assert!(visits == 1 || (visits == 0 && !attended), "{pattern:?} {i}");
            }
        }
    }
}

#[test]
fn empty_blocks_are_not_visited() {
    let len = 4096;
    let visited = |pattern| -> usize {
        let tiles = tiles_of(&mask(pattern, len, len), 64);
        tiles
            .iter()
            .map(|tile| tile.queries.len() * tile.keys.len())
            .sum()
    };
    // At each border, on average half a block of queries and half a block of keys is visited in excess.
    let border = len * (QUERIES + BLOCK) / 2;
    assert!(visited(Pattern::Causal) <= len * len / 2 + border);
    assert!(visited(Pattern::Window(256)) <= len * 256 + 2 * border);
    assert_eq!(visited(Pattern::Nothing), 0);
}

#[test]
fn adjacent_blocks_are_merged_into_wide_tiles() {
    let widths: Vec<usize> = tiles_of(&mask(Pattern::Everything, QUERIES, 1200), 64)
        .iter()
        .map(|tile| tile.keys.len())
        .collect();
    assert_eq!(widths, [TILE, TILE, 1200 - 2 * TILE]);
}
