//! Nesting that is too deep is an error at its token, and does not crash the compiler.

use super::support::{Report, parse_file, reports, tokens};
use crate::depth::DEEPEST;
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
        ..layer(
            "struct M<d_model = 4>; fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] { ",
            " }",
            "x",
        )
    },
    Nest {
        nest: ["tanh(", ")"],
        is_model: true,
        ..layer(
            "struct M<d_model = 4>; fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] { ",
            " }",
            "x",
        )
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

#[test]
fn nesting_too_deep_is_one_error_at_its_token() {
    for nest in &NESTS {
        for depth in [DEEPEST + 2, 1_000, 10_000] {
            let text = nest.text(depth);
            let found = nest.reports(depth);
            let [
                Report {
                    message,
                    at: Some(at),
                },
            ] = found.as_slice()
            else {
                panic!("{found:?} in {}..", &text[..100]);
            };
            assert!(message.starts_with("nested too deep"), "{message}");
            // The number of groups that are open there, except for the operators in the name of a key.
            let before = &text[..at.start];
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
fn nesting_below_the_limit_is_accepted() {
    for nest in &NESTS {
        let found = nest.reports(DEEPEST - 5);
        let is_deep = |report: &Report| report.message.starts_with("nested too deep");
        assert!(!found.iter().any(is_deep), "{found:?}");
    }
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
