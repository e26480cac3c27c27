//! Bodies of declarations: the values of their items, and every mistake in them.

mod lowering;
mod mistakes;
mod normalize;
mod params;
mod property;

use super::support::build;
use crate::score::Expr;
use crate::spec::Spec;

/// A layer of eight heads with this body. Names in capitals are the user's constants.
fn layer(body: &str) -> String {
    format!("struct L<heads = 8, d_model = 32, kv_heads = KV_HEADS> {{ {body} }}")
}

fn spec(body: &str) -> Spec {
    build(&layer(body)).0
}

/// The value of `fn score`.
fn score(body: &str) -> Expr {
    let score = spec(body).body.score;
    score.unwrap_or_else(|| panic!("no score in {body}"))
}

/// The value of an expression in a `fn score` with all arguments.
pub(super) fn float(expr: &str) -> Expr {
    let body = format!(
        "param slope: [heads] = zeros;
         param bias: [heads, 2 * W + 1] = zeros;
         fn score(score, b, h, q_idx, kv_idx, q_len, kv_len) {{
             9.0 * (score + slope[h] + bias[h, 0]) + {{ {expr} }}
         }}"
    );
    match score(&body) {
        Expr::Binary(_, _, value) => *value,
        other => panic!("{expr} is {other}"),
    }
}

/// The value of an expression in a `fn mask` with all arguments.
fn condition(expr: &str) -> Expr {
    let body = format!("fn mask(b, h, q_idx, kv_idx, q_len, kv_len) {{ {expr} }}");
    let mask = spec(&body).body.mask;
    mask.unwrap_or_else(|| panic!("no mask in {body}"))
}
