//! Properties of maps, on lists of tensors without a model.

mod files;
mod property;
mod shards;

use std::ops::Range;

use super::{
    MapProblem, Plan, Rule, WeightMap,
    pattern::{Pattern, check_pair},
};
use crate::checkpoint::{Dtype, Problem, TensorType, archive::Expected};

fn expected(name: &str, shape: &[usize]) -> Expected {
    Expected {
        name: name.into(),
        described: TensorType {
            dtype: Dtype::F32,
            shape: shape.into(),
        },
        optional: false,
    }
}

fn plan(map: &WeightMap, model: &[(&str, &[usize])]) -> Result<Plan, Vec<MapProblem>> {
    let model: Vec<_> = model
        .iter()
        .map(|(name, shape)| expected(name, shape))
        .collect();
    Plan::new(map, &model).map_err(|problem| match problem {
        Problem::Map(error) => error.problems,
        problem => panic!("{problem}"),
    })
}

/// The messages of a map that does not fit.
fn problems(map: &WeightMap, model: &[(&str, &[usize])]) -> Vec<String> {
    let problems = plan(map, model).expect_err("the map does not fit");
    problems.iter().map(ToString::to_string).collect()
}

/// The offsets in their tensor of the numbers of ours, in our order.
fn taken(plan: &Plan, ours: &str) -> Vec<u8> {
    let place = &plan.ours[ours][0];
    let theirs = plan
        .theirs
        .iter()
        .find(|theirs| theirs.name == place.theirs);
    let count: usize = theirs
        .expect("it is planned")
        .described
        .shape
        .iter()
        .product();
    let numbers: Vec<u8> = (0..count as u8).collect();
    match &place.view {
        None => numbers,
        Some(view) => view.gather(&numbers, 1),
    }
}

/// The shape of their tensor and these offsets, for a map with one rule.
fn of_one(rule: Rule, shape: &[usize]) -> (Vec<usize>, Vec<u8>) {
    let plan = plan(&WeightMap::new([rule]), &[("ours", shape)]).expect("the map fits");
    (plan.theirs[0].described.shape.clone(), taken(&plan, "ours"))
}

fn rule() -> Rule {
    Rule::new("ours", "theirs")
}

#[test]
fn patterns_capture_indices_and_the_rest_of_a_name() {
    let cases: [(&str, &str, &str, Option<&str>); 11] = [
        ("a.weight", "b", "a.weight", Some("b")),
        ("a.weight", "b", "a.weight.c", None),
        ("a.*", "b_*", "a.weight", Some("b_weight")),
        ("*", "under.*", "a.b", Some("under.a.b")),
        ("a.{}.b.{}", "{}x{}", "a.12.b.0", Some("12x0")),
        ("a.{}.*", "b.{}.*", "a.3.c.4", Some("b.3.c.4")),
        ("a.{}", "b.{}", "a.", None),
        ("a.{}", "b.{}", "a.x", None),
        ("a.{}", "b.{}", "a.07", None),
        ("a.{}", "b.{}", "a.1.c", None),
        ("a.{}.c", "b.{}", "a.1.d", None),
    ];
    for (ours, theirs, name, expected) in cases {
        let captured = Pattern::new(ours).captures(name);
        let filled = captured.map(|captured| Pattern::new(theirs).filled(&captured));
        assert_eq!(filled.as_deref(), expected, "{ours} <- {theirs}, {name}");
    }
}

#[test]
fn the_two_names_of_a_rule_must_have_the_same_holes() {
    assert!(check_pair("a.{}.*", "b.{}.c.*").is_ok());
    for (ours, theirs) in [
        ("a.{}", "b"),
        ("a.*", "b"),
        ("a", "b.*"),
        ("a.*.b", "c.*.b"),
    ] {
        let problem = check_pair(ours, theirs).expect_err("holes differ");
        assert_eq!(
            problem.to_string(),
            format!(
                "`{ours}` and `{theirs}` must have the same number of `{{}}`, and a `*` at the end of both or of none"
            )
        );
    }
}

