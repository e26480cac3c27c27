//! Text as numbers.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// A character's place in the vocabulary.
pub(crate) type Token = u8;

/// The characters of the text, in the order of their code points. In a file it is one string.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
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

    /// The text of `tokens`.
    pub(crate) fn decode_all(&self, tokens: &[Token]) -> String {
        tokens.iter().map(|&token| self.decode(token)).collect()
    }

    /// All characters as one string, to be shown or written down.
    pub(crate) fn to_text(&self) -> String {
        self.characters.iter().collect()
    }
}

impl From<Vocabulary> for String {
    fn from(vocabulary: Vocabulary) -> Self {
        vocabulary.to_text()
    }
}

impl TryFrom<String> for Vocabulary {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let characters: Vec<char> = text.chars().collect();
        let ascends = characters.is_sorted_by(|a, b| a < b);
        let fits = characters.len() <= usize::from(Token::MAX) + 1;
        match ascends && fits && !characters.is_empty() {
            true => Ok(Self { characters }),
            false => Err("a vocabulary has 1 to 256 different characters, in their order"),
        }
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
        assert_eq!(vocabulary.decode_all(&tokens), text);
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
    fn a_file_has_its_characters_in_their_order() -> Result<()> {
        let vocabulary = Vocabulary::of("a\nü\"", 128)?;
        let json = serde_json::to_string(&vocabulary)?;
        assert_eq!(json, r#""\n\"aü""#);
        assert_eq!(serde_json::from_str::<Vocabulary>(&json)?, vocabulary);
        for wrong in [r#""""#, r#""ba""#, r#""aab""#, "7"] {
            assert!(
                serde_json::from_str::<Vocabulary>(wrong).is_err(),
                "{wrong}"
            );
        }
        Ok(())
    }
}
