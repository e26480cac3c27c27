//! What the kernels make of a mask, to be counted and drawn.

use std::fmt;

use super::plan::{BLOCK, QUERIES, blocks, chunks};
use super::{Coverage, Mask};

/// The blocks of queries and keys of one sequence, by what the kernels know of them before they look: those that the mask
/// empties are never visited, and where it hides nothing it is not asked.
///
/// It is displayed as a picture: `█` is full, `▒` partial, `·` empty. A picture of a long sequence shows several blocks as one.
///
/// PyTorch: the `BlockMask` of
/// [`create_block_mask`](https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html), which is made at run time, from
/// every pair of a query and a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskBlocks {
    heads: usize,
    rows: usize,
    columns: usize,
    /// `[heads, rows, columns]`
    coverage: Vec<Coverage>,
}

impl MaskBlocks {
    /// Queries of a block.
    pub const QUERIES: usize = QUERIES;
    /// Keys of a block.
    pub const KEYS: usize = BLOCK;

    /// The blocks of the first heads of the first sequence, for `query` queries and `key` keys.
    pub fn new(mask: &dyn Mask, heads: usize, query: usize, key: usize) -> Self {
        let (rows, columns) = (query.div_ceil(QUERIES), key.div_ceil(BLOCK));
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

    /// The number of heads; 1 if all of them are alike.
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

    /// What is known of a block.
    ///
    /// # Panics
    /// If there is none.
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

    /// How many blocks of all heads are known to be this.
    pub fn count(&self, coverage: Coverage) -> usize {
        let same = self.coverage.iter().filter(|known| **known == coverage);
        same.count()
    }

    /// Of some neighbours together.
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

/// The most lines and characters of a picture.
const MOST_LINES: usize = 32;
const MOST_CHARACTERS: usize = 96;

impl fmt::Display for MaskBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns): (Vec<_>, Vec<_>) =
            ((0..self.rows).collect(), (0..self.columns).collect());
        let (tall, wide) = (
            self.rows.div_ceil(MOST_LINES).max(1),
            self.columns.div_ceil(MOST_CHARACTERS).max(1),
        );
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

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Head 0 looks back, head 1 sees the first ten keys, head 2 nothing.
    struct ByHead;

    impl Mask for ByHead {
        fn attends(&self, _: usize, h: usize, q: usize, k: usize) -> bool {
            [k <= q, k < 10, false][h]
        }

        fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
            let pairs = q.flat_map(|q| k.clone().map(move |k| (q, k)));
            let attends: Vec<_> = pairs.map(|(q, k)| self.attends(b, h, q, k)).collect();
            match (attends.contains(&true), attends.contains(&false)) {
                (true, false) => Coverage::Full,
                (false, _) => Coverage::Empty,
                _ => Coverage::Partial,
            }
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
    fn blocks_are_what_their_pairs_are() {
        for (query, key) in LENGTHS {
            let found = MaskBlocks::new(&ByHead, 3, query, key);
            let mut counts = [0; 3];
            for h in 0..3 {
                for (row, q) in (0..query).step_by(48).enumerate() {
                    for (column, k) in (0..key).step_by(16).enumerate() {
                        let (q, k) = (q..query.min(q + 48), k..key.min(k + 16));
                        let expected = ByHead.coverage(0, h, q, k);
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
    fn a_picture_for_each_head() {
        let found = MaskBlocks::new(&ByHead, 2, 100, 60);
        let expected = "head 0\n▒▒▒·\n███▒\n████\nhead 1\n▒···\n▒···\n▒···\n";
        assert_eq!(found.to_string(), expected);
        assert_eq!(MaskBlocks::new(&ByHead, 1, 0, 7).to_string(), "");
        assert_eq!(MaskBlocks::new(&ByHead, 1, 1, 0).to_string(), "\n");
    }

    #[test]
    fn a_picture_of_a_long_sequence_is_no_larger() {
        let (query, key) = (48 * 64, 16 * 192);
        let picture = MaskBlocks::new(&ByHead, 1, query, key).to_string();
        let lines: Vec<_> = picture.lines().collect();
        assert_eq!(lines.len(), 32);
        // A line is 96 queries, a character 32 keys: three of them meet the diagonal.
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
    fn a_block_that_is_not_there() {
        MaskBlocks::new(&ByHead, 1, 1, 1).at(0, 0, 1);
    }
}
