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
    step_decode_stream,
};

use super::TextError;

/// A tokenizer, and the bytes of its pieces.
#[derive(Clone)]
pub(super) struct Pieces {
    tokenizer: Tokenizer,
    bytes: Vec<Vec<u8>>,
    /// Whether the text of tokens is the concatenation of their bytes. If not, the tokenizer decodes them: it may insert blanks
    /// between words.
    is_of_bytes: bool,
}

/// The state of incremental decoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// The last tokens, and the text of the first of them.
    ids: Vec<u32>,
    prefix: String,
    prefix_index: usize,
}

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
        let len = tokenizer.get_vocab_size(true);
        let bytes = (0..len).map(|token| {
            let piece = u32::try_from(token).ok();
            let piece = piece.and_then(|token| tokenizer.id_to_token(token));
            let missing =
                || TextError::Saved(format!("of {len} pieces, number {token} is missing"));
            let piece = piece.ok_or_else(missing)?;
            Ok(match is_of_bytes {
                true => bytes_of(&piece),
                false => piece.into_bytes(),
            })
        });
        let bytes = bytes.collect::<Result<_, _>>()?;
        Ok(Self {
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

    /// The tokens of a text, with or without the special tokens of the file.
    pub(super) fn encode(&self, text: &str, special: bool) -> Result<Vec<usize>, TextError> {
        let encoding = self.tokenizer.encode_fast(text, special).map_err(refused)?;
        Ok(encoding.get_ids().iter().map(|id| *id as usize).collect())
    }

    /// The text of all of these tokens.
    pub(super) fn decode(&self, tokens: &[usize]) -> Result<String, TextError> {
        let ids = tokens.iter().map(|&token| self.id(token));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        self.tokenizer.decode(&ids, false).map_err(refused)
    }

    /// The text that a further token completes.
    pub(super) fn step(&self, stream: &mut Stream, token: usize) -> Result<String, TextError> {
        let id = self.id(token)?;
        let Stream {
            ids,
            prefix,
            prefix_index,
        } = stream;
        let text = step_decode_stream(&self.tokenizer, vec![id], false, ids, prefix, prefix_index);
        Ok(text.map_err(refused)?.unwrap_or_default())
    }

    /// The rest of the text after the last token.
    pub(super) fn rest(&self, stream: &Stream) -> String {
        let text = self
            .tokenizer
            .decode(&stream.ids, false)
            .unwrap_or_default();
        let rest = text.strip_prefix(&stream.prefix);
        rest.unwrap_or_default().to_owned()
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
