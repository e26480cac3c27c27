//! The blocks of a mask, which are computed without visiting pairs, against every pair.

use attn::{Coverage, MaskBlocks, attention};

/// A query and a key of two sequences.
#[derive(Clone, Copy)]
struct Pair {
    q: i64,
    k: i64,
    q_len: i64,
    kv_len: i64,
}

impl Pair {
    /// The position of the query among the keys, with the last positions aligned.
    fn late(self) -> i64 {
        self.q + self.kv_len - self.q_len
    }

    /// The distance from the query back to the key.
    fn back(self) -> i64 {
        self.q - self.k
    }

    /// The same with the last positions aligned.
    fn late_back(self) -> i64 {
        self.late() - self.k
    }

    fn causal(self) -> bool {
        self.back() >= 0
    }

    fn window(self, n: i64) -> bool {
        (0..n).contains(&self.back())
    }

    fn dilated(self, n: i64, dilation: i64) -> bool {
        self.window(n * dilation) && self.back() % dilation == 0
    }

    fn chunk(self, n: i64) -> bool {
        self.q / n == self.k / n
    }
}

/// No tokens, one, a part of a block, several blocks with different numbers of queries and keys.
const LENGTHS: [(usize, usize); 12] = [
    (0, 0),
    (0, 7),
    (7, 0),
    (1, 1),
    (1, 97),
    (97, 1),
    (47, 49),
    (100, 100),
    (143, 301),
    (301, 143),
    (129, 130),
    (480, 480),
];

type Blocks = fn(usize, usize) -> MaskBlocks;
type Attends = fn(Pair) -> bool;

/// Calls `check` for every block of some lengths, with its known coverage, that of its pairs, and its index.
fn every_block(blocks: Blocks, attends: Attends, check: impl Fn(Coverage, Coverage, &str)) {
    for (q_len, kv_len) in LENGTHS {
        let blocks = blocks(q_len, kv_len);
        assert_eq!(blocks.rows(), q_len.div_ceil(MaskBlocks::QUERIES));
        assert_eq!(blocks.columns(), kv_len.div_ceil(MaskBlocks::KEYS));
        for row in 0..blocks.rows() {
            for column in 0..blocks.columns() {
                let pairs = pairs_of_block((row, column), (q_len, kv_len));
                let of = format!("block ({row}, {column}) of {q_len} queries and {kv_len} keys");
                check(blocks.at(0, row, column), of_pairs(pairs, attends), &of);
            }
        }
    }
}

fn pairs_of_block(
    (row, column): (usize, usize),
    (q_len, kv_len): (usize, usize),
) -> impl Iterator<Item = Pair> {
    let range = |index: usize, size: usize, len: usize| {
        (index * size) as i64..len.min((index + 1) * size) as i64
    };
    let queries = range(row, MaskBlocks::QUERIES, q_len);
    let keys = range(column, MaskBlocks::KEYS, kv_len);
    let q_len = q_len as i64;
    let kv_len = kv_len as i64;
    let pair = move |q, k| Pair {
        q,
        k,
        q_len,
        kv_len,
    };
    queries.flat_map(move |q| keys.clone().map(move |k| pair(q, k)))
}

/// The coverage, from every pair.
fn of_pairs(pairs: impl Iterator<Item = Pair>, attends: Attends) -> Coverage {
    let mut some = false;
    let mut all = true;
    for pair in pairs {
        let attends = attends(pair);
        (some, all) = (some | attends, all & attends);
    }
    match (some, all) {
        (false, _) => Coverage::Empty,
        (true, true) => Coverage::Full,
        (true, false) => Coverage::Partial,
    }
}

fn assert_exact(blocks: Blocks, attends: Attends) {
    every_block(blocks, attends, |known, is, of| {
        assert_eq!(known, is, "{of}")
    });
}

fn assert_never_wrong(blocks: Blocks, attends: Attends) {
    every_block(blocks, attends, |known, is, of| {
        assert!(
            known == is || known == Coverage::Partial,
            "{of}: {known:?}, but {is:?}"
        );
    });
}

