//! Chat templates: a conversation as the text that a model was trained on.

mod jinja;
mod json;
mod source;

use std::{collections::BTreeMap, path::Path, time::SystemTime};

use minijinja::{Environment, Value, value::Serde};
use serde::Serialize;
use thiserror::Error;

/// The only template of an environment.
const TEMPLATE: &str = "chat";

/// A message of a conversation. [`ChatTemplate::render`] takes any type with such fields, and with others that a template reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, or what else a template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl ChatMessage {
    /// A message with this role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }

    /// Instructions in front of the conversation: the system prompt.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A question.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// An answer.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// The template with which a model's conversations are written, in the language Jinja.
///
/// ```
/// use attn::text::{ChatMessage, ChatTemplate};
///
/// let template = "\
/// {%- for message in messages %}<{{ message.role }}>{{ message.content | trim }}{{ eos_token }}{% endfor %}
/// {%- if add_generation_prompt %}<assistant>{% endif %}";
/// let template = ChatTemplate::new(template)?.token("eos_token", "</s>");
/// let text = template.render(&[ChatMessage::user("Who are you? ")], true)?;
/// assert_eq!(text, "<user>Who are you?</s><assistant>");
/// # Ok::<(), attn::text::ChatError>(())
/// ```
///
/// The text has its special tokens: its tokens are those of
/// [`encode_without_special_tokens`](super::Vocabulary::encode_without_special_tokens).
///
/// Templates see what they see in `transformers`: blocks take the line that they stand on alone, `tojson` writes as Python's `json.dumps`,
/// strings and dictionaries have Python's methods, and `raise_exception`, `strftime_now`, `break`, `continue` and `generation` are there.
///
/// `transformers`: `tokenizer.apply_chat_template(messages, tokenize=False)`.
#[derive(Clone, Debug)]
#[doc(alias("apply_chat_template", "chat_template", "Jinja"))]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// The file, and the template in it, for errors.
    name: String,
    /// `bos_token` and others, by name.
    tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`ChatError::Template`] where it is no Jinja.
    pub fn new(source: &str) -> Result<Self, ChatError> {
        Self::named("chat template", source)
    }

    /// The template of a model's folder, with its special tokens, or `None` if it has none: `chat_template.jinja`, or `chat_template` in
    /// `tokenizer_config.json`. Of several templates it is the one with the name `default`.
    ///
    /// `transformers`: `AutoTokenizer.from_pretrained(folder)`.
    ///
    /// # Errors
    /// [`ChatError`] if a file cannot be read, or if the template is no Jinja.
    #[doc(alias = "from_pretrained")]
    pub fn open(folder: impl AsRef<Path>) -> Result<Option<Self>, ChatError> {
        let folder = source::Folder::open(folder.as_ref())?;
        let found = folder.templates.get("default");
        found.map(|found| folder.compile(found)).transpose()
    }

    /// As [`open`](Self::open), for the template with this name, such as `tool_use`.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`ChatError::Missing`].
    pub fn open_named(folder: impl AsRef<Path>, name: &str) -> Result<Self, ChatError> {
        let path = folder.as_ref().display().to_string();
        let folder = source::Folder::open(folder.as_ref())?;
        match folder.templates.get(name) {
            Some(found) => folder.compile(found),
            None => Err(ChatError::Missing {
                path,
                name: name.into(),
                known: folder.templates.into_keys().collect(),
            }),
        }
    }

    fn named(name: &str, source: &str) -> Result<Self, ChatError> {
        let environment =
            jinja::environment(source).map_err(|error| jinja::refused(name, &error))?;
        Ok(Self {
            environment,
            name: name.into(),
            tokens: BTreeMap::new(),
        })
    }

    /// The template reads this text by this name: `bos_token`, `eos_token`.
    pub fn token(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.tokens.insert(name.into(), text.into());
        self
    }

    /// The time that a template writes, in UTC, in place of the local time of the call: the same text on every day and at every place.
    pub fn at(mut self, time: SystemTime) -> Self {
        jinja::set_time(&mut self.environment, Some(time));
        self
    }

    /// The text of a conversation. With `add_generation_prompt` it ends where an answer begins.
    ///
    /// # Errors
    /// [`ChatError::Template`] if the template refuses the conversation, or cannot be computed.
    pub fn render(
        &self,
        messages: &[impl Serialize],
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        self.render_with(
            messages,
            add_generation_prompt,
            &BTreeMap::<&str, ()>::new(),
        )
    }

    /// As [`render`](Self::render), with more that the template reads by name: `tools`, `documents`, `enable_thinking`. It is a map, or a
    /// struct.
    ///
    /// ```
    /// use attn::text::{ChatMessage, ChatTemplate};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Options {
    ///     enable_thinking: bool,
    /// }
    ///
    /// let template = ChatTemplate::new("{{ messages[0].content }}{% if not enable_thinking %} /no_think{% endif %}")?;
    /// let options = Options { enable_thinking: false };
    /// let text = template.render_with(&[ChatMessage::user("Hello")], true, &options)?;
    /// assert_eq!(text, "Hello /no_think");
    /// # Ok::<(), attn::text::ChatError>(())
    /// ```
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_with(
        &self,
        messages: &[impl Serialize],
        add_generation_prompt: bool,
        more: &impl Serialize,
    ) -> Result<String, ChatError> {
        let tokens = self.tokens.iter();
        let tokens = tokens.map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        let mut names: BTreeMap<String, Value> = tokens.collect();
        for absent in ["tools", "documents"] {
            names.insert(absent.into(), ().into());
        }
        let render = || {
            let more = Value::from(Serde(more));
            for name in more.try_iter()? {
                names.insert(name.to_string(), more.get_item(&name)?);
            }
            let messages = messages
                .iter()
                .map(|message| jinja::message(Serde(message).into()));
            names.insert("messages".into(), messages.collect::<Result<Value, _>>()?);
            names.insert("add_generation_prompt".into(), add_generation_prompt.into());
            self.environment.get_template(TEMPLATE)?.render(names)
        };
        render().map_err(|error| jinja::refused(&self.name, &error))
    }
}

/// Why a conversation has no text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A file cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },

    /// There is no template of this name.
    #[error("{path} has no chat template `{name}`: it has {known:?}")]
    Missing {
        /// The folder.
        path: String,
        /// The name.
        name: String,
        /// The names of the templates that are there.
        known: Vec<String>,
    },

    /// A template is no Jinja, or cannot be computed for a conversation, or refuses it.
    #[error("{name}{}: {reason}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Template {
        /// The template.
        name: String,
        /// The line of the template, counted from 1.
        line: Option<usize>,
        /// The reason.
        reason: String,
    },
}
