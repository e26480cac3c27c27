//! Any declaration of 200 tokens expands in a limited number of steps.

use proc_macro2::{TokenStream, TokenTree};

use super::support::{Report, expand, parse_file, reports, tokens};
use crate::pipeline;
use crate::score::budget;

/// The maximum steps of an expansion: those of analyses with a budget, and the parts of expressions that are built, read or
/// written. They take less than two seconds in a macro without optimisation.
const MAX_STEPS: usize = 2_000_000;

const MAX_TOKENS: usize = 200;

/// The maximum tokens of an expansion. A model of a dozen attentions has the most, as each is a separate layer.
const MAX_EMITTED: usize = 150_000;

fn count(tokens: TokenStream) -> usize {
    let counts = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => 2 + count(group.stream()),
        _ => 1,
    });
    counts.sum()
}

/// `part(1) <operator> part(2) <operator> ..`, `n` of them.
fn chain(n: usize, operator: &str, part: impl Fn(usize) -> String) -> String {
    (1..=n).map(part).collect::<Vec<_>>().join(operator)
}

/// `open open .. innermost close close ..`
fn nest(n: usize, open: impl Fn(usize) -> String, innermost: &str, close: &str) -> String {
    let opened: String = (1..=n).rev().map(open).collect();
    format!("{opened}{innermost}{}", close.repeat(n))
}

/// A layer with this mask in its header.
fn masked(mask: &str) -> String {
    format!("struct L<heads = 1, d_model = 4, mask = {mask}>;")
}

/// A layer with this function.
fn mask_function(mask: &str) -> String {
    format!("struct L<heads = 4, d_model = 4> {{ fn mask(b, h, q_idx, kv_idx) {{ {mask} }} }}")
}

fn score_function(score: &str) -> String {
    format!("struct L<heads = 1, d_model = 4> {{ fn score(score, q_idx, kv_idx) {{ {score} }} }}")
}

fn learned(params: usize, score: &str) -> String {
    let params: String = (0..params)
        .map(|at| format!("param w{at}: [9] = ones; "))
        .collect();
    format!(
        "struct L<heads = 1, d_model = 4> {{ {params} fn score(score, q_idx, kv_idx) {{ {score} }} }}"
    )
}

