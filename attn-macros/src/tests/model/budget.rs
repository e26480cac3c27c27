//! Bounds on the memory: how they are written, and which plans the macro finds.

use super::mistakes::errors_of;
use super::{GPT, expand, lower, lower_all};
use crate::model::budget::{self, Plan};
use crate::model::graph::Model;
use crate::pipeline;
use crate::tests::support::reports;

/// A model of two functions with this header.
fn errors(header: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<d = 8, {header}>;
         fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ linear::<d>(x) }}
         fn loss(x: [batch, seq, d]) -> [] {{ mean::<[batch, seq, d]>(forward(x)) }}"
    ))
}

macro_rules! mistakes {
    ($($name:ident: $header:literal, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(errors($header), [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    another_unit: "memory = 64 Mib for (batch = 8, seq = 2)", "Mib",
        "expected a unit of memory behind the number, found `Mib`";
    no_unit: "memory = 64 for (batch = 8, seq = 2)", "memory",
        "expected a unit of memory behind the number, found none";
    no_lengths: "memory = 64 MiB", "memory",
        "expected the lengths of the axes for which `memory` holds, in parentheses behind `for`, found nothing";
    lengths_in_brackets: "memory = 64 MiB for [batch = 8]", "[batch = 8]",
        "expected the lengths of the axes for which `memory` holds, in parentheses behind `for`, found `[batch = 8]`";
    a_length_without_axis: "memory = 64 MiB for (8, 256)", "8",
        "expected an axis with its length, found `8`";
    a_length_twice: "memory = 64 MiB for (batch = 8, seq = 2, batch = 9)", "batch",
        "the length of `batch` is given twice";
    another_axis: "memory = 64 MiB for (batch = 8, sequence = 256)", "sequence",
        "no input has an axis `sequence` of any length";
    a_missing_axis: "memory = 64 MiB for (batch = 8)", "memory",
        "`memory` needs the length of `seq`, too";
    two_bounds: "memory = 64 MiB for (batch = 8, seq = 2), memory = 1 MiB for (batch = 8, seq = 2)", "memory",
        "`memory` is given twice";
}

/// Only a number with a unit, or with lengths, is a bound.
#[test]
fn a_size_may_be_called_memory() {
    let model = "struct M<memory = 8>; fn forward(x: [batch, memory]) -> [batch, memory] { x }";
    assert!(reports(&expand(model)).is_empty());
    let model = "struct M<memory = 2 * WIDTH>; fn forward(x: [n, memory]) -> [n, memory] { x }";
    assert!(reports(&expand(model)).is_empty());
}

/// A model of a function with this key, and of one without.
fn errors_of_function(keys: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<d = 8>;
         fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ linear::<d>(x) }}
         fn loss<{keys}>(x: [batch, seq, d], lens: lens[batch]) -> [] {{ mean::<[batch, d]>(mean_pool(forward(x), lens)) }}"
    ))
}

#[test]
fn a_function_has_a_bound_and_no_sizes() {
    assert_eq!(
        errors_of_function("memory = 64 MiB for (batch = 8, seq = 2)"),
        []
    );
    let [(at, message)] = &errors_of_function("hidden = 8")[..] else {
        panic!("one error");
    };
    assert_eq!(at, "hidden");
    assert!(message.contains("a function has `memory`"), "{message}");
    let missing = errors_of_function("memory = 64 MiB for (batch = 8)");
    assert_eq!(missing[0].1, "`memory` needs the length of `seq`, too");
    let twice = "memory = 64 MiB for (batch = 8, seq = 2), memory = 1 MiB for (batch = 8, seq = 2)";
    assert_eq!(errors_of_function(twice)[0].1, "`memory` is given twice");
}

/// The bound of a function is in place of that of the model.
#[test]
fn the_bound_of_a_function_is_its_own() {
    let models = lower_all(
        "struct M<d = 8, memory = 64 MiB for (batch = 8, seq = 2)>;
         fn forward(x: [batch, seq, d]) -> [batch, seq, d] { linear::<d>(x) }
         fn loss<memory = 2 MiB for (batch = 4, seq = 3)>(x: [batch, seq, d]) -> [] { mean::<[batch, seq, d]>(forward(x)) }",
    );
    let bounds = models
        .iter()
        .map(|model| model.budget.as_ref().map(|of| of.text.as_str()));
    let bounds: Vec<_> = bounds.collect();
    assert_eq!(
        bounds,
        [Some("batch = 8, seq = 2"), Some("batch = 4, seq = 3")]
    );
}

/// The plans of a model with this header, for the axes and the sizes of a GPT.
fn plans_of(header: &str) -> (Model, Vec<Plan>) {
    let gpt = lower(&GPT.replace("layers = 6,", header));
    let split = pipeline::split(&gpt);
    let budget = gpt.budget.as_ref().expect("the model has a bound");
    let plans = budget::plans(&gpt, split.as_ref(), budget);
    (gpt, plans)
}

/// From one that keeps all to one that keeps what first rounds carry; most of them split the loop.
#[test]
fn a_gpt_has_plans_from_one_extreme_to_the_other() {
    let (gpt, plans) = plans_of("layers = 6, memory = 64 MiB for (batch = 8, seq = 256),");
    assert!((4..=10).contains(&plans.len()), "{} plans", plans.len());
    assert!(plans[0].chosen.again.is_empty());
    assert_eq!(plans[0].work.outside, 0);
    let split = plans.iter().filter(|plan| plan.is_split);
    assert!(split.clone().count() >= 3, "{plans:?}");
    let body = gpt.grouped.nodes().len() - gpt.grouped.steps.len() + 1;
    let most = split.map(|plan| plan.chosen.again.len()).max();
    assert!(most >= Some(body), "{plans:?}");
}

/// Lengths and sizes beyond all numbers are no reason to panic.
#[test]
fn large_lengths_are_no_reason_to_panic() {
    let most = u64::MAX;
    for lengths in [
        "batch = 10000000000, seq = 10000000000".to_owned(),
        format!("batch = {most}, seq = {most}"),
    ] {
        let (_, plans) = plans_of(&format!("layers = 6, memory = 64 MiB for ({lengths}),"));
        assert!(plans[0].chosen.again.is_empty());
    }
    let (_, plans) = plans_of(&format!(
        "layers = {}, memory = 64 MiB for (batch = {most}, seq = 0),",
        1 << 30
    ));
    assert!(!plans.is_empty());
}
