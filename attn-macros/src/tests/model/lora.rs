//! Low-rank adapters: which layers get them, and the messages of mistakes.

use super::mistakes::errors_of;
use super::{expand, lower};
use crate::tests::support::reports;

fn declaration(lora: &str) -> String {
    format!(
        "struct M<d = 8, {lora}>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{
            let mut x = x;
            repeat 2 {{ x = x + attention::<2>(x); x = x + feed_forward::<16>(x); }}
            linear::<d, name = head>(x)
        }}"
    )
}

/// The names under which the adapters are saved, without what is around their modules.
fn adapters(on: &str) -> Vec<String> {
    let model = lower(&declaration(&format!("lora(rank = 2, on = [{on}])")));
    let fields = model.modules.iter().flat_map(|module| &module.fields);
    let saved = fields.map(|field| field.saved.clone());
    saved.filter(|name| name.ends_with("lora_A")).collect()
}

#[test]
fn names_are_the_last_parts_of_those_of_layers() {
    assert_eq!(adapters(r#""head""#), ["head.lora_A"]);
    assert_eq!(
        adapters(r#""attention.v_proj""#),
        ["attention.v_proj.lora_A"]
    );
    assert_eq!(
        adapters(r#""blocks.*.feed_forward.up_proj""#),
        ["up_proj.lora_A"]
    );
    assert_eq!(adapters(r#""*""#).len(), 4 + 2 + 1);
}

#[test]
fn layers_without_adapters_stay_as_they_are() {
    let without = lower(&declaration(""));
    let with = lower(&declaration(r#"lora(rank = 2, on = ["head"])"#));
    let nodes = |model: &crate::model::graph::Model| model.body.nodes().len();
    assert_eq!(nodes(&with), nodes(&without) + 4);
}

#[test]
fn mistakes_are_reported_in_the_words_of_the_declaration() {
    let cases = [
        (
            r#"lora(rank = 0, on = ["head"])"#,
            "0",
            "`rank` must be at least 1, found 0",
        ),
        (
            r#"lora(rank = 8, on = ["head"])"#,
            "8",
            "the rank of adapters must be less than both widths of a layer, found 8 for `head`, 8 -> 8",
        ),
        (
            r#"lora(rank = 2, on = ["query"])"#,
            "\"query\"",
            "no linear layer has a name that ends with `query`",
        ),
        (r#"lora(rank = 2)"#, "lora", "`lora` needs `on`"),
        (
            r#"lora(r = 2, on = ["head"])"#,
            "r",
            "`lora` has no key `r`",
        ),
        (
            r#"lora(rank = 2, rank = 3, on = ["head"])"#,
            "rank",
            "`rank` is given twice",
        ),
        (
            r#"lora(rank = 2, on = [head])"#,
            "[head]",
            "expected the names of layers, each in quotes, found `[head]`",
        ),
        (
            r#"lora(rank = 2, dropout = 1.5, on = ["head"])"#,
            "1.5",
            "`dropout` is a probability: at least 0 and less than 1, found 1.5",
        ),
        (
            r#"lora(rank = 2, alpha = 0.0, on = ["head"])"#,
            "0.0",
            "`alpha` of `lora` must be positive and finite, found 0",
        ),
        (
            r#"lora(rank = 2, rslora = 1, on = ["head"])"#,
            "1",
            "`rslora` is `true` or `false`, found `1`",
        ),
        (
            r#"lora(rank = 2, on = ["head"]), lora(rank = 2, on = ["head"])"#,
            "lora",
            "`lora` is given twice",
        ),
    ];
    for (lora, at, message) in cases {
        let found = errors_of(&declaration(lora));
        assert_eq!(found, [(at.to_owned(), message.to_owned())], "{lora}");
    }
}

#[test]
fn names_of_peft_are_translated() {
    let found = reports(&expand(&declaration(r#"lora(r = 2, on = ["head"])"#)));
    assert!(found[0].message.contains("it is `rank` here"));
}
