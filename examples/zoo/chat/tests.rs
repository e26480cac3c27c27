//! Conversations with a checkpoint of the gallery's tests, whose tokens are characters.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use crate::{Args, begin, conversation::Reading, folder::Folder, networks, talk};
use attn::generate::Sampling;
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use tempfile::TempDir;

const CHARACTERS: &str = "abcdefghijklmnopqrstuvwxyz \n.,?!:'-0123456789ABCDEFGHIJKü🦀";
/// The end of a message.
const END: usize = 2;
const TEMPLATE: &str = "\
{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}{% endfor %}
{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
const ANSWER: usize = 12;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn write(folder: &TempDir, name: &str, json: &Value) {
    fs::write(folder.path().join(name), json.to_string()).unwrap();
}

/// A folder as it is published, without a chat template.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, published) in [
        ("smollm.json", "config.json"),
        ("smollm.safetensors", "model.safetensors"),
    ] {
        fs::copy(fixture(name), folder.path().join(published)).unwrap();
    }
    let special = ["<u>", "<s>", "<e>"];
    let characters = CHARACTERS.chars().map(String::from);
    let pieces = special.map(str::to_owned).into_iter().chain(characters);
    let pieces = pieces.zip(0..).map(|(piece, id)| (piece, json!(id)));
    let added = special.iter().zip(0..).map(|(content, id)| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true
        })
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": { "type": "Fuse" },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<u>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "merges": [],
            "vocab": pieces.collect::<serde_json::Map<_, _>>()
        }
    });
    write(&folder, "tokenizer.json", &tokenizer);
    folder
}

fn folder_with_template() -> TempDir {
    let folder = folder();
    let tokenizer = json!({ "chat_template": TEMPLATE, "eos_token": "<e>" });
    write(&folder, "tokenizer_config.json", &tokenizer);
    folder
}

fn args(folder: &TempDir) -> Args {
    Args {
        model: folder.path().to_owned(),
        system: None,
        temperature: None,
        top_p: None,
        max_tokens: ANSWER,
        context: 256,
        seed: 1,
    }
}

/// The text that the program writes for these lines.
fn output(args: &Args, input: &str) -> anyhow::Result<String> {
    let mut output = Vec::new();
    talk(
        args,
        "",
        input.as_bytes(),
        &mut output,
        &AtomicBool::new(false),
    )?;
    Ok(String::from_utf8(output)?)
}

/// The likeliest text behind another one, in a session of its own.
fn likeliest(folder: &TempDir, text: &str) -> String {
    let folder = Folder::open(folder.path()).unwrap();
    let mut session = networks::session(&folder, 256).unwrap();
    let tokens = folder.vocabulary.encode(text).unwrap();
    let sampling = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let chosen = session.generate(&tokens, sampling, &[END]).unwrap();
    let chosen = chosen.take(ANSWER).collect::<Result<Vec<_>, _>>().unwrap();
    let text = folder.vocabulary.decode_without_special_tokens(&chosen);
    text.unwrap()
}

#[test]
fn a_conversation_has_the_likeliest_answers_behind_all_that_was_said() {
    let folder = folder_with_template();
    let first = likeliest(&folder, "user: hello<e>assistant: ");
    let said = format!("user: hello<e>assistant: {first}<e>user: who are you?<e>assistant: ");
    let second = likeliest(&folder, &said);
    assert!(!first.is_empty() && !second.is_empty());
    let found = output(&args(&folder), "hello\n\nwho are you?\n").unwrap();
    assert_eq!(found, format!("{first}\n{second}\n"));

    let system = Args {
        system: Some("be brief".into()),
        ..args(&folder)
    };
    let text = "system: be brief<e>user: hello<e>assistant: ";
    assert_eq!(
        output(&system, "hello").unwrap(),
        likeliest(&folder, text) + "\n"
    );
}

#[test]
fn a_model_without_a_template_continues_the_text() {
    let folder = folder();
    let first = likeliest(&folder, "once");
    let second = likeliest(&folder, &format!("once{first} and"));
    let found = output(&args(&folder), "once\n and\n").unwrap();
    assert_eq!(found, format!("{first}\n{second}\n"));
    let system = Args {
        system: Some("be brief".into()),
        ..args(&folder)
    };
    let refused = output(&system, "once").unwrap_err().to_string();
    assert!(
        refused.ends_with("has no chat template, so there is no place for --system"),
        "{refused}"
    );
}