#[test]
fn tensors_of_experts_are_stacked() {
    let map = WeightMap::new([Rule::new("w", "experts.{expert}.w").per_expert(2)]);
    let fits = plan(&map, &[("w", &[2, 1, 3])]).expect("it fits");
    let theirs: Vec<_> = fits.theirs.iter().map(|theirs| &*theirs.name).collect();
    assert_eq!(theirs, ["experts.0.w", "experts.1.w"]);
    assert_eq!(fits.theirs[1].described.shape, [1, 3]);
    let numbers: Vec<u8> = (0..6).collect();
    let parts = fits.ours["w"].iter().map(|source| {
        let part = source.part.as_ref().expect("it is a part");
        part.gather(&numbers, 1)
    });
    assert_eq!(parts.collect::<Vec<_>>(), [[0, 1, 2], [3, 4, 5]]);
    assert_eq!(
        problems(&map, &[("w", &[3, 1, 3])]),
        [
            "w, F32 [3, 1, 3], cannot come from the rule w <- experts.{expert}.w, of 2 experts: its first axis does not count 2 experts"
        ]
    );
}

#[test]
fn parts_in_groups_equal_those_of_torch() {
    // q = torch.arange(..).view(4, 1), k and v of two rows: torch.cat([t.view(2, -1, 1) for t in (q, k, v)], 1).flatten(0, 1)
    let rules = ["q", "k", "v"].map(|name| Rule::new(name, "qkv").stacked_in_groups(2));
    assert_eq!(
        rules[0].to_string(),
        "q <- qkv, the next rows in each of 2 groups"
    );
    let map = WeightMap::new(rules);
    let fits = plan(&map, &[("q", &[4, 1]), ("k", &[2, 1]), ("v", &[2, 1])]).expect("it fits");
    assert_eq!(fits.theirs[0].described.shape, [8, 1]);
    assert_eq!(taken(&fits, "q"), [0, 1, 4, 5]);
    assert_eq!(taken(&fits, "k"), [2, 6]);
    assert_eq!(taken(&fits, "v"), [3, 7]);
    let odd = problems(&map, &[("q", &[4, 1]), ("k", &[3, 1]), ("v", &[2, 1])]);
    assert_eq!(
        odd,
        [
            "k, F32 [3, 1], cannot come from the rule k <- qkv, the next rows in each of 2 groups: its 3 rows are not those of 2 groups"
        ]
    );
}

#[test]
fn operations_of_a_rule_equal_those_of_torch() {
    // torch.arange(6).view(3, 2).T
    assert_eq!(
        of_one(rule().transposed(), &[2, 3]),
        (vec![3, 2], vec![0, 2, 4, 1, 3, 5])
    );
    assert_eq!(of_one(rule().transposed(), &[3]), (vec![3], vec![0, 1, 2]));
    // torch.arange(4).view(1, 4).squeeze(0), and .view(4, 1, 1)[:, 0, 0]
    assert_eq!(
        of_one(rule().squeezed(0), &[4]),
        (vec![1, 4], vec![0, 1, 2, 3])
    );
    assert_eq!(
        of_one(rule().squeezed(1).squeezed(2), &[4]),
        (vec![4, 1, 1], vec![0, 1, 2, 3])
    );
    // torch.arange(6).view(3, 1, 2).squeeze(1).T
    let both = rule().squeezed(1).transposed();
    assert_eq!(
        of_one(both, &[2, 3]),
        (vec![3, 1, 2], vec![0, 2, 4, 1, 3, 5])
    );
    // torch.arange(8).view(2, 2, 2).transpose(1, 2).reshape(8)
    let halves = vec![0, 2, 1, 3, 4, 6, 5, 7];
    assert_eq!(of_one(rule().interleaved(2), &[8]), (vec![8], halves));
    // torch.arange(6).view(1, 3, 2).transpose(1, 2).reshape(6), and back
    assert_eq!(of_one(rule().interleaved(1), &[6]).1, [0, 2, 4, 1, 3, 5]);
    assert_eq!(of_one(rule().halves(1), &[6]).1, [0, 3, 1, 4, 2, 5]);
    // torch.arange(8).view(4, 2).view(1, 2, 2, 2).transpose(1, 2).reshape(4, 2)
    assert_eq!(
        of_one(rule().interleaved(1), &[4, 2]).1,
        [0, 1, 4, 5, 2, 3, 6, 7]
    );
    // torch.arange(12).view(2, 3, 2).mT
    let each = || rule().each_expert();
    assert_eq!(
        of_one(each().transposed(), &[2, 2, 3]),
        (vec![2, 3, 2], vec![0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11])
    );
    // torch.arange(8).view(2, 2, 2).mT.reshape(2, 4)
    assert_eq!(
        of_one(each().interleaved(1), &[2, 4]).1,
        [0, 2, 1, 3, 4, 6, 5, 7]
    );
    // A tensor of one number.
    assert_eq!(of_one(rule().squeezed(0), &[]), (vec![1], vec![0]));
}

