//! Masked tokens do not affect a query: not in the last bit, and not if they are NaN, infinite or huge.
//!
//! A projection maps every token separately. The gradient of its weights is a sum over tokens of an input times a gradient, which
//! is exactly 0 for a masked token. So a huge token has no effect on it. NaN and infinity have, since 0 times them is NaN, in
//! dfdx and in PyTorch as well. These gradients are the only exception.
//!
//! This holds for the fused form. The composed form multiplies by 0, so there it holds for finite tokens only.

use attn::data::LengthsPerQuery;

use super::{
    compare::Outcome,
    subject::{Case, Sizes, Subject, Way},
};

/// The wild numbers. The square of the last one overflows in `f32`.
const WILD: [f64; 4] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30];

/// Sizes below a tile, and over several tiles of which some are masked.
const SIZES: [Sizes; 3] = [
    Sizes::new(2, 5, 7),
    Sizes::new(3, 13, 67),
    Sizes::new(3, 70, 150),
];

/// A finite number for which all results of the composed form are finite.
const TAME: f64 = 1e6;

type Run = fn(Way, &Case) -> Outcome;

/// Whether query `q` of sequence `b` attends to key `k`.
type Attends = fn(&Case, usize, usize, usize) -> bool;

fn by_lengths(case: &Case, b: usize, _: usize, k: usize) -> bool {
    k < case.length(b)
}

fn by_lengths_per_query(case: &Case, b: usize, q: usize, k: usize) -> bool {
    k < case.length_for(b, q)
}

fn by_marks(case: &Case, b: usize, _: usize, k: usize) -> bool {
    case.is_marked(b, k)
}

fn by_documents(case: &Case, b: usize, q: usize, k: usize) -> bool {
    case.document(b, q) == case.key_document(b, k)
}

/// Whether each query attends to any key, `[batch, query]`.
fn seeing(case: &Case, attends: Attends) -> Vec<bool> {
    let Sizes {
        batch,
        queries,
        keys,
    } = case.sizes;
    let places = (0..batch * queries).map(|place| (place / queries, place % queries));
    let sees = places.map(|(b, q)| (0..keys).any(|k| attends(case, b, q, k)));
    sees.collect()
}

/// Whether any query attends to each key, `[batch, key]`.
fn seen(case: &Case, attends: Attends) -> Vec<bool> {
    let Sizes {
        batch,
        queries,
        keys,
    } = case.sizes;
    let places = (0..batch * keys).map(|place| (place / keys, place % keys));
    let is_seen = places.map(|(b, k)| (0..queries).any(|q| attends(case, b, q, k)));
    is_seen.collect()
}

/// The case with the numbers of all tokens replaced that are not kept.
fn with_wild(case: &Case, name: &str, keep: &[bool], wild: f64) -> Case {
    let mut case = case.clone();
    let values = case.state.flat_mut(name);
    let width = values.len() / keep.len();
    for (token, keep) in values.chunks_mut(width).zip(keep) {
        if !keep {
            token.fill(wild);
        }
    }
    case
}

/// The rows of the tokens, and whether each is kept.
fn rows<'a>(values: &'a [f64], keep: &'a [bool]) -> impl Iterator<Item = (&'a [f64], bool)> {
    let width = values.len() / keep.len();
    values.chunks(width).zip(keep.iter().copied())
}

#[track_caller]
fn assert_zero_but(what: &str, values: &[f64], keep: &[bool]) {
    for (i, (row, keep)) in rows(values, keep).enumerate() {
        assert!(
            keep || row.iter().all(|&v| v == 0.0),
            "{what}: row {i}: {row:?}"
        );
    }
}

/// Asserts that the kept tokens have the same bits.
#[track_caller]
fn assert_kept(what: &str, values: &[f64], expected: &[f64], keep: &[bool]) {
    let pairs = rows(values, keep).zip(rows(expected, keep));
    for (i, ((row, keep), (expected, _))) in pairs.enumerate() {
        let alike = row
            .iter()
            .zip(expected)
            .all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(
            !keep || alike && row.iter().all(|v| v.is_finite()),
            "{what}: row {i}: {row:?}, expected {expected:?}"
        );
    }
}

/// Asserts that all numbers have the same bits.
#[track_caller]
fn assert_alike(what: &str, values: &[f64], expected: &[f64]) {
    assert_kept(what, values, expected, &[true]);
}

/// Asserts the properties of masked tokens of a context, and of queries that attend to nothing. The layer has no output bias.
fn isolates(subject: &Subject, attends: Attends) {
    for sizes in SIZES {
        let case = subject.case(sizes);
        let queries = seeing(&case, attends);
        let keys = seen(&case, attends);
        for run in [subject.single, subject.double] {
            let expected = run(Way::Fused, &case);
            assert_zero_but("output", expected.get("output"), &queries);
            assert_zero_but("gradient of x", expected.gradient("x"), &queries);
            assert_zero_but("gradient of context", expected.gradient("context"), &keys);
            for wild in WILD {
                hidden_keys_are_nothing(run, &case, &keys, wild, &expected);
                blind_queries_are_nothing(run, &case, &queries, wild, &expected);
            }
            finite_hidden_keys_are_nothing_to_the_composed_form(run, &case, &keys);
        }
    }
}

