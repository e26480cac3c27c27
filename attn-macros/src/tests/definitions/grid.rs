//! The masks of a grid against the procedures of their papers and libraries, pair by pair, and coordinates in bodies.

use super::point;
use crate::score::eval::holds;
use crate::tests::random::formula::Pair;
use crate::tests::support::build;

/// `[frames, rows, cols]`: one row, one column, smaller than a window, odd, even.
const GRIDS: [[i64; 3]; 9] = [
    [1, 1, 1],
    [1, 1, 11],
    [1, 11, 1],
    [1, 2, 3],
    [1, 7, 5],
    [1, 8, 8],
    [3, 4, 5],
    [2, 1, 9],
    [5, 3, 2],
];

/// The places of a grid in row-major order.
fn places([frames, rows, cols]: [i64; 3]) -> Vec<[i64; 3]> {
    let mut places = Vec::new();
    for frame in 0..frames {
        for row in 0..rows {
            places.extend((0..cols).map(|col| [frame, row, col]));
        }
    }
    places
}

fn written(key: &str, [frames, rows, cols]: [i64; 3]) -> String {
    match frames {
        1 => format!("{key} = [{rows}, {cols}]"),
        _ => format!("{key} = [{frames}, {rows}, {cols}]"),
    }
}

/// Asserts that the mask attends as `attends` says of each axis: of the size, the query and the key there.
fn assert_along(mask: &str, grid: [i64; 3], attends: impl Fn(usize, i64, i64, i64) -> bool) {
    let of_places = |q: [i64; 3], k: [i64; 3]| {
        let axes = if grid[0] == 1 { 1..3 } else { 0..3 };
        let mut axes = axes.into_iter();
        axes.all(|axis| attends(axis, grid[axis], q[axis], k[axis]))
    };
    assert_places(
        &format!("{}, mask = {mask}", written("grid", grid)),
        0,
        [grid; 2],
        of_places,
    );
}

fn assert_places(
    keys: &str,
    prefix: i64,
    [queries, keys_at]: [[i64; 3]; 2],
    attends: impl Fn([i64; 3], [i64; 3]) -> bool,
) {
    let source = format!("struct L<heads = 1, d_model = 4, {keys}>;");
    let predicate = build(&source).0.predicate().expect("there is a mask");
    let [queries, keys_at] = [queries, keys_at].map(places);
    let [q_len, kv_len] = [&queries, &keys_at].map(|of| prefix + of.len() as i64);
    for q in 0..q_len {
        for k in 0..kv_len {
            let pair = Pair {
                b: 0,
                q,
                k,
                q_len,
                kv_len,
            };
            let expected = q < prefix
                || k < prefix
                || attends(
                    queries[(q - prefix) as usize],
                    keys_at[(k - prefix) as usize],
                );
            let found = holds(&predicate, &point(pair));
            assert_eq!(
                found,
                Some(expected),
                "{keys}, query {q}, key {k}: {predicate}"
            );
        }
    }
}

/// `get_window_start` of NATTEN, for a window of `2 * radius + 1`.
fn natten_start(index: i64, len: i64, radius: i64, dilation: i64) -> i64 {
    let size = 2 * radius + 1;
    if dilation <= 1 {
        let shifted = if index + radius >= len {
            len - index - radius - 1
        } else {
            0
        };
        return (index - radius).max(0) + shifted;
    }
    let first = index - radius * dilation;
    if first < 0 {
        return index % dilation;
    }
    if index + radius * dilation >= len {
        let rest = index % dilation;
        let even = len / dilation * dilation;
        let more = len - even;
        if rest < more {
            return len - more + rest - 2 * radius * dilation;
        }
        return even + rest - size * dilation;
    }
    first
}

/// Whether NATTEN's window of a query has this key. Where the window is longer than the axis, it has all keys of its dilation.
fn natten(len: i64, q: i64, k: i64, radius: i64, dilation: i64) -> bool {
    let size = 2 * radius + 1;
    if size * dilation > len {
        return radius_fits_nowhere(len, q, k, size, dilation);
    }
    let start = natten_start(q, len, radius, dilation);
    (0..size).any(|step| start + step * dilation == k)
}

/// The keys with the remainder of the query, of which the nearest are taken: all, if they are no more than the window.
fn radius_fits_nowhere(len: i64, q: i64, k: i64, size: i64, dilation: i64) -> bool {
    let group: Vec<i64> = (0..len)
        .filter(|key| key % dilation == q % dilation)
        .collect();
    let size = size as usize;
    let at = group
        .iter()
        .position(|key| *key == q)
        .expect("it is one of them");
    let start = at
        .saturating_sub(size / 2)
        .min(group.len().saturating_sub(size));
    group[start..group.len().min(start + size)].contains(&k)
}

