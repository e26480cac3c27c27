//! The errors of a session.

/// Why a session does not go on, or is not copied. It is as it was: nothing is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no room for so many tokens.
    #[error(
        "no room: sequence {sequence} has {len} of {capacity} tokens, and {given} more are given"
    )]
    Full {
        /// Which sequence.
        sequence: usize,
        /// The tokens it has.
        len: usize,
        /// The tokens that it is given.
        given: usize,
        /// The most tokens that it can have.
        capacity: usize,
    },

    /// A token that the model does not know.
    #[error(
        "token {place} of sequence {sequence} is {token}, but the model knows {vocabulary} tokens, counted from 0"
    )]
    Unknown {
        /// Which sequence.
        sequence: usize,
        /// Which of the tokens that were given.
        place: usize,
        /// The token.
        token: usize,
        /// How many tokens the model knows.
        vocabulary: usize,
    },

    /// Tokens for another number of sequences.
    #[error("tokens for {given} sequences, but the session has {sequences}")]
    Sequences {
        /// For how many sequences there are tokens.
        given: usize,
        /// How many sequences there are.
        sequences: usize,
    },

    /// Without a token there is nothing to go on from.
    #[error("sequence {sequence} is given no tokens, and has none")]
    Empty {
        /// Which sequence.
        sequence: usize,
    },

    /// There is no memory for a copy.
    #[error("a copy of {sequences} sequences of {capacity} tokens does not fit into memory")]
    TooLarge {
        /// How many sequences there are.
        sequences: usize,
        /// The most tokens of each.
        capacity: usize,
    },
}
