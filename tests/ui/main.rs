//! Every diagnostic: a program with a mistake, and beside it the full output of the compiler.
//!
//! `TRYBUILD=overwrite cargo test -p attn-ui-tests --test ui` rewrites the messages: read the changes. A single case:
//! `cargo test -p attn-ui-tests --test ui -- a_mistake trybuild=heads`.

mod documentation;

#[test]
fn a_mistake_is_one_error_at_its_token() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
}

/// The headings of the page are rustc's messages in the cases: a user searches for the words on the screen.
#[test]
fn the_page_of_rustc_quotes_its_messages() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fail");
    let files = std::fs::read_dir(folder).expect("the cases are there");
    let files = files.map(|file| file.expect("it can be read").path());
    let messages = files.filter(|path| path.extension().is_some_and(|end| end == "stderr"));
    let messages = messages.map(|path| std::fs::read_to_string(path).expect("it can be read"));
    let messages: String = messages.collect();
    let page = include_str!("../../src/when_rustc_says.md");
    let headings: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert!(headings.len() > 10, "{headings:?}");
    for heading in headings {
        // `..` is a variable part.
        let is_said = |line: &str| {
            heading
                .split("..")
                .try_fold(line, |rest, part| {
                    let at = rest.find(part.trim())?;
                    Some(&rest[at + part.trim().len()..])
                })
                .is_some()
        };
        assert!(messages.lines().any(is_said), "no case says: {heading}");
    }
}