fn finite_hidden_keys_are_nothing_to_the_composed_form(run: Run, case: &Case, seen: &[bool]) {
    let expected = run(Way::Composed, case);
    let found = run(Way::Composed, &with_wild(case, "context", seen, TAME));
    let what = |name: &str| format!("composed, {TAME} in keys of {:?}: {name}", case.sizes);
    assert_alike(&what("output"), found.get("output"), expected.get("output"));
    for (name, gradient) in expected.gradients() {
        let found = found.gradient(name);
        match name {
            "context" => assert_kept(&what(name), found, gradient, seen),
            _ => assert_alike(&what(name), found, gradient),
        }
    }
    if seen.contains(&false) {
        let found = run(Way::Composed, &with_wild(case, "context", seen, f64::NAN));
        assert!(found.get("output").iter().any(|v| v.is_nan()));
    }
}

/// Wild tokens of the context that no query attends to.
fn hidden_keys_are_nothing(run: Run, case: &Case, seen: &[bool], wild: f64, expected: &Outcome) {
    let found = run(Way::Fused, &with_wild(case, "context", seen, wild));
    let what = |name: &str| format!("{wild} in keys of {:?}: {name}", case.sizes);
    assert_alike(&what("output"), found.get("output"), expected.get("output"));
    for (name, gradient) in expected.gradients() {
        let found = found.gradient(name);
        match name {
            "context" => assert_kept(&what(name), found, gradient, seen),
            "k_proj.weight" | "v_proj.weight" if !wild.is_finite() => {
                let reached = seen.contains(&false);
                assert_eq!(found.iter().any(|v| v.is_nan()), reached, "{}", what(name));
            }
            _ => assert_alike(&what(name), found, gradient),
        }
    }
}

/// Wild queries that attend to nothing, and wild gradients of their outputs.
fn blind_queries_are_nothing(
    run: Run,
    case: &Case,
    seeing: &[bool],
    wild: f64,
    expected: &Outcome,
) {
    let mut case = with_wild(case, "x", seeing, wild);
    case.factors = Some(
        seeing
            .iter()
            .map(|&sees| if sees { 1.0 } else { wild })
            .collect(),
    );
    let found = run(Way::Fused, &case);
    let what = |name: &str| format!("{wild} in queries of {:?}: {name}", case.sizes);
    assert_kept(
        &what("output"),
        found.get("output"),
        expected.get("output"),
        seeing,
    );
    for (name, gradient) in expected.gradients() {
        let found = found.gradient(name);
        match name {
            "x" => assert_kept(&what(name), found, gradient, seeing),
            "q_proj.weight" | "score_proj.weight" | "o_proj.weight" if !wild.is_finite() => {}
            _ => assert_alike(&what(name), found, gradient),
        }
    }
}

tests! {
    |subject: &_| isolates(subject, by_lengths), |x, context, case| (x, context, case.lengths());

    plain [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v]];
    softmax1_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], normalizer = softmax1];
    sink_of_normed_keys [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], normalizer = sink, qk_norm = rms];
    sparsemax [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], normalizer = sparsemax];
    entmax15_of_rotated_keys [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], normalizer = entmax15, position = rope];
    sigmoid_of_biased_scores [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], normalizer = sigmoid, position = rel_pos_bias(8, 40)];
    heads_that_talk [heads = 4, kv_heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], qk_norm = rms, talking_heads = both];
    sinks_of_heads_that_talk [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], normalizer = sink, position = rel_pos_bias(8, 40), talking_heads = both];
    additive [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], score = additive(hidden = 3)];
    bilinear [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], score = bilinear];
}

tests! {
    |subject: &_| isolates(subject, by_lengths_per_query), |x, context, case| (x, context, LengthsPerQuery(case.lengths_per_query()));

    lengths_per_query [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v]];
    lengths_per_query_of_biased_and_capped_scores [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = false, position = rel_pos_bias(8, 40), softcap = 2];
    lengths_per_query_of_rotated_keys [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], position = rope];
    lengths_per_query_with_dropout_under_sigmoid [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], dropout = 0.3, normalizer = sigmoid];
    lengths_per_query_of_capped_additive_scores [heads = 4, kv_heads = 1, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], score = additive(hidden = 3), softcap = 2];
}

tests! {
    |subject: &_| isolates(subject, by_marks), |x, context, case| (x, context, case.marks());

    marks [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v]];
    marks_of_rms_normed_and_rotated_keys [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], qk_norm = rms, position = rope];
    marks_of_cosines_with_linear_biases [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = [q, k, v], qk_norm = l2, position = alibi];
    marks_of_a_body [heads = 2, d_model = 8, d_context = 6, bias = [q, k, v]] {
        data keep: bool[batch, kv_len];
        fn mask(b, kv_idx) { keep[b, kv_idx] }
    };
    marks_with_dropout [heads = 2, d_model = 8, d_context = 6, mask = padding, bias = false, dropout = 0.3];
}

