//! Nesting that is too deep is an error at its token, and does not crash the compiler.

use super::support::{Report, parse_file, reports, tokens};
use crate::depth::{self, DEEPEST, LONGEST};
use crate::diag::Diagnostics;
use crate::pipeline;

/// A layer or a model with nesting.
struct Nest {
    /// The tokens before and after it.
    around: [&'static str; 2],
    /// The tokens that are repeated before and after the innermost part.
    nest: [&'static str; 2],
    innermost: &'static str,
    is_model: bool,
}

const fn layer(before: &'static str, behind: &'static str, innermost: &'static str) -> Nest {
    Nest {
        around: [before, behind],
        nest: ["(", ")"],
        innermost,
        is_model: false,
    }
}

/// A model, up to its statements.
const MODEL: &str =
    "struct M<d_model = 4>; fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] { ";

const NESTS: [Nest; 11] = [
    layer("struct L<heads = 1, d_model = 4, mask = ", ">;", "causal"),
    layer("struct L<heads = 1, d_model = ", ">;", "4"),
    layer("struct L<heads = 1, d_model = 4, ensure = ", ">;", "causal"),
    layer(
        "struct L<heads = 1, d_model = 4> { fn mask(q_idx, kv_idx) { ",
        " <= q_idx } }",
        "kv_idx",
    ),
    layer(
        "struct L<heads = 1, d_model = 4> { fn score(score) { ",
        " } }",
        "score",
    ),
    layer(
        "struct L<heads = 1, d_model = 4> { param w: [",
        "] = ones; fn score(score, h) { score * w[h] } }",
        "1",
    ),
    Nest {
        nest: ["!", ""],
        ..layer("struct L<heads = 1, d_model = 4, mask = ", ">;", "causal")
    },
    Nest {
        nest: ["{ ", " }"],
        ..layer(
            "struct L<heads = 1, d_model = 4> { fn score(score) { ",
            " } }",
            "score",
        )
    },
    Nest {
        is_model: true,
        ..layer(MODEL, " }", "x")
    },
    Nest {
        nest: ["tanh(", ")"],
        is_model: true,
        ..layer(MODEL, " }", "x")
    },
    Nest {
        nest: ["repeat 1 { ", " }"],
        is_model: true,
        ..layer(
            "struct M<d_model = 4>; fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] { let mut x = x; ",
            " x }",
            "x = tanh(x);",
        )
    },
];

/// Operators in a row: each has all before it as an operand.
const CHAINS: [Nest; 3] = [
    Nest {
        nest: ["", " + x"],
        is_model: true,
        ..layer(MODEL, " }", "x")
    },
    Nest {
        nest: ["", " + score"],
        ..layer(
            "struct L<heads = 1, d_model = 4> { fn score(score) { ",
            " } }",
            "score",
        )
    },
    Nest {
        nest: ["", " + 1"],
        ..layer("struct L<heads = 1, d_model = ", ">;", "1")
    },
];

/// Choices in a row: each is the `else` of the one before.
const CHOICES: Nest = Nest {
    nest: ["", " else if score < 1.0 { 1.0 }"],
    ..layer(
        "struct L<heads = 1, d_model = 4> { fn score(score) { ",
        " else { 2.0 } } }",
        "if score < 0.0 { 0.0 }",
    )
};

impl Nest {
    fn text(&self, depth: usize) -> String {
        let [before, behind] = self.around;
        let [open, close] = self.nest.map(|part| part.repeat(depth));
        format!("{before}{open}{}{close}{behind}", self.innermost)
    }

    /// The errors for this depth.
    fn reports(&self, depth: usize) -> Vec<Report> {
        let tokens = tokens(&self.text(depth));
        let output = match self.is_model {
            true => pipeline::model(tokens),
            false => pipeline::attention(tokens),
        };
        reports(&parse_file(output))
    }
}

/// Where the only error stands.
fn start_of_error(text: &str, found: &[Report]) -> usize {
    let [
        Report {
            message,
            at: Some(at),
        },
    ] = found
    else {
        panic!("{found:?} in {}..", &text[..100]);
    };
    assert!(message.starts_with("nested too deep"), "{message}");
    at.start
}

#[test]
fn nesting_too_deep_is_one_error_at_its_token() {
    for nest in &NESTS {
        for depth in [DEEPEST + 2, 1_000, 10_000] {
            let text = nest.text(depth);
            let start = start_of_error(&text, &nest.reports(depth));
            // The number of groups that are open there, except for the operators in the name of a key.
            let before = &text[..start];
            let opened = ["(", "{", "[", "!"].map(|open| before.matches(open).count());
            let closed = [")", "}", "]"].map(|close| before.matches(close).count());
            let depth = opened.iter().sum::<usize>() - closed.iter().sum::<usize>();
            assert!(
                (DEEPEST - 2..=DEEPEST + 1).contains(&depth),
                "at depth {depth} of {}..",
                &text[..100]
            );
        }
    }
}

#[test]
fn a_chain_too_long_is_one_error_at_its_token() {
    for chain in CHAINS.iter().chain([&CHOICES]) {
        for links in [LONGEST + 2, 1_000, 10_000] {
            let text = chain.text(links);
            let start = start_of_error(&text, &chain.reports(links));
            // The groups around it and the sign before it count as well.
            let links = text[..start].matches(chain.nest[1]).count();
            assert!(
                (LONGEST - 4..=LONGEST).contains(&links),
                "behind {links} of {}..",
                &text[..100]
            );
        }
    }
}

/// A chain ends with its statement, and so does one behind a group that contains another.
#[test]
fn many_short_chains_are_accepted() {
    let sums = "x = x + x + (x + x);".repeat(100);
    let choices = "if 1 + 1 > 2 { x = tanh(x); } else { x = gelu(x); } ".repeat(100);
    for statements in [sums, choices] {
        let source = format!(
            "struct M<d_model = 4>; fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {{ let mut x = x; {statements} x }}"
        );
        let cx = Diagnostics::default();
        let tokens = tokens(&source);
        let limited = depth::limit(tokens.clone(), &cx);
        assert_eq!(limited.to_string(), tokens.to_string());
        assert_eq!(cx.count(), 0, "{source}");
    }
}

#[test]
fn nesting_below_the_limit_is_accepted() {
    for nest in &NESTS {
        let found = nest.reports(DEEPEST - 5);
        let is_deep = |report: &Report| report.message.starts_with("nested too deep");
        assert!(!found.iter().any(is_deep), "{found:?}");
    }
}

/// On a stack as large as that of rustc.
#[test]
fn chains_below_the_limit_are_accepted() {
    let check = || {
        for chain in &CHAINS {
            let found = chain.reports(LONGEST - 5);
            let is_deep = |report: &Report| report.message.starts_with("nested too deep");
            assert!(!found.iter().any(is_deep), "{found:?}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(check);
    let checked = thread.expect("the system starts a thread").join();
    assert!(checked.is_ok());
}

/// Each word is nested in the one before in the emitted code.
#[test]
fn a_mask_of_very_many_words_is_one_error() {
    for operator in [" & ", " | ", " & (causal | chunked(2)) | "] {
        for (count, is_too_long) in [(80, false), (5_000, true)] {
            let mask = vec!["causal"; count].join(operator);
            let spec = format!("struct L<heads = 1, d_model = 4, mask = {mask}>;");
            let found = reports(&parse_file(pipeline::attention(tokens(&spec))));
            assert_eq!(found.len(), usize::from(is_too_long), "{found:?}");
            assert!(found.iter().all(|report| {
                report
                    .message
                    .starts_with("the mask has more than 250 words")
            }));
        }
    }
}
