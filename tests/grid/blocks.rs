//! The tiles that the kernels visit for a mask on a grid, against every pair.

use attn::{Coverage, MaskBlocks, attention};

/// Whether a query attends to a key, by their coordinates.
type Attends<const N: usize> = fn([i64; N], [i64; N]) -> bool;

/// Empty, partial and full tiles.
type Count = [usize; 3];

fn index(coverage: Coverage) -> usize {
    match coverage {
        Coverage::Empty => 0,
        Coverage::Partial => 1,
        Coverage::Full => 2,
    }
}

/// The tiles as the layer knows them, and as their pairs are. What is known is never wrong.
fn count<const N: usize>(blocks: &MaskBlocks, grid: [i64; N], attends: Attends<N>) -> [Count; 2] {
    let len = grid.iter().product::<i64>() as usize;
    let place = |index: usize| {
        let mut rest = index as i64;
        let mut place = [0; N];
        for axis in (0..N).rev() {
            place[axis] = rest % grid[axis];
            rest /= grid[axis];
        }
        place
    };
    let range = |index: usize, size: usize| index * size..len.min((index + 1) * size);
    let mut counts = [[0; 3]; 2];
    for row in 0..blocks.rows() {
        for column in 0..blocks.columns() {
            let queries = range(row, MaskBlocks::QUERIES);
            let pairs = queries.flat_map(|q| range(column, MaskBlocks::KEYS).map(move |k| (q, k)));
            let truths: Vec<bool> = pairs.map(|(q, k)| attends(place(q), place(k))).collect();
            let is = match (truths.contains(&true), truths.contains(&false)) {
                (false, _) => Coverage::Empty,
                (true, false) => Coverage::Full,
                _ => Coverage::Partial,
            };
            let known = blocks.at(0, row, column);
            assert!(
                known == is || known == Coverage::Partial,
                "tile ({row}, {column}) is {is:?}, and not {known:?}"
            );
            counts[0][index(known)] += 1;
            counts[1][index(is)] += 1;
        }
    }
    counts
}

fn near(q: i64, k: i64, n: i64, len: i64) -> bool {
    let start = (q - n / 2).min(len - n).max(0);
    (start..start + n).contains(&k)
}

/// `name [sizes of the grid] [mask] attends;`: every tile is known.
macro_rules! exact {
    ($($name:ident [$($size:literal),*] [$($mask:tt)*] $attends:expr;)*) => {$(
        #[test]
        fn $name() {
            attention! {
                struct Layer<heads = 1, d_model = 8, grid = [$($size),*], mask = $($mask)*>;
            }
            let len = 1 $(* $size)*;
            let blocks = Layer::mask_blocks(len, len);
            let [known, is] = count(&blocks, [$($size),*], $attends);
            assert_eq!(known, is);
        }
    )*};
}

