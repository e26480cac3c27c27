//! Masks as matrices `[query, key]`, built from their contents and not pair by pair.

use super::Mask;
use dfdx::prelude::*;

/// One matrix for all sequences of a batch.
pub type Matrix = Tensor<(usize, usize), bool, Cpu>;

/// The same matrix for every sequence.
pub fn for_all(batch: usize, matrix: &Matrix) -> Mask {
    let (queries, keys) = *matrix.shape();
    matrix
        .clone()
        .broadcast_like::<_, Axis<0>>(&(batch, queries, keys))
}

/// A matrix for each sequence.
pub fn for_each(matrices: Vec<Matrix>) -> Mask {
    let (queries, keys) = *matrices[0].shape();
    let cells = matrices.iter().flat_map(|matrix| matrix.as_vec()).collect();
    Cpu::default().tensor_from_vec(cells, (matrices.len(), queries, keys))
}

/// Everything.
pub fn full(queries: usize, keys: usize) -> Matrix {
    Cpu::default().ones_like(&(queries, keys))
}

/// The lower triangle: a query attends to the keys up to its own position.
pub fn causal(queries: usize, keys: usize) -> Matrix {
    Cpu::default().lower_tri_like(&(queries, keys), true, 0)
}

/// The triangle in the lower right corner: the last query attends to all keys.
pub fn causal_lower_right(queries: usize, keys: usize) -> Matrix {
    let offset = keys as isize - queries as isize;
    Cpu::default().lower_tri_like(&(queries, keys), true, offset)
}

/// The lower right corner of a square mask: the last query is at the last key, and the first ones may be before the first key.
pub fn lower_right_corner(queries: usize, keys: usize, square: impl Fn(usize) -> Matrix) -> Matrix {
    let size = queries.max(keys);
    let rows = square(size).as_vec();
    let last_rows = rows.chunks(size).skip(size - queries);
    let cells = last_rows.flat_map(|row| row[size - keys..].to_vec());
    Cpu::default().tensor_from_vec(cells.collect(), (queries, keys))
}

/// A band of `width` below the diagonal and with it.
pub fn local(queries: usize, keys: usize, width: usize) -> Matrix {
    let recent = Cpu::default().upper_tri_like(&(queries, keys), true, 1 - width as isize);
    causal(queries, keys) & recent
}

/// A band that is as wide to the right of the diagonal as to its left.
pub fn local_symmetric(queries: usize, keys: usize, width: usize) -> Matrix {
    let reach = width as isize - 1;
    let above = Cpu::default().lower_tri_like(&(queries, keys), true, reach);
    let below = Cpu::default().upper_tri_like(&(queries, keys), true, -reach);
    above & below
}

/// `count` keys, `step` apart. The last one is that of the query's position.
pub fn dilated(queries: usize, keys: usize, count: usize, step: usize) -> Matrix {
    from_lists(queries, keys, |query| {
        (0..count)
            .filter_map(|i| query.checked_sub(i * step))
            .collect()
    })
}

/// [`dilated`] in both directions.
pub fn dilated_symmetric(queries: usize, keys: usize, count: usize, step: usize) -> Matrix {
    from_lists(queries, keys, |query| {
        let left = (0..count).filter_map(|i| query.checked_sub(i * step));
        let right = (0..count).map(|i| query + i * step);
        left.chain(right).collect()
    })
}

/// The triangle and, for all queries, the first `prefix` keys.
pub fn prefix_lm(queries: usize, keys: usize, prefix: usize) -> Matrix {
    let prefix = from_lists(queries, keys, |_| (0..prefix).collect());
    causal(queries, keys) | prefix
}

/// Squares of `size` along the diagonal.
pub fn chunked(queries: usize, keys: usize, size: usize) -> Matrix {
    from_lists(queries, keys, |query| {
        let first = query - query % size;
        (first..first + size).collect()
    })
}

/// [`chunked`] by the positions of the keys: the last query is at the last key, and queries before the first key are in no chunk.
pub fn chunked_lower_right(queries: usize, keys: usize, size: usize) -> Matrix {
    from_lists(queries, keys, |query| {
        let position = (query + keys).checked_sub(queries);
        let first = position.map(|position| position - position % size);
        first.map_or(vec![], |first| (first..first + size).collect())
    })
}

