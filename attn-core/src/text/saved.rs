//! A vocabulary as JSON.
//!
//! Characters are one string, bytes are `{"type": "bytes"}`, and pieces are the file format of Hugging Face's `tokenizers`.

use std::{fs, path::Path};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json, value::RawValue};

use super::{TextError, Vocabulary, vocabulary::TokenKind};

impl Vocabulary {
    /// Reads a vocabulary from a file, or from `tokenizer.json` in a folder: that of a published model, with the feature `tokenizers`,
    /// or one that was saved here.
    ///
    /// `transformers`: `AutoTokenizer.from_pretrained(path)`.
    ///
    /// # Errors
    /// [`TextError::Saved`] with the path, if the file cannot be read, or is no vocabulary.
    #[doc(alias = "from_pretrained")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TextError> {
        let mut path = path.as_ref().to_owned();
        if path.is_dir() {
            path.push("tokenizer.json");
        }
        let at = |reason: String| TextError::Saved(format!("{}: {reason}", path.display()));
        let json = fs::read_to_string(&path).map_err(|error| at(error.to_string()))?;
        read(&json).map_err(|error| match error {
            TextError::Saved(reason) => at(reason),
            error => error,
        })
    }
}

impl Serialize for Vocabulary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            TokenKind::Characters(characters) => {
                let text: String = characters.iter().collect();
                text.serialize(serializer)
            }
            TokenKind::Bytes => bytes().serialize(serializer),
            #[cfg(feature = "tokenizers")]
            TokenKind::Pieces(pieces) => {
                let json = pieces.to_json().map_err(serde::ser::Error::custom)?;
                let json = RawValue::from_string(json).map_err(serde::ser::Error::custom)?;
                json.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        read(json.get()).map_err(de::Error::custom)
    }
}

fn read(json: &str) -> Result<Vocabulary, TextError> {
    let saved = |reason: String| TextError::Saved(reason);
    let value: Value = serde_json::from_str(json).map_err(|error| saved(error.to_string()))?;
    match value {
        Value::String(text) => characters(&text),
        value if value == bytes() => Ok(Vocabulary::bytes()),
        Value::Object(object) if object.contains_key("model") => pieces(json),
        _ => Err(saved(
            "it is neither a text of characters, nor bytes, nor a tokenizer".to_owned(),
        )),
    }
}

fn bytes() -> Value {
    json!({ "type": "bytes" })
}

fn characters(text: &str) -> Result<Vocabulary, TextError> {
    let characters: Vec<char> = text.chars().collect();
    let ascends = characters.is_sorted_by(|a, b| a < b);
    match ascends && !characters.is_empty() {
        true => Ok(Vocabulary(TokenKind::Characters(characters))),
        false => Err(TextError::Saved(
            "it has at least one character, and they are in the order of their code points, each once".to_owned(),
        )),
    }
}

#[cfg(feature = "tokenizers")]
fn pieces(json: &str) -> Result<Vocabulary, TextError> {
    let pieces = super::pieces::Pieces::from_json(json)?;
    Ok(Vocabulary(TokenKind::Pieces(Box::new(pieces))))
}

#[cfg(not(feature = "tokenizers"))]
fn pieces(_: &str) -> Result<Vocabulary, TextError> {
    Err(TextError::Saved(
        "it has the pieces of byte-pair encoding, which the feature `tokenizers` reads".to_owned(),
    ))
}