/// `name [mask] attends;`: the claim of a layer with this mask.
macro_rules! masks {
    ($assert:ident: $($name:ident [$($mask:tt)*] $attends:expr;)*) => {$(
        #[test]
        fn $name() {
            attention! {
                struct Layer<heads = 1, d_model = 8, d_context = 8, mask = $($mask)*>;
            }
            $assert(Layer::mask_blocks, $attends);
        }
    )*};
}

/// `name { body } attends;`: the claim of a layer with this body.
macro_rules! bodies {
    ($assert:ident: $($name:ident { $($body:tt)* } $attends:expr;)*) => {$(
        #[test]
        fn $name() {
            attention! {
                struct Layer<heads = 1, d_model = 8> { $($body)* }
            }
            $assert(Layer::mask_blocks, $attends);
        }
    )*};
}

const SIXTY_FOUR: usize = 64;

mod exact {
    use super::*;

    masks! {
        assert_exact:
        none [none] |_| true;
        not_none [!none] |_| false;
        causal [causal(upper_left)] |p| p.causal();
        causal_lower_right [causal(lower_right)] |p| p.late_back() >= 0;
        not_causal [!causal(upper_left)] |p| !p.causal();
        window [sliding_window(64, upper_left)] |p| p.window(64);
        window_of_a_constant [sliding_window(SIXTY_FOUR, upper_left)] |p| p.window(64);
        window_of_one [sliding_window(1, upper_left)] |p| p.back() == 0;
        window_lower_right [sliding_window(20, lower_right)] |p| (0..20).contains(&p.late_back());
        window_symmetric [sliding_window(30, upper_left, symmetric)] |p| p.back().abs() < 30;
        not_window [!sliding_window(64, upper_left)] |p| !p.window(64);
        not_symmetric [!sliding_window(30, upper_left, symmetric)] |p| p.back().abs() >= 30;
        dilated_a_little [dilated_sliding_window(40, 3, upper_left)] |p| p.dilated(40, 3);
        dilated_by_one [dilated_sliding_window(9, 1, upper_left)] |p| p.dilated(9, 1);
        prefix [prefix_lm(100, upper_left)] |p| p.causal() || p.k < 100;
        prefix_lower_right [prefix_lm(33, lower_right)] |p| p.late_back() >= 0 || p.k < 33;
        not_prefix [!prefix_lm(100, upper_left)] |p| !p.causal() && p.k >= 100;
        chunked [chunked(64, upper_left)] |p| p.chunk(64);
        chunks_of_seven [chunked(7, upper_left)] |p| p.chunk(7);
        chunks_of_one [chunked(1, upper_left)] |p| p.chunk(1);
        chunked_lower_right [chunked(30, lower_right)]
            |p| p.late() >= 0 && p.late() / 30 == p.k / 30;
        not_chunked [!chunked(64, upper_left)] |p| !p.chunk(64);
        dilated [dilated_sliding_window(2, 64, upper_left)] |p| p.dilated(2, 64);
        dilated_symmetric [dilated_sliding_window(3, 50, lower_right, symmetric)]
            |p| p.late_back().abs() < 150 && p.late_back() % 50 == 0;
        not_dilated [!dilated_sliding_window(4, 70, upper_left)] |p| !p.dilated(4, 70);
        far [causal(upper_left) & !sliding_window(64, upper_left)] |p| p.back() >= 64;
        ahead_in_a_prefix [prefix_lm(100, upper_left) & !causal(upper_left)]
            |p| !p.causal() && p.k < 100;
        causal_or_chunked [causal(upper_left) | chunked(64, upper_left)]
            |p| p.causal() || p.chunk(64);
        causal_and_chunked [causal(upper_left) & chunked(50, upper_left)]
            |p| p.causal() && p.chunk(50);
        strided [sliding_window(40, upper_left) | dilated_sliding_window(99, 40, upper_left)]
            |p| p.window(40) || p.dilated(99, 40);
        causal_of_a_prefix [causal(upper_left) & (sliding_window(70, upper_left) | prefix_lm(4, upper_left))]
            |p| p.causal();
        band [sliding_window(200, upper_left) & !sliding_window(90, upper_left)]
            |p| (90..200).contains(&p.back());
        everything [causal(upper_left) | !causal(upper_left)] |_| true;
        nothing [chunked(9, upper_left) & !chunked(9, upper_left)] |_| false;
        chunks_of_chunks [chunked(20, upper_left) & chunked(30, upper_left)]
            |p| p.chunk(20) && p.chunk(30);
        chunks_apart [!chunked(20, upper_left) & chunked(60, upper_left) & !causal(upper_left)]
            |p| !p.chunk(20) && p.chunk(60) && !p.causal();
        two_dilations [dilated_sliding_window(20, 6, upper_left) & dilated_sliding_window(20, 10, upper_left)]
            |p| p.dilated(20, 6) && p.dilated(20, 10);
        one_dilation_of_two [dilated_sliding_window(90, 2, upper_left) & !dilated_sliding_window(60, 4, upper_left)]
            |p| p.dilated(90, 2) && !p.dilated(60, 4);
        no_odd_distance [dilated_sliding_window(30, 2, upper_left) & dilated_sliding_window(30, 2, upper_left) & !dilated_sliding_window(60, 1, upper_left)]
            |_| false;
        aligned_in_two_ways [causal(lower_right) & !sliding_window(30, upper_left)]
            |p| p.late_back() >= 0 && !p.window(30);
        chunks_in_two_ways [chunked(32, lower_right) & !chunked(32, upper_left)]
            |p| p.late() >= 0 && p.late() / 32 == p.k / 32 && !p.chunk(32);
        dilated_in_chunks [dilated_sliding_window(10, 12, upper_left) & !chunked(60, upper_left)]
            |p| p.dilated(10, 12) && !p.chunk(60);
        all_at_once [(prefix_lm(40, lower_right) | dilated_sliding_window(3, 33, upper_left)) & !(chunked(48, upper_left) & !causal(upper_left)) | sliding_window(5, upper_left, symmetric)]
            |p| (p.late_back() >= 0 || p.k < 40 || p.dilated(3, 33))
                && (!p.chunk(48) || p.causal())
                || p.back().abs() < 5;
    }

