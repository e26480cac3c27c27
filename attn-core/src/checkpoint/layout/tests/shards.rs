//! Weights in several files with an index.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dfdx::prelude::*;

use super::files::{Model, model};
use crate::{
    checkpoint::{
        Archive, CheckpointError, LoadOptions, Problem,
        layout::{Rule, WeightMap, save_mapped, save_mapped_in_shards},
    },
    disk::faults::{self, Fault},
};

fn map() -> WeightMap {
    WeightMap::new([Rule::new("*", "layers.*")])
}

/// A model in a folder: its tensors have 24, 8, 8 and 8 bytes.
fn saved(most: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a place for files");
    save_mapped_in_shards(&model(1), &map(), folder.path(), most).expect("it is saved");
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("a folder");
    let names = files.map(|file| file.expect("a file").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("text"))
        .collect();
    names.sort();
    names
}

fn load(path: impl AsRef<Path>) -> Result<Model, CheckpointError> {
    let mut copy = model(2);
    Archive::open(path)?.load_mapped(&mut copy, &map(), LoadOptions::default())?;
    Ok(copy)
}

fn assert_same(found: &Model, expected: &Model) {
    assert_eq!(found.0.weight.array(), expected.0.weight.array());
    assert_eq!(found.0.bias.array(), expected.0.bias.array());
    assert_eq!(found.1.gamma.array(), expected.1.gamma.array());
    assert_eq!(found.1.beta.array(), expected.1.beta.array());
}

fn refused(path: impl AsRef<Path>) -> (PathBuf, String) {
    let error = load(path).expect_err("it is refused");
    (error.path, error.problem.to_string())
}

#[test]
fn a_model_is_in_as_many_files_as_it_needs() {
    for (most, count) in [(u64::MAX, 1), (48, 1), (47, 2), (31, 2), (23, 3), (0, 4)] {
        let folder = saved(most);
        let expected = match count {
            1 => vec!["model.safetensors".to_owned()],
            _ => {
                let files =
                    (1..=count).map(|at| format!("model-{at:05}-of-{count:05}.safetensors"));
                files
                    .chain(["model.safetensors.index.json".into()])
                    .collect()
            }
        };
        assert_eq!(names(folder.path()), expected, "{most}");
        assert_same(&load(folder.path()).expect("it loads"), &model(1));
        let [file] = [expected.last().expect("a file")];
        assert_same(
            &load(folder.path().join(file)).expect("it loads"),
            &model(1),
        );
    }
}

#[test]
fn the_index_is_as_other_libraries_have_it() {
    let folder = saved(31);
    let text = fs::read(folder.path().join("model.safetensors.index.json")).expect("it is there");
    let index: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let [first, second] = [1, 2].map(|at| format!("model-0000{at}-of-00002.safetensors"));
    let expected = serde_json::json!({
        "metadata": { "total_size": 48 },
        "weight_map": {
            "layers.0.weight": first,
            "layers.0.bias": second,
            "layers.1.gamma": second,
            "layers.1.beta": second,
        },
    });
    assert_eq!(index, expected);
}

#[test]
fn all_tensors_of_an_index_are_listed() {
    let folder = saved(0);
    let archive = Archive::open(folder.path()).expect("files");
    let found: Vec<_> = archive
        .tensors()
        .map(|(name, tensor)| format!("{name}: {tensor}"))
        .collect();
    assert_eq!(
        found,
        [
            "layers.0.bias: F32 [2]",
            "layers.0.weight: F32 [2, 3]",
            "layers.1.beta: F32 [2]",
            "layers.1.gamma: F32 [2]"
        ]
    );
}

#[test]
fn all_files_that_are_missing_are_listed() {
    let folder = saved(0);
    for at in [2, 4] {
        let name = format!("model-0000{at}-of-00004.safetensors");
        fs::remove_file(folder.path().join(name)).expect("it is removed");
    }
    let (path, problem) = refused(folder.path());
    assert_eq!(path, folder.path().join("model.safetensors.index.json"));
    assert_eq!(
        problem,
        "2 of its 4 files are not there: model-00002-of-00004.safetensors, model-00004-of-00004.safetensors"
    );
}

