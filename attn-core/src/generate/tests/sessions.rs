//! Sessions: the tokens that they have read, and their memory.

use dfdx::tensor::CpuError;

use super::{Remembering, TABLE, TOKENS, Table, context, greedy, likeliest_after, session};
use crate::{
    Error,
    generate::{BeamSearch, Capacity, GenerateError, Session, SessionError, Sessions},
};

/// A number of 8-byte numbers that no system can allocate.
const TOO_MANY: usize = isize::MAX as usize / 16;

#[test]
fn sequences_whose_results_exceed_the_memory_are_an_error() {
    let sequences = |sequences, width| {
        let room = Capacity {
            sequences,
            capacity: 1,
        };
        Sessions::try_new::<CpuError>(Remembering::default(), room, TOKENS, width).map(|_| ())
    };
    assert!(sequences(2, TOKENS).is_ok());
    // The results, the lengths, and a product that overflows.
    for (many, width) in [(2, TOO_MANY), (TOO_MANY, 0), (TOO_MANY, TOO_MANY)] {
        let refused = sequences(many, width).unwrap_err();
        let sizes = vec![("sequences", many), ("width", width)];
        let expected = Error::<CpuError>::TooLarge {
            layer: "a session",
            sizes,
        };
        assert_eq!(refused.to_string(), expected.to_string());
    }
}

#[test]
fn a_copy_that_exceeds_the_memory_is_an_error() {
    let session = |bytes, copied| {
        let room = Capacity {
            sequences: 1,
            capacity: 5,
        };
        let model = Remembering {
            bytes,
            copied,
            ..Remembering::default()
        };
        Session::from(Sessions::new(model, room, TOKENS, TOKENS))
    };
    assert!(session(10, 10).try_fork().is_ok());
    // Either the memory for later tokens is too large, or that of the copies.
    for (bytes, copied) in [(TOO_MANY, 0), (usize::MAX, 0), (0, TOO_MANY)] {
        let session = session(bytes, copied);
        let refused = SessionError::TooLarge {
            sequences: 1,
            capacity: 5,
        };
        assert_eq!(session.try_fork().err(), Some(refused.clone()));
        let beams = session.beam_search(&[1], &BeamSearch::default());
        assert_eq!(beams, Err(GenerateError::Session(refused)));
    }
}

/// A step has 512 tokens, or 128 of each sequence, unless a cache takes fewer.
#[test]
fn prompts_are_read_in_steps_of_a_bounded_size() {
    let cases: [(usize, usize, Option<usize>, &[usize]); 4] = [
        (1, 1100, None, &[512, 512, 76]),
        (2, 300, None, &[512, 88]),
        (8, 130, None, &[1024, 16]),
        (1, 300, Some(128), &[128, 128, 44]),
    ];
    for (sequences, len, most_new, want) in cases {
        let room = Capacity {
            sequences,
            capacity: len,
        };
        let model = Remembering {
            most_new,
            ..Remembering::default()
        };
        let steps = model.steps.clone();
        let mut sessions = Sessions::new(model, room, TOKENS, TOKENS);
        let prompt = vec![1; len];
        let read = sessions.prefill(&vec![&prompt[..]; sequences]);
        assert!(read.is_ok(), "{sequences} x {len}");
        let steps = steps.lock().expect("the model does not panic");
        assert_eq!(*steps, want, "{sequences} x {len}");
    }
}

#[test]
fn a_cut_session_goes_on_from_where_it_was_cut() {
    let mut session = context(9);
    session.prefill(&[3, 1, 2, 2]).unwrap();
    session.truncate(4).unwrap();
    // Nothing was cut, and the results are still there.
    assert!(session.prefill(&[]).is_ok());
    session.truncate(2).unwrap();
    assert_eq!(session.len(), 2);
    assert_eq!(session.results(), [0.0; TOKENS]);
    let cut = SessionError::Cut {
        sequence: 0,
        len: 2,
    };
    let message = "sequence 0 is given no tokens, and was cut to 2: the results of the last one are not kept. Cut it to 1, and give it that token again";
    assert_eq!(cut.to_string(), message);
    assert_eq!(session.prefill(&[]).err(), Some(cut.clone()));
    let refused = session.generate(&[], greedy(), &[]).err();
    assert_eq!(refused, Some(GenerateError::Session(cut)));
    assert_eq!(session.step(0).unwrap()[likeliest_after(&[3, 1, 0])], 1.0);
    let refused = session.truncate(4).unwrap_err().to_string();
    assert_eq!(
        refused,
        "sequence 0 has 3 tokens, and cannot be cut to 4: it has no more"
    );
    session.truncate(0).unwrap();
    let empty = SessionError::Empty { sequence: 0 };
    assert_eq!(session.prefill(&[]).err(), Some(empty));
}

#[test]
fn the_results_of_all_tokens_are_those_of_each() {
    let mut session = session(TABLE, 300);
    let tokens: Vec<usize> = (0..290).map(|i| i * i % TOKENS).collect();
    session.step(1).unwrap();
    let all = session.prefill_all(&tokens).unwrap();
    assert_eq!((all.rows(), all.cols()), (290, TOKENS));
    for (row, token) in tokens.iter().enumerate() {
        assert_eq!(all.row(row), TABLE[*token]);
    }
    assert_eq!(session.results(), TABLE[tokens[289]]);
    assert_eq!(session.prefill_all(&[]).unwrap().rows(), 0);
    assert_eq!(session.len(), 291);
}

#[test]
#[should_panic(expected = "a session is of one sequence")]
fn a_session_has_one_sequence() {
    let room = Capacity {
        sequences: 2,
        capacity: 1,
    };
    let _ = Session::from(Sessions::new(Table(TABLE), room, TOKENS, TOKENS));
}