    bodies! {
        assert_exact:
        strided_body { fn mask(q_idx, kv_idx) { let d = q_idx - kv_idx; d >= 0 && (d < 64 || d % 64 == 0) } }
            |p| p.causal() && (p.window(64) || p.back() % 64 == 0);
        by_half { fn mask(q_idx, kv_idx, q_len) { if q_idx < q_len / 2 { kv_idx <= q_idx } else { kv_idx % 5 == q_idx % 3 } } }
            |p| if p.q < p.q_len / 2 { p.causal() } else { p.k % 5 == p.q % 3 };
        same_side { fn mask(q_idx, kv_idx) { (q_idx < 80) == (kv_idx < 90) } }
            |p| (p.q < 80) == (p.k < 90);
    }
}

mod never_wrong {
    use super::*;

    bodies! {
        assert_never_wrong:
        product { fn mask(q_idx, kv_idx) { q_idx * kv_idx < 5000 } } |p| p.q * p.k < 5000;
        scattered { fn mask(q_idx, kv_idx) { (q_idx * 7919 + kv_idx * 104729) % 97 != 5 } }
            |p| (p.q * 7919 + p.k * 104729) % 97 != 5;
        antidiagonal { fn mask(q_idx, kv_idx) { abs(q_idx + kv_idx - 200) < 9 } }
            |p| (p.q + p.k - 200).abs() < 9;
        ratio_of_two { fn mask(q_idx, kv_idx, kv_len) { 2 * kv_idx <= q_idx + kv_len / 3 } }
            |p| 2 * p.k <= p.q + p.kv_len / 3;
        nearest { fn mask(q_idx, kv_idx) { min(abs(q_idx - kv_idx), max(q_idx, kv_idx)) * 3 <= 100 } }
            |p| p.back().abs().min(p.q.max(p.k)) * 3 <= 100;
        floats { fn mask(q_idx, kv_idx) { sqrt((q_idx * q_idx + kv_idx * kv_idx) as f32) < 140.5 } }
            |p| p.q * p.q + p.k * p.k <= 140 * 141;
    }
}
