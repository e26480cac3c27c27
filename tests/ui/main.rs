//! Every diagnostic: a program with a mistake, and beside it all that the compiler says.
//!
//! `TRYBUILD=overwrite cargo test -p attn-ui-tests --test ui` writes the messages anew: read what changed. One case alone:
//! `cargo test -p attn-ui-tests --test ui -- trybuild=heads`.

#[test]
fn a_mistake_is_one_error_at_its_token() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("fail/*.rs");
}
