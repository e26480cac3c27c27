//! The parts of a checkpoint.

use serde::{Deserialize, Serialize};

use super::{Checkpoints, Contents, Problem};

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct State {
    seed: u64,
    loss: f64,
}

#[test]
fn json_floats_are_restored_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    // An inexact parser reads the decimals of the last number as an adjacent float.
    for loss in [
        0.1 + 0.2,
        1.0 / 3.0,
        5e-324,
        f64::MAX,
        0.361_412_896_510_107_16,
    ] {
        let state = State {
            seed: u64::MAX,
            loss,
        };
        let contents = Contents::new().json("state.json", &state);
        let checkpoint = checkpoints.save(1, &contents, None).unwrap();
        assert_eq!(checkpoint.json::<State>("state.json").unwrap(), state);
    }
}

#[test]
fn json_of_another_type_is_an_error_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let contents = Contents::new().json("state.json", "text");
    let checkpoint = checkpoints.save(1, &contents, None).unwrap();
    let error = checkpoint.json::<u64>("state.json").unwrap_err();
    assert_eq!(error.path, checkpoint.folder().join("state.json"));
    assert!(matches!(error.problem, Problem::Json { .. }), "{error}");
    let error = checkpoint.json::<u64>("config.json").unwrap_err();
    assert_eq!(error.path, checkpoint.folder().join("config.json"));
}

#[test]
fn file_names_are_valid_and_unique() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    for name in ["", ".", "..", "a/b", "/a", "a/"] {
        let contents = Contents::new().json(name, &1);
        let error = checkpoints.save(1, &contents, None).unwrap_err();
        assert!(
            matches!(&error.problem, Problem::FileName { name: n } if n == name),
            "{error}"
        );
    }
    let contents = Contents::new().json("a", &1).json("b", &1).json("a", &2);
    let error = checkpoints.save(1, &contents, None).unwrap_err();
    assert!(
        matches!(&error.problem, Problem::Duplicate { name } if name == "a"),
        "{error}"
    );
    assert!(checkpoints.latest().unwrap().is_none());
}
