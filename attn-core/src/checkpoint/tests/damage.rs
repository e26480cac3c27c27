//! Damaged and invalid files give an error that names the file, and never a panic.

use std::fs;

use proptest::prelude::*;

use super::{CheckpointError, Problem, STRICT, file_in, model, numbers, state};
use crate::checkpoint::{Archive, save, save_optimizer};
use crate::train::AdamWState;

/// The name of the file in errors.
const NAME: &str = "damaged";

fn saved_model() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    save(&model::<f32>(7), file_in(&folder)).unwrap();
    fs::read(file_in(&folder)).unwrap()
}

fn saved_state() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    save_optimizer(&state(7), file_in(&folder)).unwrap();
    fs::read(file_in(&folder)).unwrap()
}

/// Loads a model. It must be equal to the saved model, or unchanged after an error.
fn load_model(bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut loaded = model::<f32>(8);
    let result =
        Archive::from_bytes(NAME, bytes).and_then(|archive| archive.load(&mut loaded, STRICT));
    let seed = if result.is_ok() { 7 } else { 8 };
    assert_eq!(numbers(&loaded), numbers(&model::<f32>(seed)));
    result
}

/// The same for the state of an optimizer.
fn load_state(bytes: &[u8]) -> Result<(), CheckpointError> {
    let archive = Archive::from_bytes(NAME, bytes)?;
    let loaded = archive.load_optimizer(&model::<f32>(8), STRICT)?;
    assert_eq!(loaded, state(7));
    Ok(())
}

type Load = fn(&[u8]) -> Result<(), CheckpointError>;

fn files() -> [(Vec<u8>, Load); 2] {
    [(saved_model(), load_model), (saved_state(), load_state)]
}

/// The offset of the numbers.
fn end_of_header(bytes: &[u8]) -> usize {
    8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize
}

fn header(bytes: &[u8]) -> &str {
    std::str::from_utf8(&bytes[8..end_of_header(bytes)]).unwrap()
}

/// A file with this header and this many zeros.
fn file(header: &str, data: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &vec![0; data]].concat()
}

/// The problem of a file.
#[track_caller]
fn problem(bytes: &[u8]) -> Problem {
    let error = load_model(bytes).unwrap_err();
    assert_eq!(error.path.to_str(), Some(NAME));
    error.problem
}

#[test]
fn a_file_of_any_other_length_is_refused() {
    for (bytes, load) in files() {
        load(&bytes).unwrap();
        for len in 0..bytes.len() {
            let error = load(&bytes[..len]).unwrap_err();
            assert!(error.to_string().starts_with("damaged: "), "{len}: {error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        let error = load(&longer).unwrap_err();
        assert!(matches!(error.problem, Problem::Length { .. }), "{error}");
    }
}

/// Each byte of the header is replaced by each other byte. If the file is still accepted, nothing was lost: the header has another
/// padding byte, or the checksum another key.
#[test]
fn a_damaged_header_is_refused_or_equivalent() {
    for (bytes, load) in files() {
        let end = end_of_header(&bytes);
        let json = header(&bytes);
        let checksum = 8 + json.find("crc32").unwrap();
        let blanks = 8 + json.trim_end().len();
        let mut damaged = bytes.clone();
        for place in 0..end {
            for value in 0..=u8::MAX {
                damaged[place] = value;
                let accepted = load(&damaged).is_ok();
                let harmless = value == bytes[place]
                    || (checksum..checksum + 5).contains(&place)
                    || place >= blanks && value.is_ascii_whitespace();
                assert!(!accepted || harmless, "byte {place} is {value}");
            }
            damaged[place] = bytes[place];
        }
    }
}

#[test]
fn damaged_numbers_are_refused() {
    for (bytes, load) in files() {
        for place in end_of_header(&bytes)..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[place] ^= 1 << bit;
                let error = load(&damaged).unwrap_err();
                let Problem::Checksum { expected, found } = &error.problem else {
                    panic!("{error}");
                };
                assert_ne!(expected, found);
            }
        }
    }
}

