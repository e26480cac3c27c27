//! Which part of a batch a pass has.

/// The part of a batch that a rank has, as a share of its rows. Dropout drops the numbers of a part that it drops of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    before: u64,
    here: u64,
}

impl Part {
    /// The whole batch, or its beginning.
    pub const WHOLE: Self = Self { before: 0, here: 1 };

    /// The part of so many rows, with others before it.
    pub fn new(before: u64, here: u64) -> Self {
        let here = here.max(1);
        Self { before, here }
    }

    /// How many of something are in the parts before this one, which has `len` of it.
    pub fn before(self, len: usize) -> usize {
        // All are multiples of the rows of the batch, so nothing is rounded.
        (len as u128 * u128::from(self.before) / u128::from(self.here)) as usize
    }
}

/// The seed of a dropout, and the part of the batch that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The key of the generator.
    pub key: u64,
    /// The part.
    pub part: Part,
}

/// The seed of a dropout of the whole batch.
impl From<u64> for Seed {
    fn from(key: u64) -> Self {
        let part = Part::WHOLE;
        Self { key, part }
    }
}

/// A source of the seeds of one pass.
pub trait DrawSeeds: Sync {
    /// The next one.
    fn draw(&self) -> u64;

    /// The part of the batch that they are for.
    fn part(&self) -> Part;
}

impl<F: Fn() -> u64 + Sync> DrawSeeds for F {
    fn draw(&self) -> u64 {
        self()
    }

    fn part(&self) -> Part {
        Part::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_behind_those_of_the_parts_before() {
        // Rows 3 and 4 of a batch.
        let part = Part::new(3, 2);
        assert_eq!(part.before(2), 3);
        assert_eq!(part.before(2 * 7 * 64), 3 * 7 * 64);
        assert_eq!(Part::WHOLE.before(5), 0);
        assert_eq!(Part::new(3, 0).before(0), 0);
    }
}
