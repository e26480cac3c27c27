//! Philox4x32-10.

/// Odd multipliers of the two halves of a round.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// The increments of the key after each round: the golden ratio and sqrt(3) - 1, as fractions of 2^32.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The counter-based generator Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3" (SC 2011). PyTorch's CUDA generator is the same function.
///
/// ```
/// use attn::__private::runtime::random::Philox4x32;
///
/// let random = Philox4x32::new(42);
/// assert_eq!(random.block([0, 1, 2, 3]), random.block([0, 1, 2, 3]));
/// assert_ne!(random.block([0, 1, 2, 3]), random.block([0, 1, 2, 4]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox4x32 {
    key: [u32; 2],
}

impl Philox4x32 {
    /// The generator of a key.
    pub fn new(key: u64) -> Self {
        Self {
            key: [key as u32, (key >> 32) as u32],
        }
    }

    /// Four independent, uniformly distributed words for a counter. A loop over counters is vectorised in a kernel.
    #[inline(always)]
    pub fn block(&self, mut counter: [u32; 4]) -> [u32; 4] {
        let mut key = self.key;
        for _ in 0..ROUNDS {
            counter = round(counter, key);
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        counter
    }
}

impl Philox4x32 {
    /// The number of blocks of [`blocks`](Self::blocks).
    pub const BLOCKS: usize = 16;

    /// The [`block`](Self::block)s of consecutive counters from `first` on, counted in its first two words: one per lane in the
    /// vectors of a kernel.
    #[inline(always)]
    pub fn blocks(&self, first: [u32; 4]) -> [[u32; 4]; Self::BLOCKS] {
        let start = u64::from(first[0]) | u64::from(first[1]) << 32;
        let mut blocks = [[0; 4]; Self::BLOCKS];
        for (index, block) in blocks.iter_mut().enumerate() {
            let counter = start.wrapping_add(index as u64);
            *block = self.block([counter as u32, (counter >> 32) as u32, first[2], first[3]]);
        }
        blocks
    }
}

/// Two 32 by 32 bit products; the halves of each are swapped between the lanes and mixed with the key.
#[inline(always)]
fn round([c0, c1, c2, c3]: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (high0, low0) = wide_product(MULTIPLIERS[0], c0);
    let (high1, low1) = wide_product(MULTIPLIERS[1], c2);
    [high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0]
}

#[inline(always)]
fn wide_product(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors for `philox4x32 10` in the Random123 distribution, `tests/kat_vectors`.
    #[test]
    fn blocks_agree_with_known_answers() {
        let answer = |key: [u32; 2], counter| {
            Philox4x32::new(u64::from(key[0]) | u64::from(key[1]) << 32).block(counter)
        };
        assert_eq!(
            answer([0, 0], [0, 0, 0, 0]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        let ones = u32::MAX;
        assert_eq!(
            answer([ones, ones], [ones, ones, ones, ones]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        // The digits of pi.
        assert_eq!(
            answer(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn counters_of_many_blocks_use_the_first_two_words() {
        let random = Philox4x32::new(7);
        let max = u32::MAX;
        let second = |first| random.blocks(first)[1];
        assert_eq!(random.blocks([3, 4, 5, 6])[0], random.block([3, 4, 5, 6]));
        assert_eq!(second([3, 4, 5, 6]), random.block([4, 4, 5, 6]));
        assert_eq!(second([max, 4, 5, 6]), random.block([0, 5, 5, 6]));
        assert_eq!(second([max, max, 5, 6]), random.block([0, 0, 5, 6]));
    }

    #[test]
    fn adjacent_counters_and_keys_have_different_words() {
        let words = |key, place| Philox4x32::new(key).block([place, 0, 0, 0]);
        for place in 0..100 {
            for (a, b) in words(7, place).into_iter().zip(words(7, place + 1)) {
                assert_ne!(a, b);
            }
            for (a, b) in words(7, place).into_iter().zip(words(8, place)) {
                assert_ne!(a, b);
            }
        }
    }
}