/// The `safetensors` crate takes the second.
#[test]
fn a_duplicate_name_is_refused() {
    let bytes = saved_model();
    let entry = "\"0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}";
    let twice = header(&bytes).replacen('{', &format!("{{{entry},"), 1);
    let found = problem(&file(&twice, 96));
    assert!(
        matches!(&found, Problem::Duplicate { name } if name == "0.bias"),
        "{found}"
    );

    let metadata = "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}";
    let found = problem(&file(metadata, 0));
    assert!(
        matches!(&found, Problem::Duplicate { name } if name == "a"),
        "{found}"
    );

    let metadata = "{\"__metadata__\":{},\"__metadata__\":{}}";
    let found = problem(&file(metadata, 0));
    assert!(
        matches!(&found, Problem::Duplicate { name } if name == "__metadata__"),
        "{found}"
    );

    let field = "{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}";
    let found = problem(&file(field, 4)).to_string();
    assert!(
        found.contains("tensor `w`") && found.contains("duplicate field `dtype`"),
        "{found}"
    );
}

/// A header with tensors of bytes, each with these values for its length, its start and its end.
fn lying(tensors: &[(u64, u64, u64)]) -> String {
    let entries = tensors.iter().enumerate().map(|(i, (len, from, to))| {
        format!("\"t{i}\":{{\"dtype\":\"U8\",\"shape\":[{len}],\"data_offsets\":[{from},{to}]}}")
    });
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

#[test]
fn false_offsets_are_refused() {
    let overlapping = problem(&file(&lying(&[(4, 0, 4), (4, 2, 6)]), 8)).to_string();
    assert_eq!(
        overlapping,
        "tensor `t1` is said to be at bytes 2 to 6, but starts at 4"
    );
    let gap = problem(&file(&lying(&[(4, 0, 4), (2, 6, 8)]), 8)).to_string();
    assert_eq!(
        gap,
        "tensor `t1` is said to be at bytes 6 to 8, but starts at 4"
    );
    let backwards = problem(&file(&lying(&[(4, 0, 4), (2, 4, 2)]), 8));
    assert!(
        matches!(backwards, Problem::Offsets { found: [4, 2], .. }),
        "{backwards}"
    );
    let size = problem(&file(&lying(&[(5, 0, 4)]), 4)).to_string();
    assert_eq!(
        size,
        "tensor `t0`, U8 [5], is said to have 4 bytes, but takes 5"
    );
    let end = problem(&file(&lying(&[(1 << 40, 0, 1 << 40)]), 4));
    assert!(matches!(end, Problem::Length { found: 4, .. }), "{end}");
    let huge =
        "{\"w\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}";
    let huge = problem(&file(huge, 8));
    assert!(
        matches!(huge, Problem::Size { expected: None, .. }),
        "{huge}"
    );
    let half = "{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}";
    let half = problem(&file(half, 1));
    assert!(
        matches!(half, Problem::Size { expected: None, .. }),
        "{half}"
    );
}

/// The end of the last tensor plus the length of the header exceeds `usize::MAX`: the `safetensors` crate overflows here.
#[test]
fn offsets_near_the_maximum_are_refused() {
    let eighth = (1 << 61) - 1;
    let tensors: Vec<_> = (0..8)
        .map(|i| (eighth, i * eighth, (i + 1) * eighth))
        .collect();
    let found = problem(&file(&lying(&tensors), 0));
    assert!(matches!(found, Problem::Length { found: 0, .. }), "{found}");
}

#[test]
fn invalid_headers_are_refused() {
    for json in [
        "",
        "{",
        "[]",
        "null",
        "{} x",
        "{\"w\":1}",
        "{\"__metadata__\":{\"step\":7}}",
        "\u{feff}{}",
    ] {
        let found = problem(&file(json, 0));
        assert!(
            matches!(found, Problem::Header { .. } | Problem::Entry { .. }),
            "{json}: {found}"
        );
    }
    let mut not_utf8 = file("{\"w\":1}", 0);
    not_utf8[10] = 0xff;
    assert!(matches!(problem(&not_utf8), Problem::Header { .. }));
    let nested = "{\"w\":".repeat(10_000);
    assert!(matches!(problem(&file(&nested, 0)), Problem::Header { .. }));
    let dtype = "{\"w\":{\"dtype\":\"F128\",\"shape\":[],\"data_offsets\":[0,16]}}";
    let found = problem(&file(dtype, 16)).to_string();
    assert!(
        found.contains("tensor `w`") && found.contains("F128"),
        "{found}"
    );
    let mut long = file("{}", 0);
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(
        problem(&long),
        Problem::HeaderLength {
            found: u64::MAX,
            limit: 2
        }
    ));
}

