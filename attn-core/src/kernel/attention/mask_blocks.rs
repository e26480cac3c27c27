//! Facts of a mask that need no run: its blocks, and the fraction of pairs that attend.

use std::{fmt, ops::Range};

use super::plan::{BLOCK, QUERIES, blocks, chunks};
use super::{Coverage, Mask};

/// The blocks of queries and keys of one sequence, by their coverage. The kernels never visit empty blocks, and do not evaluate
/// the mask in full ones.
///
/// It displays as a picture: `█` is full, `▒` partial, `·` empty. A picture of a long sequence shows several blocks as one.
///
/// PyTorch: the `BlockMask` of [`create_block_mask`](https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html),
/// which is made at run time, from every pair of a query and a key.
#[doc(alias("BlockMask", "create_block_mask"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskBlocks {
    heads: usize,
    rows: usize,
    columns: usize,
    /// `[heads, rows, columns]`
    coverage: Vec<Coverage>,
}

impl MaskBlocks {
    /// The number of queries of a block.
    pub const QUERIES: usize = QUERIES;
    /// The number of keys of a block.
    pub const KEYS: usize = BLOCK;

    /// The blocks of the first `heads` heads of the first sequence, for `query` queries and `key` keys.
    pub fn new(mask: &dyn Mask, heads: usize, query: usize, key: usize) -> Self {
        let rows = query.div_ceil(QUERIES);
        let columns = key.div_ceil(BLOCK);
        let mut coverage = vec![Coverage::Empty; heads * rows * columns];
        let mut at = 0;
        for h in 0..heads {
            let known = |queries, keys| mask.coverage(0, h, queries, keys);
            for queries in chunks(0..query, QUERIES) {
                for (keys, partial) in blocks(known, queries, 0..key) {
                    coverage[at + keys.start / BLOCK] = match partial {
                        true => Coverage::Partial,
                        false => Coverage::Full,
                    };
                }
                at += columns;
            }
        }
        Self {
            heads,
            rows,
            columns,
            coverage,
        }
    }

    /// The number of heads, or 1 if all of them are alike.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// The number of blocks of queries.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of blocks of keys.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The coverage of a block.
    ///
    /// # Panics
    /// If the block does not exist.
    pub fn at(&self, head: usize, row: usize, column: usize) -> Coverage {
        assert!(
            head < self.heads && row < self.rows && column < self.columns,
            "no block {column} of row {row} of head {head}: there are {} of {} of {}",
            self.columns,
            self.rows,
            self.heads
        );
        self.coverage[(head * self.rows + row) * self.columns + column]
    }

    /// The number of blocks of all heads with this coverage.
    pub fn count(&self, coverage: Coverage) -> usize {
        let same = self.coverage.iter().filter(|known| **known == coverage);
        same.count()
    }

    /// The coverage of several neighbouring blocks.
    fn of_all(&self, head: usize, rows: &[usize], columns: &[usize]) -> Coverage {
        let blocks = rows
            .iter()
            .flat_map(|row| columns.iter().map(move |column| (row, column)));
        let mut known = blocks.map(|(row, column)| self.at(head, *row, *column));
        let first = known.next().unwrap_or(Coverage::Empty);
        match known.all(|other| other == first) {
            true => first,
            false => Coverage::Partial,
        }
    }
}

/// The maximum number of lines and characters of a picture.
const MAX_LINES: usize = 32;
const MAX_CHARACTERS: usize = 96;

