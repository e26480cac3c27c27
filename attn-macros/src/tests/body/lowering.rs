//! Expressions: their parsed form, and their values against Rust's.

use super::{condition, float, score, spec};
use crate::score::diff::{Wrt, diff};
use crate::score::eval::{self, Inputs, Point, Value};
use crate::score::{Data, Expr, Type};
use crate::spec::body::DataDecl;

/// Tensors whose elements encode their index.
#[derive(Debug)]
struct Tensors;

impl Inputs for Tensors {
    fn param(&self, name: &str, index: &[i64]) -> f64 {
        let start = if name == "slope" { 0.5 } else { 100.0 };
        index
            .iter()
            .fold(start, |value, &index| 3.0 * value + index as f64)
    }

    fn data(&self, data: &Data, index: &[i64]) -> Option<Value> {
        let number = index.iter().fold(1, |sum, index| (7 * sum + index) % 5);
        Some(match data.ty() {
            Type::Int => Value::Int(number),
            Type::Float => Value::Float(0.3 * number as f64 - 0.5),
            Type::Bool => Value::Bool(number < 3),
        })
    }
}

/// The points of comparison: before, on and after the diagonal, the first and the last of every axis, and scores of both signs.
fn points() -> Vec<Point<'static>> {
    let places = [
        (0, 0, 0, 0),
        (1, 3, 7, 2),
        (0, 7, 2, 7),
        (2, 1, 5, 5),
        (0, 4, 0, 12),
    ];
    let scores = [-2.5, 0.0, 0.75, 40.0];
    let pairs = places
        .into_iter()
        .flat_map(|place| scores.map(|score| (place, score)));
    let points = pairs.map(|((b, h, q_idx, kv_idx), score)| Point {
        b,
        h,
        q_idx,
        kv_idx,
        q_len: 8,
        kv_len: 13,
        score,
        inputs: &Tensors,
    });
    points.collect()
}

