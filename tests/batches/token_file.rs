//! Files of tokens.

use attn::batches::{DataError, RandomBlocks, TokenFile, TokenWidth, Tokens};
use attn::dfdx::prelude::*;
use std::fs;

fn read(file: &TokenFile, at: usize, count: usize) -> Vec<usize> {
    let mut tokens = vec![0; count];
    file.read(at, &mut tokens).unwrap();
    tokens
}

/// More tokens than are read or written at a time.
#[test]
fn what_is_written_is_read_from_any_place() {
    let folder = tempfile::tempdir().unwrap();
    for (width, greatest) in [(TokenWidth::U16, 65_535), (TokenWidth::U32, 4_294_967_295)] {
        let path = folder.path().join("text.bin");
        let tokens: Vec<usize> = (0..50_000).map(|i| greatest - i % 60_000).collect();
        let count = TokenFile::write(&path, width, tokens.iter().copied()).unwrap();
        assert_eq!(count, 50_000);
        let size = width.bytes();
        assert_eq!(fs::metadata(&path).unwrap().len(), 50_000 * size as u64);
        let file = TokenFile::open(&path, width).unwrap();
        assert_eq!((file.len(), file.width()), (50_000, width));
        assert_eq!(read(&file, 0, 50_000), tokens);
        assert_eq!(read(&file, 49_999, 1), tokens[49_999..]);
        assert_eq!(read(&file, 16_383, 16_386), tokens[16_383..32_769]);
        assert!(read(&file, 50_000, 0).is_empty());
    }
}

/// Files of several reads, which differ in one token, in their length or in their width.
#[test]
fn a_checksum_is_of_all_tokens_and_their_width() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, width, tokens: &[usize]| {
        let path = folder.path().join(name);
        TokenFile::write(&path, width, tokens.iter().copied()).unwrap();
        TokenFile::open(path, width).unwrap().checksum().unwrap()
    };
    let tokens: Vec<usize> = (0..50_000).collect();
    let expected = of("one", TokenWidth::U16, &tokens);
    assert_eq!(of("other", TokenWidth::U16, &tokens), expected);
    for index in [0, 16_383, 16_384, 49_999] {
        let mut other = tokens.clone();
        other[index] ^= 1;
        assert_ne!(of("token", TokenWidth::U16, &other), expected, "{index}");
    }
    assert_ne!(of("len", TokenWidth::U16, &tokens[..49_999]), expected);
    // The same bytes.
    let [halves, words]: [&[usize]; 2] = [&[1, 0, 2, 0], &[1, 2]];
    let [halves, words] = [(TokenWidth::U16, halves), (TokenWidth::U32, words)]
        .map(|(width, tokens)| of("width", width, tokens));
    assert_ne!(halves, words);
}

/// `np.array([1, 258, 65535], dtype=np.uint16).tofile("text.bin")`
#[test]
fn the_bytes_are_those_of_numpy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.bin");
    TokenFile::write(&path, TokenWidth::U16, [1, 258, 65_535]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [1, 0, 2, 1, 255, 255]);
    TokenFile::write(&path, TokenWidth::U32, [1, 65_536 * 3]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [1, 0, 0, 0, 0, 0, 3, 0]);
}

#[test]
fn several_threads_read_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.bin");
    TokenFile::write(&path, TokenWidth::U16, 0..10_000).unwrap();
    let file = &TokenFile::open(&path, TokenWidth::U16).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for at in (thread..9_000).step_by(97) {
                    assert_eq!(read(file, at, 3), [at, at + 1, at + 2]);
                }
            });
        }
    });
}

fn message(result: Result<TokenFile, DataError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn files_that_are_no_tokens_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.bin");
    let shown = path.display();
    let open = |width| TokenFile::open(&path, width);
    let absent = message(open(TokenWidth::U16));
    assert!(
        absent.starts_with(&format!("cannot open {shown}: ")),
        "{absent}"
    );
    let of_folder = message(TokenFile::open(folder.path(), TokenWidth::U16));
    assert!(
        of_folder.ends_with(": it is not a regular file"),
        "{of_folder}"
    );
    fs::write(&path, []).unwrap();
    assert_eq!(message(open(TokenWidth::U16)), format!("{shown} is empty"));
    fs::write(&path, [1, 2, 3, 4, 5]).unwrap();
    for (width, size) in [(TokenWidth::U16, 2), (TokenWidth::U32, 4)] {
        let expected = format!("{shown} has 5 bytes, which are no whole tokens of {size} bytes");
        assert_eq!(message(open(width)), expected);
    }
    fs::write(&path, [1, 0, 2, 0, 3, 0]).unwrap();
    let file = open(TokenWidth::U16).unwrap();
    let refused = RandomBlocks::new(&file, (2, 3), 0, &Cpu::default());
    let expected = format!("{shown} has 3 tokens, too few for a block of 3 and the token after it");
    assert_eq!(refused.err().map(|error| error.to_string()), Some(expected));
    assert!(RandomBlocks::new(&file, (2, 2), 0, &Cpu::default()).is_ok());
}

#[test]
fn a_token_that_does_not_fit_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.bin");
    TokenFile::write(&path, TokenWidth::U16, [7]).unwrap();
    let error = TokenFile::write(&path, TokenWidth::U16, [1, 65_535, 65_536]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "token 2 is 65536, but {} has numbers of 2 bytes, up to 65535",
            path.display()
        )
    );
    assert_eq!(fs::read(&path).unwrap(), [7, 0]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A file that became shorter after it was opened.
#[test]
fn a_batch_of_a_damaged_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.bin");
    TokenFile::write(&path, TokenWidth::U16, 0..100).unwrap();
    let file = TokenFile::open(&path, TokenWidth::U16).unwrap();
    fs::write(&path, [1, 0]).unwrap();
    let batch = RandomBlocks::new(&file, (2, 8), 0, &Cpu::default())
        .unwrap()
        .next();
    let error = batch.unwrap().unwrap_err().to_string();
    assert!(error.starts_with("cannot read "), "{error}");
}