/// A name, and the text of a length.
type Family = (&'static str, Box<dyn Fn(usize) -> String>);

/// Each is as long as 200 tokens allow.
fn families() -> Vec<Family> {
    fn family(f: impl Fn(usize) -> String + 'static) -> Box<dyn Fn(usize) -> String> {
        Box::new(f)
    }
    vec![
        (
            "sum of distances",
            family(|n| {
                mask_function(&format!(
                    "{} <= kv_idx",
                    chain(n, " + ", |i| format!("abs(q_idx - {i})"))
                ))
            }),
        ),
        (
            "sum of remainders",
            family(|n| {
                mask_function(&format!(
                    "{} <= q_idx",
                    chain(n, " + ", |i| format!("kv_idx % {}", i + 1))
                ))
            }),
        ),
        (
            "sum of quotients of differences",
            family(|n| {
                mask_function(&format!(
                    "{} <= kv_idx",
                    chain(n, " + ", |i| format!("(q_idx - kv_idx) / {}", i + 1))
                ))
            }),
        ),
        (
            "nested distances",
            family(|n| {
                mask_function(&format!(
                    "{} <= q_idx",
                    nest(n, |i| format!("abs({i} - "), "kv_idx", ")")
                ))
            }),
        ),
        (
            "nested extrema",
            family(|n| {
                mask_function(&format!(
                    "{} <= q_idx",
                    nest(
                        n / 2,
                        |i| format!("max({i}, min(q_idx + {i}, "),
                        "kv_idx",
                        "))"
                    )
                ))
            }),
        ),
        (
            "nested clamps",
            family(|n| {
                mask_function(&format!(
                    "{} <= q_idx",
                    nest(n, |_| "clamp(".to_owned(), "kv_idx", ", 1, q_idx)")
                ))
            }),
        ),
        (
            "nested remainders",
            family(|n| {
                mask_function(&format!(
                    "{} <= q_idx",
                    nest(n, |_| "(".to_owned(), "kv_idx", " * 3 % 7)")
                ))
            }),
        ),
        (
            "nested choices",
            family(|n| {
                mask_function(&format!(
                    "({}) <= q_idx",
                    nest(
                        n,
                        |i| format!("if q_idx < {i} {{ {i} }} else {{ "),
                        "kv_idx",
                        " }"
                    )
                ))
            }),
        ),
        (
            "choices of conditions",
            family(|n| {
                mask_function(&nest(
                    n,
                    |_| "if ".to_owned(),
                    "kv_idx <= q_idx",
                    " { q_idx < 9 } else { kv_idx > 3 }",
                ))
            }),
        ),
        (
            "conditions that are compared",
            family(|n| {
                mask_function(&nest(
                    n,
                    |_| "(".to_owned(),
                    "kv_idx <= q_idx",
                    ") == (q_idx < 9)",
                ))
            }),
        ),
        (
            "conditions that are compared in parentheses",
            family(|n| {
                mask_function(&nest(
                    n.min(9),
                    |i| format!("(q_idx < {i}) == ("),
                    "kv_idx <= q_idx",
                    ")",
                ))
            }),
        ),
        (
            "differences",
            family(|n| mask_function(&chain(n, " && ", |i| format!("q_idx != kv_idx + {i}")))),
        ),
        (
            "alternatives",
            family(|n| {
                mask_function(&chain(n, " && ", |i| {
                    format!("(q_idx < {i} || kv_idx > {i})")
                }))
            }),
        ),
        (
            "negations",
            family(|n| {
                mask_function(&chain(n, " && ", |i| {
                    format!("!(q_idx % {i} == kv_idx % {i} && q_idx < kv_idx)")
                }))
            }),
        ),
        (
            "steps of heads",
            family(|n| {
                mask_function(&chain(n, " || ", |i| {
                    format!("h == {i} && kv_idx % {i} <= q_idx")
                }))
            }),
        ),
        (
            "bits of a Hamming distance",
            family(|n| {
                mask_function(&format!(
                    "{} <= 1",
                    chain(n, " + ", |i| format!(
                        "abs(q_idx / {0} % 2 - kv_idx / {0} % 2)",
                        1 << i
                    ))
                ))
            }),
        ),
        (
            "products",
            family(|n| {
                mask_function(&format!(
                    "{} <= q_idx",
                    chain(n, " + ", |i| format!("(kv_idx * q_idx / {i}) % 9"))
                ))
            }),
        ),
        (
            "sums that double",
            family(|n| {
                mask_function(&format!(
                    "let a = abs(kv_idx - 3); {} a <= q_idx",
                    "let a = a + a % 7;".repeat(n.min(5))
                ))
            }),
        ),
        (
            "chunks outside of chunks",
            family(|n| masked(&chain(n, " & ", |i| format!("!chunked({})", i + 1)))),
        ),
        (
            "chunks or chunks",
            family(|n| masked(&chain(n, " | ", |i| format!("causal & chunked({})", i + 1)))),
        ),
        (
            "windows and windows",
            family(|n| {
                masked(&chain(n, " & ", |i| {
                    format!("(sliding_window({}, symmetric) | prefix_lm({i}))", i + 1)
                }))
            }),
        ),
        (
            "dilated windows",
            family(|n| {
                masked(&chain(n, " & ", |i| {
                    format!("!dilated_sliding_window({}, {})", i + 1, i + 2)
                }))
            }),
        ),
        (
            "negations of negations",
            family(|n| masked(&nest(n, |_| "!(".to_owned(), "causal", " & chunked(3))"))),
        ),
        (
            "long chain of words",
            family(|n| masked(&chain(n, " & ", |_| "causal".to_owned()))),
        ),
        (
            "factors",
            family(|n| score_function(&chain(n, " * ", |_| "score".to_owned()))),
        ),
        (
            "sums of factors",
            family(|n| score_function(&chain(n, " * ", |i| format!("(score + {i}.0)")))),
        ),
        (
            "quotients",
            family(|n| score_function(&chain(n, " / ", |i| format!("(score + {i}.5)")))),
        ),
        (
            "nested tanh",
            family(|n| score_function(&nest(n, |_| "tanh(".to_owned(), "score", ")"))),
        ),
        (
            "nested maxima of scores",
            family(|n| score_function(&nest(n, |i| format!("max({i}.0, "), "score", ")"))),
        ),
        (
            "nested clamps of scores",
            family(|n| {
                score_function(&nest(
                    n.min(6),
                    |_| "clamp(".to_owned(),
                    "score",
                    ", -2.0, 3.0)",
                ))
            }),
        ),
        (
            "nested remainders of scores",
            family(|n| score_function(&nest(n, |_| "(".to_owned(), "score", " % 7.5)"))),
        ),
        (
            "choices by comparisons",
            family(|n| {
                score_function(&format!(
                    "if {} {{ score }} else {{ 1.0 }}",
                    nest(n, |_| "(".to_owned(), "score < 1.5", ") == (score > 0.5)")
                ))
            }),
        ),
        (
            "choices in choices",
            family(|n| {
                score_function(&nest(
                    n,
                    |i| format!("if score < {i}.0 {{ {i}.0 * score }} else {{ "),
                    "score",
                    " }",
                ))
            }),
        ),
        (
            "learned factors",
            family(|n| {
                learned(
                    1,
                    &format!("score * {}", chain(n, " * ", |i| format!("w0[{}]", i % 9))),
                )
            }),
        ),
        (
            "learned sums of products",
            family(|n| {
                learned(
                    4,
                    &format!(
                        "score * {}",
                        chain(n, " * ", |i| format!("(w{}[{}] + 1.5)", i % 4, i % 9))
                    ),
                )
            }),
        ),
        (
            "learned places",
            family(|n| {
                learned(
                    1,
                    &format!(
                        "score + {}",
                        chain(n, " + ", |i| format!("w0[q_idx % {} % 9]", i))
                    ),
                )
            }),
        ),
    ]
}

fn longest(family: &dyn Fn(usize) -> String) -> String {
    let fits = |n: &usize| count(tokens(&family(*n))) <= MAX_TOKENS;
    let n = (1..100).take_while(fits).last().unwrap_or(1);
    family(n)
}

#[test]
fn an_expansion_takes_a_limited_number_of_steps() {
    for (name, family) in families() {
        let spec = longest(&*family);
        let input = tokens(&spec);
        budget::counted();
        let output = pipeline::attention(input);
        let steps = budget::counted();
        assert!(steps <= MAX_STEPS, "{name}: {steps} steps for {spec}");
        let reports = reports(&parse_file(output));
        assert!(reports.is_empty(), "{name}: {reports:?} of {spec}");
    }
}

/// A model with these sizes and these statements.
fn model(sizes: &str, statements: &str) -> String {
    format!(
        "struct M<d_model = 4{sizes}>;
         fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {{ let mut x = x; {statements} x }}"
    )
}

/// No part of a model is expanded as often as it is read.
#[test]
fn a_model_expands_to_a_limited_number_of_tokens() {
    let doubled = |at| format!(", s{at} = {{ s{0} * s{0} }}", at - 1);
    let sizes: String = (1..9).map(doubled).collect();
    let families: [Family; 6] = [
        ("sums", Box::new(|n| model("", &"x = x + x;".repeat(n)))),
        (
            "sums in sums",
            Box::new(|n| {
                let sums = nest(n, |_| "tanh(x + ".to_owned(), "x", ")");
                model("", &format!("x = {sums};"))
            }),
        ),
        (
            "loops in loops",
            Box::new(|n| {
                model(
                    "",
                    &nest(n, |_| "repeat 2 {".to_owned(), "x = tanh(x);", "}"),
                )
            }),
        ),
        (
            "sizes that double",
            Box::new(move |n| {
                model(
                    &format!(", s0 = N{sizes}"),
                    &"x = linear::<d_model>(linear::<s8>(x));".repeat(n),
                )
            }),
        ),
        (
            "layers",
            Box::new(|n| model("", &"x = linear::<d_model>(x);".repeat(n))),
        ),
        (
            "attentions",
            Box::new(|n| model("", &"x = attention::<2, mask = causal>(x);".repeat(n))),
        ),
    ];
    for (name, family) in families {
        let text = longest(&*family);
        let output = pipeline::model(tokens(&text));
        let found = count(output.clone());
        assert!(found <= MAX_EMITTED, "{name}: {found} tokens for {text}");
        let reports = reports(&parse_file(output));
        assert!(reports.is_empty(), "{name}: {reports:?} of {text}");
    }
}

/// A condition that some of twelve weights, chosen by the bits of an index, have a certain sum. They never have: five are too
/// light, and six too heavy. But deciding this requires trying every choice of them.
fn never(index: &str) -> String {
    let weights = chain(12, " + ", |i| {
        format!("{} * ({index} / {} % 2)", 89 + i * 5 % 11, 1 << i)
    });
    format!("{weights} == 519")
}

/// The errors of a layer with this mask.
fn reports_of(keys: &str, mask: &str) -> Vec<Report> {
    let spec = format!(
        "struct L<heads = 1, d_model = 4, {keys}> {{ fn mask(q_idx, kv_idx) {{ {mask} }} }}"
    );
    reports(&parse_file(expand(&spec)))
}

#[test]
fn a_proof_that_is_given_up_says_so() {
    for (claim, mask) in [
        ("causal", format!("kv_idx <= q_idx || {}", never("kv_idx"))),
        ("every_query_attends", format!("!({})", never("q_idx"))),
    ] {
        let found = reports_of(&format!("ensure = {claim}"), &mask);
        let [report] = found.as_slice() else {
            panic!("{found:?}");
        };
        let given_up = format!("`ensure = {claim}`: the proof was given up");
        assert!(report.message.starts_with(&given_up), "{report:?}");
        // The words of the header decide it at once.
        assert_eq!(report.message.contains("at once"), claim == "causal");
        let found = reports_of(&format!("mask = causal, ensure = {claim}"), &mask);
        assert_eq!(found.is_empty(), claim == "causal", "{found:?}");
    }
}

#[test]
fn a_session_says_that_the_proof_was_given_up() {
    let model = |keys: &str| {
        let text = format!(
            "struct M<d_model = 4>;
             fn forward(tokens: ids[batch, seq]) -> [batch, seq, 8] {{
                 let x = embedding::<8, d_model>(tokens);
                 linear::<8>(attention::<1{keys}>(x) {{ fn mask(q_idx, kv_idx) {{ kv_idx <= q_idx || {} }} }})
             }}",
            never("kv_idx")
        );
        pipeline::model(tokens(&text)).to_string()
    };
    assert!(model("").contains("was given up"));
    assert!(!model(", mask = causal").contains("was given up"));
}

/// A session asks a mask what it looks at: of all of its sequences, if they are not alike.
#[test]
fn a_session_asks_the_mask_of_sequences_that_are_not_alike() {
    for (mask, different) in [
        ("kv_idx <= q_idx", "1"),
        ("kv_idx <= q_idx + 0 * b", "room . sequences"),
    ] {
        let text = format!(
            "struct M<d_model = 4>;
             fn forward(tokens: ids[batch, seq]) -> [batch, seq, 8] {{
                 let x = embedding::<8, d_model>(tokens);
                 linear::<8>(attention::<1, mask = causal>(x) {{ fn mask(b, q_idx, kv_idx) {{ {mask} }} }})
             }}"
        );
        let output = pipeline::model(tokens(&text)).to_string();
        assert!(
            output.contains(&format!("Cache :: new (room , {different} ,")),
            "{mask}"
        );
    }
}

#[test]
fn a_value_that_doubles_too_often_is_an_error() {
    let nested = |depth| nest(depth, |_| "clamp(".to_owned(), "score", ", -2.0, 3.0)");
    let equal = |depth| {
        nest(
            depth,
            |i| format!("(q_idx < {i}) == ("),
            "kv_idx <= q_idx",
            ")",
        )
    };
    for (spec, is_too_long) in [
        (score_function(&nested(6)), false),
        (score_function(&nested(30)), true),
        (mask_function(&equal(9)), false),
        (mask_function(&equal(30)), true),
    ] {
        let found = reports(&parse_file(expand(&spec)));
        let too_long = |report: &Report| {
            report
                .message
                .starts_with("written out, this has more than 10000")
        };
        assert_eq!(
            found.iter().any(too_long),
            is_too_long,
            "{found:?} of {spec}"
        );
        assert!(found.len() <= 1, "{found:?} of {spec}");
    }
}
