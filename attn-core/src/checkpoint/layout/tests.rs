//! What maps promise, on tensors without a model around them.

use std::{fmt::Debug, ops::Range};

use dfdx::{nn::modules, prelude::*};
use proptest::prelude::{
    ProptestConfig, Strategy, any, prop, prop_assert, prop_assert_eq, proptest,
};

use super::{
    MapProblem, Plan, Rule, WeightMap,
    pattern::{Pattern, check_pair},
    save_mapped,
};
use crate::checkpoint::{
    Archive, CheckpointError, Dtype, LoadOptions, Problem, TensorType,
    archive::Expected,
    save,
    write::{Stored, write},
};

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

/// The numbers 0, 1, .. of their tensor, in the order of ours.
fn taken(plan: &Plan, ours: &str) -> Vec<u8> {
    let place = &plan.ours[ours];
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

/// Those numbers where the rule is the only one.
fn of_one(rule: Rule, shape: &[usize]) -> (Vec<usize>, Vec<u8>) {
    let plan = plan(&WeightMap::new([rule]), &[("ours", shape)]).expect("the map fits");
    (plan.theirs[0].described.shape.clone(), taken(&plan, "ours"))
}

fn rule() -> Rule {
    Rule::new("ours", "theirs")
}

#[test]
fn patterns_take_indices_and_rests_of_names() {
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
fn what_one_name_captures_must_fill_the_other() {
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
fn each_thing_that_a_rule_does_is_that_of_torch() {
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
    // A tensor of one number.
    assert_eq!(of_one(rule().squeezed(0), &[]), (vec![1], vec![0]));
}

#[test]
fn parts_are_those_of_torch() {
    let model: &[(&str, &[usize])] = &[("k", &[1, 2]), ("q", &[2, 2])];
    let stacked = ["q", "k"].map(|name| Rule::new(name, "qk").stacked());
    let fits = plan(&WeightMap::new(stacked), model).expect("the map fits");
    assert_eq!(fits.theirs[0].described.shape, [3, 2]);
    // The rules, not the model, say which is first.
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
fn the_rule_that_says_more_decides() {
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
fn everything_in_which_a_map_does_not_fit_is_told() {
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
            "no rule gives b, F32 [2]",
            "no rule gives c, F32 [4]",
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
fn parts_that_are_not_those_of_one_tensor_are_told() {
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
fn a_model_that_has_a_name_twice_is_refused() {
    let model = [expected("a", &[1]), expected("a", &[1])];
    let problem = Plan::new(&WeightMap::identity(), &model).expect_err("it has");
    assert_eq!(problem.to_string(), "`a` is there twice");
}

#[test]
fn shapes_that_a_rule_cannot_have_are_told() {
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

/// How one of our tensors comes from theirs.
fn random_rules() -> impl Strategy<Value = (Vec<Rule>, Vec<Vec<usize>>)> {
    let parts = prop::collection::vec(1..4_usize, 1..4);
    let flags = any::<[bool; 3]>();
    let shape = prop::collection::vec(1..4_usize, 0..3);
    let heads = prop::option::of((1..3_usize, any::<bool>()));
    (parts, flags, shape, heads, 0..4_usize).prop_map(
        |(parts, [transposed, backwards, columns], rest, heads, squeezed)| {
            let columns = columns && !rest.is_empty();
            let mut rules = Vec::new();
            let mut shapes = Vec::new();
            let mut end = 0;
            for (index, len) in parts.into_iter().enumerate() {
                let mut rule = Rule::new(format!("part.{index}"), "theirs");
                let mut shape = rest.clone();
                shape.insert(usize::from(columns), len);
                if let Some((heads, interleaved)) = heads {
                    shape[0] *= 2 * heads;
                    rule = if interleaved {
                        rule.interleaved(heads)
                    } else {
                        rule.halves(heads)
                    };
                }
                if transposed {
                    rule = rule.transposed();
                }
                if squeezed <= shape.len() {
                    rule = rule.squeezed(squeezed);
                }
                let len = shape[usize::from(columns)];
                let range = end..end + len;
                end += len;
                rules.push(if columns {
                    rule.columns(range)
                } else {
                    rule.rows(range)
                });
                shapes.push(shape);
            }
            if backwards {
                rules.reverse();
            }
            (rules, shapes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What is exported is imported again, no number of theirs is left over, and none is written twice.
    #[test]
    fn import_undoes_export((rules, shapes) in random_rules()) {
        let names: Vec<String> = (0..shapes.len()).map(|index| format!("part.{index}")).collect();
        let model: Vec<_> = names.iter().zip(&shapes).map(|(name, shape)| expected(name, shape)).collect();
        let plan = Plan::new(&WeightMap::new(rules), &model).expect("the map fits");
        let theirs = &plan.theirs[0].described;
        let count: usize = theirs.shape.iter().product();
        let mut file = vec![0; 4 * count];
        let mut written = 0_u32;
        let mut ours = Vec::new();
        for (name, shape) in names.iter().zip(&shapes) {
            let numbers = written..written + shape.iter().product::<usize>() as u32;
            written = numbers.end;
            let bytes: Vec<u8> = numbers.flat_map(|number| (number + 1).to_le_bytes()).collect();
            plan.ours[name].view.as_ref().expect("it is a part").scatter(&bytes, &mut file, 4);
            ours.push(bytes);
        }
        prop_assert_eq!(written as usize, count);
        let mut sorted: Vec<u32> = file.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four"))).collect();
        sorted.sort();
        prop_assert_eq!(sorted, (1..=written).collect::<Vec<_>>());
        for (name, bytes) in names.iter().zip(ours) {
            let found = plan.ours[name].view.as_ref().expect("it is a part").gather(&file, 4);
            prop_assert_eq!(found, bytes);
        }
    }

    /// One order of the rows of heads undoes the other.
    #[test]
    fn halves_undo_interleaving(heads in 1..5_usize, half in 1..6_usize) {
        let rows = heads * 2 * half;
        let (_, there) = of_one(rule().interleaved(heads), &[rows]);
        let (_, back) = of_one(rule().halves(heads), &[rows]);
        let both: Vec<u8> = back.iter().map(|&i| there[usize::from(i)]).collect();
        prop_assert_eq!(both, (0..rows as u8).collect::<Vec<_>>());
    }

    /// Whatever a user writes into a map, there is a plan or an error.
    #[test]
    fn no_map_is_a_panic(
        names in prop::collection::vec(("[ab.{}*1]{0,6}", "[ab.{}*1]{0,6}"), 0..4),
        shapes in prop::collection::vec(prop::collection::vec(0..3_usize, 0..3), 3),
        numbers in any::<[usize; 3]>(),
        flags in any::<[bool; 4]>(),
    ) {
        let rules = names.iter().map(|(ours, theirs)| {
            let mut rule = Rule::new(ours, theirs);
            if flags[0] { rule = rule.interleaved(numbers[0]); }
            if flags[1] { rule = rule.rows(numbers[1]..numbers[2]); }
            if flags[2] { rule = rule.squeezed(numbers[2] % 4).transposed(); }
            if flags[3] { rule = rule.side_by_side(); }
            rule
        });
        let map = WeightMap::new(rules.collect::<Vec<_>>()).tied("a{}", "b{}").under("a", "b");
        let model: Vec<_> = ["a1", "ab", "a.b.1"].iter().zip(&shapes).map(|(name, shape)| expected(name, shape)).collect();
        if let Err(problem) = Plan::new(&map, &model) {
            prop_assert!(!problem.to_string().is_empty());
        }
    }
}

type Model = (
    modules::Linear<3, 2, f32, Cpu>,
    modules::LayerNorm1D<2, f32, Cpu>,
);

fn model(seed: u64) -> Model {
    let mut model = Model::build(&Cpu::seed_from_u64(seed));
    model.1.epsilon = seed as f64 / 7.0;
    model
}

fn shown<T: Debug>(result: Result<T, CheckpointError>) -> String {
    result.expect_err("it is refused").problem.to_string()
}

#[test]
fn the_identity_is_what_save_and_load_do() {
    let folder = tempfile::tempdir().expect("a place for files");
    let (plain, mapped) = (folder.path().join("plain"), folder.path().join("mapped"));
    save(&model(1), &plain).expect("it is saved");
    save_mapped(&model(1), &WeightMap::identity(), &mapped).expect("it is saved");
    let read = |path| std::fs::read(path).expect("it is there");
    assert_eq!(read(&plain), read(&mapped));
    let mut copy = model(2);
    let archive = Archive::open(&plain).expect("it is a file");
    archive
        .load_mapped(&mut copy, &WeightMap::identity(), LoadOptions::default())
        .expect("it loads");
    assert_eq!(copy.0.weight.array(), model(1).0.weight.array());
    assert_eq!(copy.1.epsilon, 1.0 / 7.0);
}

#[test]
fn other_maps_leave_the_numbers_beside_tensors_alone() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    let map = WeightMap::new([Rule::new("*", "model.*")]);
    save_mapped(&model(1), &map, &path).expect("it is saved");
    let archive = Archive::open(&path).expect("it is a file");
    let names: Vec<_> = archive.tensors().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "model.0.bias",
            "model.0.weight",
            "model.1.beta",
            "model.1.gamma"
        ]
    );
    let mut copy = model(2);
    archive
        .load_mapped(&mut copy, &map, LoadOptions::default())
        .expect("it loads");
    assert_eq!(copy.1.epsilon, 2.0 / 7.0);
}

#[test]
fn what_is_outside_of_the_prefixes_stays_and_does_not_count() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    save(&model(1), &path).expect("it is saved");
    // The linear layer of the file, into that of the model; the norms are neither missing nor extra.
    let map = WeightMap::new([Rule::new("*", "*")]).under("0.", "0.");
    let mut copy = model(2);
    let archive = Archive::open(&path).expect("it is a file");
    archive
        .load_mapped(&mut copy, &map, LoadOptions::default())
        .expect("it loads");
    assert_eq!(copy.0.weight.array(), model(1).0.weight.array());
    assert_eq!(copy.1.epsilon, 2.0 / 7.0);
    save_mapped(&copy, &map, &path).expect("it is saved");
    let archive = Archive::open(&path).expect("it is a file");
    let names: Vec<_> = archive.tensors().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.bias", "0.weight"]);
}

#[test]
fn nan_counts_in_what_is_loaded_only() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    let mut bad = model(1);
    bad.1.gamma.copy_from(&[f32::NAN, 1.0]);
    save(&bad, &path).expect("it is saved");
    let load = |map: &WeightMap| {
        let archive = Archive::open(&path).expect("it is a file");
        archive.load_mapped(&mut model(2), map, LoadOptions::default())
    };
    let map = WeightMap::new([Rule::new("*", "*")]);
    assert!(load(&map.clone().under("0.", "0.")).is_ok());
    assert_eq!(
        shown(load(&map.ignore("epsilon").under("1.", "1."))),
        "NaN among the numbers of 1.gamma (1 of them)"
    );
}

#[test]
fn floats_of_another_type_are_converted_if_that_is_asked_for() {
    let numbers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(half::f16::from_f32);
    let stored = |name: &str, shape: &[usize], count: usize| Stored {
        name: name.into(),
        described: TensorType {
            dtype: Dtype::F16,
            shape: shape.into(),
        },
        bytes: numbers[..count]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect(),
    };
    let mut file = Vec::new();
    let tensors = [stored("w", &[3, 2], 6), stored("b", &[2], 2)];
    write(&mut file, Default::default(), &tensors).expect("a vector takes all");
    let map = WeightMap::new([
        Rule::new("weight", "w").transposed(),
        Rule::new("bias", "b"),
    ]);
    let mut layer = modules::Linear::<3, 2, f32, Cpu>::build(&Cpu::default());
    let archive = || Archive::from_bytes("file", &file).expect("it is a file");
    let strict = archive().load_mapped(&mut layer, &map, LoadOptions::default());
    assert_eq!(
        shown(strict),
        "its tensors are not those of the model\
         \n  different: w, F16 [3, 2] instead of F32 [3, 2], for weight F32 [2, 3]\
         \n  different: b, F16 [2] instead of F32 [2], for bias F32 [2]"
    );
    let options = LoadOptions {
        convert: true,
        ..LoadOptions::default()
    };
    archive()
        .load_mapped(&mut layer, &map, options)
        .expect("it loads");
    assert_eq!(layer.weight.array(), [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]);
}

#[test]
fn metadata_of_a_map_are_written() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    let map = WeightMap::identity().metadata("format", "pt");
    save_mapped(&model(1), &map, &path).expect("it is saved");
    let archive = Archive::open(&path).expect("it is a file");
    assert_eq!(archive.metadata()["format"], "pt");
}
