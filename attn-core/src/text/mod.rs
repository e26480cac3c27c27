//! Text as tokens: what a language model reads and writes.
//!
//! A [`Vocabulary`] has a number for every piece of text that it knows: the characters of a text, the 256 bytes, or, with the
//! feature `tokenizers`, the pieces that byte-pair encoding finds in a text. A [`Decoder`] makes text of tokens as they come.
//!
//! ```
//! use attn::text::Vocabulary;
//!
//! let vocabulary = Vocabulary::characters("to be or not to be")?;
//! assert_eq!(vocabulary.len(), 7); // a space and b, e, n, o, r, t
//! let tokens = vocabulary.encode("not")?;
//! assert_eq!(tokens, [3, 4, 6]);
//! assert_eq!(vocabulary.decode(&tokens)?, "not");
//! # Ok::<(), attn::text::TextError>(())
//! ```
//!
//! It is saved as JSON: put it into a checkpoint under the name `tokenizer.json`
//! ([`Contents::json`](crate::checkpoint::Contents::json)).
//!
//! | | tokens | what it can write down |
//! | --- | --- | --- |
//! | [`characters`](Vocabulary::characters) | those of a text, in the order of their code points | text of these characters |
//! | [`bytes`](Vocabulary::bytes) | 256 | all text; what a model writes may be no text |
//! | `byte_pairs`, with the feature `tokenizers` | as many as asked for, from 256 | the same, in fewer tokens |
//!
//! With the feature `tokenizers` the `tokenizer.json` of a model of Hugging Face is read as JSON, too: its normalizer, its model, the special
//! tokens that it puts around a text, and its decoder. Its padding and its truncation are left out.

mod decoder;
mod error;
#[cfg(feature = "tokenizers")]
mod pieces;
mod saved;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use error::TextError;
pub use vocabulary::Vocabulary;
