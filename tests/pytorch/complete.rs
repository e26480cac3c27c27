//! Every operation, and every word of an attention, is in a model that is compared.

/// All models that are compared.
fn models() -> Vec<String> {
    let modules = [
        crate::attend::MODELS,
        crate::attention::MODELS,
        crate::convolutions::MODELS,
        crate::elementwise::MODELS,
        crate::indices::MODELS,
        crate::layers::MODELS,
        crate::models::text::MODELS,
        crate::models::vision::MODELS,
        crate::parts::MODELS,
        crate::recurrent::MODELS,
        crate::reductions::MODELS,
        crate::selections::MODELS,
    ];
    let without_spaces = |model: &&str| model.split_whitespace().collect();
    modules.concat().iter().map(without_spaces).collect()
}

/// Whether `name` stands in a model, as a whole word in front of one of these.
fn is_compared(models: &[String], name: &str, before: &[char]) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    models.iter().any(|model| {
        let mut places = model.match_indices(name);
        places.any(|(start, _)| {
            let rest = &model[start + name.len()..];
            !model[..start].ends_with(is_letter) && rest.starts_with(before)
        })
    })
}

/// The first cells of the rows of a table: what is between the backticks.
fn names(table: &str) -> impl Iterator<Item = &str> {
    let rows = table.lines().filter_map(|row| row.strip_prefix("| `"));
    rows.map(|row| row.split(['`', ':', '(']).next().unwrap())
}

#[test]
fn every_operation_is_compared() {
    let models = models();
    // A module is any code: there is nothing to compare.
    let compared = names(attn_macros::operation_table!()).filter(|name| *name != "module");
    let compared: Vec<_> = compared.collect();
    assert!(compared.len() > 30, "{compared:?}");
    let missing = compared.into_iter();
    let missing: Vec<_> = missing
        .filter(|name| !is_compared(&models, name, &['(', ':']))
        .collect();
    assert!(
        missing.is_empty(),
        "`tests/pytorch/` has no values of {missing:?}"
    );
}

/// The rows below a heading of the table of keys.
fn section(heading: &str) -> impl Iterator<Item = &'static str> {
    let table: &str = attn_macros::key_table!();
    let (_, rows) = table.split_once(&format!("\n`{heading}`:\n\n")).unwrap();
    names(rows.split("\n\n").next().unwrap())
}

#[test]
fn every_word_of_an_attention_is_compared() {
    let models = models();
    for key in [
        "mask",
        "score",
        "normalizer",
        "position",
        "bidirectional",
        "qk_norm",
        "talking_heads",
    ] {
        // `none` and the words of this list are what no word means.
        let words = section(key).filter(|word| !["none", "scaled_dot"].contains(word));
        let words: Vec<_> = words.collect();
        assert!(words.len() > 1, "{key} has words: {words:?}");
        for word in words {
            let is_there = is_compared(&models, word, &['(', ',', '>', '&', '|']);
            assert!(
                is_there,
                "`tests/pytorch/` has no values of `{key} = {word}`"
            );
        }
    }
}

#[test]
fn every_key_of_an_attention_is_compared() {
    let models = models();
    let table: &str = attn_macros::key_table!();
    let (keys, _) = table.split_once("\n\n").unwrap();
    // Not a number of a forward pass: a promise, how training begins, and numbers that are drawn. A context in a model and its values
    // have widths of their own.
    let apart = ["ensure", "init", "dropout", "d_context", "d_values"];
    for key in names(keys).filter(|key| !apart.contains(key)) {
        let is_there = is_compared(&models, key, &['=']);
        assert!(is_there, "`tests/pytorch/` has no values of `{key}`");
    }
}
