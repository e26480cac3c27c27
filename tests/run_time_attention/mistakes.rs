//! Mistakes that only the running program can see.

use attn::{Error, dfdx::prelude::*};

use super::{Inputs, Untraced, tensor};

/// The message of the error of an attention.
fn message(options: Untraced, change: impl Fn(&mut Inputs)) -> String {
    let mut inputs = Inputs::new([2, 4, 2, 5, 7, 3, 2]);
    change(&mut inputs);
    let Inputs { q, k, v } = inputs;
    let error: Error<_> = options.try_forward(q, k, v).unwrap_err();
    error.to_string()
}

#[test]
fn axes_of_different_sizes_are_named() {
    type Change = fn(&mut Inputs);
    let cases: [(Change, &str); 6] = [
        (
            |x| x.k = tensor("k", (3, 2, 7, 3)),
            "attend: axis `batch` is 2 in `q`, but 3 in `k`",
        ),
        (
            |x| x.v = tensor("v", (1, 2, 7, 2)),
            "attend: axis `batch` is 2 in `q`, but 1 in `v`",
        ),
        (
            |x| x.k = tensor("k", (2, 2, 7, 4)),
            "attend: axis `width` is 3 in `q`, but 4 in `k`",
        ),
        (
            |x| x.v = tensor("v", (2, 2, 6, 2)),
            "attend: axis `key` is 7 in `k`, but 6 in `v`",
        ),
        (
            |x| x.v = tensor("v", (2, 1, 7, 2)),
            "attend: axis `kv_heads` is 2 in `k`, but 1 in `v`",
        ),
        (
            |x| {
                x.k = tensor("k", (2, 3, 7, 3));
                x.v = tensor("v", (2, 3, 7, 2));
            },
            "attend: `heads` has size 4, which is no multiple of 3",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(message(Untraced::new(), change), expected);
    }
}

#[test]
fn data_of_other_sizes_are_named() {
    let dev = Cpu::default();
    let none = |_: &mut Inputs| {};
    let mask: Tensor<_, bool, _> = dev.tensor_from_vec(vec![true; 40], (5, 8));
    assert_eq!(
        message(Untraced::new().mask(&mask), none),
        "attend: axis 3 of `mask` has size 8, but `key` is 7"
    );
    // A mask for each sequence has an axis of size 1 for the heads.
    let mask: Tensor<_, bool, _> = dev.tensor_from_vec(vec![true; 70], (2, 5, 7));
    assert_eq!(
        message(Untraced::new().mask(&mask), none),
        "attend: axis 1 of `mask` has size 2, but `heads` is 4"
    );
    assert_eq!(
        message(Untraced::new().bias(tensor("bias", (3, 5, 7))), none),
        "attend: axis 1 of `bias` has size 3, but `heads` is 4"
    );
    assert_eq!(
        message(Untraced::new().lengths(vec![1, 2, 3]), none),
        "attend: the batch of x is 2, that of valid lengths is 3"
    );
    assert_eq!(
        message(Untraced::new().lengths(vec![1, 9]), none),
        "attend: the valid length at [1] is 9, but there are 7 keys"
    );
}

#[test]
#[should_panic(expected = "1.5 is not a probability")]
fn dropout_is_a_probability() {
    let _ = Untraced::new().dropout(1.5);
}
