//! Mistakes that only the running program can find are typed errors, before anything is computed.

use super::*;
use attn::{Error, model};

model! {
    struct Pair<vocab = 7, d = 4>;

    fn forward(a: ids[batch, seq], b: ids[batch, seq], lens: lens[batch]) -> [batch, d] {
        let x = embedding::<vocab, d>(a) + learned_position::<6, d>(b);
        mean_pool(x + embedding::<vocab, d>(b), lens)
    }
}

fn message(
    a: Tensor<(usize, usize), usize, Cpu>,
    b: Tensor<(usize, usize), usize, Cpu>,
    l: Tensor<(usize,), usize, Cpu>,
) -> String {
    let model = Cpu::default().build_module::<Pair, f32>();
    let error: Error<_> = model.try_forward((a, b, l)).expect_err("a mistake");
    error.to_string()
}

#[test]
fn axes_of_one_name_have_one_size() {
    assert_eq!(
        message(ids((2, 5), 7), ids((2, 4), 7), lens([1, 2])),
        "Pair: axis `seq` is 5 in `a`, but 4 in `b`"
    );
    assert_eq!(
        message(ids((2, 5), 7), ids((2, 5), 7), lens([1, 2, 3])),
        "Pair: axis `batch` is 2 in `a`, but 3 in `lens`"
    );
}

#[test]
fn marks_are_of_the_sequence() {
    model! {
        struct Marked<d = 4>;

        fn forward(x: [batch, seq, d], keep: bool[batch, seq]) -> [batch, d] {
            mean_pool(attention::<2, mask = padding>(x, padding = keep), keep)
        }
    }
    let model = Cpu::default().build_module::<Marked, f32>();
    let x: Tensor<_, f32, _> = tensor("x", (2, 5, Const::<4>));
    for (shape, message) in [
        ((2, 6), "Marked: axis `seq` is 5 in `x`, but 6 in `keep`"),
        ((3, 5), "Marked: axis `batch` is 2 in `x`, but 3 in `keep`"),
    ] {
        for error in [
            model
                .try_forward((x.clone(), marks(shape)))
                .expect_err("a mistake"),
            model
                .composed()
                .try_forward((x.clone(), marks(shape)))
                .expect_err("a mistake"),
        ] {
            assert_eq!(error.to_string(), message);
        }
    }
}

#[test]
fn ids_are_in_the_vocabulary() {
    let message = message(ids((2, 5), 9), ids((2, 5), 7), lens([1, 2]));
    assert!(message.contains("there are 7"), "{message}");
}

#[test]
fn lengths_are_within_the_sequence() {
    let message = message(ids((2, 5), 7), ids((2, 5), 7), lens([1, 6]));
    assert!(message.contains("6") && message.contains("5"), "{message}");
}

#[test]
fn sequences_are_no_longer_than_positions() {
    let message = message(ids((2, 8), 7), ids((2, 8), 7), lens([1, 2]));
    assert!(message.contains("8") && message.contains("6"), "{message}");
}

model! {
    struct Patches<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { x + learned_position::<4, d>(x) }
}

/// The length is neither the width nor the batch.
#[test]
fn sequences_of_floats_are_no_longer_than_positions() {
    let dev = Cpu::default();
    let model = dev.build_module::<Patches, f32>();
    let x = |seq| dev.sample_normal_like(&(6, seq, Const::<8>)) as Tensor<_, f32, _>;
    assert!(model.try_forward(x(4)).is_ok());
    let message = match model.try_forward(x(5)) {
        Ok(_) => panic!("five tokens have four positions"),
        Err(error) => error.to_string(),
    };
    assert!(message.contains("5") && message.contains("4"), "{message}");
}
