//! Beam search.

use super::{TABLE, TOKENS, log_probability, session};
use crate::generate::{Beam, BeamSearch, GenerateError};

/// All continuations of three tokens, or of fewer up to the token 2, best first.
fn all(length_penalty: f64) -> Vec<(Vec<usize>, f64)> {
    let mut all = Vec::new();
    for number in 0..TOKENS.pow(3) {
        let mut tokens = vec![number / 16, number / 4 % 4, number % 4];
        let end = tokens.iter().position(|&token| token == 2);
        tokens.truncate(end.map_or(3, |end| end + 1));
        let score = log_probability(3, &tokens) / (tokens.len() as f64).powf(length_penalty);
        if all.iter().all(|(other, _)| *other != tokens) {
            all.push((tokens, score));
        }
    }
    all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    all
}

#[test]
fn beam_search_with_enough_beams_finds_the_best() {
    for length_penalty in [0.0, 1.0, 2.0] {
        let search = BeamSearch {
            beams: 64,
            tokens: 3,
            length_penalty,
            stop: &[2],
            vocabulary: None,
        };
        let mut session = session(TABLE, 10);
        session.step(0).unwrap();
        let found = session.beam_search(&[3], &search).unwrap();
        assert_eq!(session.len(), 1);
        let expected = all(length_penalty);
        assert_eq!(found.len(), expected.len());
        for (beam, (tokens, score)) in found.iter().zip(expected) {
            // The order of summation differs.
            assert!((beam.score - score).abs() < 1e-12);
            assert!((beam.log_probability - log_probability(3, &beam.tokens)).abs() < 1e-12);
            assert_eq!(beam.tokens.len(), tokens.len());
        }
    }
}

#[test]
fn one_beam_equals_greedy_decoding() {
    let search = BeamSearch {
        beams: 1,
        tokens: 4,
        ..BeamSearch::default()
    };
    let found = session(TABLE, 10).beam_search(&[3], &search).unwrap();
    let tokens: Vec<_> = found
        .into_iter()
        .map(|Beam { tokens, .. }| tokens)
        .collect();
    assert_eq!(tokens, [[1, 0, 1, 0]]);
}

/// The token after 3 is almost certainly 2, which stops, and the others go on with certainty.
#[test]
fn one_beam_ends_where_greedy_decoding_does() {
    let mut table = [[0.0; TOKENS]; TOKENS];
    (table[3][2], table[0][0]) = (0.4, 50.0);
    let search = BeamSearch {
        beams: 1,
        tokens: 30,
        stop: &[2],
        ..BeamSearch::default()
    };
    // Nothing is stepped behind the end, so the capacity is enough.
    let found = session(table, 1).beam_search(&[3], &search).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].tokens, [2]);
}

#[test]
fn beams_end_where_the_session_is_full() {
    let search = BeamSearch {
        beams: 2,
        tokens: 30,
        ..BeamSearch::default()
    };
    let found = session(TABLE, 4).beam_search(&[3], &search).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|beam| beam.tokens.len() == 4));
}

#[test]
fn more_beams_find_better_continuations_than_greedy_decoding() {
    // After 2, 0 is slightly likelier than 1, but the token after 1 is almost certain.
    let mut table = [[0.0; TOKENS]; TOKENS];
    (table[2], table[1][0]) = ([0.5, 0.4, -9.0, 9.0], 5.0);
    let best = |beams| {
        let search = BeamSearch {
            beams,
            tokens: 2,
            vocabulary: Some(3),
            ..BeamSearch::default()
        };
        let found = session(table, 10).beam_search(&[2], &search).unwrap();
        assert_eq!(found.len(), beams);
        found[0].tokens.clone()
    };
    assert_eq!(best(1)[0], 0);
    assert_eq!(best(2), [1, 0]);
}

#[test]
fn tokens_whose_result_is_minus_infinity_are_in_no_beam() {
    // Behind 3 only 0 is possible, and behind that only 2, which stops.
    let mut table = [[f64::NEG_INFINITY; TOKENS]; TOKENS];
    (table[3][0], table[0][2]) = (0.0, 0.0);
    let search = BeamSearch {
        beams: 3,
        tokens: usize::MAX,
        stop: &[2],
        ..BeamSearch::default()
    };
    let found = session(table, 10).beam_search(&[3], &search).unwrap();
    let expected = Beam {
        tokens: vec![0, 2],
        log_probability: 0.0,
        score: 0.0,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn invalid_search_options_are_refused_before_the_search() {
    let session = session(TABLE, 10);
    let refused = |search: BeamSearch<'_>| match session.beam_search(&[3], &search) {
        Err(GenerateError::Sampling(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let beams = BeamSearch {
        beams: 0,
        ..BeamSearch::default()
    };
    assert_eq!(refused(beams), "`beams` is 0, but must be 1 or more");
    for length_penalty in [f64::NAN, f64::INFINITY] {
        let search = BeamSearch {
            length_penalty,
            ..BeamSearch::default()
        };
        assert_eq!(
            refused(search),
            format!("`length_penalty` is {length_penalty}, but must be finite")
        );
    }
}
