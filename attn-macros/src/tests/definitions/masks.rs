//! Every mask, single and combined, against its documentation, pair by pair.

use proptest::prelude::*;

use super::{LENGTH_PAIRS, LENGTHS, masked, pairs, point};
use crate::score::eval::{Value, holds};
use crate::score::prove::Verdict;
use crate::score::{Expr, builtin};
use crate::spec::Spec;
use crate::tests::interpret::{self, Scope};
use crate::tests::random::formula::{self, Formula, Pair, Word, formulas};
use crate::tests::support::{cases, expand, group_after};

/// Calls of self-attention, or of cross-attention.
fn calls(cross: bool) -> Vec<Pair> {
    let lengths: Vec<_> = if cross {
        LENGTH_PAIRS.to_vec()
    } else {
        LENGTHS.map(|len| (len, len)).to_vec()
    };
    lengths.into_iter().flat_map(|(q, k)| pairs(q, k)).collect()
}

fn predicate(spec: &Spec) -> Expr {
    builtin::mask(&spec.mask, spec.grid.as_ref())
}

fn assert_same(formula: &Formula, cross: bool) {
    let text = formula.to_string();
    let predicate = predicate(&masked(&text, cross));
    for pair in calls(cross) {
        let expected = formula.attends(pair);
        assert_eq!(
            holds(&predicate, &point(pair)),
            Some(expected),
            "{text} is {predicate}, at {pair:?}"
        );
    }
}

#[test]
fn mask_words_attend_as_documented() {
    for word in Word::all(&[1, 2, 3, 5, 100]) {
        assert_same(&Formula::Word(word.clone()), false);
        if !word.needs_alignment() {
            assert_same(&Formula::Word(word), true);
        }
    }
}

#[test]
fn a_window_is_as_large_as_the_layers_limit_allows() {
    let most = 1_u64 << 31;
    for mask in [
        format!("sliding_window({most})"),
        format!("dilated_sliding_window({most}, {most})"),
        format!("prefix_lm({most})"),
        format!("chunked({most})"),
    ] {
        let predicate = predicate(&masked(&mask, false));
        for pair in pairs(3, 3) {
            assert!(holds(&predicate, &point(pair)).is_some(), "{mask}");
        }
    }
}

#[test]
fn the_operators_bind_as_in_rust() {
    for (written, meant) in [
        (
            "causal | padding & chunked(3)",
            "causal | (padding & chunked(3))",
        ),
        (
            "causal & padding | chunked(3)",
            "(causal & padding) | chunked(3)",
        ),
        ("!causal & padding", "(!causal) & padding"),
        ("!!causal", "causal"),
        ("!(causal & padding)", "!causal | !padding"),
        ("none & document", "document"),
    ] {
        let written = masked(written, false);
        let meant = masked(meant, false);
        for pair in calls(false) {
            let truth = |spec| holds(&predicate(spec), &point(pair));
            assert_eq!(truth(&written), truth(&meant), "{:?}", written.mask);
        }
    }
}

/// Names in the closure of an emitted mask.
struct Indices(Pair);

impl Scope for Indices {
    fn variable(&self, name: &str) -> Option<Value> {
        let Pair {
            b,
            q,
            k,
            q_len,
            kv_len,
        } = self.0;
        let value = match name {
            "b" => b,
            "q_idx" => q,
            "kv_idx" => k,
            "q_len" => q_len,
            "kv_len" => kv_len,
            _ => return None,
        };
        Some(Value::Int(value))
    }

    fn method(&self, receiver: &str, method: &str, args: &[Value]) -> Option<Value> {
        use Value::{Bool, Int};
        match (receiver, method, args) {
            ("padding", "attends", &[Int(b), Int(q), Int(k)]) => {
                Some(Bool(formula::is_valid(b, q, k)))
            }
            ("document", "query_id", &[Int(b), Int(q)]) => Some(Int(formula::query_document(b, q))),
            ("document", "key_id", &[Int(b), Int(k)]) => Some(Int(formula::key_document(b, k))),
            _ => None,
        }
    }
}

/// The body of the closure that the expansion passes to `index_mask`.
fn emitted_closure(mask: &str, cross: bool) -> Option<syn::Expr> {
    let context = if cross { "d_context = 4, " } else { "" };
    let output = expand(&format!(
        "struct L<heads = 1, d_model = 4, {context}mask = {mask}>;"
    ));
    let arguments = group_after(output, "index_mask")?;
    let arguments = syn::parse::Parser::parse2(
        syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated,
        arguments,
    );
    match arguments.expect("the arguments of a call").pop()? {
        syn::Expr::Closure(closure) => Some(*closure.body),
        _ => None,
    }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn words_combine(self_attention in formulas(false, true), cross_attention in formulas(true, true)) {
        assert_same(&self_attention, false);
        assert_same(&cross_attention, true);
    }

    #[test]
    fn the_emitted_closure_is_the_mask(formula in formulas(true, true)) {
        let closure = emitted_closure(&formula.to_string(), true);
        for pair in calls(true) {
            let value = closure.as_ref().map(|body| interpret::value(body, &Indices(pair)));
            let expected = formula.attends(pair);
            // `mask = none` needs no closure.
            let found = value.is_none_or(|value| value == Value::Bool(true));
            prop_assert_eq!(found, expected, "{} at {:?}", formula, pair);
        }
    }

    /// One-sided buckets depend on this: a key after its query would share the bucket of the query itself.
    #[test]
    fn a_mask_that_looks_back_shows_no_later_key(
        self_attention in formulas(false, true),
        cross_attention in formulas(true, true),
    ) {
        for (formula, cross) in [(self_attention, false), (cross_attention, true)] {
            if masked(&formula.to_string(), cross).looks_back() == Verdict::Proved {
                let seen_later = calls(cross).into_iter().find(|pair| pair.k > pair.q && formula.attends(*pair));
                prop_assert!(seen_later.is_none(), "{} at {:?}", formula, seen_later);
            }
        }
    }
}

#[test]
fn causal_masks_are_recognised() {
    // There are as many queries as keys, so both alignments are the same.
    let cross = false;
    for (mask, causal) in [
        ("none", false),
        ("causal", true),
        ("causal(lower_right)", true),
        ("sliding_window(4)", true),
        ("sliding_window(4, symmetric)", false),
        ("dilated_sliding_window(4, 2)", true),
        ("prefix_lm(2)", false),
        ("chunked(4)", false),
        ("chunked(4) & causal", true),
        ("padding & document & sliding_window(4)", true),
        ("causal | sliding_window(4)", true),
        ("causal | padding", false),
        ("!causal", false),
    ] {
        let proved = masked(mask, cross).looks_back() == Verdict::Proved;
        assert_eq!(proved, causal, "{mask}");
    }
}

#[test]
fn the_documentation_shows_the_definitions() {
    let table = crate::emit::tables::key_table().to_string();
    for definition in [
        "`kv_idx <= q_idx`",
        "`kv_idx <= q_idx && q_idx - kv_idx < n`",
        "`q_idx / n == kv_idx / n`",
        "`document[b, q_idx] == kv_document[b, kv_idx]`",
    ] {
        assert!(table.contains(definition), "{definition} in {table}");
    }
}