#[test]
fn a_turn_reads_what_is_new_alone() {
    let folder = folder_with_template();
    let mut conversation = begin(&args(&folder)).unwrap();
    let mut answer = String::new();
    let first = conversation.answer("hello", |piece| {
        answer += piece;
        Ok(true)
    });
    // Each character is a token, and so is each end.
    let asked = "user: hello_assistant: ".len();
    assert_eq!(
        first.unwrap(),
        Reading {
            kept: 0,
            new: asked
        }
    );
    let second = conversation.answer("and now?", |_| Ok(true)).unwrap();
    let said = asked + answer.chars().count() + "_user: and now?_assistant: ".len();
    assert_eq!(second.kept + second.new, said);
    // A special token that the model chose has no text, so the tokens of the text are others from there on.
    assert!(second.kept >= asked, "{second:?}");
}

/// Ends the answer after a piece, as Ctrl-C does.
struct Interrupt<'a>(Vec<u8>, &'a AtomicBool);

impl Write for Interrupt<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.store(false, Ordering::Relaxed);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_interrupted_answer_is_a_part_of_the_conversation() {
    let folder = folder_with_template();
    let answering = AtomicBool::new(false);
    let mut output = Interrupt(Vec::new(), &answering);
    talk(
        &args(&folder),
        "",
        &b"hello\nand now?\n"[..],
        &mut output,
        &answering,
    )
    .unwrap();
    let first: String = likeliest(&folder, "user: hello<e>assistant: ")
        .chars()
        .take(1)
        .collect();
    let said = format!("user: hello<e>assistant: {first}<e>user: and now?<e>assistant: ");
    let second: String = likeliest(&folder, &said).chars().take(1).collect();
    assert_eq!(
        String::from_utf8(output.0).unwrap(),
        format!("{first}\n{second}\n")
    );
}

#[test]
fn a_full_context_ends_the_answer_and_then_the_conversation() {
    let folder = folder_with_template();
    let small = Args {
        context: 26,
        max_tokens: 100,
        ..args(&folder)
    };
    // 23 tokens are read, and the last one that is written is not.
    let written = output(&small, "hello\n").unwrap();
    let likeliest = likeliest(&folder, "user: hello<e>assistant: ");
    assert!(
        likeliest.starts_with(written.trim_end_matches('\n')),
        "{written}"
    );
    assert!(written.chars().count() <= 5, "{written}");
    let refused = output(&small, "hello\nand now?\n").unwrap_err().to_string();
    assert!(
        refused.ends_with("tokens, and --context 26 has no place for them"),
        "{refused}"
    );
}

#[test]
fn the_authors_say_how_tokens_are_chosen_and_what_ends_an_answer() {
    let folder = folder();
    let open = || Folder::open(folder.path()).unwrap();
    assert_eq!(open().sampling().temperature, 0.0);
    assert_eq!(open().ends(), [END]);
    let generation = json!({
        "do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1, "eos_token_id": [5, 7]
    });
    write(&folder, "generation_config.json", &generation);
    write(
        &folder,
        "tokenizer_config.json",
        &json!({ "eos_token": { "content": "<s>" } }),
    );
    let expected = Sampling {
        temperature: 0.6,
        top_p: 0.9,
        top_k: Some(20),
        repetition_penalty: 1.1,
        vocabulary: Some(61),
        ..Sampling::default()
    };
    assert_eq!(format!("{:?}", open().sampling()), format!("{expected:?}"));
    assert_eq!(open().ends(), [5, 7, END, 1]);
}

#[test]
fn other_sizes_give_the_declaration_to_paste() {
    let folder = folder();
    let mut config: Value =
        serde_json::from_str(&fs::read_to_string(fixture("smollm.json")).unwrap()).unwrap();
    config["num_hidden_layers"] = json!(3);
    write(&folder, "config.json", &config);
    let error = format!("{:#}", output(&args(&folder), "hello").unwrap_err());
    for part in [
        "this program is compiled for zoo::gpt2::Gpt2, ",
        "add `smollm: SmolLm,` to `networks!`",
        "model! {\n    use zoo::smollm::smollm;\n\n    struct SmolLm<\n        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, hidden = 40, \
         layers = 3, theta = 1000.0, epsilon = 1e-3,\n    >;\n",
    ] {
        assert!(error.contains(part), "{error}");
    }

    config["model_type"] = json!("mamba");
    write(&folder, "config.json", &config);
    let error = format!("{:#}", output(&args(&folder), "hello").unwrap_err());
    assert!(
        error.contains("`model_type` \"mamba\": the gallery has gemma2, "),
        "{error}"
    );
}

#[test]
fn all_missing_files_are_in_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = |folder: &TempDir| output(&args(folder), "hello").unwrap_err().to_string();
    let files = "lacks files of a published model: config.json, tokenizer.json, model.safetensors or model.safetensors.index.json";
    assert!(missing(&folder).ends_with(files), "{}", missing(&folder));
    write(&folder, "config.json", &json!({}));
    fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    write(&folder, "model.safetensors.index.json", &json!({}));
    assert!(
        missing(&folder).contains("tokenizer.json"),
        "{}",
        missing(&folder)
    );
}
