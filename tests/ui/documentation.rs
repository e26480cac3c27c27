//! Tests of the documentation's sources: its examples depend on the facade only, and a search finds items by their names in other libraries.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a folder with this ending.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files(&path, end, found);
        } else if path.extension().is_some_and(|found| found == end) {
            found.push(path);
        }
    }
}

fn sources(folders: &[&str], end: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in folders {
        files(&root().join(folder), end, &mut found);
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("text");
        (path, text)
    };
    found.into_iter().map(read).collect()
}

/// The text of a line of documentation.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let doc = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    Some(doc.strip_prefix(' ').unwrap_or(doc))
}

/// The lines of an example in `lines` that do not compile in a program that depends only on the facade.
fn lines_for_insiders<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut in_example = false;
    let mut found = Vec::new();
    for line in lines {
        if line.trim_start().starts_with("```") {
            in_example = !in_example;
        } else if in_example && names_a_crate_of_ours(line) {
            found.push(line);
        }
    }
    found
}

/// Whether a path begins with `attn_core`, `attn_macros`, or with `dfdx`, other than the `attn::dfdx` of an import.
fn names_a_crate_of_ours(line: &str) -> bool {
    let code = line.trim_start().trim_start_matches("# ");
    let begins_path = |name: &str| {
        code.match_indices(name).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            let is_start = before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':'));
            is_start && code[at + name.len()..].starts_with("::")
        })
    };
    let imports_dfdx = ["use dfdx", "pub use dfdx", "extern crate dfdx"];
    let imports_dfdx = imports_dfdx.iter().any(|import| code.starts_with(import));
    begins_path("attn_core") || begins_path("attn_macros") || imports_dfdx
}

#[test]
fn examples_depend_on_the_facade_alone() {
    let mut examples = 0;
    let mut texts = Vec::new();
    for (path, text) in sources(&["attn-core/src", "attn-macros/src", "src"], "rs") {
        let docs: Vec<&str> = text.lines().filter_map(doc).collect();
        examples += docs.iter().filter(|line| line.starts_with("```")).count() / 2;
        texts.push((path, docs.join("\n")));
    }
    texts.extend(sources(&["src"], "md"));
    for readme in ["README.md", "attn-core/README.md", "attn-macros/README.md"] {
        let path = root().join(readme);
        let text = fs::read_to_string(&path).expect("text");
        texts.push((path, text));
    }
    let found = texts.iter().flat_map(|(path, text)| {
        let lines = lines_for_insiders(text.lines()).into_iter();
        lines.map(move |line| format!("{}: {line}", path.display()))
    });
    let found: Vec<String> = found.collect();
    assert!(examples > 100, "{examples} examples were found");
    assert!(
        found.is_empty(),
        "users have no such crate:\n{}",
        found.join("\n")
    );
}

#[test]
fn crates_that_users_do_not_have_are_found() {
    for line in [
        "use attn_core::ops::linear;",
        "# use dfdx::shapes::Shape;",
        "use dfdx::prelude::*;",
        "# Ok::<(), attn_core::text::TextError>(())",
    ] {
        assert!(names_a_crate_of_ours(line), "{line}");
    }
    for line in [
        "use attn::{dfdx::prelude::*, ops::linear};",
        "use attn::dfdx::prelude::*;",
        "attn::dfdx::shapes::Const",
    ] {
        assert!(!names_a_crate_of_ours(line), "{line}");
    }
}

/// An item with its documentation and its attributes, each as one text.
struct Item<'t> {
    docs: String,
    attributes: String,
    line: &'t str,
}

/// The documented items of a file. The line of an item is the first after its documentation that is not an attribute.
fn items(text: &str) -> Vec<Item<'_>> {
    let mut docs = String::new();
    let mut attributes = String::new();
    let mut found = Vec::new();
    let mut depth = 0;
    for line in text.lines() {
        let code = line.trim();
        if let Some(line) = code.strip_prefix("///") {
            docs.push_str(line.trim());
            docs.push(' ');
        } else if depth > 0 || code.starts_with("#[") {
            attributes.push_str(code);
            let brackets = |c: char| code.matches(c).count() as isize;
            depth += brackets('[') - brackets(']');
        } else if !docs.is_empty() {
            found.push(Item {
                docs: std::mem::take(&mut docs),
                attributes: std::mem::take(&mut attributes),
                line: code,
            });
        } else {
            attributes.clear();
        }
    }
    found
}

/// The name of an item in PyTorch: the function of the call after the word, if it is a call.
fn in_pytorch(docs: &str) -> Option<&str> {
    let (_, call) = docs.split_once("PyTorch: `")?;
    let path = call
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
        .next()?;
    let libraries = ["torch.", "safetensors.", "model.", "optimizer."];
    let is_of_library = libraries.iter().any(|library| path.starts_with(library));
    path.rsplit('.').next().filter(|_| is_of_library)
}

/// A search ignores capitals and `_`.
fn letters(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

#[test]
fn a_search_finds_items_by_their_names_in_pytorch() {
    let mut known = 0;
    let folders = [
        "nn",
        "ops",
        "train",
        "generate",
        "checkpoint",
        "maps",
        "viz",
    ];
    let folders = folders.map(|folder| format!("attn-core/src/{folder}"));
    for (path, text) in sources(&folders.each_ref().map(String::as_str), "rs") {
        for item in items(&text) {
            let Some(name) = in_pytorch(&item.docs) else {
                continue;
            };
            known += 1;
            let is_called_so = letters(item.line).contains(&letters(name));
            let has_alias = item.attributes.contains(&format!("\"{name}\""));
            assert!(
                is_called_so || has_alias,
                "{}: `{}` is `{name}` in PyTorch, and has no `#[doc(alias = \"{name}\")]`",
                path.display(),
                item.line
            );
        }
    }
    assert!(known > 20, "{known} items have a name in PyTorch");
}