#[test]
fn files_that_are_exchanged_are_refused() {
    let folder = saved(31);
    let [first, second] = [1, 2].map(|at| {
        folder
            .path()
            .join(format!("model-0000{at}-of-00002.safetensors"))
    });
    let other = folder.path().join("other");
    for (from, to) in [(&first, &other), (&second, &first), (&other, &second)] {
        fs::rename(from, to).expect("it is renamed");
    }
    let (_, problem) = refused(folder.path());
    assert!(
        problem.starts_with("its files have other tensors than it says: "),
        "{problem}"
    );
    assert!(
        problem.contains("layers.0.weight is in model-00002-of-00002.safetensors"),
        "{problem}"
    );
}

#[test]
fn a_tensor_of_no_file_is_named() {
    let folder = saved(31);
    save_mapped(
        &model(1).0,
        &WeightMap::new([Rule::new("*", "layers.0.*")]),
        folder.path().join("model-00001-of-00002.safetensors"),
    )
    .expect("it is saved");
    let (_, problem) = refused(folder.path());
    assert_eq!(
        problem,
        "its files have other tensors than it says: layers.0.bias is in model-00001-of-00002.safetensors"
    );
    let index = folder.path().join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).expect("it is there");
    fs::write(&index, text.replace("layers.1.beta", "layers.1.delta")).expect("it is written");
    let (_, problem) = refused(folder.path());
    assert!(
        problem.contains("layers.1.delta is not in model-00002-of-00002.safetensors"),
        "{problem}"
    );
    assert!(
        problem.contains("layers.1.beta is in model-00002-of-00002.safetensors"),
        "{problem}"
    );
}

#[test]
fn a_damaged_file_is_named_and_no_weight_has_changed() {
    let folder = saved(31);
    let path = folder.path().join("model-00002-of-00002.safetensors");
    let mut bytes = fs::read(&path).expect("it is there");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&path, bytes).expect("it is written");
    let mut copy = model(2);
    let archive = Archive::open(folder.path()).expect("headers are valid");
    let error = archive
        .load_mapped(&mut copy, &map(), LoadOptions::default())
        .expect_err("it is refused");
    assert_eq!(error.path, path);
    assert!(matches!(error.problem, Problem::Checksum { .. }), "{error}");
    assert_same(&copy, &model(2));
}

#[test]
fn an_index_that_is_none_is_refused() {
    let folder = saved(31);
    let index = folder.path().join("model.safetensors.index.json");
    for (text, expected) in [
        ("{", "it is not an index of safetensors files: EOF"),
        (
            "{}",
            "it is not an index of safetensors files: missing field `weight_map`",
        ),
        (
            r#"{"weight_map": {"a": "../model-00001-of-00002.safetensors"}}"#,
            r#""../model-00001-of-00002.safetensors" is not the name of a file"#,
        ),
        (
            r#"{"weight_map": {"a": ""}}"#,
            r#""" is not the name of a file"#,
        ),
        (
            r#"{"weight_map": {}}"#,
            "its tensors are not those of the model",
        ),
    ] {
        fs::write(&index, text).expect("it is written");
        let (path, problem) = refused(&index);
        assert_eq!(path, index);
        assert!(problem.starts_with(expected), "{text}: {problem}");
    }
}

#[test]
fn one_file_and_an_index_are_never_together() {
    for (first, then, there) in [
        (31, 48, "model.safetensors.index.json"),
        (48, 31, "model.safetensors"),
    ] {
        let folder = saved(first);
        let before = names(folder.path());
        let error = save_mapped_in_shards(&model(3), &map(), folder.path(), then)
            .expect_err("it is refused");
        assert_eq!(error.path, folder.path().join(there));
        assert!(matches!(error.problem, Problem::OtherWeights), "{error}");
        assert_eq!(names(folder.path()), before);
        assert_same(&load(folder.path()).expect("it loads"), &model(1));
    }
}

#[test]
fn a_save_that_ends_early_leaves_no_mixture() {
    let mut lost = 0;
    for count in 0.. {
        let folder = saved(31);
        faults::after(count, Fault::Full);
        let written = save_mapped_in_shards(&model(3), &map(), folder.path(), 31);
        faults::none();
        match (written, load(folder.path())) {
            (Err(_), Ok(found)) if found.0.weight.array() == model(1).0.weight.array() => {
                assert_same(&found, &model(1))
            }
            (Err(_), Ok(found)) => assert_same(&found, &model(3)),
            (Err(_), Err(error)) => {
                lost += 1;
                assert!(
                    matches!(error.problem, Problem::Io { action: "open", .. }),
                    "{error}"
                );
            }
            (Ok(()), found) => {
                assert_same(&found.expect("it loads"), &model(3));
                break;
            }
        }
    }
    assert!(lost > 4, "{lost}");
}
