//! Text as numbers: the vocabulary, and the split into what is trained on and what is measured on.

use anyhow::{Result, ensure};

/// A character's place in the vocabulary.
pub(crate) type Token = u8;

/// The characters of the text, in the order of their code points.
#[derive(Debug, PartialEq)]
pub(crate) struct Vocabulary {
    characters: Vec<char>,
}

impl Vocabulary {
    /// All characters of `text`, of which there may be `room` at most.
    pub(crate) fn of(text: &str, room: usize) -> Result<Self> {
        let characters: std::collections::BTreeSet<char> = text.chars().collect();
        ensure!(
            characters.len() <= room,
            "the text has {} different characters, and this model was compiled for {room} \
             (VOCAB in examples/char_lm/model.rs)",
            characters.len()
        );
        Ok(Self {
            characters: characters.into_iter().collect(),
        })
    }

    /// How many characters there are.
    pub(crate) fn len(&self) -> usize {
        self.characters.len()
    }

    /// The tokens of `text`, or the characters of it that are not in the vocabulary.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<Token>> {
        let place = |c: char| self.characters.binary_search(&c).ok();
        let mut strangers: Vec<char> = text.chars().filter(|&c| place(c).is_none()).collect();
        strangers.sort_unstable();
        strangers.dedup();
        ensure!(
            strangers.is_empty(),
            "{text:?} has characters that the model never saw in its text: {strangers:?}"
        );
        Ok(text.chars().filter_map(place).map(|i| i as Token).collect())
    }

    /// The character of `token`.
    pub(crate) fn decode(&self, token: Token) -> char {
        self.characters[usize::from(token)]
    }

    /// All characters as one string, to be shown or written down.
    pub(crate) fn to_text(&self) -> String {
        self.characters.iter().collect()
    }
}

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
    fn encoding_and_decoding_are_inverse() -> Result<()> {
        let text = "Grüße, Welt!\n";
        let vocabulary = Vocabulary::of(text, 128)?;
        let tokens = vocabulary.encode(text)?;
        assert_eq!(
            tokens
                .iter()
                .map(|&t| vocabulary.decode(t))
                .collect::<String>(),
            text
        );
        assert_eq!(vocabulary.to_text(), "\n !,GWelrtßü");
        assert_eq!(vocabulary.len(), 12);
        Ok(())
    }

    #[test]
    fn strangers_are_named() -> Result<()> {
        let message = match Vocabulary::of("abc", 128)?.encode("a!b?!") {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        assert!(message.ends_with("['!', '?']"), "{message}");
        Ok(())
    }

    #[test]
    fn too_many_characters_are_refused() {
        assert!(Vocabulary::of("abcd", 3).is_err());
        assert!(Vocabulary::of("abc", 3).is_ok());
    }

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