fn a_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_u64, any::<u64>(), Just(u64::MAX), Just(1 << 61)]
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Archive::from_bytes(NAME, &bytes);
    }

    #[test]
    fn arbitrary_headers_do_no_harm(
        tensors in prop::collection::vec((a_number(), a_number(), a_number()), 0..4),
        data in 0..20_usize,
    ) {
        let bytes = file(&lying(&tensors), data);
        if let Ok(archive) = Archive::from_bytes(NAME, &bytes) {
            // The accepted lengths are those of the file.
            let lens = archive.tensors().map(|(_, tensor)| tensor.shape[0]);
            prop_assert_eq!(lens.sum::<usize>(), data);
        }
    }

    /// Two parts of a file are swapped, or one is duplicated.
    #[test]
    fn rearranged_files_do_no_harm(
        cuts in prop::array::uniform4(any::<prop::sample::Index>()),
        twice in any::<bool>(),
    ) {
        for (bytes, load) in files() {
            let mut cuts = cuts.map(|cut| cut.index(bytes.len()));
            cuts.sort();
            let [a, b, c, d] = cuts;
            let middle = if twice { &bytes[a..b] } else { &bytes[b..c] };
            let damaged = [&bytes[..a], &bytes[c..d], middle, &bytes[a..b], &bytes[d..]].concat();
            if damaged != bytes {
                prop_assert!(load(&damaged).is_err());
            }
        }
    }
}

/// A zip archive up to the name of its first file, and some bytes of this file.
fn zip(name: &str) -> Vec<u8> {
    let mut bytes = b"PK\x03\x04\x14\0\0\0\0\0".to_vec();
    bytes.resize(26, 0);
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(name.as_bytes());
    bytes.extend([7; 40]);
    bytes
}

#[test]
fn files_of_other_formats_are_named() {
    let long = format!("{}.npy", "block.".repeat(50));
    for (bytes, message) in [
        (
            zip("0.weight.npy"),
            "it is an npz archive of NumPy, which dfdx's `model.save` writes, not a safetensors file: ",
        ),
        (zip(&long), "it is an npz archive of NumPy"),
        (
            zip("model/data.pkl"),
            "it is an archive of `torch.save`, not a safetensors file: ",
        ),
        (
            zip("readme.txt"),
            "it is a zip archive, not a safetensors file: ",
        ),
        (
            [&b"GGUF\x03\0\0\0"[..], &[0; 9]].concat(),
            "it is a GGUF file, not a safetensors file: ",
        ),
    ] {
        let found = problem(&bytes).to_string();
        assert!(found.starts_with(message), "{found}");
        // Any prefix of it.
        for end in 8..bytes.len() {
            assert!(Archive::from_bytes(NAME, &bytes[..end]).is_err());
        }
    }
}

/// A socket stands for a device file, which the test would remove if its claim were false.
#[cfg(unix)]
#[test]
fn only_regular_files_are_replaced() {
    use std::os::unix::{fs::FileTypeExt, net::UnixListener};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _socket = UnixListener::bind(&path).unwrap();
    let refused = save_optimizer(&AdamWState::<f32>::default(), &path).unwrap_err();
    assert_eq!(
        refused.problem.to_string(),
        "cannot replace: it is not a regular file"
    );
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    let refused = save_optimizer(&AdamWState::<f32>::default(), folder.path()).unwrap_err();
    assert_eq!(
        refused.problem.to_string(),
        "cannot replace: it is not a regular file"
    );
}
