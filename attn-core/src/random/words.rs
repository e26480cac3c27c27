//! A sequence of random numbers for choices: orders, places, directions.

use super::Philox4x32;

/// The words of [`Philox4x32`], one after the other, for a seed, a subject and a number: so the choices of a step are known without those
/// of the steps before.
pub(crate) struct Words {
    random: Philox4x32,
    subject: Subject,
    number: u64,
    next: u32,
}

/// The use of the words: each has its own for a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// Elements whose gradients are checked.
    Elements,
    /// Factors of a loss.
    Factors,
    /// The places of blocks in a text.
    Blocks,
    /// The order of texts in an epoch.
    Texts,
    /// The order of batches in an epoch.
    Batches,
}

impl Words {
    pub(crate) fn new(seed: u64, subject: Subject, number: u64) -> Self {
        Self {
            random: Philox4x32::new(seed),
            subject,
            number,
            next: 0,
        }
    }

    pub(crate) fn word(&mut self) -> u64 {
        let number = [self.number as u32, (self.number >> 32) as u32];
        let counter = [self.next, number[0], number[1], self.subject as u32];
        self.next = self.next.wrapping_add(1);
        let [low, high, ..] = self.random.block(counter);
        u64::from(low) | u64::from(high) << 32
    }

    /// A number below `end`, which is not 0, all with the same chance: the high half of a product, without the words that would give some
    /// numbers one chance more (Lemire 2019).
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = end as u64;
        let surplus = end.wrapping_neg() % end;
        loop {
            let product = u128::from(self.word()) * u128::from(end);
            if product as u64 >= surplus {
                return (product >> 64) as usize;
            }
        }
    }

    /// Brings a list into a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }

    /// A number from -1 to 1.
    pub(crate) fn number(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// `count` of the places below `len`, in ascending order: all of them if there are no more. The first and the last are among them.
    pub(crate) fn places(&mut self, len: usize, count: usize) -> Vec<usize> {
        if len <= count {
            return (0..len).collect();
        }
        let mut places = std::collections::BTreeSet::from([0, len - 1]);
        while places.len() < count {
            places.insert(self.below(len));
        }
        places.into_iter().take(count).collect()
    }

    /// A direction of length 1, in which every element has the same share.
    pub(crate) fn direction(&mut self, len: usize) -> Vec<f64> {
        let share = 1.0 / (len as f64).sqrt();
        (0..len)
            .map(|_| match self.word() & 1 {
                0 => share,
                _ => -share,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_an_end_has_the_same_chance() {
        let mut words = Words::new(1, Subject::Texts, 0);
        let mut counts = [0_i32; 6];
        for _ in 0..60_000 {
            counts[words.below(6)] += 1;
        }
        // Five standard deviations of a count: sqrt(60000 · 5 / 36) = 91.
        assert!(
            counts.iter().all(|count| (count - 10_000).abs() < 456),
            "{counts:?}"
        );
        assert_eq!(words.below(1), 0);
    }

    #[test]
    fn a_shuffled_list_has_the_same_elements_in_an_order_of_the_seed() {
        let of = |seed, number| {
            let mut list: Vec<usize> = (0..50).collect();
            Words::new(seed, Subject::Texts, number).shuffle(&mut list);
            list
        };
        let mut sorted = of(1, 0);
        assert_ne!(sorted, (0..50).collect::<Vec<_>>());
        assert_eq!(sorted, of(1, 0));
        assert!(sorted != of(1, 1) && sorted != of(2, 0));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn places_are_different_and_have_both_ends() {
        let places = Words::new(1, Subject::Elements, 0).places(100, 7);
        assert_eq!((places.len(), places[0], places[6]), (7, 0, 99));
        assert!(places.is_sorted_by(|a, b| a < b));
        assert_eq!(Words::new(1, Subject::Elements, 0).places(3, 7), [0, 1, 2]);
        assert_eq!(Words::new(1, Subject::Elements, 0).places(3, 1), [0]);
    }
}
