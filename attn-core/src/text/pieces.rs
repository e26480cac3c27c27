//! Byte-pair encoding, by the crate `tokenizers`.

use std::{
    collections::HashSet,
    fmt::{self, Debug, Display},
};

use tokenizers::{
    Tokenizer, TokenizerBuilder,
    models::bpe::{BPE, BpeTrainer},
    normalizers::NormalizerWrapper,
    pre_tokenizers::byte_level::ByteLevel,
};

use super::TextError;

/// A tokenizer on bytes, and the bytes of its pieces.
#[derive(Clone)]
pub(super) struct Pieces {
    tokenizer: Tokenizer,
    bytes: Vec<Vec<u8>>,
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

    /// Reads `tokenizer.json`, which Hugging Face's libraries write, too.
    pub(super) fn from_json(json: &str) -> Result<Self, TextError> {
        let tokenizer: Tokenizer = json
            .parse()
            .map_err(|error| TextError::Saved(format!("{error}")))?;
        let len = tokenizer.get_vocab_size(true);
        let bytes = (0..len).map(|token| {
            let piece = u32::try_from(token).ok();
            let piece = piece.and_then(|token| tokenizer.id_to_token(token));
            let missing =
                || TextError::Saved(format!("of {len} pieces, number {token} is missing"));
            Ok(bytes_of(&piece.ok_or_else(missing)?))
        });
        let bytes = bytes.collect::<Result<_, _>>()?;
        Ok(Self { tokenizer, bytes })
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

    pub(super) fn encode(&self, text: &str) -> Result<Vec<usize>, TextError> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(refused)?;
        Ok(encoding.get_ids().iter().map(|id| *id as usize).collect())
    }
}

/// A tokenizer would fill a page.
impl Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Two of them are the same if they are saved as the same.
impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.to_json() == other.to_json()
    }
}

fn refused(error: impl Display) -> TextError {
    TextError::Tokenizer(error.to_string())
}

/// The bytes of a piece as GPT-2 writes them: a letter for each. What has other letters, as `<|endoftext|>` may, stands for itself.
fn bytes_of(piece: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = piece.chars().map(byte).collect();
    bytes.unwrap_or_else(|| piece.as_bytes().to_vec())
}

/// The byte that a letter stands for. Visible letters of Latin-1 stand for themselves, those from U+0100 for the rest, in order.
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
