//! Bodies of attentions in a model: `dot`, the place of a step, and loops that are tied.

use super::lower;
use super::mistakes::errors_of;

/// The first lines of the errors of a body with a table of five rows.
fn errors_of_body(operands: &str, body: &str) -> Vec<String> {
    let found = errors_of(&format!(
        "struct M<heads = 2, d = 4, rows = 5>;
        fn forward(q: [batch, seq, heads, d], k: [batch, seq, heads, d]) -> [batch, seq, heads, d] {{
            param table: [rows, d] = normal(1.0);
            attend(q, k, k{operands}) {{ {body} }}
        }}"
    ));
    found.into_iter().map(|(_, message)| message).collect()
}

#[test]
fn products_have_no_name_in_a_body() {
    assert_eq!(
        errors_of_body(
            "",
            "fn score(score, h, q_idx) { score + dot(q, table[0]) + table[h, q_idx, 1] }"
        ),
        ["only a `param` or a `data` is indexed, found `table`"]
    );
    assert_eq!(
        errors_of_body("", "fn score(score) { score + dot(q, table[0]) * table }"),
        ["unknown name `table`"]
    );
}

#[test]
fn products_are_called_as_their_table() {
    assert_eq!(
        errors_of_body(
            "",
            "fn score(score) { score + dot(q, table[0]) + 0.0 * dot(k, table[1]) }"
        ),
        ["`table` never reaches the score, so no gradient would flow to it"]
    );
}

#[test]
fn a_table_is_no_operand() {
    let body = "fn score(score) { score + dot(q, table[0]) }";
    assert_eq!(errors_of_body("", body), [""; 0]);
    assert_eq!(
        errors_of_body(", table = table", body),
        ["this `attend` does not read `table`"]
    );
}

#[test]
fn a_let_hides_no_vector_of_the_model() {
    let shadowed = "`q` in `dot` is that of the model or of the pair, and this function has a `let` of this name";
    for vector in ["q", "tanh(q)", "2 * (q + q)", "linear::<d>(q)"] {
        let of = |local: &str| {
            format!(
                "fn score(score) {{ let {local} = 2.0; score * {local} + dot({vector}, table[0]) }}"
            )
        };
        assert_eq!(errors_of_body("", &of("q")), [shadowed], "{vector}");
        for operation in ["tanh", "linear"] {
            assert_eq!(errors_of_body("", &of(operation)), [""; 0], "{vector}");
        }
    }
}

/// The errors of an attention at the steps of a scan.
fn errors_of_step(call: &str) -> Vec<String> {
    let found = errors_of(&format!(
        "struct M<d = 4, rows = 5>;
        fn forward(x: [batch, seq, d], memory: [batch, kv, d]) -> [batch, seq, d] {{
            param table: [rows, d] = normal(1.0);
            let _table = table;
            let y = scan seq {{ state h: [batch, d] = 0.0; h = {call}; yield h; }};
            y
        }}"
    ));
    found.into_iter().map(|(_, message)| message).collect()
}

#[test]
fn what_reads_the_place_of_a_step_is_a_mistake() {
    let attend = "attend(x + h, memory, memory)";
    let step = "reads `q_idx`, and a step of a `scan` has one query, whose `q_idx` is 0";
    for (call, what) in [
        (
            "attend::<position = alibi>(x + h, memory, memory)",
            "`position = alibi`",
        ),
        (
            "attend::<position = rel_pos_bias>(x + h, memory, memory)",
            "`position = rel_pos_bias`",
        ),
        (
            &*format!("{attend} {{ fn score(score, q_idx) {{ score + dot(q, table[q_idx]) }} }}"),
            "the score",
        ),
        (
            &*format!(
                "{attend} {{ param p: [16, 16] = zeros; fn score(score, q_idx, kv_idx) {{ score + p[q_idx, kv_idx] }} }}"
            ),
            "the score",
        ),
        (
            &*format!("{attend} {{ fn mask(q_idx, kv_idx) {{ kv_idx <= q_idx }} }}"),
            "the mask",
        ),
        (
            &*format!("{attend} {{ fn normalize(score, q_idx) {{ score * q_idx as f32 }} }}"),
            "the normalizer",
        ),
    ] {
        assert_eq!(errors_of_step(call), [format!("{what} {step}")], "{call}");
    }
    assert_eq!(
        errors_of_step("attend::<position = rope>(x + h, memory, memory)"),
        [
            "`position = rope` rotates the query by `q_idx`, and a step of a `scan` has one query, whose `q_idx` is 0"
        ]
    );
    for call in [
        attend.to_owned(),
        format!(
            "{attend} {{ fn score(score, kv_idx) {{ score + dot(q, table[kv_idx % 5]) - dot(k, table[1]) }} }}"
        ),
    ] {
        assert_eq!(errors_of_step(&call), [""; 0], "{call}");
    }
}