#[test]
fn parts_equal_those_of_torch() {
    let model: &[(&str, &[usize])] = &[("k", &[1, 2]), ("q", &[2, 2])];
    let stacked = ["q", "k"].map(|name| Rule::new(name, "qk").stacked());
    let fits = plan(&WeightMap::new(stacked), model).expect("the map fits");
    assert_eq!(fits.theirs[0].described.shape, [3, 2]);
    // The order of the rules decides, not that of the model.
    assert_eq!(
        (taken(&fits, "q"), taken(&fits, "k")),
        (vec![0, 1, 2, 3], vec![4, 5])
    );

    let transposed = ["q", "k"].map(|name| Rule::new(name, "qk").transposed().stacked());
    let fits = plan(&WeightMap::new(transposed), model).expect("the map fits");
    assert_eq!(fits.theirs[0].described.shape, [2, 3]);
    // torch.arange(6).view(2, 3).T[0:2] and [2:3]
    assert_eq!(
        (taken(&fits, "q"), taken(&fits, "k")),
        (vec![0, 3, 1, 4], vec![2, 5])
    );

    let model: &[(&str, &[usize])] = &[("a", &[2, 1]), ("b", &[2, 2])];
    let beside = ["b", "a"].map(|name| Rule::new(name, "ab").side_by_side());
    let ranges = [
        Rule::new("a", "ab").columns(2..3),
        Rule::new("b", "ab").columns(0..2),
    ];
    for rules in [beside, ranges] {
        let fits = plan(&WeightMap::new(rules), model).expect("the map fits");
        assert_eq!(fits.theirs[0].described.shape, [2, 3]);
        assert_eq!(
            (taken(&fits, "a"), taken(&fits, "b")),
            (vec![2, 5], vec![0, 1, 3, 4])
        );
    }
}

#[test]
fn the_more_specific_rule_takes_precedence() {
    let rules = [
        ("*", "x.*"),
        ("a.*", "y.*"),
        ("a.b", "z"),
        ("a.{}.c", "w.{}"),
    ];
    let map = WeightMap::new(rules.map(|(ours, theirs)| Rule::new(ours, theirs)));
    let model: &[(&str, &[usize])] = &[("q", &[1]), ("a.q", &[1]), ("a.b", &[1]), ("a.7.c", &[1])];
    let fits = plan(&map, model).expect("the map fits");
    let theirs: Vec<_> = fits.theirs.iter().map(|theirs| &*theirs.name).collect();
    assert_eq!(theirs, ["x.q", "y.q", "z", "w.7"]);
}

#[test]
fn all_problems_of_a_map_are_listed() {
    let model: &[(&str, &[usize])] = &[("a", &[2, 3]), ("b", &[2]), ("c", &[4])];
    let map = WeightMap::new([
        Rule::new("a", "x"),
        Rule::new("a", "y").transposed(),
        Rule::new("d.{}", "z.{}").rows(0..2),
        Rule::new("e", "e").optional(),
    ]);
    assert_eq!(
        problems(&map, model),
        [
            "two rules give a: a <- x; a <- y, transposed",
            "no rule gives b, F32 [2]; `.fresh(\"b\")` leaves it as it was built",
            "no rule gives c, F32 [4]; `.fresh(\"c\")` leaves it as it was built",
            "no tensor of the model is for the rule a <- y, transposed",
            "no tensor of the model is for the rule d.{} <- z.{}, rows 0..2",
        ]
    );
    let map = WeightMap::new([Rule::new("*", "*")]).under("decoder.", "");
    assert_eq!(
        problems(&map, model)[0],
        "no tensor of the model has a name that begins with `decoder.`"
    );
}

