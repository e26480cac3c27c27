//! Text as tokens: the inputs and outputs of a language model.
//!
//! A [`Vocabulary`] numbers pieces of text: the characters of a text, the 256 bytes, or, with the feature `tokenizers`, the
//! pieces that byte-pair encoding finds in a text. A [`Decoder`] turns generated tokens into text one by one, and a [`StopText`]
//! ends it before a given text.
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
//! A vocabulary is saved as JSON. In a checkpoint it has the name `tokenizer.json`
//! ([`Contents::json`](crate::checkpoint::Contents::json)).
//!
//! | | tokens | texts |
//! | --- | --- | --- |
//! | [`characters`](Vocabulary::characters) | the characters of a text, in the order of their code points | texts of these characters |
//! | [`bytes`](Vocabulary::bytes) | 256 | all; tokens may be invalid UTF-8 |
//! | `byte_pairs`, with the feature `tokenizers` | as many as requested, from 256 | the same, in fewer tokens |
//!
//! With the feature `tokenizers`, [`Vocabulary::open`] reads the `tokenizer.json` of a Hugging Face model as well: its normalizer, its
//! model, the special tokens that it adds, and its decoder. Its padding and truncation are ignored: [`pad`](crate::batches::pad) makes
//! batches of texts, with the padding behind them, and sessions need none. The tokens and texts are those of the Python package, for
//! byte-level BPE (GPT-2, Llama 3, Qwen, GPT-NeoX, RoBERTa, OPT), BPE with bytes for unknown characters (Llama 2, Mistral, Phi-3, Gemma),
//! WordPiece (BERT) and Unigram (T5, XLM-RoBERTa).

#[cfg(feature = "tokenizers")]
mod chat;
mod decoder;
mod error;
mod pair;
#[cfg(feature = "tokenizers")]
mod pieces;
mod saved;
mod stop;
mod vocabulary;

#[cfg(test)]
mod tests;

#[cfg(feature = "tokenizers")]
pub use chat::{ChatError, ChatMessage, ChatTemplate};
pub use decoder::Decoder;
pub use error::TextError;
pub use pair::EncodedPair;
pub use stop::StopText;
pub use vocabulary::Vocabulary;
