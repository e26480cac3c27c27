//! The composed form of score modifications, as text.

use std::rc::Rc;

use quote::{ToTokens, quote};

use super::support::{build, hidden_items, parse_file};
use crate::emit;
use crate::graph::{AttentionLayer, InitKind, Param, ParamKind};
use crate::ops::attention_layer::Attend;
use crate::pipeline::fuse_layer;
use crate::score::{Binary, Expr, Unary, Var};
use crate::spec::{Distribution, Real, Size};

/// The lines between the product of query and key and the normalizer, in a layer of two heads with learned tensors
/// `slope: [2]` and `table: [2, 4]`.
fn lines(expr: Expr) -> String {
    let (spec, mut graph) = build("struct L<heads = 2, d_model = 8>;");
    for (field, dims) in [("slope", &[2][..]), ("table", &[2, 4])] {
        graph.params.push(Param {
            field: field.into(),
            doc: String::new(),
            kind: ParamKind::Weight {
                dims: dims.iter().map(|&dim| Size::known(dim)).collect(),
                init: Some(InitKind::Given(Distribution::Normal {
                    std: Real::known(1.0),
                })),
            },
        });
    }
    for node in graph.block.nodes_mut() {
        if let Some(attention) = node.op.description().attention {
            node.op = Rc::new(Attend {
                functions: vec![expr.clone()],
                ..attention.clone()
            });
        }
    }
    let fused = fuse_layer(&graph);
    let layer = AttentionLayer {
        spec,
        graph,
        fused,
        operands: Vec::new(),
        values_in_keys: None,
    };
    let file = parse_file(emit::layer(
        &quote!(::attn),
        &layer,
        layer.passes().as_ref(),
        emit::Caller::User,
    ));
    let run = hidden_items(&file).into_iter().find_map(|item| match item {
        syn::Item::Fn(function) if function.sig.ident == "run" => Some(&function.block.stmts),
        _ => None,
    });
    let statements = run.expect("every layer has a composed form").iter();
    let text = |statement: &&syn::Stmt| statement.to_token_stream().to_string();
    let lines = statements
        .skip_while(|statement| !text(statement).contains("dot_scores"))
        .skip(1)
        .take_while(|statement| !text(statement).contains("softmax"));
    let file = parse_file(quote!(fn lines() { #(#lines)* }));
    format!("{expr}\n\n{}", prettyplease::unparse(&file))
}

macro_rules! lowered {
    ($($name:ident: $expr:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(concat!("score_", stringify!($name)), lines($expr));
        }
    )*};
}

lowered! {
    learned_slope: Expr::SCORE - slope() * distance().to_float();
    three_reads_of_the_score: Expr::SCORE * Expr::SCORE.unary(Unary::Tanh) + Expr::float(1.0) / Expr::SCORE.abs();
    table_of_near_keys: near().select(Expr::SCORE + near_table(), Expr::SCORE * Expr::float(0.5));
    branches_with_a_logarithm: (Expr::float(0.0).less(Expr::SCORE) & Expr::from(Var::H).less(1))
        .select(Expr::SCORE.unary(Unary::Ln) + slope(), Expr::SCORE.max(slope()));
    steps_and_powers: (Expr::SCORE.binary(Binary::Pow, Expr::float(2.0)) % Expr::float(3.0))
        .min(slope().unary(Unary::Floor).unary(Unary::Sigmoid));
    conditions_of_conditions: Expr::SCORE.at_most(slope())
        .select(Expr::from(Var::QIdx).less(Var::KvIdx), !near_table().equals(Expr::float(0.0)))
        .select(Expr::SCORE, Expr::float(-1.0));
    no_read_of_the_score: near().select(near_table(), slope());
}

fn distance() -> Expr {
    Expr::from(Var::QIdx) - Var::KvIdx
}

/// The keys for which `near_table` has an element, with bounds at both ends.
fn near() -> Expr {
    Expr::from(Var::KvIdx).at_most(Var::QIdx) & distance().less(4)
}

fn near_table() -> Expr {
    Expr::Param {
        name: "table".into(),
        index: vec![Var::H.into(), distance()],
    }
}

fn slope() -> Expr {
    Expr::Param {
        name: "slope".into(),
        index: vec![Var::H.into()],
    }
}