#[test]
fn a_neighborhood_is_that_of_natten() {
    for grid in GRIDS {
        for radius in [0, 1, 2, 3] {
            let n = 2 * radius + 1;
            assert_along(&format!("neighborhood({n})"), grid, |_, len, q, k| {
                natten(len, q, k, radius, 1)
            });
            for dilation in [2, 3] {
                let mask = format!("neighborhood({n}, dilation = {dilation})");
                assert_along(&mask, grid, |_, len, q, k| {
                    natten(len, q, k, radius, dilation)
                });
            }
        }
    }
    // As many keys everywhere, with an even window too.
    let sizes = "grid = [5, 7], mask = neighborhood(4)";
    let predicate = build(&format!("struct L<heads = 1, d_model = 4, {sizes}>;"))
        .0
        .predicate();
    let predicate = predicate.expect("there is a mask");
    for q in 0..35 {
        let attends = |k: &i64| {
            let pair = Pair {
                b: 0,
                q,
                k: *k,
                q_len: 35,
                kv_len: 35,
            };
            holds(&predicate, &point(pair)) == Some(true)
        };
        assert_eq!((0..35).filter(attends).count(), 16);
    }
}

#[test]
fn a_window_is_that_of_swin_after_its_roll() {
    for grid in GRIDS {
        for n in [1, 2, 3, 4, 7] {
            for shift in 0..n {
                let mask = format!("window({n}, shift = {shift})");
                // Swin pads an image to whole windows, moves it by the shift, and masks pairs of what was apart.
                assert_along(&mask, grid, |_, len, q, k| {
                    let padded = (len + n - 1) / n * n;
                    let part = |place: i64| {
                        let rolled = (place - shift).rem_euclid(padded);
                        let region = match rolled {
                            at if at < padded - n => 0,
                            at if at < padded - shift => 1,
                            _ => 2,
                        };
                        (rolled / n, region)
                    };
                    part(q) == part(k)
                });
            }
        }
    }
}

#[test]
fn a_local_window_is_the_one_of_a_convolution() {
    for grid in GRIDS {
        for n in 1..6 {
            for dilation in [1, 2, 3] {
                let mask = format!("local({n}, dilation = {dilation})");
                assert_along(&mask, grid, |_, _, q, k| {
                    (0..n).any(|tap| q + (tap - n / 2) * dilation == k)
                });
            }
        }
    }
}

#[test]
fn axes_have_sizes_of_their_own() {
    let grid = [4, 5, 6];
    for mask in [
        "neighborhood(3, frames = 1, cols = 5)",
        "neighborhood(5, frames = 1, rows = 3)",
    ] {
        assert_along(mask, grid, |axis, len, q, k| {
            natten(len, q, k, axis as i64, 1)
        });
    }
    assert_along("window(2, frames = 4, shift = 1)", grid, |axis, _, q, k| {
        let n = if axis == 0 { 4 } else { 2 };
        (q + n - 1) / n == (k + n - 1) / n
    });
}

#[test]
fn rows_columns_and_frames_are_compared() {
    let same = |axis: usize| move |of: usize, _: i64, q: i64, k: i64| of != axis || q == k;
    for grid in GRIDS {
        assert_along("same_row", grid, same(1));
        assert_along("same_col", grid, same(2));
        if grid[0] > 1 {
            assert_along("same_frame", grid, same(0));
            assert_along("same_row & same_col", grid, |axis, _, q, k| {
                axis == 0 || q == k
            });
        }
    }
}

#[test]
fn tokens_before_the_grid_see_everything_and_are_seen() {
    for prefix in [1, 3] {
        let grid = [1, 4, 3];
        let keys = format!("grid = [4, 3], prefix_tokens = {prefix}, mask = neighborhood(3)");
        assert_places(&keys, prefix, [grid; 2], |q, k| {
            (1..3).all(|axis| natten(grid[axis], q[axis], k[axis], 1, 1))
        });
    }
}

#[test]
fn keys_may_be_on_another_grid() {
    let keys = "d_context = 4, grid = [2, 3], kv_grid = [4, 3], mask = same_col";
    assert_places(keys, 0, [[1, 2, 3], [1, 4, 3]], |q, k| q[2] == k[2]);
    let keys = "d_context = 4, grid = [6, 3], kv_grid = [4, 2], mask = neighborhood(3)";
    assert_places(keys, 0, [[1, 6, 3], [1, 4, 2]], |q, k| {
        let near = |q: i64, k: i64, len: i64| {
            let start = (q - 1).min(len - 3).max(0);
            (start..start + 3).contains(&k)
        };
        near(q[1], k[1], 4) && near(q[2], k[2], 2)
    });
}

#[test]
fn coordinates_of_a_body_are_places_of_the_grid() {
    let source = "struct L<heads = 1, d_model = 4, grid = [3, 4, 5]> {
        fn mask(q_frame, q_row, q_col, kv_frame, kv_row, kv_col) {
            kv_frame <= q_frame && kv_row + 2 * kv_col < q_row + 3 * q_col
        }
    }";
    let predicate = build(source).0.predicate().expect("there is a mask");
    let places = places([3, 4, 5]);
    for (q, [q_frame, q_row, q_col]) in (0..).zip(&places) {
        for (k, [kv_frame, kv_row, kv_col]) in (0..).zip(&places) {
            let expected = kv_frame <= q_frame && kv_row + 2 * kv_col < q_row + 3 * q_col;
            let pair = Pair {
                b: 0,
                q,
                k,
                q_len: 60,
                kv_len: 60,
            };
            assert_eq!(holds(&predicate, &point(pair)), Some(expected));
        }
    }
}
