//! The declaration decides the buckets of `rel_pos_bias`: `bidirectional`, or the words of the mask.

use crate::spec::Position;
use crate::tests::support::{build, expand, parse_file, reports};

fn layer(keys: &str, body: &str) -> String {
    format!("struct L<heads = 2, d_model = 4, position = rel_pos_bias(8, 20), {keys}> {{ {body} }}")
}

/// Whether keys after the query have their own buckets.
fn is_bidirectional(keys: &str, body: &str) -> bool {
    let (spec, _) = build(&layer(keys, body));
    let Position::RelPosBias { one_sided, .. } = spec.position else {
        panic!("{:?} with {keys}", spec.position);
    };
    !one_sided
}

#[test]
fn mask_words_decide_the_buckets() {
    for (mask, expected) in [
        ("none", true),
        ("padding & document", true),
        ("chunked(4)", true),
        ("prefix_lm(3)", true),
        ("sliding_window(3, symmetric)", true),
        ("causal | padding", true),
        ("causal", false),
        ("causal(lower_right)", false),
        ("padding & causal", false),
        ("sliding_window(3)", false),
        ("dilated_sliding_window(3, 2) | causal", false),
        ("causal & (chunked(4) | document)", false),
        ("causal & !chunked(4)", false),
    ] {
        assert_eq!(
            is_bidirectional(&format!("mask = {mask}"), ""),
            expected,
            "{mask}"
        );
    }
    // With this alignment, a query that is aligned with the last keys has a smaller index than keys before it.
    for (align, expected) in [("upper_left", false), ("lower_right", true)] {
        let keys = format!("d_context = 4, mask = causal({align})");
        assert_eq!(is_bidirectional(&keys, ""), expected, "{align}");
    }
}

#[test]
fn bidirectional_overrides_the_mask() {
    let one_mask = [
        ("mask = causal, ", ""),
        ("mask = !(!causal), ", ""),
        ("", "fn mask(q_idx, kv_idx) { kv_idx <= q_idx }"),
        (
            "",
            "fn mask(q_idx, kv_idx) { kv_idx * kv_idx <= q_idx * q_idx }",
        ),
        ("", ""),
    ];
    for (keys, body) in one_mask {
        for value in [true, false] {
            let keys = format!("{keys}bidirectional = {value}");
            assert_eq!(is_bidirectional(&keys, body), value, "{keys}");
        }
    }
}

/// Proofs do not replace the words. Otherwise a better prover would change the layer.
#[test]
fn bidirectional_is_required_where_mask_words_do_not_decide() {
    for (keys, body, reason) in [
        (
            "",
            "fn mask(q_idx, kv_idx) { kv_idx <= q_idx }",
            "`fn mask`",
        ),
        (
            "",
            "fn mask(q_idx, kv_idx) { kv_idx * kv_idx <= q_idx * q_idx }",
            "`fn mask`",
        ),
        (
            "mask = padding",
            "fn mask(q_idx, kv_idx) { kv_idx <= q_idx }",
            "`fn mask`",
        ),
        ("mask = !causal", "", "`!`"),
        ("mask = !(!causal)", "", "`!`"),
        ("mask = !chunked(2) & padding", "", "`!`"),
    ] {
        let source = layer(keys, body);
        let found = reports(&parse_file(expand(&source)));
        let [report] = found.as_slice() else {
            panic!("{found:?} of {source}");
        };
        let place = report.at.clone().expect("it stands at a token");
        assert!(source[place].starts_with("rel_pos_bias"), "{source}");
        for part in [reason, "`bidirectional = true`", "`bidirectional = false`"] {
            assert!(report.message.contains(part), "{}", report.message);
        }
    }
    // The words of the header also count beside a function.
    assert!(!is_bidirectional(
        "mask = causal",
        "fn mask(h, kv_idx) { kv_idx % 3 < h }"
    ));
}

#[test]
fn bidirectional_applies_to_rel_pos_bias_only() {
    for position in ["", "position = rope, ", "position = alibi, "] {
        let source = format!("struct L<heads = 2, d_model = 4, {position}bidirectional = true>;");
        let found = reports(&parse_file(expand(&source)));
        let [report] = found.as_slice() else {
            panic!("{found:?} of {source}");
        };
        assert!(
            report.message.starts_with("`bidirectional` is about"),
            "{report:?}"
        );
        let place = report.at.clone().expect("it stands at a token");
        assert_eq!(&source[place], "true");
    }
}

#[test]
fn scores_have_the_declared_buckets() {
    let score = |keys: &str| {
        let (_, graph) = build(&layer(keys, ""));
        let attention = graph.attention().expect("there is one");
        let maps = attention.functions.iter().map(ToString::to_string);
        maps.collect::<String>()
    };
    assert!(score("bidirectional = true").contains("if q_idx < kv_idx { 4 }"));
    assert!(!score("bidirectional = false").contains("q_idx < kv_idx"));
    assert_eq!(
        score("mask = causal"),
        score("mask = causal, bidirectional = false")
    );
}
