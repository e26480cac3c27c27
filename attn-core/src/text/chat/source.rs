//! The files of a model that have its chat templates.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{ChatError, ChatTemplate};

/// The templates of a folder, by name.
pub(super) struct Folder {
    pub(super) templates: BTreeMap<String, Found>,
    tokens: BTreeMap<String, String>,
}

/// A template, and where it stands.
pub(super) struct Found {
    place: String,
    source: String,
}

impl Folder {
    pub(super) fn open(folder: &Path) -> Result<Self, ChatError> {
        let config = read_json(folder.join("tokenizer_config.json"))?;
        let tokens = read_json(folder.join("special_tokens_map.json"))?;
        let mut templates = in_config(folder, config.get("chat_template"));
        // Files of their own replace those of the config.
        if let Some(found) = read_template(folder.join("chat_template.jinja"))? {
            templates.insert("default".into(), found);
        }
        for path in more_files(&folder.join("additional_chat_templates")) {
            let name = path
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned());
            if let (Some(name), Some(found)) = (name, read_template(path)?) {
                templates.insert(name, found);
            }
        }
        let tokens = tokens.iter().chain(&config);
        let tokens = tokens.filter(|(name, _)| name.ends_with("_token"));
        let tokens =
            tokens.filter_map(|(name, token)| Some((name.clone(), text_of(token)?.into())));
        Ok(Self {
            templates,
            tokens: tokens.collect(),
        })
    }

    pub(super) fn compile(&self, found: &Found) -> Result<ChatTemplate, ChatError> {
        let mut template = ChatTemplate::named(&found.place, &found.source)?;
        template.tokens.clone_from(&self.tokens);
        Ok(template)
    }
}

/// A token is a text, or an object with a text and with how it is found.
fn text_of(token: &Value) -> Option<&str> {
    token.get("content").unwrap_or(token).as_str()
}

/// A template, or a list of templates with names.
fn in_config(folder: &Path, value: Option<&Value>) -> BTreeMap<String, Found> {
    let place = folder.join("tokenizer_config.json");
    let place = format!("`chat_template` of {}", place.display());
    match value {
        Some(Value::String(source)) => {
            let source = source.clone();
            BTreeMap::from([("default".into(), Found { place, source })])
        }
        Some(Value::Array(list)) => {
            let text = |entry: &Value, key| entry.get(key)?.as_str().map(str::to_owned);
            let templates = list.iter().filter_map(|entry| {
                let (name, source) = (text(entry, "name")?, text(entry, "template")?);
                let place = format!("{place}, `{name}`");
                Some((name, Found { place, source }))
            });
            templates.collect()
        }
        _ => BTreeMap::new(),
    }
}

fn read_template(path: PathBuf) -> Result<Option<Found>, ChatError> {
    let place = path.display().to_string();
    let found = read(&path)?;
    Ok(found.map(|source| Found { place, source }))
}

/// The object in a file, which is empty if there is no file.
fn read_json(path: PathBuf) -> Result<Map<String, Value>, ChatError> {
    let text = read(&path)?.unwrap_or_else(|| "{}".into());
    serde_json::from_str(&text).map_err(|error| refused(&path, error))
}

fn read(path: &Path) -> Result<Option<String>, ChatError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(path, error)),
    }
}

/// The templates in a folder that may not be there.
fn more_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.map(|file| file.path());
    let files = files.filter(|path| path.extension().is_some_and(|kind| kind == "jinja"));
    files.collect()
}

fn refused(path: &Path, error: impl ToString) -> ChatError {
    ChatError::File {
        path: path.display().to_string(),
        reason: error.to_string(),
    }
}
