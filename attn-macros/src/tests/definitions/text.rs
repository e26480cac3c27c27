//! Expressions as text: the documentation shows Rust with the same meaning.

use proptest::prelude::*;

use super::{LENGTH_PAIRS, masked, modification, pairs, point};
use crate::score::builtin;
use crate::score::eval::{self, Point, Value};
use crate::tests::interpret::{Scope, interpret};
use crate::tests::random::formula::formulas;
use crate::tests::support::cases;

impl Scope for Point<'_> {
    fn variable(&self, name: &str) -> Option<Value> {
        Some(match name {
            "score" => Value::Float(self.score),
            "h" => Value::Int(self.h),
            "q_idx" => Value::Int(self.q_idx),
            "kv_idx" => Value::Int(self.kv_idx),
            "q_len" => Value::Int(self.q_len),
            "kv_len" => Value::Int(self.kv_len),
            _ => return None,
        })
    }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn the_text_of_a_mask_is_the_mask(formula in formulas(true, false)) {
        let predicate = builtin::mask(&masked(&formula.to_string(), true).mask, None);
        let text = predicate.to_string();
        for (q_len, kv_len) in LENGTH_PAIRS {
            for pair in pairs(q_len, kv_len) {
                let point = point(pair);
                prop_assert_eq!(Some(interpret(&text, &point)), eval::eval(&predicate, &point), "{}", text);
            }
        }
    }
}

#[test]
fn the_text_of_a_modified_score_is_the_modification() {
    for keys in [
        "heads = 8, d_model = 512",
        "heads = 1, d_model = 4, scale = 0.1, softcap = 30",
        "heads = 8, d_model = 512, position = alibi",
        "heads = 6, d_model = 6, softcap = 2.5, position = alibi",
    ] {
        let expr = modification(&format!("struct L<{keys}>;"));
        let text = expr.to_string();
        for pair in pairs(4, 6) {
            let point = Point {
                h: pair.q + pair.b,
                score: 0.75,
                ..point(pair)
            };
            assert_eq!(
                Some(interpret(&text, &point)),
                eval::eval(&expr, &point),
                "{text}"
            );
        }
    }
}

#[test]
fn masks_read_well() {
    let text = |mask: &str| builtin::mask(&masked(mask, false).mask, None).to_string();
    let lines = [
        "causal",
        "causal(lower_right)",
        "sliding_window(4)",
        "sliding_window(4, symmetric)",
        "dilated_sliding_window(4, 2)",
        "prefix_lm(3)",
        "chunked(4)",
        "padding",
        "document",
        "!causal",
        "!(padding & causal) | document",
    ]
    .map(text)
    .join("\n");
    insta::assert_snapshot!(lines, @r#"
kv_idx <= q_idx
kv_idx <= q_idx + kv_len - q_len
kv_idx <= q_idx && q_idx - kv_idx < 4
abs(q_idx - kv_idx) < 4
kv_idx <= q_idx && q_idx - kv_idx < 8 && (q_idx - kv_idx) % 2 == 0
kv_idx <= q_idx || kv_idx < 3
q_idx / 4 == kv_idx / 4
padding[b, q_idx, kv_idx]
document[b, q_idx] == kv_document[b, kv_idx]
!(kv_idx <= q_idx)
!(padding[b, q_idx, kv_idx] && kv_idx <= q_idx) || document[b, q_idx] == kv_document[b, kv_idx]
"#);
}

#[test]
fn scores_read_well() {
    let text = |keys: &str| modification(&format!("struct L<{keys}>;")).to_string();
    let lines = [
        "heads = 8, d_model = 512",
        "heads = 8, d_model = 512, scale = 1",
        "heads = 4, d_model = 4, score = dot, softcap = 30",
        "heads = 4, d_model = 4, score = dot, position = alibi",
        "heads = 6, d_model = 6, score = dot, position = alibi",
        "heads = 4, d_model = 4, score = dot, mask = causal, position = rel_pos_bias",
        "heads = 4, d_model = 4, score = dot, position = rel_pos_bias(8, 20)",
        "heads = HEADS, d_model = 4, head_dim = 2 * N",
    ]
    .map(text)
    .join("\n");
    insta::assert_snapshot!(lines, @r#"
score * 0.125
score * 1
tanh(score / 30) * 30
score - exp(8 * (h + 1) as f64 / 4 * -0.6931471805599453) * abs(q_idx - kv_idx) as f64
score - (if h < 4 { exp(8 * (h + 1) as f64 / 4 * -0.6931471805599453) } else { exp(8 * ((h - 4) * 2 + 1) as f64 / 8 * -0.6931471805599453) }) * abs(q_idx - kv_idx) as f64
score + rel_pos_bias[if max(q_idx - kv_idx, 0) < 16 { max(q_idx - kv_idx, 0) } else { min(16 + (ln(max(max(q_idx - kv_idx, 0), 1) as f64 / 16) / 2.0794415416798357 * 16) as i64, 31) }, h]
score + rel_pos_bias[(if q_idx < kv_idx { 4 } else { 0 }) + (if abs(q_idx - kv_idx) < 2 { abs(q_idx - kv_idx) } else { min(2 + (ln(max(abs(q_idx - kv_idx), 1) as f64 / 2) / 2.302585092994046 * 2) as i64, 3) }), h]
score * 1 / sqrt(2 * N)
"#);
}

/// The text of a key or a word in the tables of the documentation.
#[test]
fn definitions_of_scores_are_shown_by_their_names() {
    let names = [
        "scale",
        "softcap",
        "alibi",
        "rel_pos_bias",
        "sigmoid",
        "relu",
    ];
    let lines = names.map(|name| builtin::of_score(name).expect("a definition").to_string());
    insta::assert_snapshot!(lines.join("\n"), @r"
score * scale
tanh(score / softcap) * softcap
score - slope[h] * abs(q_idx - kv_idx) as f64
score + rel_pos_bias[bucket[q_idx - kv_idx], h]
sigmoid(score)
if 0 < score { pow(score, power) } else { 0 }
");
    let table = crate::emit::tables::key_table().to_string();
    for line in lines {
        assert!(table.contains(&format!("`{line}` |")), "{line} in {table}");
    }
    assert!(builtin::of_score("rope").is_none());
}
