//! Errors of tokenization.

use thiserror::Error;

/// Why a text cannot be encoded, or tokens cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The text is empty.
    #[error("the text is empty: there are no tokens to find in it")]
    Empty,

    /// Characters that are not in the vocabulary, each once, in the order of their code points.
    #[error("{text:?} has characters that are not in the vocabulary: {strangers:?}")]
    Strangers {
        /// The text, or the beginning of a long one.
        text: String,
        /// The characters.
        strangers: Vec<char>,
    },

    /// A token that is not in the vocabulary.
    #[error("there is no token {token}: the vocabulary has {len}, from 0")]
    Token {
        /// The token.
        token: usize,
        /// The size of the vocabulary.
        len: usize,
    },

    /// The requested size is smaller than the number of bytes.
    #[error(
        "byte pairs need a vocabulary of at least 256 tokens, one for each byte, not of {size}"
    )]
    TooFew {
        /// The requested size.
        size: usize,
    },

    /// The tokenizer returned an error.
    #[error("the tokenizer: {0}")]
    Tokenizer(String),

    /// A file of a vocabulary cannot be read.
    #[error("not a vocabulary: {0}")]
    Saved(String),
}
