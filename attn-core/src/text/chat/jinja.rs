//! Jinja as `transformers` sets it up.

use std::{error::Error as _, fmt, time::SystemTime};

use chrono::{DateTime, Local, Utc, format::StrftimeItems};
use minijinja::{
    Environment, Error, ErrorKind, Value,
    syntax::SyntaxConfig,
    value::{Kwargs, ValueKind},
};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{ChatError, TEMPLATE, json};

/// An environment with this template.
pub(super) fn environment(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise_exception);
    set_time(&mut environment, None);
    environment.add_template_owned(TEMPLATE, without_tracking(source))?;
    Ok(environment)
}

/// The time that templates write: this one in UTC, or the local one of the call.
pub(super) fn set_time(environment: &mut Environment<'static>, time: Option<SystemTime>) {
    environment.add_function("strftime_now", move |format: &str| {
        let items = StrftimeItems::new(format).parse();
        let items = items.map_err(|_| {
            let reason = format!("`strftime_now` does not know the format `{format}`");
            Error::new(ErrorKind::InvalidOperation, reason)
        })?;
        let items = items.iter();
        Ok(match time {
            Some(time) => DateTime::<Utc>::from(time)
                .format_with_items(items)
                .to_string(),
            None => Local::now().format_with_items(items).to_string(),
        })
    });
}

/// A message without the fields that are `None`: templates ask whether a field is there.
pub(super) fn message(message: Value) -> Result<Value, Error> {
    if message.kind() != ValueKind::Map {
        return Ok(message);
    }
    let mut fields = Vec::new();
    for name in message.try_iter()? {
        let value = message.get_item(&name)?;
        if !value.is_none() {
            fields.push((name, value));
        }
    }
    Ok(Value::from_pairs(fields))
}

/// The error of a template, with its line.
pub(super) fn refused(name: &str, error: &Error) -> ChatError {
    let raised = error
        .source()
        .and_then(|source| source.downcast_ref::<Raised>());
    let reason = match (raised, error.detail()) {
        (Some(Raised(message)), _) => format!("it refuses the conversation: {message}"),
        (None, Some(detail)) => format!("{}: {detail}", error.kind()),
        (None, None) => error.kind().to_string(),
    };
    ChatError::Template {
        name: name.into(),
        line: error.line(),
        reason,
    }
}

/// The message of `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: String) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

/// `json.dumps` of Python.
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let separators: Option<Vec<String>> = options.get("separators")?;
    let written = json::Options {
        indent: options.get("indent")?,
        ensure_ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        separators: separators.and_then(|each| <[String; 2]>::try_from(each).ok()),
    };
    options.assert_all_used()?;
    json::dumps(value, written)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// Whether a value has a length and items in Python.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Map, Seq, String, Undefined};
    matches!(value.kind(), String | Seq | Map | Undefined)
}

/// `{% generation %}` marks what an assistant says, for training. Its text is that of its body.
fn without_tracking(source: &str) -> String {
    let mut text = String::new();
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        text += before;
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        let blank = &tag[..tag.len() - inner.len()];
        let word = inner.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let word = word.into_iter().next().unwrap_or("");
        let instead = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            word => word,
        };
        text += blank;
        text += instead;
        rest = &inner[word.len()..];
    }
    text + rest
}
