//! The passes over memory of a model, as data: what is joined to one expression, and what runs in the pass of a neighbour.

use super::lower;
use super::plan::{backward, names};
use crate::model::fusion::FuseWith;
use crate::model::graph::{Model, Step, ValueId};
use crate::model::plan::{self, Forward};
use crate::ops::Fusion;

/// A model of those of the inputs `a`, `b` and `c` that the body reads.
fn model_of(body: &str) -> Model {
    let words: Vec<_> = body
        .split(|letter: char| !letter.is_alphanumeric())
        .collect();
    let inputs = ["a", "b", "c"]
        .into_iter()
        .filter(|name| words.contains(name));
    let inputs: Vec<_> = inputs.map(|name| format!("{name}: [n, d]")).collect();
    let inputs = inputs.join(", ");
    lower(&format!(
        "struct M<d = 4>; fn forward({inputs}) -> [n, d] {{ {body} }}"
    ))
}

/// The operations of each pass over memory, with the values whose memory their results take.
fn passes(model: &Model) -> Vec<String> {
    fn push(model: &Model, steps: &[Step], plan: &Forward, text: &mut Vec<String>) {
        let name = |id: ValueId| model.value(id).name.as_str();
        let mut pass = Vec::new();
        for (index, (step, planned)) in steps.iter().zip(&plan.steps).enumerate() {
            let is_in_strips = plan
                .strips
                .iter()
                .any(|strips| strips.steps.contains(&index) && index + 1 < strips.steps.end);
            match step {
                Step::Node(node) => {
                    let reuse = planned.reuse.map(|index| planned.terms[index].value);
                    let reuse = reuse.map(|id| format!(" in {}", name(id)));
                    pass.push(format!(
                        "{}{}",
                        name(node.result),
                        reuse.unwrap_or_default()
                    ));
                    if planned.with != Some(FuseWith::Next) && !is_in_strips {
                        text.push(pass.join(", "));
                        pass.clear();
                    }
                }
                Step::Repeat(repeat) => {
                    text.push("repeat".to_owned());
                    push(model, &repeat.body.steps, &planned.body, text);
                }
                Step::Scan(_) => text.push("scan".to_owned()),
            }
        }
    }
    let mut text = Vec::new();
    let plan = plan::plan(model.block(), &[]);
    push(model, &model.grouped.steps, &plan, &mut text);
    text
}

#[test]
fn an_operation_on_rows_is_computed_with_the_loops_around_it() {
    for rows in ["layer_norm", "rms_norm", "l2_norm", "softmax"] {
        let found = passes(&model_of(&format!("{rows}(a + b) * (c + 1)")));
        assert_eq!(found, [format!("add, {rows}, mul")]);
    }
    // The derivative reads the norm: the loop writes to memory of its own, or over another term.
    assert_eq!(
        passes(&model_of("layer_norm(a) * (b + 1) + c")),
        ["layer_norm, add"]
    );
    assert_eq!(
        passes(&model_of("let t = linear::<d>(c); layer_norm(a) * b + t")),
        ["t", "layer_norm, add in t"]
    );
    // It does not, and nobody else does: the loop writes over it.
    assert_eq!(
        passes(&model_of("b - layer_norm(a)")),
        ["layer_norm, sub in layer_norm"]
    );
    // Somebody else does.
    assert_eq!(
        passes(&model_of(
            "let y = layer_norm(a); let z = y + b; linear::<d>(y) * z"
        )),
        ["y, z", "linear", "mul"]
    );
    // Elements of terms and of the result are dropped.
    assert_eq!(
        passes(&model_of(
            "dropout::<0.1>(dropout::<0.2>(a) + layer_norm(b))"
        )),
        ["dropout", "layer_norm, add in layer_norm, dropout_2"]
    );
    // In a loop.
    assert_eq!(
        passes(&model_of(
            "let mut x = a; repeat 2 { x = gelu(rms_norm(x)); } x * b"
        )),
        ["repeat", "rms_norm, x_2", "mul"]
    );
}

/// No value has the shape of the result before the operation that repeats it, and no result takes the memory of a smaller operand.
#[test]
fn values_with_fewer_axes_are_repeated_as_they_are_read() {
    let of = |body: &str| {
        let inputs = [("a", "[batch, seq, d]"), ("c", "[batch, d]"), ("g", "[d]")];
        let names: Vec<&str> = body.split(|c: char| !c.is_alphanumeric()).collect();
        let inputs = inputs.iter().filter(|(name, _)| names.contains(name));
        let inputs: Vec<_> = inputs.map(|(name, ty)| format!("{name}: {ty}")).collect();
        let inputs = inputs.join(", ");
        passes(&lower(&format!(
            "struct M<d = 4>; fn forward({inputs}) -> [batch, seq, d] {{ {body} }}"
        )))
    };
    assert_eq!(of("a * g + c"), ["add"]);
    assert_eq!(of("layer_norm(a) * c + g"), ["layer_norm, add"]);
    // The smaller value is computed once, ahead of the norm.
    assert_eq!(
        of("layer_norm(a) * (1 + c) + g"),
        ["shift", "layer_norm, add"]
    );
    assert_eq!(of("let t = linear::<d>(c); a - t"), ["t", "sub"]);
    // The derivative reads what a loop multiplies, but not what it adds to.
    assert_eq!(
        of("let mut x = a; repeat 2 { x = x + g; } x"),
        ["repeat", "x_2 in x"]
    );
    assert_eq!(of("a - mean::<d>(a * a)"), ["mul, mean, sub"]);
}

