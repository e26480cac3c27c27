//! The split of a text into what is trained on and what is measured on.

use crate::vocabulary::{Token, Vocabulary};
use anyhow::{Result, ensure};

/// A text, ready to learn from.
#[derive(Debug)]
pub(crate) struct Corpus {
    pub(crate) vocabulary: Vocabulary,
    /// The first nine tenths.
    pub(crate) train: Vec<Token>,
    /// The last tenth, which is never trained on.
    pub(crate) validation: Vec<Token>,
}

impl Corpus {
    /// Splits `text`, which has to be long enough for a block of `block` characters, and the one
    /// that follows it, in either part.
    pub(crate) fn new(text: &str, room: usize, block: usize) -> Result<Self> {
        let vocabulary = Vocabulary::of(text, room)?;
        let mut train = vocabulary.encode(text)?;
        let needed = 10 * (block + 1);
        ensure!(
            train.len() >= needed,
            "the text has {} characters, too few for blocks of {block}: the tenth that is kept for \
             validation has to hold one, so at least {needed} are needed (or a smaller --block-size)",
            train.len()
        );
        let validation = train.split_off(train.len() * 9 / 10);
        Ok(Self {
            vocabulary,
            train,
            validation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_is_nine_to_one_and_loses_nothing() -> Result<()> {
        let text: String = ('a'..='z').cycle().take(105).collect();
        let corpus = Corpus::new(&text, 26, 9)?;
        assert_eq!((corpus.train.len(), corpus.validation.len()), (94, 11));
        let both = [corpus.train, corpus.validation].concat();
        assert_eq!(both, corpus.vocabulary.encode(&text)?);
        Ok(())
    }

    #[test]
    fn a_text_needs_a_block_and_one_more_in_its_last_tenth() {
        let text = |n: usize| "ab".chars().cycle().take(n).collect::<String>();
        assert!(Corpus::new(&text(99), 2, 9).is_err());
        assert!(Corpus::new(&text(100), 2, 9).is_ok_and(|c| c.validation.len() == 10));
    }
}
