//! Every diagnostic of `attention!`, and programs that must compile.
//!
//! `TRYBUILD=overwrite cargo test --test ui` writes the expected messages anew: read what changed.

/// `cargo check` is enough for every message, and quicker than a build: the two kinds of cases run apart.
#[test]
fn a_mistake_is_one_error_at_its_token() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
}

#[test]
fn what_is_right_compiles_and_runs() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
}
