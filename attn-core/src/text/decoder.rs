//! Incremental decoding of tokens to text.

use super::{TextError, Vocabulary};
#[cfg(feature = "tokenizers")]
use super::{
    pieces::{Pieces, Stream},
    vocabulary::TokenKind,
};

/// Decodes tokens one by one. A character is returned with the token that completes it.
///
/// ```
/// use attn::text::Vocabulary;
///
/// let bytes = Vocabulary::bytes();
/// let mut decoder = bytes.decoder();
/// assert_eq!(decoder.push(0xc3)?, ""); // the first half of ü
/// assert_eq!(decoder.push(0xbc)?, "ü");
/// assert_eq!(decoder.push(0xc3)?, "");
/// assert_eq!(decoder.push(0x21)?, "\u{fffd}!"); // which is not its second half
/// # Ok::<(), attn::text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    vocabulary: &'a Vocabulary,
    /// Whether special tokens have no text.
    skips_special: bool,
    /// The bytes of an incomplete character.
    held: Vec<u8>,
    /// The state of a tokenizer whose text is not the concatenation of its tokens' bytes.
    #[cfg(feature = "tokenizers")]
    stream: Stream,
}

impl Vocabulary {
    /// The text of tokens. Invalid UTF-8, which a model of bytes may generate, becomes U+FFFD. Special tokens appear by name.
    ///
    /// `transformers`: `tokenizer.decode(tokens)`.
    ///
    /// # Errors
    /// [`TextError::Token`] if a token is not in the vocabulary.
    pub fn decode(&self, tokens: &[usize]) -> Result<String, TextError> {
        #[cfg(feature = "tokenizers")]
        if let Some(pieces) = pieces(self) {
            return pieces.decode(tokens);
        }
        let mut decoder = self.decoder();
        let mut text = String::new();
        for token in tokens {
            text += &decoder.push(*token)?;
        }
        Ok(text + &decoder.finish())
    }

    /// The text of tokens without the special ones of the tokenizer's file, such as `<s>` and `<|im_end|>`.
    ///
    /// `transformers`: `tokenizer.decode(tokens, skip_special_tokens=True)`.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    #[doc(alias = "skip_special_tokens")]
    pub fn decode_without_special_tokens(&self, tokens: &[usize]) -> Result<String, TextError> {
        let tokens = tokens.iter().filter(|token| !self.is_special(**token));
        self.decode(&tokens.copied().collect::<Vec<_>>())
    }

    /// The text of each token alone, for labels. A token that is a part of a character is U+FFFD.
    ///
    /// ```
    /// use attn::text::Vocabulary;
    ///
    /// assert_eq!(Vocabulary::bytes().decode_each(b"So!".map(usize::from).as_slice())?, ["S", "o", "!"]);
    /// # Ok::<(), attn::text::TextError>(())
    /// ```
    ///
    /// `transformers`: `[tokenizer.decode(token) for token in tokens]`.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_each(&self, tokens: &[usize]) -> Result<Vec<String>, TextError> {
        let each = tokens.iter().map(|token| self.decode(&[*token]));
        each.collect()
    }

    /// A decoder for tokens that are generated one by one.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder {
            vocabulary: self,
            skips_special: false,
            held: Vec::new(),
            #[cfg(feature = "tokenizers")]
            stream: Stream::default(),
        }
    }
}

impl Decoder<'_> {
    /// Leaves out the special tokens of the tokenizer's file.
    ///
    /// `transformers`: `TextStreamer(tokenizer, skip_special_tokens=True)`.
    #[doc(alias = "skip_special_tokens")]
    pub fn without_special_tokens(mut self) -> Self {
        self.skips_special = true;
        self
    }

    /// Adds a token. Returns the text that it completes, which may be empty.
    ///
    /// # Errors
    /// [`TextError::Token`] if the token is not in the vocabulary. The decoder does not change then.
    pub fn push(&mut self, token: usize) -> Result<String, TextError> {
        if self.skips_special && self.vocabulary.is_special(token) {
            return Ok(String::new());
        }
        #[cfg(feature = "tokenizers")]
        if let Some(pieces) = pieces(self.vocabulary) {
            return pieces.step(&mut self.stream, token);
        }
        self.held.extend(self.vocabulary.bytes_of(token)?);
        let mut text = String::new();
        let mut read = 0;
        for chunk in self.held.utf8_chunks() {
            text += chunk.valid();
            read += chunk.valid().len();
            let is_last = read + chunk.invalid().len() == self.held.len();
            if chunk.invalid().is_empty() || is_last && may_go_on(chunk.invalid()) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            read += chunk.invalid().len();
        }
        self.held.drain(..read);
        Ok(text)
    }

    /// The rest: U+FFFD if a character is incomplete.
    pub fn finish(self) -> String {
        #[cfg(feature = "tokenizers")]
        if let Some(pieces) = pieces(self.vocabulary) {
            return pieces.rest(&self.stream);
        }
        String::from_utf8_lossy(&self.held).into_owned()
    }
}

/// The tokenizer, if its text is not the concatenation of its tokens' bytes.
#[cfg(feature = "tokenizers")]
fn pieces(vocabulary: &Vocabulary) -> Option<&Pieces> {
    match &vocabulary.0 {
        TokenKind::Pieces(pieces) if !pieces.is_of_bytes() => Some(pieces),
        _ => None,
    }
}

/// Whether further bytes can complete these to a character.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
