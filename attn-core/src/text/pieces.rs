//! Subword tokens by the crate `tokenizers`: byte-pair encoding, and the other tokenizers of its files.

use std::{
    collections::HashSet,
    fmt::{self, Debug, Display},
};

use tokenizers::{
    DecoderWrapper, Tokenizer, TokenizerBuilder,
    models::bpe::{BPE, BpeTrainer},
    normalizers::NormalizerWrapper,
    pre_tokenizers::byte_level::ByteLevel,
};

use super::{EncodedPair, TextError};

/// A tokenizer, and the bytes of its pieces.
#[derive(Clone)]
pub(super) struct Pieces {
    tokenizer: Tokenizer,
    /// By token. A number below the largest one may be no piece, and has none.
    bytes: Vec<Vec<u8>>,
    special: HashSet<u32>,
    /// Whether the text of tokens is the concatenation of their bytes. If not, the tokenizer decodes them: it may insert blanks
    /// between words.
    is_of_bytes: bool,
}

/// The state of incremental decoding.
///
/// The text of a token depends on those beside it: a decoder strips the blank of the first one, joins the pieces of a word, and makes
/// characters of bytes. So each token is decoded behind the last ones whose text was returned.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// Tokens whose text was returned, and behind them those that have none yet.
    ids: Vec<u32>,
    /// The number of the former, and their text without those before them.
    returned: usize,
    text: String,
    /// The number of last tokens that may be the beginning of a character.
    held: usize,
}

/// A character has at most four bytes. So a fourth token without a complete character is not the beginning of one.
const MAX_HELD: usize = 3;

/// The numbers without a piece that a file may have, beyond as many as it has pieces: memory is taken for each.
const MAX_GAPS: usize = 1000;

impl Pieces {
    /// See [`Vocabulary::byte_pairs`](super::Vocabulary::byte_pairs).
    pub(super) fn train(text: &str, size: usize) -> Result<Self, TextError> {
        if size < 256 {
            return Err(TextError::TooFew { size });
        }
        if text.is_empty() {
            return Err(TextError::Empty);
        }
        let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
        let mut trainer = BpeTrainer::builder()
            .vocab_size(size)
            .initial_alphabet(alphabet)
            .show_progress(false)
            .build();
        let by_bytes = || Some(ByteLevel::default().add_prefix_space(false));
        let mut tokenizer = TokenizerBuilder::new()
            .with_model(BPE::default())
            .with_normalizer(None::<NormalizerWrapper>)
            .with_pre_tokenizer(by_bytes())
            .with_post_processor(by_bytes())
            .with_decoder(by_bytes())
            .build()
            .map_err(refused)?;
        tokenizer
            .train(&mut trainer, std::iter::once(text))
            .map_err(refused)?;
        Self::from_json(&tokenizer.to_string(false).map_err(refused)?)
    }