/// The first `length` keys, for all queries.
pub fn padding(queries: usize, keys: usize, length: usize) -> Matrix {
    from_lists(queries, keys, |_| (0..length).collect())
}

/// The first keys, with a number per query.
pub fn padding_per_query(keys: usize, lengths: &[usize]) -> Matrix {
    from_lists(lengths.len(), keys, |query| (0..lengths[query]).collect())
}

/// The keys that are marked, for all queries.
pub fn marked_keys(queries: usize, marked: &[bool]) -> Matrix {
    let positions: Vec<usize> = (0..marked.len()).filter(|&key| marked[key]).collect();
    from_lists(queries, marked.len(), |_| positions.clone())
}

/// The keys with the id of the query.
pub fn same_document(query_ids: &[usize], key_ids: &[usize]) -> Matrix {
    from_lists(query_ids.len(), key_ids.len(), |query| {
        let same = |&key: &usize| key_ids[key] == query_ids[query];
        (0..key_ids.len()).filter(same).collect()
    })
}

/// A matrix from the list of keys that each query attends to. Positions outside the matrix are ignored.
fn from_lists(queries: usize, keys: usize, seen_by: impl Fn(usize) -> Vec<usize>) -> Matrix {
    let mut cells = vec![false; queries * keys];
    for query in 0..queries {
        for key in seen_by(query).into_iter().filter(|&key| key < keys) {
            cells[query * keys + key] = true;
        }
    }
    Cpu::default().tensor_from_vec(cells, (queries, keys))
}

#[cfg(test)]
/// One line per query, with `x` for each key that it attends to.
fn draw(matrix: Matrix) -> Vec<String> {
    let keys = matrix.shape().1;
    let cells = matrix.as_vec();
    let line = |cells: &[bool]| {
        cells
            .iter()
            .map(|&seen| if seen { 'x' } else { '.' })
            .collect()
    };
    cells.chunks(keys).map(line).collect()
}

#[test]
fn the_masks_look_as_their_names_say() {
    let drawings = [
        (full(2, 3), "xxx xxx"),
        (causal(3, 3), "x.. xx. xxx"),
        (causal(2, 4), "x... xx.."),
        (causal(4, 2), "x. xx xx xx"),
        (causal_lower_right(2, 4), "xxx. xxxx"),
        (causal_lower_right(4, 2), ".. .. x. xx"),
        (lower_right_corner(2, 4, |n| local(n, n, 2)), ".xx. ..xx"),
        (
            lower_right_corner(3, 1, |n| local_symmetric(n, n, 2)),
            ". x x",
        ),
        (chunked_lower_right(2, 5, 2), "..xx. ....x"),
        (chunked_lower_right(4, 3, 2), "... xx. xx. ..x"),
        (local(5, 5, 1), "x.... .x... ..x.. ...x. ....x"),
        (local(5, 5, 3), "x.... xx... xxx.. .xxx. ..xxx"),
        (local(4, 2, 2), "x. xx .x .."),
        (local_symmetric(4, 4, 2), "xx.. xxx. .xxx ..xx"),
        (dilated(5, 5, 2, 2), "x.... .x... x.x.. .x.x. ..x.x"),
        (dilated(5, 5, 3, 2), "x.... .x... x.x.. .x.x. x.x.x"),
        (
            dilated_symmetric(5, 5, 2, 2),
            "x.x.. .x.x. x.x.x .x.x. ..x.x",
        ),
        (prefix_lm(4, 4, 2), "xx.. xx.. xxx. xxxx"),
        (chunked(5, 5, 2), "xx... xx... ..xx. ..xx. ....x"),
        (padding(2, 4, 3), "xxx. xxx."),
        (padding(2, 2, 0), ".. .."),
        (padding_per_query(3, &[1, 0, 3]), "x.. ... xxx"),
        (marked_keys(2, &[true, false, true]), "x.x x.x"),
        (same_document(&[7, 7, 2], &[7, 2, 2, 9]), "x... x... .xx."),
    ];
    for (matrix, drawing) in drawings {
        assert_eq!(draw(matrix), drawing.split(' ').collect::<Vec<_>>());
    }
}
