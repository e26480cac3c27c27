//! The location and the message of a layer's panic.

use super::{Cross, batched, unbatched};
use attn::nn::LearnedPosition;
use dfdx::prelude::*;
use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

/// The location of a panic, and its message.
#[derive(Debug)]
pub(super) struct Panic {
    file: String,
    line: u32,
    pub(super) message: String,
}

thread_local! {
    /// The panics that the hook records while this thread expects one.
    static EXPECTED: RefCell<Option<Vec<Panic>>> = const { RefCell::new(None) };
}

/// The panic of `call`, without output on stderr.
#[track_caller]
pub(super) fn panic_of<R>(call: impl FnOnce() -> R) -> Panic {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            let is_expected =
                EXPECTED.with_borrow_mut(|expected| match (expected, info.location()) {
                    (Some(panics), Some(location)) => {
                        panics.push(Panic {
                            file: location.file().to_owned(),
                            line: location.line(),
                            message: info.payload_as_str().unwrap_or_default().to_owned(),
                        });
                        true
                    }
                    _ => false,
                });
            if !is_expected {
                previous(info);
            }
        }));
    });
    EXPECTED.set(Some(Vec::new()));
    let result = catch_unwind(AssertUnwindSafe(call));
    let mut panics = EXPECTED.take().unwrap_or_default();
    assert!(
        result.is_err() && panics.len() == 1,
        "one panic: {panics:?}"
    );
    panics.remove(0)
}

#[test]
fn a_panic_happens_where_the_layer_is_called() {
    let mut layer = Cpu::default().build_module::<Cross, f32>();
    let positions = Cpu::default().build_module::<LearnedPosition<5, 8>, f32>();
    let input = || (batched(2, 3), batched(3, 4));
    let here = line!();
    let panics = [
        panic_of(|| layer.forward(input())),
        panic_of(|| layer.forward_mut(input())),
        panic_of(|| layer.forward_with_weights(input())),
        panic_of(|| positions.forward(unbatched(6))),
    ];
    for (panic, line) in panics.into_iter().zip(here + 2..) {
        assert_eq!((panic.file.as_str(), panic.line), (file!(), line));
    }
}
