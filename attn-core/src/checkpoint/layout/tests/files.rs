//! Maps between a model and a file.

use std::fmt::Debug;

use dfdx::{nn::modules, prelude::*};

use super::{Rule, WeightMap};
use crate::checkpoint::{
    Archive, CheckpointError, Dtype, LoadOptions, TensorType,
    layout::save_mapped,
    save,
    write::{Stored, write},
};

pub(super) type Model = (
    modules::Linear<3, 2, f32, Cpu>,
    modules::LayerNorm1D<2, f32, Cpu>,
);

pub(super) fn model(seed: u64) -> Model {
    let mut model = Model::build(&Cpu::seed_from_u64(seed));
    model.1.epsilon = seed as f64 / 7.0;
    model
}

fn shown<T: Debug>(result: Result<T, CheckpointError>) -> String {
    result.expect_err("it is refused").problem.to_string()
}

#[test]
fn the_identity_map_equals_save_and_load() {
    let folder = tempfile::tempdir().expect("a place for files");
    let plain = folder.path().join("plain");
    let mapped = folder.path().join("mapped");
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
fn other_maps_ignore_the_numbers_beside_tensors() {
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
fn tensors_outside_of_the_prefixes_are_ignored() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    save(&model(1), &path).expect("it is saved");
    // The map applies to the linear layers only: the norms are neither missing nor extra.
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
fn tensors_that_a_rule_matches_are_not_ignored() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    save(&model(1), &path).expect("it is saved");
    let map = WeightMap::new([Rule::new("*", "*")]).ignore("*");
    let mut copy = model(2);
    let archive = Archive::open(&path).expect("it is a file");
    archive
        .load_mapped(&mut copy, &map, LoadOptions::default())
        .expect("it loads");
    assert_eq!(copy.0.weight.array(), model(1).0.weight.array());
}

#[test]
fn nan_is_refused_in_loaded_tensors_only() {
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
fn floats_of_another_type_are_converted_on_request() {
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

/// The file has the linear layer, but not the norm.
fn with_a_new_norm() -> WeightMap {
    WeightMap::new([Rule::new("0.*", "pretrained.*")]).fresh("1.*")
}

#[test]
fn fresh_tensors_keep_their_initial_values_and_are_listed() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    save_mapped(&model(1), &with_a_new_norm(), &path).expect("it is saved");
    let archive = Archive::open(&path).expect("it is a file");
    let names: Vec<_> = archive.tensors().map(|(name, _)| name).collect();
    assert_eq!(names, ["pretrained.bias", "pretrained.weight"]);

    let mut tuned = model(2);
    tuned.1.gamma.copy_from(&[5.0, 6.0]);
    let report = archive
        .load_mapped(&mut tuned, &with_a_new_norm(), LoadOptions::default())
        .expect("it loads");
    assert_eq!(report.loaded, ["0.weight", "0.bias"]);
    assert_eq!(
        report.to_string(),
        "2 tensors loaded\n  as built: 1.gamma, F32 [2]\n  as built: 1.beta, F32 [2]"
    );
    assert_eq!(tuned.0.weight.array(), model(1).0.weight.array());
    assert_eq!(tuned.1.gamma.array(), [5.0, 6.0]);
}

#[test]
fn fresh_tensors_take_precedence_over_rules() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    // The head of the file has three classes, that of the model has two.
    type Pretrained = (
        modules::LayerNorm1D<3, f32, Cpu>,
        modules::Linear<3, 3, f32, Cpu>,
    );
    type Tuned = (
        modules::LayerNorm1D<3, f32, Cpu>,
        modules::Linear<3, 2, f32, Cpu>,
    );
    let map = WeightMap::new([Rule::new("0.*", "norm.*"), Rule::new("1.*", "head.*")]);
    let mut pretrained = Pretrained::build(&Cpu::default());
    pretrained.0.gamma.copy_from(&[4.0, 5.0, 6.0]);
    save_mapped(&pretrained, &map, &path).expect("it is saved");
    let load = |map: &WeightMap| {
        let mut tuned = Tuned::build(&Cpu::default());
        let archive = Archive::open(&path).expect("it is a file");
        let report = archive.load_mapped(&mut tuned, map, LoadOptions::default());
        report.map(|report| (tuned, report))
    };
    assert!(shown(load(&map).map(|_| ())).contains("different: head.weight"));
    let (tuned, report) = load(&map.fresh("1.*")).expect("it loads");
    assert_eq!(tuned.0.gamma.array(), [4.0, 5.0, 6.0]);
    assert_eq!(report.loaded, ["0.gamma", "0.beta"]);
}

#[test]
fn fresh_names_have_the_prefix_of_the_model_and_must_exist() {
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("file");
    let map = WeightMap::new([Rule::new("bias", "b")]);
    save_mapped(
        &model(1),
        &map.clone().fresh("weight").under("0.", ""),
        &path,
    )
    .expect("it is saved");
    let load = |map: WeightMap| {
        let archive = Archive::open(&path).expect("it is a file");
        archive.load_mapped(&mut model(2), &map, LoadOptions::default())
    };
    let report = load(map.clone().fresh("weight").under("0.", "")).expect("it loads");
    assert_eq!(report.loaded, ["0.bias"]);
    assert_eq!(report.fresh.len(), 3, "with those outside of the prefix");
    let misspelt = map.fresh("weihgt").under("0.", "");
    assert_eq!(
        shown(load(misspelt)),
        "the map does not fit the model\
         \n  no tensor of the model is `.fresh(\"0.weihgt\")`\
         \n  no rule gives 0.weight, F32 [2, 3]; `.fresh(\"0.weight\")` leaves it as it was built"
    );
}
