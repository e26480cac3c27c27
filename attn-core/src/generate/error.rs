//! Errors of sessions.

/// Why a session cannot continue, or cannot be copied. It has not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no space for this many tokens.
    #[error(
        "no room: sequence {sequence} has {len} of {capacity} tokens, and {given} more are given"
    )]
    Full {
        /// The sequence.
        sequence: usize,
        /// Its number of tokens.
        len: usize,
        /// The number of new tokens.
        given: usize,
        /// The maximum number of tokens.
        capacity: usize,
    },

    /// A token outside of the vocabulary.
    #[error(
        "token {place} of sequence {sequence} is {token}, but the model knows {vocabulary} tokens, counted from 0"
    )]
    Unknown {
        /// The sequence.
        sequence: usize,
        /// The index among the new tokens.
        place: usize,
        /// The token.
        token: usize,
        /// The size of the vocabulary.
        vocabulary: usize,
    },

    /// The tokens are for another number of sequences.
    #[error("tokens for {given} sequences, but the session has {sequences}")]
    Sequences {
        /// The number of sequences with tokens.
        given: usize,
        /// The number of sequences of the session.
        sequences: usize,
    },

    /// The sequence is empty, so there is nothing to continue.
    #[error("sequence {sequence} is given no tokens, and has none")]
    Empty {
        /// The sequence.
        sequence: usize,
    },

    /// There is no memory for a copy.
    #[error("a copy of {sequences} sequences of {capacity} tokens does not fit into memory")]
    TooLarge {
        /// The number of sequences.
        sequences: usize,
        /// The maximum number of tokens of each.
        capacity: usize,
    },
}