#[test]
fn parts_that_do_not_form_one_tensor_are_errors() {
    let whole = |theirs| ["a", "b"].map(|name| Rule::new(name, theirs));
    let model: &[(&str, &[usize])] = &[("a", &[2, 3]), ("b", &[2, 3])];
    assert_eq!(
        problems(&WeightMap::new(whole("t")), model),
        ["a and b overlap in t"]
    );

    let rows = |a: Range<usize>, b: Range<usize>| {
        WeightMap::new([Rule::new("a", "t").rows(a), Rule::new("b", "t").rows(b)])
    };
    assert!(plan(&rows(2..4, 0..2), model).is_ok());
    assert_eq!(problems(&rows(0..2, 1..3), model), ["a and b overlap in t"]);
    assert_eq!(
        problems(&rows(0..2, 4..6), model),
        ["nothing in the model is 2..4 of axis 0 of t"]
    );
    assert_eq!(
        problems(&rows(1..3, 3..5), model),
        ["nothing in the model is 0..1 of axis 0 of t"]
    );
    assert_eq!(
        problems(&rows(0..2, 2..5), model),
        ["b, F32 [2, 3], cannot come from the rule b <- t, rows 2..5: its axis 0 has the length 2"]
    );
    let backwards = Range { start: 4, end: 2 };
    assert!(problems(&rows(0..2, backwards), model)[0].ends_with("its axis 0 has the length 2"));

    let model: &[(&str, &[usize])] = &[("a", &[2, 3]), ("b", &[2, 4])];
    assert_eq!(
        problems(&rows(0..2, 2..4), model),
        ["a, F32 [2, 3], and b, F32 [2, 4], cannot both be parts of t"]
    );
    let mixed = WeightMap::new([
        Rule::new("a", "t").stacked(),
        Rule::new("b", "t").transposed().stacked(),
    ]);
    let model: &[(&str, &[usize])] = &[("a", &[2, 2]), ("b", &[2, 2])];
    assert_eq!(
        problems(&mixed, model),
        ["a, F32 [2, 2], and b, F32 [2, 2], cannot both be parts of t"]
    );
}

#[test]
fn a_model_with_a_duplicate_name_is_refused() {
    let model = [expected("a", &[1]), expected("a", &[1])];
    let problem = Plan::new(&WeightMap::identity(), &model).expect_err("it has");
    assert_eq!(problem.to_string(), "`a` is there twice");
}

#[test]
fn shapes_that_do_not_fit_a_rule_are_errors() {
    let refused =
        |rule: Rule, shape: &[usize]| problems(&WeightMap::new([rule]), &[("ours", shape)]);
    let cases = [
        (
            rule().interleaved(3),
            &[8][..],
            "in 3 heads: its 8 rows are not pairs of 3 heads",
        ),
        (
            rule().halves(4),
            &[4],
            "in 4 heads: its 4 rows are not pairs of 4 heads",
        ),
        (
            rule().interleaved(0),
            &[4],
            "in 0 heads: its 4 rows are not pairs of 0 heads",
        ),
        (rule().interleaved(usize::MAX), &[4], "heads"),
        (
            rule().halves(1),
            &[],
            "it has no rows that could be those of heads",
        ),
        (rule().columns(0..4), &[4], "it has no axis 1"),
        (
            rule().squeezed(2),
            &[4],
            "theirs cannot be without the axes [2]",
        ),
        (
            rule().squeezed(0).squeezed(0),
            &[4],
            "theirs cannot be without the axes [0, 0]",
        ),
    ];
    for (rule, shape, message) in cases {
        let found = refused(rule, shape);
        assert!(found.len() == 1 && found[0].ends_with(message), "{found:?}");
    }
}