    /// Reads `tokenizer.json`, the format of Hugging Face's libraries. Padding and truncation are for batches, and are ignored.
    pub(super) fn from_json(json: &str) -> Result<Self, TextError> {
        let mut tokenizer: Tokenizer = json
            .parse()
            .map_err(|error| TextError::Saved(format!("{error}")))?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(refused)?;
        let is_of_bytes = matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
        let bytes = bytes_of_pieces(&tokenizer, is_of_bytes)?;
        let added = tokenizer.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special);
        Ok(Self {
            special: special.map(|(id, _)| *id).collect(),
            tokenizer,
            bytes,
            is_of_bytes,
        })
    }

    pub(super) fn to_json(&self) -> Result<String, TextError> {
        self.tokenizer.to_string(false).map_err(refused)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes_of(&self, token: usize) -> Option<&[u8]> {
        self.bytes.get(token).map(Vec::as_slice)
    }

    pub(super) fn is_of_bytes(&self) -> bool {
        self.is_of_bytes
    }

    pub(super) fn token(&self, name: &str) -> Option<usize> {
        self.tokenizer.token_to_id(name).map(|id| id as usize)
    }

    pub(super) fn is_special(&self, token: usize) -> bool {
        u32::try_from(token).is_ok_and(|id| self.special.contains(&id))
    }

    /// The tokens of a text, with or without the special tokens of the file.
    pub(super) fn encode(&self, text: &str, special: bool) -> Result<Vec<usize>, TextError> {
        let encoding = self.tokenizer.encode_fast(text, special).map_err(refused)?;
        Ok(numbers(encoding.get_ids()))
    }

    pub(super) fn encode_pair(&self, first: &str, second: &str) -> Result<EncodedPair, TextError> {
        // The fast version has no segments where nothing processes them.
        let encoding = self.tokenizer.encode((first, second), true);
        let encoding = encoding.map_err(refused)?;
        Ok(EncodedPair {
            tokens: numbers(encoding.get_ids()),
            segments: numbers(encoding.get_type_ids()),
        })
    }

    /// The text of all of these tokens.
    pub(super) fn decode(&self, tokens: &[usize]) -> Result<String, TextError> {
        let ids = tokens.iter().map(|&token| self.id(token));
        self.text(&ids.collect::<Result<Vec<_>, _>>()?)
    }

    /// The text that a further token completes.
    pub(super) fn step(&self, stream: &mut Stream, token: usize) -> Result<String, TextError> {
        stream.ids.push(self.id(token)?);
        let text = self.text(&stream.ids)?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && stream.held < MAX_HELD {
            stream.held += 1;
            return Ok(String::new());
        }
        stream.held = 0;
        let new = self.behind(stream, &text)?;
        // A token without a text, such as the blank that is stripped, still says that the next one is not the first.
        if !new.is_empty() {
            stream.ids.drain(..stream.returned);
            stream.returned = stream.ids.len();
            stream.text = self.text(&stream.ids)?;
        }
        Ok(new)
    }

    /// The rest of the text after the last token.
    pub(super) fn rest(&self, stream: &Stream) -> String {
        let text = self.text(&stream.ids);
        let rest = text.and_then(|text| self.behind(stream, &text));
        rest.unwrap_or_default()
    }

    /// The part of the text of all tokens of a stream that was not returned. Bytes that are no character may make the decoder read those
    /// before them otherwise. Then it reads the new ones alone.
    fn behind(&self, stream: &Stream, text: &str) -> Result<String, TextError> {
        match text.strip_prefix(&stream.text) {
            Some(new) => Ok(new.to_owned()),
            None => self.text(&stream.ids[stream.returned..]),
        }
    }

    fn text(&self, ids: &[u32]) -> Result<String, TextError> {
        // Some decoders ask for the last of their tokens.
        if ids.is_empty() {
            return Ok(String::new());
        }
        self.tokenizer.decode(ids, false).map_err(refused)
    }

    fn id(&self, token: usize) -> Result<u32, TextError> {
        let len = self.len();
        let id = u32::try_from(token).ok().filter(|_| token < len);
        id.ok_or(TextError::Token { token, len })
    }
}

/// The debug output of a tokenizer would fill a page.
impl Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Two tokenizers are equal if their files are.
impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.to_json() == other.to_json()
    }
}

/// The bytes of each piece, by its number.
fn bytes_of_pieces(tokenizer: &Tokenizer, is_of_bytes: bool) -> Result<Vec<Vec<u8>>, TextError> {
    let pieces = tokenizer.get_vocab(true);
    let last = pieces.values().max().copied().unwrap_or(0) as usize;
    if last > 2 * pieces.len() + MAX_GAPS {
        return Err(TextError::Saved(format!(
            "of {} pieces, one has the number {last}: most numbers up to it have no piece",
            pieces.len()
        )));
    }
    let mut bytes = vec![Vec::new(); if pieces.is_empty() { 0 } else { last + 1 }];
    for (piece, id) in pieces {
        bytes[id as usize] = match is_of_bytes {
            true => bytes_of(&piece),
            false => piece.into_bytes(),
        };
    }
    Ok(bytes)
}

fn numbers(ids: &[u32]) -> Vec<usize> {
    ids.iter().map(|id| *id as usize).collect()
}

fn refused(error: impl Display) -> TextError {
    TextError::Tokenizer(error.to_string())
}

/// The bytes of a piece in the notation of GPT-2: one letter per byte. A piece with other letters, such as `<|endoftext|>`, is
/// its own UTF-8.
fn bytes_of(piece: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = piece.chars().map(byte).collect();
    bytes.unwrap_or_else(|| piece.as_bytes().to_vec())
}

/// The byte of a letter. Visible letters of Latin-1 are their own bytes; those from U+0100 are the other bytes, in order.
fn byte(letter: char) -> Option<u8> {
    let visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(letter) {
        Ok(byte) => Some(byte).filter(visible),
        Err(_) => {
            let rest = (0..=u8::MAX).filter(|byte| !visible(byte));
            let place = u32::from(letter).checked_sub(0x100)?;
            rest.into_iter().nth(place as usize)
        }
    }
}
