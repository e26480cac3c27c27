//! The mapping between tokens and text.

use std::collections::BTreeSet;

#[cfg(feature = "tokenizers")]
use super::pieces::Pieces;
use super::{EncodedPair, TextError};

/// The tokens of a language model, numbered from 0, with their text.
#[doc(alias("AutoTokenizer", "Tokenizer", "tiktoken"))]
#[derive(Clone, Debug, PartialEq)]
pub struct Vocabulary(pub(super) TokenKind);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// Characters in the order of their code points.
    Characters(Vec<char>),
    Bytes,
    #[cfg(feature = "tokenizers")]
    Pieces(Box<Pieces>),
}

/// The number of characters of a text that an error shows.
const SHOWN: usize = 60;

impl Vocabulary {
    /// The characters of a text, in the order of their code points.
    ///
    /// nanoGPT: `chars = sorted(list(set(data)))`.
    ///
    /// # Errors
    /// [`TextError::Empty`] if there are none.
    pub fn characters(text: &str) -> Result<Self, TextError> {
        let characters: BTreeSet<char> = text.chars().collect();
        match characters.is_empty() {
            true => Err(TextError::Empty),
            false => Ok(Self(TokenKind::Characters(
                characters.into_iter().collect(),
            ))),
        }
    }

    /// The characters of a text, or the 256 bytes if they are more than `most`: a vocabulary for a model whose number of tokens is a constant.
    ///
    /// ```
    /// use attn::text::Vocabulary;
    ///
    /// assert_eq!(Vocabulary::characters_or_bytes("In the beginning", 256)?.unit(), "character");
    /// let all: String = ('\u{4e00}'..'\u{5000}').collect();
    /// assert_eq!(Vocabulary::characters_or_bytes(&all, 256)?.unit(), "byte");
    /// # Ok::<(), attn::text::TextError>(())
    /// ```
    ///
    /// # Errors
    /// As [`characters`](Self::characters).
    pub fn characters_or_bytes(text: &str, most: usize) -> Result<Self, TextError> {
        let characters = Self::characters(text)?;
        Ok(match characters.len() <= most {
            true => characters,
            false => Self::bytes(),
        })
    }

    /// The 256 bytes of UTF-8.
    pub fn bytes() -> Self {
        Self(TokenKind::Bytes)
    }

    /// The pieces of words that byte-pair encoding finds in a text. They start as the 256 bytes. Then the most frequent pair of
    /// neighbours becomes a piece, again and again, until there are `size` pieces, or until every word is a piece.
    ///
    /// Words are split as in GPT-2, so that no piece crosses a space. The pieces depend on the text only.
    ///
    /// Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); on bytes: Radford et al., "Language
    /// Models are Unsupervised Multitask Learners" (2019). It is the `ByteLevelBPETokenizer` of Hugging Face's `tokenizers`, and
    /// has its file format.
    ///
    /// # Errors
    /// [`TextError::TooFew`] if `size` is less than 256, and [`TextError::Empty`].
    #[cfg(feature = "tokenizers")]
    pub fn byte_pairs(text: &str, size: usize) -> Result<Self, TextError> {
        let pieces = Pieces::train(text, size)?;
        Ok(Self(TokenKind::Pieces(Box::new(pieces))))
    }

