//! Mistakes in the names of axes.

use super::expand;
use super::mistakes::errors_of;
use crate::tests::support::reports;

/// An axis of a number has no name, so two of one size are not told apart.
#[test]
fn an_axis_that_may_be_two_is_an_error() {
    for (part, at) in [("x[8 = 1]", "8"), ("sum::<d>(x)", "d"), ("x[d = 1]", "d")] {
        let source =
            format!("struct M<d = 8>; fn forward(x: [8, 8], y: [d]) -> [d] {{ y + {part} }}");
        let message = format!("`{at}` is more than one axis of [8, 8]");
        assert_eq!(errors_of(&source), [(at.to_owned(), message)], "{source}");
    }
}

/// The help names the model, the axes that there are, or the nearest of them.
#[test]
fn the_help_for_an_axis_says_what_to_write() {
    let help = |part: &str| {
        let source = format!(
            "struct M<d = 8>; fn forward(x: [batch, d], y: [8, 8]) -> [d] {{ x[batch = 0] + {part} }}"
        );
        let found = reports(&expand(&source)).remove(0).message;
        found.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(help("x[batsh = 0]"), "help: did you mean `batch`?");
    assert_eq!(help("x[width = 0]"), "help: write `batch` or `d`");
    assert_eq!(help("x[batch = 0, d = 0][d = 0]"), "help: it has none");
    assert_eq!(
        help("y[8 = 0]"),
        "help: axes are told apart by their names: `struct M<rows = 8, cols = 8>;`, and by `to` where an operation makes them"
    );
}

/// Also where both have one size.
#[test]
fn an_axis_of_another_name_is_not_among_those_of_the_other_value() {
    let found = errors_of(
        "struct M<d = 8, e = 8>; fn forward(x: [batch, seq, d], y: [e]) -> [batch, seq, d] { x * y }",
    );
    let message = "`*`: left is [batch, seq, 8], right is [8]";
    assert_eq!(found, [("*".to_owned(), message.to_owned())]);
}
