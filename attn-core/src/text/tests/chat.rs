//! Conversations have the text that `transformers` gives them: `chat.py` has written templates and texts to `chat.json`.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, UNIX_EPOCH},
};

use minijinja::Value;
use serde::Deserialize;

use crate::text::{ChatError, ChatMessage, ChatTemplate};

/// Dictionaries keep their order in a value of Jinja.
#[derive(Deserialize)]
struct Fixture {
    conversations: Vec<Conversation>,
    templates: Vec<Template>,
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Value>,
    add_generation_prompt: bool,
}

#[derive(Deserialize)]
struct Template {
    name: String,
    template: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    conversation: usize,
    options: Value,
    text: Option<String>,
    refused: Option<String>,
}

fn compile(source: &str) -> Result<ChatTemplate, ChatError> {
    // 2024-02-29 15:04:09.
    let time = UNIX_EPOCH + Duration::from_secs(1_709_219_049);
    let template = ChatTemplate::new(source)?.at(time);
    Ok(template
        .token("bos_token", "<s>")
        .token("eos_token", "</s>"))
}

#[test]
fn conversations_have_the_text_of_transformers() {
    let fixture: Fixture = serde_json::from_str(include_str!("chat.json")).unwrap();
    let mut different = Vec::new();
    for Template {
        name,
        template,
        cases,
    } in &fixture.templates
    {
        for case in cases {
            let Conversation {
                messages,
                add_generation_prompt,
            } = &fixture.conversations[case.conversation];
            let found = compile(template);
            let found = found.and_then(|found| {
                found.render_with(messages, *add_generation_prompt, &case.options)
            });
            let same = match (&found, &case.text) {
                (Ok(found), Some(text)) => found == text,
                (Err(_), None) => true,
                _ => false,
            };
            if !same {
                different.push(format!(
                    "{name}, {}:\n{found:?}\n{:?} {:?}",
                    case.conversation, case.text, case.refused
                ));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

/// The template, the line, and the reason.
#[test]
fn an_error_of_a_template_says_where_and_why() {
    let hello = [ChatMessage::user("Hello")];
    let refused = |source: &str| {
        let text = compile(source).and_then(|template| template.render(&hello, true));
        text.unwrap_err().to_string()
    };
    for (source, expected) in [
        (
            "\n\n{{ raise_exception('no ' + messages[0].role) }}",
            "chat template, line 3: it refuses the conversation: no user",
        ),
        (
            "{% if messages %}\n{{ messages[0] | nonsense }}{% endif %}",
            "chat template, line 2: unknown filter: ",
        ),
        (
            "\n{% if messages %}",
            "chat template, line 2: syntax error: ",
        ),
        (
            "\n{{ messages[0].author.name }}",
            "chat template, line 2: undefined value",
        ),
        (
            "{{ messages[0].content.translate() }}",
            "chat template, line 1: unknown method: ",
        ),
        (
            "{{ messages | tojson(colour=1) }}",
            "chat template, line 1: too many arguments: ",
        ),
    ] {
        let found = refused(source);
        assert!(found.starts_with(expected), "{source:?}: {found}");
    }
}

#[test]
fn the_time_may_be_given() {
    let time = UNIX_EPOCH + Duration::from_secs(951_782_400);
    let messages: [ChatMessage; 0] = [];
    let text = |format: &str| {
        let template = ChatTemplate::new("{{ strftime_now(format) }}").unwrap();
        let options = BTreeMap::from([("format", format)]);
        template.at(time).render_with(&messages, false, &options)
    };
    let found = text("%F %T %j %a, %-d.%-m., %e %h %I%p %Z %z %%");
    let expected = "2000-02-29 00:00:00 060 Tue, 29.2., 29 Feb 12AM UTC +0000 %";
    assert_eq!(found.as_deref(), Ok(expected));
    let error = text("%d %!").unwrap_err().to_string();
    let expected = "`strftime_now` does not know the format `%d %!`";
    assert!(error.ends_with(expected), "{error}");
}

/// In Python it is local, too. The year is enough: the test may run at midnight.
#[test]
fn without_a_time_it_is_that_of_the_call() {
    let template = ChatTemplate::new("{{ strftime_now('%Y') }}").unwrap();
    let text = template.render(&[ChatMessage::user("")], false).unwrap();
    let year: u64 = text.parse().unwrap();
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let days = 365.2425 * 86400.0;
    let expected = 1970 + (now as f64 / days) as u64;
    assert!(year.abs_diff(expected) <= 1, "{year}");
}

/// In the order in which `transformers` looks: files of templates come before the config.
#[test]
fn a_folder_has_a_template_in_one_of_three_places() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let text = |template: ChatTemplate| {
        let messages = [ChatMessage::system("S"), ChatMessage::assistant("A")];
        template.render(&messages, true).unwrap()
    };
    let open = || ChatTemplate::open(folder.path()).unwrap();
    assert!(open().is_none());

    write(
        "tokenizer_config.json",
        r#"{"bos_token": null, "model_max_length": 1e30}"#,
    );
    write(
        "special_tokens_map.json",
        r#"{"eos_token": {"content": "<e>", "lstrip": false}, "bos_token": "<m>"}"#,
    );
    assert!(open().is_none());
    write(
        "tokenizer_config.json",
        r#"{"bos_token": {"content": "<b>"}, "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}"#,
    );
    assert_eq!(text(open().unwrap()), "<b>S<e>");

    write(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t\n{% endif %}"}]}"#,
    );
    assert_eq!(text(open().unwrap()), "d");
    let named = |name| ChatTemplate::open_named(folder.path(), name);
    let wrong = named("tool_use").unwrap_err().to_string();
    assert!(
        wrong.contains("`chat_template` of ")
            && wrong.contains(", `tool_use`, line 2: syntax error"),
        "{wrong}"
    );
    let missing = named("rag").unwrap_err().to_string();
    assert!(
        missing.ends_with(r#"has no chat template `rag`: it has ["default", "tool_use"]"#),
        "{missing}"
    );

    write("chat_template.jinja", "{{ messages[1].role }} in a file\n");
    assert_eq!(text(open().unwrap()), "assistant in a file");
    fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
    write(
        "additional_chat_templates/rag.jinja",
        "{{ messages[0].role }} in a folder",
    );
    assert_eq!(text(named("rag").unwrap()), "system in a folder");

    write("tokenizer_config.json", "{");
    let broken = ChatTemplate::open(folder.path()).unwrap_err().to_string();
    assert!(broken.contains("tokenizer_config.json: EOF"), "{broken}");
}
