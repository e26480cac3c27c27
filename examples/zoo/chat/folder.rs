//! The files of a published model, apart from its weights.

use anyhow::{Context, Result, bail};
use attn::{
    generate::Sampling,
    text::{ChatTemplate, Vocabulary},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) config: Value,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) template: Option<ChatTemplate>,
    /// `generation_config.json`, or null.
    generation: Value,
    /// `tokenizer_config.json`, or null.
    tokenizer: Value,
}

impl Folder {
    /// Reads the files.
    ///
    /// # Errors
    /// One error with all files that are missing.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let needed: [&[&str]; 3] = [
            &["config.json"],
            &["tokenizer.json"],
            &["model.safetensors", "model.safetensors.index.json"],
        ];
        let is_missing = |names: &&[&str]| !names.iter().any(|name| path.join(name).is_file());
        let missing = needed.into_iter().filter(is_missing);
        let missing: Vec<_> = missing.map(|names| names.join(" or ")).collect();
        if !missing.is_empty() {
            bail!(
                "{} lacks files of a published model: {}",
                path.display(),
                missing.join(", ")
            );
        }
        Ok(Self {
            path: path.to_owned(),
            config: read(&path.join("config.json"))?,
            vocabulary: Vocabulary::open(path)?,
            template: ChatTemplate::open(path)?,
            generation: read_optional(&path.join("generation_config.json"))?,
            tokenizer: read_optional(&path.join("tokenizer_config.json"))?,
        })
    }

    /// How the authors of the model choose tokens: the likeliest, unless they say otherwise.
    pub(crate) fn sampling(&self) -> Sampling {
        let default = Sampling::default();
        let number = |key: &str| self.generation.get(key).and_then(Value::as_f64);
        let does_sample = self.generation.get("do_sample") == Some(&Value::Bool(true));
        let top_k = self.generation.get("top_k").and_then(Value::as_u64);
        Sampling {
            temperature: match does_sample {
                true => number("temperature").unwrap_or(1.0),
                false => 0.0,
            },
            top_p: number("top_p").unwrap_or(default.top_p),
            top_k: top_k.filter(|k| *k > 0).map(|k| k as usize),
            repetition_penalty: number("repetition_penalty").unwrap_or(default.repetition_penalty),
            vocabulary: Some(self.vocabulary.len()),
            ..default
        }
    }

    /// The tokens that end an answer: numbers in the configs of the model and of its generation, a name in that of the tokenizer.
    pub(crate) fn ends(&self) -> Vec<usize> {
        let numbers = [&self.generation, &self.config].map(|file| match &file["eos_token_id"] {
            Value::Array(several) => several.clone(),
            one => vec![one.clone()],
        });
        let numbers = numbers.concat();
        let numbers = numbers.iter().filter_map(Value::as_u64);
        let name = &self.tokenizer["eos_token"];
        let name = name.get("content").unwrap_or(name).as_str();
        let name = name.and_then(|name| self.vocabulary.token(name));
        numbers.map(|number| number as usize).chain(name).collect()
    }
}

fn read_optional(path: &Path) -> Result<Value> {
    match path.exists() {
        true => read(path),
        false => Ok(Value::Null),
    }
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}