fn two_loops(first: &str, second: &str) -> String {
    format!(
        "struct M<d = 8, heads = 2>;
        fn forward(x: [batch, seq, d], m: [batch, kv, d], ids: ids[batch, seq]) -> [batch, seq, d] {{
            let _m = m; let _ids = ids; let mut x = x + attention::<heads>(x); repeat 2 {{ x += {first}; }} x
        }}
        fn again(x: [batch, seq, d], m: [batch, kv, d], ids: ids[batch, seq]) -> [batch, seq, d] {{
            let _m = m; let _ids = ids; let mut x = x; repeat 2, tied = blocks {{ x += {second}; }} x
        }}"
    )
}

#[test]
fn a_tied_attention_is_the_same_in_all_that_is_written() {
    let body = "{ param by: [heads] = ones; fn score(score, h) { by[h] * score } ";
    let normalized =
        |by: &str| format!("attention::<heads>(x) {body} fn normalize(score) {{ {by}(score) }} }}");
    let scaled = |operands: &str| format!("attend({operands}) {body} }}");
    let with = |keys: &str| format!("attention::<heads, {keys}>(x)");
    let context = |keys: &str| format!("attention::<heads, {keys}>(x, context = m)");
    for (first, second, known, found) in [
        (
            normalized("sigmoid"),
            normalized("tanh"),
            "its body",
            "another body",
        ),
        (
            scaled("x, x, x"),
            scaled("x, m, m"),
            "keys of its own sequence",
            "`d_context = 8`",
        ),
        (
            with("position = rel_pos_bias"),
            with("position = rel_pos_bias, bidirectional = false"),
            "no `bidirectional`",
            "`bidirectional = false`",
        ),
        (
            with("grid = [2, 3], mask = neighborhood(3)"),
            with("grid = [3, 2], mask = neighborhood(3)"),
            "`grid = [2, 3]`",
            "`grid = [3, 2]`",
        ),
        (
            context("grid = [2, 3], kv_grid = [2, 3], mask = neighborhood(3)"),
            context("grid = [2, 3], kv_grid = [3, 2], mask = neighborhood(3)"),
            "`kv_grid = [2, 3]`",
            "`kv_grid = [3, 2]`",
        ),
        (
            with("grid = [2, 3], mask = neighborhood(3)"),
            with("grid = [2, 3], mask = neighborhood(3), prefix_tokens = 1"),
            "no `prefix_tokens`",
            "`prefix_tokens = 1`",
        ),
        (
            with("position = rope"),
            "attention::<heads, position = rope>(x, position_ids = ids)".to_owned(),
            "no `position_ids`",
            "`position_ids`",
        ),
    ] {
        let errors = errors_of(&two_loops(&first, &second));
        let layer = if first.starts_with("attend(") {
            "attend"
        } else {
            "attention"
        };
        let expected =
            format!("the layers run a second time, where `{layer}` has {known}, found {found}");
        assert_eq!(errors, [(layer.to_owned(), expected)], "{second}");
        assert_eq!(errors_of(&two_loops(&first, &first)), [], "{first}");
    }
    let claim = with("mask = causal, init = xavier_normal");
    assert_eq!(errors_of(&two_loops(&claim, &with("mask = causal"))), []);
}

/// The layers of the loop.
fn layers_of(source: &str) -> Vec<String> {
    let model = lower(source);
    let fields = model.modules.iter().flat_map(|module| &module.fields);
    let names = fields.map(|field| field.name.clone());
    names
        .filter(|name| name != "blocks" && name != "attention")
        .collect()
}

#[test]
fn an_attend_that_learns_nothing_keeps_its_name() {
    let call = "attend::<name = near>(x, x, x)";
    assert_eq!(layers_of(&two_loops(call, call)), ["near", "near_2"]);
    let other = "attend::<name = far>(x, m, m)";
    assert_eq!(layers_of(&two_loops(call, other)), ["near", "far"]);
}

/// Its score minus a product is no constant.
#[test]
fn a_sink_beside_a_product_is_shared() {
    let call = "attend(tanh(x), x, x) {
        fn score(score) { score - dot(q, rows[0]) }
        fn normalize(score) { sink }
    }";
    let source = two_loops(call, call).replace("x +=", "param rows: [3, d] = ones; x +=");
    assert_eq!(layers_of(&source), ["rows", "attend"]);
}