#[test]
fn a_reduction_of_rows_is_in_one_pass_with_its_neighbours() {
    // The derivative of the root reads the root alone.
    assert_eq!(
        passes(&model_of(
            "param gain: [d] = ones; a / sqrt(mean::<d>(a * a) + 1e-6) * gain"
        )),
        ["gain", "mul, mean, sqrt in mean, mul_2"]
    );
    // The operations on other rows are passes of their own.
    assert_eq!(
        passes(&model_of("a - mean::<n>(a * a)")),
        ["mul", "mean", "sub"]
    );
    assert_eq!(
        passes(&model_of("a - mean::<d>(linear::<d>(a))")),
        ["linear", "mean, sub"]
    );
    // One operation alone is no pass over strips, and a norm stays with its loops.
    assert_eq!(
        passes(&model_of(
            "let m = mean::<d>(a); layer_norm(a) * linear::<d>(b) + m"
        )),
        ["m", "layer_norm", "linear", "add"]
    );
    // In a round.
    assert_eq!(
        passes(&model_of(
            "let mut x = a; repeat 2 { x = x - max::<d>(x * b); } x"
        )),
        ["repeat", "mul, max, x_2"]
    );
}

/// The gradient of a value of the pass is in memory for one strip only, and those of others are sums of the strips.
#[test]
fn lines_of_a_derivative_are_joined_as_its_operations_are() {
    let model = model_of("param gain: [d] = ones; a / sqrt(mean::<d>(a * a) + 1e-6) * gain");
    assert_eq!(
        backward(&model),
        [
            "strips",
            "  mul_2: result 0 to new d gain, input a, new d sqrt",
            "  sqrt: d sqrt to its own d sqrt",
            "  mean: d sqrt to new d mul",
            "  free d sqrt",
            "  mul: d mul to input a",
            "  free d mul",
            "gain: d gain to ",
            "free d gain",
        ]
    );
}

#[test]
fn the_memory_of_a_result_is_not_written_over() {
    let model = lower(
        "struct M<d = 4>;
        fn forward(a: [n, d], b: [n, d]) -> ([n, d], [n, d]) { let y = layer_norm(a); (y, y + b) }",
    );
    assert_eq!(passes(&model), ["y, add"]);
}

#[test]
fn loops_that_are_passes_of_their_own() {
    for (body, expected) in [
        // Something is computed in between.
        (
            "let y = layer_norm(a); let z = linear::<d>(b); y * z",
            &["y", "z", "mul"][..],
        ),
        // It does not read the norm.
        (
            "let y = layer_norm(a); let z = b * c; linear::<d>(y) * linear::<d>(z)",
            &["y", "z", "linear", "linear_2", "mul"],
        ),
        // It reads what the norm reads, or what the loop before the norm reads. In `softmax`, it may write over that.
        ("layer_norm(a) * a", &["layer_norm", "mul"]),
        (
            "let x = linear::<d>(a); softmax(x) + x",
            &["x", "softmax", "add in x"],
        ),
        (
            "let x = a + b; layer_norm(x) + x",
            &["x, layer_norm", "add in layer_norm"],
        ),
        (
            "let x = linear::<d>(a); layer_norm(x + b) + x",
            &["x", "add, layer_norm", "add_2 in x"],
        ),
        // It is in the pass of the norm before it already.
        (
            "rms_norm(layer_norm(a) * b) * c",
            &["layer_norm, mul", "rms_norm, mul_2"],
        ),
        (
            "rms_norm(dropout::<0.1>(layer_norm(a) * b))",
            &["layer_norm, mul, dropout", "rms_norm"],
        ),
        // It is in another round.
        (
            "let y = layer_norm(a); let mut x = b; repeat 2 { x = x + y; } x",
            &["y", "repeat", "x_2 in x"],
        ),
    ] {
        assert_eq!(passes(&model_of(body)), expected, "{body}");
    }
}

/// The elementwise operations of `body`, each with its expression and its operands.
fn groups(body: &str) -> Vec<String> {
    let model = model_of(body);
    let nodes = model.grouped.nodes().into_iter();
    let groups = nodes.filter_map(|node| match node.fusion() {
        Fusion::Elementwise(op) => {
            let operands = names(&model, &node.operands).join(", ");
            Some(format!("{} of {operands}", op.expr))
        }
        _ => None,
    });
    groups.collect()
}

#[test]
fn elementwise_operations_are_one_expression_where_only_one_of_them_is_read() {
    assert_eq!(
        groups("silu(a) * b + c"),
        ["silu(x2) * x1 + score of c, b, a"]
    );
    assert_eq!(
        groups("let m = silu(a); m * (b + 1) + m * m"),
        // Two operations read `m`.
        [
            "silu(score) of a",
            "score * (x1 + 1) + score * score of m, b"
        ]
    );
    // A linear map stands between the two.
    assert_eq!(
        groups("gelu(linear::<d>(tanh(a)))"),
        ["tanh(score) of a", "gelu(score) of linear"]
    );
    // Of one operand it may be computed later. Two operands would be in memory for longer than their product.
    assert_eq!(
        groups("let g = sigmoid(a); let y = softmax(b); g * y"),
        ["sigmoid(x1) * score of y, a"]
    );
    assert_eq!(
        groups("let g = a * c; let y = softmax(b); g * y"),
        ["score * x1 of a, c", "score * x1 of g, y"]
    );
    // A carried variable is in memory.
    assert_eq!(
        groups("let mut x = a; repeat 2 { x = tanh(x) + b; } x * c"),
        ["tanh(x1) + score of b, x", "score * x1 of x, c"]
    );
    // A square of a square of a square grows: it is cut where an expression gets large.
    let squares = "let x = a + b; ".to_owned() + &"let x = x * x + b; ".repeat(12) + "x";
    assert!(groups(&squares).len() > 2);
}
