//! Errors of sessions.

use crate::kernel::quantized::WeightFormat;

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
    #[error("tokens for {}, but the session has {sequences}", number(*given, "sequence"))]
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

    /// The sequence was cut, and the results of its last token are not known.
    #[error(
        "sequence {sequence} is given no tokens, and was cut to {len}: the results of the last one are not kept. Cut it to {}, and give it that token again",
        len - 1
    )]
    Cut {
        /// The sequence.
        sequence: usize,
        /// Its number of tokens.
        len: usize,
    },

    /// The sequence cannot be cut to so few tokens: there are more, or less is kept of them.
    #[error("sequence {sequence} has {}, and cannot be cut to {len}{}", number(*tokens, "token"), why(*tokens, *len, *shortest))]
    Truncate {
        /// The sequence.
        sequence: usize,
        /// Its number of tokens.
        tokens: usize,
        /// The number that it cannot have.
        len: usize,
        /// The fewest tokens that it can be cut to, apart from none. If the model has a state that only goes on, it is the number of tokens, or
        /// `len + 1` where the tokens to be cut are yet to come.
        shortest: usize,
    },

    /// The weights are rounded already.
    #[error(
        "the weights of the session are in {format:?} already: begin another one for another format"
    )]
    Rounded {
        /// The format.
        format: WeightFormat,
    },

    /// A sequence has keys and values already.
    #[error(
        "sequence {sequence} has {}, whose keys and values are cached already: choose their dtype before the first one, or reset the sequence",
        number(*tokens, "token")
    )]
    Cached {
        /// The sequence.
        sequence: usize,
        /// Its number of tokens.
        tokens: usize,
    },

    /// A sequence has keys and values of the weights that were to be replaced.
    #[error(
        "sequence {sequence} has {}, whose keys and values are of the weights so far: load others before the first one, or reset the sequence",
        number(*tokens, "token")
    )]
    OtherWeights {
        /// The sequence.
        sequence: usize,
        /// Its number of tokens.
        tokens: usize,
    },

    /// Another session has the weights, too.
    #[error(
        "the weights of the session are those of a fork, too: choose their format before the session is forked"
    )]
    SharedWeights,

    /// There is no memory for a copy.
    #[error(
        "a copy of {} of {} does not fit into memory",
        number(*sequences, "sequence"),
        number(*capacity, "token")
    )]
    TooLarge {
        /// The number of sequences.
        sequences: usize,
        /// The maximum number of tokens of each.
        capacity: usize,
    },
}

/// `1 token`, `2 tokens`.
fn number(count: usize, of: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {of}{plural}")
}

/// Why a sequence cannot be cut.
fn why(tokens: usize, len: usize, shortest: usize) -> String {
    const ONLY_ON: &str = "a scan or a convolution keeps its last state alone. Only 0 tokens are possible; a fork from before can go on";
    if shortest > tokens {
        format!(" once it has more: {ONLY_ON}")
    } else if len > tokens {
        ": it has no more".into()
    } else if shortest < tokens {
        format!(
            ": keys that it needs have left the window of a mask. {shortest} and more tokens are possible, and 0"
        )
    } else {
        format!(": {ONLY_ON}")
    }
}
