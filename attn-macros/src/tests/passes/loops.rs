//! Elementwise loops: their derivatives, and the ones that `attn-core` has compiled.

use std::fmt::Write as _;

use quote::quote;

use crate::emit::expr::loop_values;
use crate::score::loops::{Derivative, KNOWN, Known, Loop};
use crate::score::{Activation, Expr, Unary};
use crate::spec::Real;

const GENERATED: &str = "../attn-core/src/kernel/loops/known.rs";

/// The statements of the body of a loop, indented.
fn body(of: &Loop) -> String {
    let values = loop_values(&of.values);
    let file = syn::parse2(quote!(fn f() { #values })).expect("a body of a function");
    let text = prettyplease::unparse(&file);
    let lines: Vec<_> = text.lines().collect();
    let lines = lines[1..lines.len() - 1].iter();
    lines.fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "    {line}");
        text
    })
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn entry(name: &str, doc: &str, numbers: &[&str], of: &Loop) -> String {
    let numbers = match numbers {
        [] => String::new(),
        _ => format!(" {{ {} }}", numbers.join(", ")),
    };
    let operands: Vec<_> = (0..of.operands).map(|index| format!("x{index}")).collect();
    format!(
        "    /// {doc}\n    {name}{numbers}, {}_loop([{}]: {} -> {}) {{\n{}    }}\n",
        snake_case(name),
        operands.join(", "),
        of.operands,
        of.values.len(),
        body(of),
    )
}

/// An expression for people, with its operands by their numbers.
fn described(expr: &Expr) -> String {
    expr.to_string().replace("score", "x0").replace("[]", "")
}

/// The text of `known.rs`.
fn generated() -> String {
    let mut text = "//! The loops that are compiled here, with their derivatives.\n//!\n\
        //! Generated from the definitions in `attn-macros/src/score/loops.rs`: `INSTA_UPDATE=always cargo test -p attn-macros known_loops`.\n\n\
        use super::{Loop, Read, Write, compiled, p, part};\n\nknown! {\n"
        .to_owned();
    for known in KNOWN {
        let expr = known.expr();
        let of = Loop::of(&expr);
        text += &entry(
            known.name,
            &format!("`{}`", described(&expr)),
            known.numbers,
            &of,
        );
        let derivative = Derivative::of(&expr, of.operands, false).body;
        if !derivative.values.is_empty() {
            let doc = format!("The derivative of [`{}`].", known.name);
            let name = format!("{}Backward", known.name);
            text += &entry(&name, &doc, known.numbers, &derivative);
        }
    }
    text + "}\n"
}

#[test]
fn known_loops_are_what_their_definitions_generate() {
    let text = generated();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(GENERATED);
    if std::env::var("INSTA_UPDATE").as_deref() == Ok("always") {
        std::fs::write(&path, &text).expect("a file to write");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "{GENERATED} is not generated from KNOWN: set INSTA_UPDATE=always"
    );
}

/// `x0`
fn x(index: usize) -> Expr {
    Expr::Operand(index)
}

#[test]
fn known_loops_are_found_in_any_order_of_their_operands() {
    let silu = |of| x(of).unary(Unary::Activation(Activation::Silu));
    let find = |expr: Expr| {
        let found = Known::find(&expr)?;
        let numbers = found.numbers.iter().filter_map(|number| number.value);
        Some((
            found.known.name,
            found.operands,
            numbers.collect::<Vec<_>>(),
        ))
    };
    let none = Vec::new;
    assert_eq!(find(x(0) + x(1)), Some(("Add", vec![0, 1], none())));
    assert_eq!(find(x(1) - x(0)), Some(("Sub", vec![1, 0], none())));
    assert_eq!(find(x(0) * x(0)), Some(("Square", vec![0], none())));
    assert_eq!(find(x(1) * silu(0)), Some(("SiluGate", vec![0, 1], none())));
    assert_eq!(find(silu(1) * x(0)), Some(("SiluGate", vec![1, 0], none())));
    let scaled = x(1) * Expr::float(0.5) + x(0);
    assert_eq!(find(scaled), Some(("AddScaled", vec![0, 1], vec![0.5])));
    let modulated = (x(2) + Expr::float(1.0)) * x(0) + x(1);
    assert_eq!(find(modulated), Some(("Modulate", vec![0, 2, 1], none())));
    // One operand is not two, another number is not 1, and no operator is another one.
    assert_eq!(find(x(0) * silu(0)), None);
    assert_eq!(find(x(0) * (x(1) + Expr::float(2.0)) + x(2)), None);
    assert_eq!(find(x(1) / x(0)), Some(("Div", vec![1, 0], none())));
    assert_eq!(find(x(0) % x(1)), None);
}

#[test]
fn derivatives_read_what_they_need_and_pass_the_rest_on() {
    let of = |expr: &Expr, operands| {
        let derivative = Derivative::of(expr, operands, false);
        let values = derivative.body.values.iter().map(Expr::to_string);
        (derivative.reads, values.collect::<Vec<_>>())
    };
    let values = |values: &[&str]| {
        values
            .iter()
            .map(|value| (*value).to_owned())
            .collect::<Vec<_>>()
    };
    // The gradients of both terms are that of the sum.
    assert_eq!(of(&(x(0) + x(1)), 2), (vec![], vec![]));
    assert_eq!(of(&(x(0) - x(1)), 2), (vec![], values(&["score * -1"])));
    assert_eq!(
        of(&(x(0) + x(1) * x(2)), 3),
        (vec![1, 2], values(&["x2 * x1", "x2 * score"]))
    );
    let by = Expr::Float(Real::known(0.5));
    assert_eq!(of(&(x(0) * by), 1), (vec![], values(&["score * 0.5"])));
}