impl fmt::Display for MaskBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns): (Vec<_>, Vec<_>) =
            ((0..self.rows).collect(), (0..self.columns).collect());
        let tall = self.rows.div_ceil(MAX_LINES).max(1);
        let wide = self.columns.div_ceil(MAX_CHARACTERS).max(1);
        for head in 0..self.heads {
            if self.heads > 1 {
                writeln!(f, "head {head}")?;
            }
            for rows in rows.chunks(tall) {
                for columns in columns.chunks(wide) {
                    f.write_str(match self.of_all(head, rows, columns) {
                        Coverage::Empty => "·",
                        Coverage::Partial => "▒",
                        Coverage::Full => "█",
                    })?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// The fraction of pairs of a query and a key that attend, over the heads of the first sequence: from 0 to 1, and 0 if there are
/// no pairs.
pub fn mask_density(mask: &dyn Mask, heads: usize, query: usize, key: usize) -> f64 {
    let attending = (0..heads).map(|h| attending(mask, h, 0..query, 0..key));
    let pairs = heads as f64 * query as f64 * key as f64;
    if pairs == 0.0 {
        return 0.0;
    }
    attending.sum::<f64>() / pairs
}

/// In rectangles of up to this many pairs, the pairs are counted one by one.
const FEW: usize = 64;

/// The number of pairs in a rectangle that attend. Partial rectangles are split into halves.
fn attending(mask: &dyn Mask, h: usize, q: Range<usize>, k: Range<usize>) -> f64 {
    let pairs = q.len() * k.len();
    if pairs == 0 {
        return 0.0;
    }
    match mask.coverage(0, h, q.clone(), k.clone()) {
        Coverage::Empty => 0.0,
        Coverage::Full => pairs as f64,
        Coverage::Partial if pairs <= FEW => {
            let pairs = q.flat_map(|q| k.clone().map(move |k| (q, k)));
            pairs.filter(|(q, k)| mask.attends(0, h, *q, *k)).count() as f64
        }
        Coverage::Partial => {
            let cut_q = halves(&q);
            let cut_k = halves(&k);
            if q.len() >= k.len() {
                cut_q.map(|q| attending(mask, h, q, k.clone())).iter().sum()
            } else {
                cut_k.map(|k| attending(mask, h, q.clone(), k)).iter().sum()
            }
        }
    }
}

fn halves(range: &Range<usize>) -> [Range<usize>; 2] {
    let middle = range.start + range.len() / 2;
    [range.start..middle, middle..range.end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Head 0 is causal, head 1 attends to the first ten keys, head 2 to nothing.
    struct ByHead;

    impl Mask for ByHead {
        fn attends(&self, _: usize, h: usize, q: usize, k: usize) -> bool {
            [k <= q, k < 10, false][h]
        }

        fn coverage(&self, _: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
            // The last key that some queries attend to, and the last that all queries attend to.
            let [some, every] = [[q.end - 1, q.start], [9, 9], [0, 0]][h];
            match h {
                2 => Coverage::Empty,
                _ if k.end - 1 <= every => Coverage::Full,
                _ if k.start > some => Coverage::Empty,
                _ => Coverage::Partial,
            }
        }
    }

    /// The coverage, from every pair.
    fn coverage_of_pairs(h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        let pairs = q.flat_map(|q| k.clone().map(move |k| (q, k)));
        let attends: Vec<_> = pairs.map(|(q, k)| ByHead.attends(0, h, q, k)).collect();
        match (attends.contains(&true), attends.contains(&false)) {
            (true, false) => Coverage::Full,
            (false, _) => Coverage::Empty,
            _ => Coverage::Partial,
        }
    }

    const LENGTHS: [(usize, usize); 8] = [
        (0, 0),
        (0, 3),
        (3, 0),
        (1, 1),
        (47, 49),
        (100, 100),
        (49, 600),
        (300, 17),
    ];

    #[test]
    fn blocks_agree_with_their_pairs() {
        for (query, key) in LENGTHS {
            let found = MaskBlocks::new(&ByHead, 3, query, key);
            let mut counts = [0; 3];
            for h in 0..3 {
                for (row, q) in (0..query).step_by(48).enumerate() {
                    for (column, k) in (0..key).step_by(16).enumerate() {
                        let q = q..query.min(q + 48);
                        let k = k..key.min(k + 16);
                        let expected = coverage_of_pairs(h, q, k);
                        assert_eq!(found.at(h, row, column), expected);
                        counts[expected as usize] += 1;
                    }
                }
            }
            let all = [Coverage::Empty, Coverage::Partial, Coverage::Full];
            assert_eq!(all.map(|coverage| found.count(coverage)), counts);
            assert_eq!(counts.iter().sum::<usize>(), found.coverage.len());
        }
    }

    #[test]
    fn each_head_has_a_picture() {
        let found = MaskBlocks::new(&ByHead, 2, 100, 60);
        let expected = "head 0\n▒▒▒·\n███▒\n████\nhead 1\n▒···\n▒···\n▒···\n";
        assert_eq!(found.to_string(), expected);
        assert_eq!(MaskBlocks::new(&ByHead, 1, 0, 7).to_string(), "");
        assert_eq!(MaskBlocks::new(&ByHead, 1, 1, 0).to_string(), "\n");
    }

    #[test]
    fn pictures_of_long_sequences_are_bounded() {
        let query = 48 * 64;
        let key = 16 * 192;
        let picture = MaskBlocks::new(&ByHead, 1, query, key).to_string();
        let lines: Vec<_> = picture.lines().collect();
        assert_eq!(lines.len(), 32);
        // A line is 96 queries, a character 32 keys: three characters meet the diagonal.
        for (row, line) in lines.iter().enumerate() {
            let expected: String = (0..96)
                .map(|column| match column {
                    _ if column < 3 * row => '█',
                    _ if column < 3 * row + 3 => '▒',
                    _ => '·',
                })
                .collect();
            assert_eq!(*line, expected);
        }
    }

    #[test]
    #[should_panic(expected = "no block 1 of row 0 of head 0")]
    fn missing_blocks_panic() {
        MaskBlocks::new(&ByHead, 1, 1, 1).at(0, 0, 1);
    }

    #[test]
    fn density_is_the_fraction_of_attended_pairs() {
        for (query, key) in LENGTHS {
            for heads in 1..=3 {
                let pairs = (0..heads)
                    .flat_map(|h| (0..query).flat_map(move |q| (0..key).map(move |k| (h, q, k))));
                let mut all = 0;
                let mut attending = 0;
                for (h, q, k) in pairs {
                    all += 1;
                    attending += usize::from(ByHead.attends(0, h, q, k));
                }
                let expected = if all == 0 {
                    0.0
                } else {
                    attending as f64 / all as f64
                };
                assert_eq!(mask_density(&ByHead, heads, query, key), expected);
            }
        }
    }

    #[test]
    fn long_sequences_are_counted_by_rectangles() {
        let len = 1 << 16;
        let density = mask_density(&ByHead, 1, len, len);
        assert_eq!(density, (len + 1) as f64 / (2 * len) as f64);
    }
}