exact! {
    neighborhood_of_a_square [32, 32] [neighborhood(7)]
        |q, k| near(q[0], k[0], 7, 32) && near(q[1], k[1], 7, 32);
    neighborhood_of_odd_sizes [23, 37] [neighborhood(5)]
        |q, k| near(q[0], k[0], 5, 23) && near(q[1], k[1], 5, 37);
    neighborhood_of_narrow_rows [97, 5] [neighborhood(3)]
        |q, k| near(q[0], k[0], 3, 97) && near(q[1], k[1], 3, 5);
    neighborhood_beyond_the_grid [3, 200] [neighborhood(9)]
        |q, k| near(q[0], k[0], 9, 3) && near(q[1], k[1], 9, 200);
    neighborhood_in_one_row [1, 300] [neighborhood(31)]
        |q, k| near(q[1], k[1], 31, 300);
    neighborhood_in_one_column [300, 1] [neighborhood(31)]
        |q, k| near(q[0], k[0], 31, 300);
    rows_before [40, 20] [neighborhood(5) & causal]
        |q, k| near(q[0], k[0], 5, 40) && near(q[1], k[1], 5, 20) && k <= q;
    local [24, 40] [local(9)]
        |q, k| (q[0] - k[0]).abs() <= 4 && (q[1] - k[1]).abs() <= 4;
    windows [32, 32] [window(8)]
        |q, k| (0..2).all(|axis| q[axis] / 8 == k[axis] / 8);
    windows_shifted [32, 32] [window(8, shift = 4)]
        |q, k| (0..2).all(|axis| (q[axis] + 4) / 8 == (k[axis] + 4) / 8);
    row [20, 70] [same_row] |q, k| q[0] == k[0];
    column [20, 70] [same_col] |q, k| q[1] == k[1];
    cross_of_both [40, 48] [same_row | same_col] |q, k| q[0] == k[0] || q[1] == k[1];
    not_the_own_row [30, 48] [!same_row] |q, k| q[0] != k[0];
    neighborhood_of_frames [9, 8, 16] [neighborhood(3)]
        |q, k| near(q[0], k[0], 3, 9) && near(q[1], k[1], 3, 8) && near(q[2], k[2], 3, 16);
    frames_before [7, 11, 13] [neighborhood(5) & causal]
        |q, k| near(q[0], k[0], 5, 7) && near(q[1], k[1], 5, 11) && near(q[2], k[2], 5, 13) && k <= q;
    windows_of_frames [6, 10, 14] [window(4, frames = 3, shift = 2)]
        |q, k| (q[0] + 1) / 3 == (k[0] + 1) / 3 && (1..3).all(|axis| (q[axis] + 2) / 4 == (k[axis] + 2) / 4);
    local_in_frames [6, 10, 14] [local(3)]
        |q, k| (0..3).all(|axis| (q[axis] - k[axis]).abs() <= 1);
}

/// Zones are cut at most 256 times, so a tile may stay unknown.
#[test]
fn a_dilated_neighborhood_visits_few_tiles_too_many() {
    attention! {
        struct Layer<heads = 1, d_model = 8, grid = [32, 32], mask = neighborhood(3, dilation = 4)>;
    }
    let blocks = Layer::mask_blocks(1024, 1024);
    let [known, is] = count(&blocks, [32, 32], |q, k| {
        (0..2).all(|axis| q[axis] % 4 == k[axis] % 4 && near(q[axis] / 4, k[axis] / 4, 3, 8))
    });
    let visited = |count: Count| count[1] + count[2];
    assert!(visited(known) * 10 <= visited(is) * 11, "{known:?} {is:?}");
}

/// The work is far from that of all pairs: 7 or 8 rows of keys for each tile, of 64.
#[test]
fn a_neighborhood_on_a_large_grid_visits_few_tiles() {
    attention! {
        struct Layer<heads = 1, d_model = 8, grid = [64, 64], mask = neighborhood(7)>;
    }
    let blocks = Layer::mask_blocks(4096, 4096);
    let [known, is] = count(&blocks, [64, 64], |q, k| {
        near(q[0], k[0], 7, 64) && near(q[1], k[1], 7, 64)
    });
    assert_eq!(known, is);
    let all = blocks.rows() * blocks.columns();
    assert!((known[1] + known[2]) * 8 < all, "{known:?} of {all}");
}

/// The fraction of pairs, counted.
#[test]
fn the_density_of_a_neighborhood_is_that_of_its_window() {
    attention! {
        struct Layer<heads = 1, d_model = 8, grid = [8, 6], mask = neighborhood(3)>;
        struct Behind<heads = 1, d_model = 8, grid = [8, 6], prefix_tokens = 1, mask = neighborhood(3)>;
    }
    assert_eq!(Layer::mask_density(48, 48), 9.0 / 48.0);
    let pairs = f64::from(48 * 9 + 48 + 49);
    assert_eq!(Behind::mask_density(49, 49), pairs / (49.0 * 49.0));
}
