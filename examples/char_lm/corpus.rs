//! The split of a text into training and validation.

use anyhow::{Result, ensure};
use attn::text::Vocabulary;
use std::ops::Range;

/// A text as tokens, split in two.
#[derive(Debug)]
pub(crate) struct Corpus {
    pub(crate) vocabulary: Vocabulary,
    /// The first nine tenths.
    pub(crate) train: Vec<usize>,
    /// The last tenth, which is never trained on.
    pub(crate) validation: Vec<usize>,
}

impl Corpus {
    /// Splits `text`. Each part must have at least `block` + 1 tokens.
    pub(crate) fn new(text: &str, vocabulary: Vocabulary, block: usize) -> Result<Self> {
        let mut train = vocabulary.encode(text)?;
        let needed = 10 * (block + 1);
        ensure!(
            train.len() >= needed,
            "the text has {} tokens, too few for blocks of {block}: the tenth that is kept for \
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

    /// The number of characters in the tokens of the validation split that `blocks` predict.
    pub(crate) fn characters(&self, blocks: impl Iterator<Item = Range<usize>>) -> Result<usize> {
        let texts = blocks.map(|block| {
            let asked = &self.validation[block.start + 1..=block.end];
            Ok(self.vocabulary.decode(asked)?.chars().count())
        });
        texts.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_is_nine_to_one_and_loses_nothing() -> Result<()> {
        let text: String = ('a'..='z').cycle().take(105).collect();
        let corpus = Corpus::new(&text, Vocabulary::characters(&text)?, 9)?;
        assert_eq!((corpus.train.len(), corpus.validation.len()), (94, 11));
        let both = [corpus.train, corpus.validation].concat();
        assert_eq!(both, corpus.vocabulary.encode(&text)?);
        Ok(())
    }

    #[test]
    fn a_text_needs_a_block_and_one_more_in_its_last_tenth() {
        let corpus = |n: usize| {
            let text: String = "ab".chars().cycle().take(n).collect();
            Corpus::new(&text, Vocabulary::characters("ab")?, 9)
        };
        assert!(corpus(99).is_err());
        assert!(corpus(100).is_ok_and(|c| c.validation.len() == 10));
    }

    #[test]
    fn characters_are_counted_whatever_the_tokens_are() -> Result<()> {
        let text = "äb".repeat(50);
        let bytes = Corpus::new(&text, Vocabulary::bytes(), 9)?;
        // The last 15 of 150 bytes: "äbäbäbäbäb". Of the second to the tenth, the first completes an ä.
        assert_eq!(bytes.validation.len(), 15);
        assert_eq!(bytes.characters([0..4, 4..9].into_iter())?, 7);
        let chars = Corpus::new(&text, Vocabulary::characters(&text)?, 8)?;
        assert_eq!(chars.characters([0..5, 5..9].into_iter())?, 9);
        Ok(())
    }
}