#[test]
fn heads_are_rows_or_columns_of_ours() {
    let rows = Rule::new("q.*", "heads.{head}.query.*").per_head(2);
    let columns = Rule::new("o.weight", "heads.{head}.out")
        .transposed()
        .columns_per_head(2);
    let map = WeightMap::new([rows, columns]);
    let model: [(&str, &[usize]); 3] = [
        ("q.weight", &[4, 3]),
        ("q.bias", &[4]),
        ("o.weight", &[2, 6]),
    ];
    let plan = plan(&map, &model).expect("the map fits");
    let theirs = plan
        .theirs
        .iter()
        .map(|theirs| format!("{} {:?}", theirs.name, theirs.described.shape));
    let theirs: Vec<_> = theirs.collect();
    let names = [
        "heads.0.query.weight [2, 3]",
        "heads.1.query.weight [2, 3]",
        "heads.0.query.bias [2]",
        "heads.1.query.bias [2]",
        "heads.0.out [3, 2]",
        "heads.1.out [3, 2]",
    ];
    assert_eq!(theirs, names);
    let places = |ours: &str, head: usize| {
        let places: Vec<u8> = (0..12).collect();
        plan.ours[ours][head]
            .part
            .as_ref()
            .expect("it is a part")
            .gather(&places, 1)
    };
    assert_eq!(places("q.weight", 1), [6, 7, 8, 9, 10, 11]);
    assert_eq!(places("q.bias", 1), [2, 3]);
    // The columns 3 to 5 of two rows, which theirs has as rows.
    assert_eq!(places("o.weight", 1), [3, 4, 5, 9, 10, 11]);
    let view = plan.ours["o.weight"][1]
        .view
        .as_ref()
        .expect("it is transposed");
    assert_eq!(view.gather(&[0, 1, 2, 3, 4, 5], 1), [0, 2, 4, 1, 3, 5]);
}

/// A head's queries, keys and values may be one tensor, and an index of a layer may stand before that of the head.
#[test]
fn tensors_of_a_head_may_be_stacked_under_a_prefix() {
    let stacked = |name: &str| {
        let ours = format!("attention.{name}.weight");
        Rule::new(ours, "heads.{head}.qkv.weight")
            .stacked()
            .per_head(2)
    };
    let map = WeightMap::new(["q", "k", "v"].map(stacked)).under("blocks.{}.", "layers.{}.");
    let model: [(&str, &[usize]); 3] = [
        ("blocks.3.attention.k.weight", &[4, 1]),
        ("blocks.3.attention.q.weight", &[4, 1]),
        ("blocks.3.attention.v.weight", &[6, 1]),
    ];
    let plan = plan(&map, &model).expect("the map fits");
    assert_eq!(plan.theirs.len(), 2);
    assert_eq!(plan.theirs[1].name, "layers.3.heads.1.qkv.weight");
    assert_eq!(plan.theirs[1].described.shape, [7, 1]);
    let view = plan.ours["blocks.3.attention.v.weight"][1]
        .view
        .as_ref()
        .expect("it is stacked");
    assert_eq!(view.gather(&[0, 1, 2, 3, 4, 5, 6], 1), [4, 5, 6]);
}

#[test]
fn heads_that_do_not_fit_are_refused() {
    let rule = |theirs: &str| Rule::new("q.*", theirs);
    let of =
        |rule: Rule, shape: &[usize]| problems(&WeightMap::new([rule]), &[("q.weight", shape)]);
    assert_eq!(
        of(rule("heads.{head}.query.*").per_head(3), &[4, 3]),
        [
            "q.weight, F32 [4, 3], cannot come from the rule q.* <- heads.{head}.query.*, rows of 3 heads: its 4 rows are not those of 3 heads"
        ]
    );
    assert_eq!(
        of(rule("heads.{head}.out.*").columns_per_head(2), &[4]),
        [
            "q.weight, F32 [4], cannot come from the rule q.* <- heads.{head}.out.*, columns of 2 heads: it has no columns that could be those of heads"
        ]
    );
    assert!(
        of(rule("heads.{head}.query.*").per_head(0), &[4])[0]
            .ends_with("its 4 rows are not those of 0 heads")
    );
    for unclear in [
        rule("heads.{head}.query.*"),
        rule("heads.query.*").per_head(2),
    ] {
        let problem = format!(
            "a rule is `.per_head(..)`, or `.columns_per_head(..)`, where the name in the file has a `{{head}}`, and `.per_expert(..)` where it has an `{{expert}}`: {unclear}"
        );
        assert_eq!(of(unclear, &[4, 3]), [problem]);
    }
}
