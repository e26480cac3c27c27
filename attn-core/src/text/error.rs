//! The errors of text and tokens.

use thiserror::Error;

/// Why a text is no tokens, or tokens are no text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// There is nothing to find tokens in.
    #[error("the text is empty: there are no tokens to find in it")]
    Empty,

    /// Characters that a vocabulary of characters does not have, each once, in the order of their code points.
    #[error("{text:?} has characters that are not in the vocabulary: {strangers:?}")]
    Strangers {
        /// The text, or the beginning of a long one.
        text: String,
        /// The characters.
        strangers: Vec<char>,
    },

    /// A token that the vocabulary does not have.
    #[error("there is no token {token}: the vocabulary has {len}, from 0")]
    Token {
        /// The token.
        token: usize,
        /// How many there are.
        len: usize,
    },

    /// Fewer pieces than there are bytes.
    #[error(
        "byte pairs need a vocabulary of at least 256 tokens, one for each byte, not of {size}"
    )]
    TooFew {
        /// How many were asked for.
        size: usize,
    },

    /// The tokenizer has refused something.
    #[error("the tokenizer: {0}")]
    Tokenizer(String),

    /// A file with a vocabulary that cannot be read.
    #[error("not a vocabulary: {0}")]
    Saved(String),
}
