//! Two texts in one sequence.

/// Two texts as one sequence of tokens: [`Vocabulary::encode_pair`](super::Vocabulary::encode_pair).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedPair {
    /// The tokens of both, with the special tokens of the tokenizer's file.
    pub tokens: Vec<usize>,
    /// The segment of each token: what BERT adds an embedding for, 0 for the first text and 1 for the second. Some files have one
    /// segment only.
    #[doc(alias = "token_type_ids")]
    pub segments: Vec<usize>,
}