tests! {
    |subject: &_| isolates(subject, by_documents), |x, context, case| (x, context, (case.documents(), case.key_documents()));

    documents [heads = 2, d_model = 8, d_context = 6, mask = document, bias = [q, k, v]];
    documents_of_normed_bilinear_scores [heads = 4, kv_heads = 2, d_model = 8, d_context = 6, mask = document, bias = [q, k, v], score = bilinear, qk_norm = rms, normalizer = softmax1];
}

/// A wild document beside others in the same sequence.
fn separates(subject: &Subject) {
    for sizes in [Sizes::square(2, 7), Sizes::square(1, 150)] {
        let case = subject.case(sizes);
        let first = case.document(0, 0);
        let places =
            (0..sizes.batch * sizes.queries).map(|i| (i / sizes.queries, i % sizes.queries));
        let others: Vec<_> = places.map(|(b, i)| case.document(b, i) != first).collect();
        assert!(others.contains(&true) && others.contains(&false));
        for run in [subject.single, subject.double] {
            let expected = run(Way::Fused, &case);
            for wild in WILD {
                let mut case = with_wild(&case, "x", &others, wild);
                case.factors = Some(
                    others
                        .iter()
                        .map(|&other| if other { 1.0 } else { wild })
                        .collect(),
                );
                let found = run(Way::Fused, &case);
                let what = |name: &str| format!("{wild}, {sizes:?}: {name}");
                assert_kept(
                    &what("output"),
                    found.get("output"),
                    expected.get("output"),
                    &others,
                );
                assert_kept(
                    &what("x"),
                    found.gradient("x"),
                    expected.gradient("x"),
                    &others,
                );
            }
        }
    }
}

tests! {
    separates, |x, case| (x, case.documents());

    documents_of_one_sequence [heads = 2, d_model = 8, mask = document];
    causal_documents_of_one_sequence [heads = 4, kv_heads = 2, d_model = 8, mask = document & causal, position = rope, qk_norm = rms];
}

/// Lengths of a sequence, and the token that changes.
const CHANGES: [(usize, usize); 8] = [
    (5, 0),
    (5, 3),
    (64, 63),
    (65, 64),
    (65, 1),
    (200, 64),
    (200, 127),
    (200, 199),
];

/// Causality: a token affects neither the outputs before it, nor do these affect its gradient; and the gradient of an output does
/// not affect the tokens after it.
fn looks_back(subject: &Subject) {
    for (length, token) in CHANGES {
        let case = subject.case(Sizes::square(1, length));
        let [before, after]: [Vec<_>; 2] = [
            (0..length).map(|i| i < token).collect(),
            (0..length).map(|i| i > token).collect(),
        ];
        let but_for_it: Vec<_> = (0..length).map(|i| i != token).collect();
        for run in [subject.single, subject.double] {
            let expected = run(Way::Fused, &case);
            for value in [0.5, f64::NAN, f64::INFINITY, 1e30] {
                let found = run(Way::Fused, &with_wild(&case, "x", &but_for_it, value));
                let what = format!("{value} at {token} of {length}: output");
                assert_kept(&what, found.get("output"), expected.get("output"), &before);
            }

            let mut early = case.clone();
            early.factors = Some(before.iter().map(|&before| f64::from(before)).collect());
            let found = run(Way::Fused, &early);
            let what = format!("outputs before {token} of {length}: gradient of x");
            assert_zero_but(&what, found.gradient("x"), &before);

            let mut wild = case.clone();
            wild.factors = Some(
                but_for_it
                    .iter()
                    .map(|&other| if other { 1.0 } else { f64::NAN })
                    .collect(),
            );
            let found = run(Way::Fused, &wild);
            let what = format!("gradient NaN at {token} of {length}: gradient of x");
            assert_kept(&what, found.gradient("x"), expected.gradient("x"), &after);
        }
    }
}

tests! {
    looks_back, |x, _case| x;

    causal [heads = 2, d_model = 8, mask = causal];
    causal_rotated_and_normed [heads = 4, kv_heads = 2, d_model = 8, mask = causal, position = rope, qk_norm = rms];
    causal_with_linear_biases_in_a_window [heads = 2, d_model = 8, mask = sliding_window(70), position = alibi, normalizer = softmax1];
    causal_with_relative_biases_in_chunks [heads = 2, d_model = 8, mask = causal & chunked(80), position = rel_pos_bias(8, 50), softcap = 2];
    causal_heads_that_talk [heads = 2, d_model = 8, mask = causal, position = alibi, normalizer = entmax15, talking_heads = both];
    causal_additive [heads = 2, d_model = 8, mask = causal, score = additive(hidden = 2), normalizer = sigmoid];
    causal_bilinear_with_dropout [heads = 2, d_model = 8, mask = causal, score = bilinear, qk_norm = l2, dropout = 0.3];
}
