//! The parts of a checkpoint.

use serde::{Deserialize, Serialize};

use super::{Checkpoints, Contents, Problem};

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct State {
    seed: u64,
    loss: f64,
}

#[test]
fn json_comes_back_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    // A quick reader takes the decimals of the last for the float beside it.
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
fn json_that_is_something_else_is_named() {
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
fn names_of_files_are_names_and_are_there_once() {
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