    /// The number of tokens.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        match &self.0 {
            TokenKind::Characters(characters) => characters.len(),
            TokenKind::Bytes => 256,
            #[cfg(feature = "tokenizers")]
            TokenKind::Pieces(pieces) => pieces.len(),
        }
    }

    /// The unit of a token: `character`, `byte` or `piece`.
    pub fn unit(&self) -> &'static str {
        match &self.0 {
            TokenKind::Characters(_) => "character",
            TokenKind::Bytes => "byte",
            #[cfg(feature = "tokenizers")]
            TokenKind::Pieces(_) => "piece",
        }
    }

    /// The tokens of a text, with the special tokens of the tokenizer's file: `[CLS]` and `[SEP]` of BERT, `<s>` of Llama.
    ///
    /// `transformers`: `tokenizer(text)`, without its padding and truncation.
    ///
    /// # Errors
    /// [`TextError::Strangers`] if it has characters that are not in a vocabulary of characters.
    pub fn encode(&self, text: &str) -> Result<Vec<usize>, TextError> {
        self.encode_with(text, true)
    }

    /// The tokens of a text without special tokens: for a text that continues, or a part of one.
    ///
    /// `transformers`: `tokenizer(text, add_special_tokens=False)`.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_without_special_tokens(&self, text: &str) -> Result<Vec<usize>, TextError> {
        self.encode_with(text, false)
    }

    #[cfg_attr(
        not(feature = "tokenizers"),
        allow(unused_variables, reason = "only the file of a tokenizer has some")
    )]
    fn encode_with(&self, text: &str, special: bool) -> Result<Vec<usize>, TextError> {
        match &self.0 {
            TokenKind::Characters(characters) => encode(characters, text),
            TokenKind::Bytes => Ok(text.bytes().map(usize::from).collect()),
            #[cfg(feature = "tokenizers")]
            TokenKind::Pieces(pieces) => pieces.encode(text, special),
        }
    }

    /// The tokens of two texts in one sequence, such as `[CLS] first [SEP] second [SEP]` of BERT, and which text each belongs to.
    ///
    /// `transformers`: `tokenizer(first, second)`.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    #[doc(alias("text_pair", "token_type_ids"))]
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<EncodedPair, TextError> {
        #[cfg(feature = "tokenizers")]
        if let TokenKind::Pieces(pieces) = &self.0 {
            return pieces.encode_pair(first, second);
        }
        let mut tokens = self.encode(first)?;
        let mut segments = vec![0; tokens.len()];
        tokens.extend(self.encode(second)?);
        segments.resize(tokens.len(), 1);
        Ok(EncodedPair { tokens, segments })
    }

    /// The token with this name, such as `</s>` or `[MASK]`: a piece as the tokenizer's file spells it, or a single character or byte.
    ///
    /// ```
    /// use attn::text::Vocabulary;
    ///
    /// assert_eq!(Vocabulary::bytes().token("a"), Some(97));
    /// assert_eq!(Vocabulary::characters("to be")?.token("a"), None);
    /// # Ok::<(), attn::text::TextError>(())
    /// ```
    ///
    /// `transformers`: `tokenizer.convert_tokens_to_ids(name)`.
    #[doc(alias("convert_tokens_to_ids", "token_to_id"))]
    pub fn token(&self, name: &str) -> Option<usize> {
        #[cfg(feature = "tokenizers")]
        if let TokenKind::Pieces(pieces) = &self.0 {
            return pieces.token(name);
        }
        match self.encode(name).ok()?.as_slice() {
            [token] => Some(*token),
            _ => None,
        }
    }

    /// Whether the tokenizer's file says that this is a special token, such as the end of a text. Characters and bytes have none.
    ///
    /// `transformers`: `token in tokenizer.all_special_ids`.
    #[doc(alias = "all_special_ids")]
    #[cfg_attr(
        not(feature = "tokenizers"),
        allow(unused_variables, reason = "only the file of a tokenizer has some")
    )]
    pub fn is_special(&self, token: usize) -> bool {
        match &self.0 {
            TokenKind::Characters(_) | TokenKind::Bytes => false,
            #[cfg(feature = "tokenizers")]
            TokenKind::Pieces(pieces) => pieces.is_special(token),
        }
    }

    /// The UTF-8 bytes of a token, which may be a part of a character. For a tokenizer whose text is not the concatenation of its tokens, it
    /// is the name of the token, such as `##ing` of BERT. A number that the file gives to no piece has none.
    ///
    /// # Errors
    /// [`TextError::Token`] if the token is not in the vocabulary.
    pub fn bytes_of(&self, token: usize) -> Result<Vec<u8>, TextError> {
        let bytes = match &self.0 {
            TokenKind::Characters(characters) => characters
                .get(token)
                .map(|character| character.to_string().into_bytes()),
            TokenKind::Bytes => u8::try_from(token).ok().map(|byte| vec![byte]),
            #[cfg(feature = "tokenizers")]
            TokenKind::Pieces(pieces) => pieces.bytes_of(token).map(<[u8]>::to_vec),
        };
        let len = self.len();
        bytes.ok_or(TextError::Token { token, len })
    }
}

fn encode(characters: &[char], text: &str) -> Result<Vec<usize>, TextError> {
    let place = |c: char| characters.binary_search(&c).ok();
    let strangers: BTreeSet<char> = text.chars().filter(|&c| place(c).is_none()).collect();
    if strangers.is_empty() {
        return Ok(text.chars().filter_map(place).collect());
    }
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Err(TextError::Strangers {
        text: shown,
        strangers: strangers.into_iter().collect(),
    })
}
