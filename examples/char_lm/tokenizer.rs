//! The choice of the tokens.

use anyhow::{Result, ensure};
use attn::text::Vocabulary;

/// The unit of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TokenUnit {
    /// A character of the text
    Chars,
    /// A byte of UTF-8
    Bytes,
    /// A piece of a word, found in the text by byte-pair encoding [cargo feature: tokenizers]
    Bpe,
}

/// The options of the tokens.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Unit of a token
    #[arg(long, value_enum, value_name = "KIND", default_value_t = TokenUnit::Chars)]
    pub(crate) tokenizer: TokenUnit,

    /// Maximum number of tokens of byte-pair encoding [default: the vocabulary size of the model]
    #[arg(long, value_name = "N")]
    pub(crate) vocab_size: Option<usize>,
}

impl Options {
    /// Checks the options for a model whose vocabulary has this size.
    pub(crate) fn check(&self, room: usize) -> Result<()> {
        let is_bpe = self.tokenizer == TokenUnit::Bpe;
        ensure!(
            !is_bpe || cfg!(feature = "tokenizers"),
            "--tokenizer bpe needs a cargo feature: \
             cargo run --release --features tokenizers --example char_lm -- --tokenizer bpe"
        );
        let Some(size) = self.vocab_size else {
            return Ok(());
        };
        ensure!(
            is_bpe,
            "--vocab-size {size} is for --tokenizer bpe: characters are those of the text, and there are 256 bytes"
        );
        ensure!(
            size >= 256,
            "--vocab-size {size} is too small: each of the 256 bytes is a token"
        );
        ensure!(
            size <= room,
            "--vocab-size {size} is more than the {room} tokens that this model was compiled for \
             (VOCAB in examples/char_lm/model.rs)"
        );
        Ok(())
    }

    /// The vocabulary for a text, with at most `room` tokens.
    pub(crate) fn vocabulary(&self, text: &str, room: usize) -> Result<Vocabulary> {
        match self.tokenizer {
            TokenUnit::Chars => characters(text, room),
            TokenUnit::Bytes => Ok(Vocabulary::bytes()),
            TokenUnit::Bpe => byte_pairs(text, self.vocab_size.unwrap_or(room)),
        }
    }
}

/// The characters of a text, at most `room`.
pub(crate) fn characters(text: &str, room: usize) -> Result<Vocabulary> {
    let vocabulary = Vocabulary::characters(text)?;
    ensure!(
        vocabulary.len() <= room,
        "the text has {} different characters, and this model was compiled for {room} tokens \
         (VOCAB in examples/char_lm/model.rs): --tokenizer bytes has 256 for any text",
        vocabulary.len()
    );
    Ok(vocabulary)
}

#[cfg(feature = "tokenizers")]
fn byte_pairs(text: &str, size: usize) -> Result<Vocabulary> {
    Ok(Vocabulary::byte_pairs(text, size)?)
}

#[cfg(not(feature = "tokenizers"))]
fn byte_pairs(_: &str, _: usize) -> Result<Vocabulary> {
    anyhow::bail!("byte-pair encoding needs the cargo feature `tokenizers`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(tokenizer: TokenUnit, vocab_size: Option<usize>) -> Options {
        Options {
            tokenizer,
            vocab_size,
        }
    }

    fn refusal(tokenizer: TokenUnit, vocab_size: Option<usize>) -> String {
        let refused = flags(tokenizer, vocab_size).check(1024).err();
        refused.map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert_eq!(refusal(TokenUnit::Chars, None), "");
        assert!(refusal(TokenUnit::Chars, Some(300)).contains("is for --tokenizer bpe"));
        if cfg!(feature = "tokenizers") {
            assert!(refusal(TokenUnit::Bpe, Some(255)).contains("256 bytes"));
            assert!(refusal(TokenUnit::Bpe, Some(1025)).contains("more than the 1024"));
            assert_eq!(refusal(TokenUnit::Bpe, Some(1024)), "");
        } else {
            assert!(refusal(TokenUnit::Bpe, None).contains("--features tokenizers"));
        }
    }

    #[test]
    fn there_is_room_for_the_tokens() -> Result<()> {
        let text = "to be or not to be";
        assert!(characters(text, 6).is_err());
        assert_eq!(flags(TokenUnit::Chars, None).vocabulary(text, 7)?.len(), 7);
        assert_eq!(
            flags(TokenUnit::Bytes, None).vocabulary(text, 256)?.len(),
            256
        );
        if cfg!(feature = "tokenizers") {
            let pieces = flags(TokenUnit::Bpe, Some(258)).vocabulary(text, 1024)?;
            assert_eq!(pieces.len(), 258);
        }
        Ok(())
    }
}
