//! A mistake is one message: nothing of what is emitted is reported beside it.

use quote::ToTokens;

use super::expand;
use super::mistakes::errors_of;
use crate::emit::block::field;
use crate::tests::support::reports;

/// A model with a context of width 8 and values of width 4.
fn attending(keys: &str) -> String {
    format!(
        "struct M<d = 16>;
        fn forward(x: [batch, seq, d], y: [batch, len, 8], z: [batch, len, 4]) -> [batch, seq, d] {{
            attention::<{keys}>(x, context = y, values = z)
        }}"
    )
}

#[test]
fn widths_of_an_attention_are_those_of_its_operands() {
    let cases = [
        (
            "4, d_context = 9",
            "d_context",
            "`attention`: `d_context` is 9, and `context` is [batch, len, 8]",
        ),
        (
            "4, d_values = 9",
            "d_values",
            "`attention`: `d_values` is 9, and `values` is [batch, len, 4]",
        ),
        (
            "3, d_model = 9",
            "d_model",
            "`attention` of d_model 9 takes [.., 9], found [batch, seq, 16]",
        ),
    ];
    for (keys, at, message) in cases {
        let expected = [(at.to_owned(), message.to_owned())];
        assert_eq!(errors_of(&attending(keys)), expected, "{keys}");
    }
}

#[test]
fn rustc_compares_a_width_that_only_it_knows() {
    let output = |keys: &str| {
        let file = expand(&attending(keys));
        let messages: Vec<_> = reports(&file)
            .into_iter()
            .map(|found| found.message)
            .collect();
        assert!(messages.is_empty(), "{keys}: {messages:?}");
        file.to_token_stream().to_string()
    };
    let message = "`attention`: `d_context` is W, and `context` is [batch, len, 8]";
    let of_constant = output("4, d_context = W");
    assert!(of_constant.contains(message));
    // The layer has the width of its operand: the constant stands nowhere but in the assertion.
    assert_eq!(of_constant.matches("__M_1").count(), 2);
    assert!(!output("4, d_context = 8").contains(message));
}

#[test]
fn a_refused_function_has_no_methods() {
    let sources = [
        (
            "x",
            "fn summary(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
        (
            "x",
            "fn session(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
        (
            "x",
            "fn forward_mut(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
        (
            "x",
            "fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
        (
            "a(x)",
            "fn a(x: [batch, d]) -> [batch, d] { linear::<d>(x) } fn a(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
        (
            "a(x)",
            "fn a(x: [batch, d]) -> [batch, d] { linear::<d>(x) } fn a_mut(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
        (
            "a(x)",
            "fn a(x: [batch, d]) -> [batch, d] { linear::<d>(x) } fn try_a(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
        (
            "a(x)",
            "fn a(x: [batch, d]) -> [batch, d] { linear::<d>(x) } fn a_flops(x: [batch, d]) -> [batch, d] { linear::<d>(x) }",
        ),
    ];
    for (value, others) in sources {
        let source = format!(
            "struct M<d = 4>; fn forward(x: [batch, d]) -> [batch, d] {{ linear::<d>({value}) }} {others}"
        );
        let file = expand(&source);
        assert!(!reports(&file).is_empty(), "{source}");
        for name in ["a", "a_mut", "try_a", "a_flops", "forward", "summary"] {
            let methods = inherent_methods(&file);
            let methods = methods.iter().filter(|method| *method == name);
            assert!(methods.count() <= 1, "`{name}` in {source}");
        }
    }
}

/// The names of the methods without a trait, in all blocks of the expansion.
fn inherent_methods(file: &syn::File) -> Vec<String> {
    fn collect(items: &[syn::Item], names: &mut Vec<String>) {
        for item in items {
            match item {
                syn::Item::Impl(item) if item.trait_.is_none() => {
                    let methods = item.items.iter().filter_map(|item| match item {
                        syn::ImplItem::Fn(method) => Some(method.sig.ident.to_string()),
                        _ => None,
                    });
                    names.extend(methods);
                }
                syn::Item::Const(item) => {
                    if let syn::Expr::Block(block) = &*item.expr {
                        let inner = block.block.stmts.iter().filter_map(|stmt| match stmt {
                            syn::Stmt::Item(item) => Some(item.clone()),
                            _ => None,
                        });
                        collect(&inner.collect::<Vec<_>>(), names);
                    }
                }
                _ => {}
            }
        }
    }
    let mut names = Vec::new();
    collect(&file.items, &mut names);
    names
}

#[test]
fn a_word_that_is_no_name_is_a_field_of_another_one() {
    assert_eq!(field("self").to_string(), "self_");
    assert_eq!(field("type").to_string(), "r#type");
}

/// One mistake: its token and its message.
macro_rules! mistakes {
    ($($name:ident: $statements:literal, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            let statements = $statements;
            let source = format!(
                "struct M<d = 8>; fn forward(x: [batch, d], i: ids[a, b, c, e]) -> [batch, d] {{ let _i = i; {statements} }}"
            );
            assert_eq!(errors_of(&source), [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    a_number_that_is_not_finite: "x * 1e400", "1e400", "an operand expects a number, found `1e400`, which is no finite number";
    more_axes_than_a_value_has: "let _h = one_hot::<d>(i); x", "one_hot",
        "the result of this `one_hot` has 5 axes, and a value has at most 4";
    a_layer_without_a_name: "linear::<d, name = _>(x)", "_", "expected the name of a layer, found `_`";
    a_layer_called_self: "linear::<d, name = self>(x)", "self", "expected the name of a layer, found `self`";
    a_variable_without_a_name: "let _ = gelu(x); x", "_", "expected the name of a variable";
}

#[test]
fn a_learned_tensor_ends_in_a_semicolon() {
    let source = "struct M<d = 8>; fn forward(x: [batch, d]) -> [batch, d] { param g: [d] = 1 linear::<d>(x * g) }";
    let messages: Vec<_> = reports(&expand(source))
        .into_iter()
        .map(|report| report.message)
        .collect();
    let expected = "expected `;` behind the initial values of a learned tensor";
    assert!(
        messages.iter().any(|message| message.starts_with(expected)),
        "{messages:?}"
    );
}