/// The values have the same bits: both are the same `f64` arithmetic in the same order.
fn check_values(expr: &Expr, expected: impl Fn(&Point<'_>) -> Value) {
    for point in points() {
        let found = eval::eval(expr, &point);
        assert_eq!(found, Some(expected(&point)), "{expr} at {point:?}");
    }
}

/// The functions of the language, in Rust.
mod functions {
    pub(super) use std::cmp::{max, min};

    pub(super) fn exp(x: f64) -> f64 {
        x.exp()
    }

    pub(super) fn ln(x: f64) -> f64 {
        x.ln()
    }

    pub(super) fn sqrt(x: f64) -> f64 {
        x.sqrt()
    }

    pub(super) fn tanh(x: f64) -> f64 {
        x.tanh()
    }

    pub(super) fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    pub(super) fn floor(x: f64) -> f64 {
        x.floor()
    }

    pub(super) fn pow(x: f64, n: f64) -> f64 {
        x.powf(n)
    }

    pub(super) fn abs(x: i64) -> i64 {
        x.abs()
    }

    pub(super) fn clamp(x: i64, lo: i64, hi: i64) -> i64 {
        x.clamp(lo, hi)
    }
}

/// Claims that a block, with these variables, is parsed as `text` and has the value that Rust gives it.
macro_rules! same_as_in_rust {
    ($($name:ident: $read:ident($($var:ident),*) $block:block is $Type:ident $text:literal;)*) => {$(
        #[test]
        #[allow(unused, clippy::all)]
        fn $name() {
            use functions::*;
            let expr = $read(stringify!($block));
            assert_eq!(expr.to_string(), $text);
            check_values(&expr, |point| {
                $(let $var = point.$var;)*
                Value::$Type($block)
            });
        }
    )*};
}

same_as_in_rust! {
    a_difference_is_cast: float(score, q_idx, kv_idx) { score - (q_idx - kv_idx) as f64 }
        is Float "score - (q_idx - kv_idx) as f64";
    operators_bind_as_in_rust: float(score) { 1.0 - score * 2.0 + score / 4.0 - -score % 0.7 }
        is Float "1 - score * 2 + score / 4 - -1 * score % 0.7";
    parentheses_stay: float(score) { 1.0 - (score - (2.0 + score)) * 3.0 }
        is Float "1 - (score - (2 + score)) * 3";
    integers_divide_towards_zero: float(h, q_idx, kv_idx) { ((q_idx - kv_idx) / 3 - (q_idx - kv_idx) % 3 * (h - 4)) as f64 }
        is Float "((q_idx - kv_idx) / 3 - (q_idx - kv_idx) % 3 * (h - 4)) as f64";
    an_integer_is_negated: float(q_idx) { (-q_idx - -3) as f64 }
        is Float "(0 - q_idx - (0 - 3)) as f64";
    a_float_becomes_an_integer: float(q_idx) { (q_idx as f64 / 3.0) as i64 as f64 }
        is Float "(q_idx as f64 / 3) as i64 as f64";
    a_negative_float_becomes_the_smallest_length: float(q_idx, kv_idx) { ((q_idx - kv_idx) as f64 / 2.0) as usize as f64 }
        is Float "max(((q_idx - kv_idx) as f64 / 2) as i64, 0) as f64";
    a_cast_to_itself_is_nothing: float(score, h) { score as f64 + h as i64 as f64 }
        is Float "score + h as f64";
    functions_of_floats: float(score) { exp(score / 9.0) + tanh(score) + sigmoid(score) + floor(score) + ln(exp(score)) }
        is Float "exp(score / 9) + tanh(score) + sigmoid(score) + floor(score) + ln(exp(score))";
    a_power_of_an_integer: float(score) { sqrt(pow(score, 2.0)) }
        is Float "sqrt(pow(score, 2))";
    functions_of_integers: float(h, q_idx, kv_idx) { (max(q_idx, kv_idx) - min(q_idx, 3) + abs(h - 4) + clamp(q_idx - kv_idx, -2, 2)) as f64 }
        is Float "(max(q_idx, kv_idx) - min(q_idx, 3) + abs(h - 4) + min(max(q_idx - kv_idx, 0 - 2), 2)) as f64";
    a_choice: float(score, q_idx, kv_idx) { if q_idx > kv_idx { score } else if q_idx == kv_idx { 1.0 } else { -score } }
        is Float "if kv_idx < q_idx { score } else { if q_idx == kv_idx { 1 } else { -1 * score } }";
    a_choice_in_a_sum: float(score, h) { (if h < 2 { 1.0 } else { 2.0 }) * score }
        is Float "(if h < 2 { 1 } else { 2 }) * score";
    a_let_is_put_in: float(score, q_idx, kv_idx) { let d = (q_idx - kv_idx) as f64; score - d * d }
        is Float "score - (q_idx - kv_idx) as f64 * (q_idx - kv_idx) as f64";
    a_let_shadows_and_ends_with_its_block: float(score, h) {
        let x = score;
        let y = { let x = h; let h: f64 = x as f64; h + 0.5 };
        let x: f64 = x * 2.0;
        x * y + h as f64
    } is Float "score * 2 * (h as f64 + 0.5) + h as f64";
    numbers_are_computed: float() { 2.0 * 3.0 - 4.5 + 1e3 + 1_000f64 + (2 - 5) as f64 + -(0x10) as f64 }
        is Float "1982.5";
    a_known_choice_is_made: float(score) { if 2 * 2 < 5 && true { score } else { 0.5 } }
        is Float "score";
    a_window: condition(q_idx, kv_idx) { kv_idx <= q_idx && q_idx - kv_idx < 256 }
        is Bool "kv_idx <= q_idx && q_idx - kv_idx < 256";
    every_comparison: condition(q_idx, kv_idx) { (q_idx < kv_idx || q_idx >= 2 * kv_idx) && q_idx != 3 && !(kv_idx == 5 || kv_idx > 8) }
        is Bool "(q_idx < kv_idx || 2 * kv_idx <= q_idx) && !(q_idx == 3) && !(kv_idx == 5 || 8 < kv_idx)";
    floats_compare: condition(q_idx, kv_idx, q_len, kv_len) { (q_idx as f64 / q_len as f64) > kv_idx as f64 / kv_len as f64 }
        is Bool "kv_idx as f64 / kv_len as f64 < q_idx as f64 / q_len as f64";
    conditions_are_equal: condition(q_idx, kv_idx) { (q_idx < 3) == (kv_idx < 3) }
        is Bool "if q_idx < 3 { kv_idx < 3 } else { !(kv_idx < 3) }";
    conditions_differ: condition(q_idx, kv_idx) { (q_idx < 3) != (kv_idx < 3) }
        is Bool "!(if q_idx < 3 { kv_idx < 3 } else { !(kv_idx < 3) })";
    a_choice_of_conditions: condition(b, q_idx, kv_idx) { let early: bool = q_idx < 4; if early { kv_idx < 4 } else { b == 0 || false } }
        is Bool "if q_idx < 4 { kv_idx < 4 } else { b == 0 || false }";
    everything_is_seen: condition() { true }
        is Bool "true";
}

/// Floats have no `Ord`, so Rust has other names for these functions.
#[test]
fn float_extrema_evaluate_as_in_rust() {
    let expr = float("max(score, 0.0) - min(score, 2.0) + abs(score) * clamp(score, -1.0, 1.0)");
    check_values(&expr, |point| {
        let score = point.score;
        Value::Float(score.max(0.0) - score.min(2.0) + score.abs() * score.clamp(-1.0, 1.0))
    });
}

#[test]
fn an_exponent_is_any_number() {
    for (written, exponent) in [("3", 3.0), ("-2", -2.0), ("0.5", 0.5), ("1.0 / 4.0", 0.25)] {
        let expr = float(&format!("pow(abs(score) + 1.0, {written})"));
        check_values(&expr, |point| {
            Value::Float((point.score.abs() + 1.0).powf(exponent))
        });
    }
}

#[test]
fn tensors_are_read_by_every_axis() {
    let expr = float("slope[h] - bias[7 - h, clamp(q_idx - kv_idx + 4, 0, 8)]");
    assert_eq!(
        expr.to_string(),
        "slope[h] - bias[7 - h, min(max(q_idx - kv_idx + 4, 0), 8)]"
    );
    check_values(&expr, |point| {
        let distance = (point.q_idx - point.kv_idx + 4).clamp(0, 8);
        let slope = Tensors.param("slope", &[point.h]);
        Value::Float(slope - Tensors.param("bias", &[7 - point.h, distance]))
    });
}

/// The value of an expression with data of both kinds.
fn with_data(expr: &str) -> Expr {
    let body = format!(
        "data far: [heads, q_len]; data kind: ids[batch, kv_len]; param table: [9] = ones;
         fn score(score, b, h, q_idx, kv_idx) {{
             9.0 * (score + far[h, q_idx] + kind[b, kv_idx] as f32 + table[0]) + {{ {expr} }}
         }}"
    );
    match score(&body) {
        Expr::Binary(_, _, value) => *value,
        other => panic!("{expr} is {other}"),
    }
}

#[test]
fn data_are_read_by_every_axis() {
    let of = |ty, index: &[i64]| {
        let data = Data::Declared {
            name: "data".into(),
            ty,
        };
        Tensors.data(&data, index)
    };
    let expr = with_data("far[7 - h, kv_idx]");
    assert_eq!(expr.to_string(), "far[7 - h, kv_idx]");
    check_values(&expr, |point| {
        let value = of(Type::Float, &[7 - point.h, point.kv_idx]);
        value.expect("there is data")
    });
    let expr = with_data("table[min(kind[b, kind[b, kv_idx]], 8)] * (far[0, q_idx] as i64) as f32");
    assert_eq!(
        expr.to_string(),
        "table[min(kind[b, kind[b, kv_idx]], 8)] * far[0, q_idx] as i64 as f64"
    );
    check_values(&expr, |point| {
        let kind = |at| match of(Type::Int, &[point.b, at]) {
            Some(Value::Int(kind)) => kind,
            other => panic!("an id is no {other:?}"),
        };
        let far = match of(Type::Float, &[0, point.q_idx]) {
            Some(Value::Float(far)) => far.trunc(),
            other => panic!("a float is no {other:?}"),
        };
        let element = Tensors.param("table", &[kind(kind(point.kv_idx)).min(8)]);
        Value::Float(element * far)
    });
}

/// Derivatives treat data as constants, also in an index.
#[test]
fn derivatives_leave_data_alone() {
    let expr = with_data("score * far[h, q_idx] * table[kind[b, kv_idx]] + far[h, kv_idx]");
    for (wrt, expected) in [
        (Wrt::Operand(0), "far[h, q_idx] * table[kind[b, kv_idx]]"),
        (Wrt::Param("table"), "score * far[h, q_idx]"),
        (Wrt::Param("far"), "0"),
    ] {
        assert_eq!(diff(&expr, wrt).to_string(), expected);
    }
}

#[test]
fn data_have_the_axes_that_are_declared() {
    let spec = spec(
        "/// Which of them.
         data kind: ids[kv_len, batch, 2 * W, heads];
         data r#type: [q_len];
         fn mask(b, h, q_idx, kv_idx) { kind[kv_idx, b, 1, h] == 0 && r#type[q_idx] > 0.5 }",
    );
    let [kind, ty] = spec.body.data.as_slice() else {
        panic!("two are declared")
    };
    let dims = |data: &DataDecl| {
        data.dims
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(dims(kind), ["kv_len", "batch", "2 * W", "8"]);
    assert_eq!((kind.text(), kind.ty), ("kind".to_owned(), Type::Int));
    assert_eq!(dims(ty), ["q_len"]);
    assert_eq!((ty.text(), ty.ty), ("type".to_owned(), Type::Float));
}

#[test]
fn an_index_may_be_a_tuple_or_end_with_a_comma() {
    assert_eq!(
        float("bias[(h, 0)] + slope[h,]").to_string(),
        "bias[h, 0] + slope[h]"
    );
}

#[test]
fn sizes_of_the_header_are_integers() {
    let expr = float("(heads * head_dim) as f32 + d_model as f32 * score");
    assert_eq!(expr.to_string(), "32 + 32 * score");
    let expr = float("(h / (heads / kv_heads)) as f32");
    assert_eq!(expr.to_string(), "(h / (8 / KV_HEADS)) as f64");
}

/// The types of the user's constants in `expr`, from the items that evaluate them, in the order of use.
fn constant_types(body: &str) -> Vec<String> {
    let constants = spec(body).constants.into_iter();
    let types = constants.map(|item| match syn::parse2(item) {
        Ok(syn::Item::Const(item)) => {
            let ty = item.ty;
            let expr = item.expr;
            quote::quote!(#ty = #expr).to_string()
        }
        _ => panic!("a constant is an item"),
    });
    // The first one belongs to the header.
    types.skip(1).collect()
}

/// A constant has the type that its context requires, and is an integer without a context.
#[test]
fn constants_are_of_the_type_that_is_asked_for() {
    for (expr, types) in [
        ("score * C", vec!["f64 = (C) as f64"]),
        ("C - score", vec!["f64 = (C) as f64"]),
        ("config::C * score", vec!["f64 = (config :: C) as f64"]),
        ("C", vec!["f64 = (C) as f64"]),
        ("exp(C)", vec!["f64 = (C) as f64"]),
        ("max(score, C)", vec!["f64 = (C) as f64"]),
        ("pow(score, N)", vec!["f64 = (N) as f64"]),
        ("(h + N) as f32", vec!["usize = N"]),
        (
            "-A * -B * score",
            vec!["f64 = (A) as f64", "f64 = (B) as f64"],
        ),
        (
            "score * (A + B)",
            vec!["f64 = (A) as f64", "f64 = (B) as f64"],
        ),
        ("(A * B) as f32", vec!["usize = A", "usize = B"]),
        (
            "if A < B { score } else { 1.0 }",
            vec!["usize = A", "usize = B"],
        ),
        (
            "(if h < 2 { A } else { B }) * score",
            vec!["f64 = (A) as f64", "f64 = (B) as f64"],
        ),
        (
            "let a = A; score * a + slope[a]",
            vec!["f64 = (A) as f64", "usize = A"],
        ),
        ("let a: f32 = A; score * a", vec!["f64 = (A) as f64"]),
        ("slope[N]", vec!["usize = N"]),
        // A cast takes a constant of any type.
        ("N as f32", vec!["f64 = (N) as f64"]),
        ("(N as i64 + h) as f32", vec!["usize = N as usize"]),
    ] {
        let body = format!(
            "param slope: [heads] = 0.0; fn score(score, h) {{ 9.0 * (score + slope[h]) + {{ {expr} }} }}"
        );
        assert_eq!(constant_types(&body), types, "{expr}");
    }
}

/// Assertions are left to rustc for constants: that they are finite, in range, and not 0 as a divisor.
#[test]
fn constants_are_checked_by_rustc() {
    for (expr, conditions) in [
        ("score * C", vec![".abs()<=f32::MAXasf64"]),
        ("score / C", vec![".abs()<=f32::MAXasf64", "!=0.0"]),
        ("(h % N) as f32", vec!["asu64<=2147483648u64", "!=0"]),
    ] {
        let spec = spec(&format!(
            "fn score(score, h) {{ 9.0 * score + {{ {expr} }} }}"
        ));
        let found = spec.assertions.iter().map(|assertion| {
            let condition = assertion.condition.to_string().replace(' ', "");
            condition.replace("__L_body_2", "")
        });
        // The rules of the header come first.
        let found: Vec<_> = found
            .filter(|condition| !condition.contains("__L"))
            .collect();
        assert_eq!(found, conditions, "{expr}");
    }
}

#[test]
fn a_macro_can_hand_on_parts_of_a_body() {
    use proc_macro2::{Delimiter, Group, TokenStream};
    use quote::quote;
    let sum: TokenStream = quote!(score + 1.0);
    let sum = Group::new(Delimiter::None, sum);
    let docs = Group::new(Delimiter::None, quote!(doc = "Learned."));
    let name = Group::new(Delimiter::None, quote!(slope));
    let input = quote! {
        [::attn] struct L<heads = 8, d_model = 32> {
            #[#docs]
            param #name: [heads] = zeros;
            fn score(score, h) { #sum * slope[h] }
        }
    };
    let cx = crate::diag::Diagnostics::default();
    let (krate, mut drafts) = crate::spec::parse(input, &cx);
    let spec = crate::spec::check(drafts.remove(0), &krate, &cx);
    assert_eq!(cx.into_compile_errors().to_string(), "");
    let value = spec.body.score.map(|score| score.to_string());
    assert_eq!(value.as_deref(), Some("(score + 1) * slope[h]"));
}

#[test]
fn a_declaration_without_a_body_has_an_empty_one() {
    for source in [
        "struct L<heads = 1, d_model = 4>;",
        "struct L<heads = 1, d_model = 4> {}",
    ] {
        let (spec, _) = crate::tests::support::build(source);
        let body = spec.body;
        assert!(body.params.is_empty() && body.score.is_none() && body.mask.is_none());
    }
}

#[test]
fn functions_and_tensors_come_in_any_order() {
    let body = "
        /// A mask.
        fn mask(kv_idx, q_idx) { kv_idx <= q_idx }
        /// A score.
        fn score(score, h) { score * slope[h] }
        param slope: [heads] = ones;
    ";
    assert_eq!(score(body).to_string(), "score * slope[h]");
    assert_eq!(
        spec(body).body.mask.map(|mask| mask.to_string()).as_deref(),
        Some("kv_idx <= q_idx")
    );
}
