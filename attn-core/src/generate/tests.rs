//! Sessions of a model that is a table: the logits depend on the last token only.

use dfdx::tensor::CpuError;

use super::{
    Beam, BeamSearch, Capacity, Decoder, GenerateError, NewTokens, Sampling, SamplingError,
    Session, SessionError, Sessions,
};
use crate::{Error, fused::Array};

const TOKENS: usize = 4;

/// The logits after each token.
const TABLE: [[f64; TOKENS]; TOKENS] = [
    [0.1, 1.2, -0.3, 0.4],
    [1.5, -0.2, 1.4, 0.3],
    [-0.6, 0.9, 0.2, 1.1],
    [0.7, 0.8, -0.1, -0.9],
];

#[derive(Clone)]
struct Table([[f64; TOKENS]; TOKENS]);

impl Decoder<f64> for Table {
    fn decode(&mut self, new: &NewTokens, results: &mut Array<f64>) {
        for (row, &id) in new.ids().iter().enumerate() {
            results.view_mut().row_mut(row).copy_from_slice(&self.0[id]);
        }
    }

    fn reset(&mut self, _: usize) {}

    fn elements(&self) -> usize {
        0
    }

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(self.clone())
    }
}

fn session(table: [[f64; TOKENS]; TOKENS], capacity: usize) -> Session<f64> {
    let room = Capacity {
        sequences: 1,
        capacity,
    };
    Session::from(Sessions::new(Table(table), room, TOKENS, TOKENS))
}

/// A model whose caches claim to take this many elements.
struct Remembering(usize);

impl Decoder<f64> for Remembering {
    fn decode(&mut self, _: &NewTokens, results: &mut Array<f64>) {
        results.as_mut_slice().fill(0.0);
    }

    fn reset(&mut self, _: usize) {}

    fn elements(&self) -> usize {
        self.0
    }

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(Self(self.0))
    }
}

/// A number of 8-byte numbers that no system can allocate.
const TOO_MANY: usize = isize::MAX as usize / 16;

#[test]
fn sequences_whose_results_exceed_the_memory_are_an_error() {
    let sequences = |sequences, width| {
        let room = Capacity {
            sequences,
            capacity: 1,
        };
        Sessions::try_new::<CpuError>(Remembering(0), room, TOKENS, width).map(|_| ())
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
    let session = |numbers| {
        let room = Capacity {
            sequences: 1,
            capacity: 5,
        };
        Session::from(Sessions::new(Remembering(numbers), room, TOKENS, TOKENS))
    };
    assert!(session(10).try_fork().is_ok());
    for numbers in [TOO_MANY, usize::MAX] {
        let session = session(numbers);
        let refused = SessionError::TooLarge {
            sequences: 1,
            capacity: 5,
        };
        assert_eq!(session.try_fork().err(), Some(refused.clone()));
        let beams = session.beam_search(&[1], &BeamSearch::default());
        assert_eq!(beams, Err(GenerateError::Session(refused)));
    }
}

fn greedy() -> Sampling {
    Sampling {
        temperature: 0.0,
        ..Sampling::default()
    }
}

#[test]
fn generation_ends_before_a_stop_token() {
    let mut session = session(TABLE, 10);
    let mut of = |stop: &[usize]| {
        session.reset();
        let tokens = session.generate(&[3], greedy(), stop).unwrap().take(5);
        tokens.collect::<Result<Vec<_>, _>>().unwrap()
    };
    // 3 -> 1 -> 0 -> 1
    assert_eq!(of(&[]), [1, 0, 1, 0, 1]);
    assert_eq!(of(&[2, 0]), [1]);
    assert_eq!(of(&[1]), [0; 0]);
    // The session has processed the prompt; the first token was not computed again.
    assert_eq!(session.len(), 1);
}

#[test]
fn a_session_has_processed_all_but_the_last_token() {
    let mut session = session(TABLE, 10);
    let tokens = session.generate(&[3], greedy(), &[]).unwrap().take(3);
    assert_eq!(tokens.count(), 3);
    assert_eq!(session.len(), 3);
    // A prompt continues the sequence: the last token of the text, and then others.
    let mut more = session.generate(&[1, 2], greedy(), &[]).unwrap();
    assert_eq!(more.next(), Some(Ok(3)));
}

#[test]
fn tokens_beyond_the_capacity_are_an_error() {
    let mut session = session(TABLE, 3);
    let tokens: Vec<_> = session.generate(&[3, 3], greedy(), &[]).unwrap().collect();
    let full = SessionError::Full {
        sequence: 0,
        len: 3,
        given: 1,
        capacity: 3,
    };
    assert_eq!(tokens, [Ok(1), Ok(0), Err(GenerateError::Session(full))]);
    assert!(session.generate(&[1], greedy(), &[]).is_err());
}

/// A model whose likeliest token depends on all tokens that it has read.
#[derive(Clone, Default)]
struct Context(Vec<usize>);

fn likeliest_after(context: &[usize]) -> usize {
    let numbered = context.iter().enumerate();
    numbered.fold(0, |sum, (place, token)| {
        (sum * 3 + (place + 1) * token + 1) % TOKENS
    })
}

impl Decoder<f64> for Context {
    fn decode(&mut self, new: &NewTokens, results: &mut Array<f64>) {
        for &id in new.ids() {
            self.0.push(id);
        }
        results.as_mut_slice().fill(0.0);
        let last = results.as_mut_slice().len() - TOKENS;
        results.as_mut_slice()[last + likeliest_after(&self.0)] = 1.0;
    }

    fn reset(&mut self, _: usize) {
        self.0.clear();
    }

    fn elements(&self) -> usize {
        0
    }

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(self.clone())
    }
}

#[test]
fn a_full_session_starts_again_with_half_of_its_tokens() {
    let prompts: [&[usize]; 3] = [&[2], &[3, 1, 2], &[1, 2, 3, 0, 2, 2, 1, 3, 3, 0]];
    for capacity in [1, 2, 4, 7, 16] {
        for prompt in prompts {
            // By hand: the context of each token is a part of the whole text.
            let mut text = prompt.to_vec();
            let mut start = text.len().saturating_sub(capacity);
            for _ in 0..3 * capacity {
                text.push(likeliest_after(&text[start..]));
                if text.len() - start > capacity {
                    start = text.len() - capacity.div_ceil(2);
                }
            }
            let room = Capacity {
                sequences: 1,
                capacity,
            };
            let sessions = Sessions::new(Context::default(), room, TOKENS, TOKENS);
            let mut session = Session::from(sessions);
            let tokens = session.generate_endless(prompt, greedy(), &[]).unwrap();
            let tokens = tokens.take(3 * capacity).collect::<Result<Vec<_>, _>>();
            assert_eq!(
                tokens.unwrap(),
                text[prompt.len()..],
                "{capacity}: {prompt:?}"
            );
        }
    }
}

#[test]
fn a_prompt_that_does_not_fit_replaces_what_was_read() {
    let mut session = session(TABLE, 3);
    session.prefill(&[0, 0]).unwrap();
    let mut tokens = session.generate_endless(&[1], greedy(), &[]).unwrap();
    assert_eq!(tokens.next(), Some(Ok(0)));
    assert_eq!(session.len(), 3);
    let mut tokens = session.generate_endless(&[0, 3], greedy(), &[]).unwrap();
    assert_eq!(tokens.next(), Some(Ok(1)));
    assert_eq!(session.len(), 2);
    // There is nothing to continue.
    session.reset();
    assert!(session.generate_endless(&[], greedy(), &[]).is_err());
}

#[cfg(feature = "text")]
#[test]
fn a_session_writes_text_up_to_a_number_of_tokens_or_to_a_text() {
    // 3 -> 1 -> 0 -> 1
    let vocabulary = crate::text::Vocabulary::characters("ab cd").unwrap();
    let mut session = session(TABLE, 2);
    let mut written = |count, stop| {
        session.reset();
        let text = session.write(&vocabulary, "c", greedy()).unwrap();
        let text = text.tokens(count).until(stop);
        text.collect::<Result<Vec<_>, _>>().unwrap()
    };
    assert_eq!(written(5, ""), ["a", " ", "a", " ", "a"]);
    assert_eq!(written(0, ""), [""; 0]);
    // Held back, and a part of the text after all.
    assert_eq!(written(3, "a a b"), ["a a"]);
    assert_eq!(written(9, " a"), ["a"]);
    // There are only two tokens: 3 is not one of them.
    let few = crate::text::Vocabulary::characters("ab").unwrap();
    session.reset();
    let text = session.write(&few, "ab", greedy()).unwrap().tokens(2);
    assert_eq!(text.map(Result::unwrap).collect::<String>(), "ab");
    let refused = session.write(&few, "abc", greedy()).err();
    assert!(matches!(refused, Some(GenerateError::Text(_))));
}

#[test]
fn the_repetition_penalty_applies_from_the_prompt_on() {
    let sampling = Sampling {
        repetition_penalty: 10.0,
        ..greedy()
    };
    let mut session = session(TABLE, 10);
    let tokens = session.generate(&[1], sampling, &[]).unwrap().take(3);
    // After 1 comes 0. Then 1, the next one, has occurred already. Then all but 2 have, and 1 is still the likeliest.
    assert_eq!(tokens.collect::<Result<Vec<_>, _>>().unwrap(), [0, 3, 1]);
}

#[test]
fn results_that_are_not_finite_are_an_error() {
    let mut table = TABLE;
    table[1][2] = f64::NAN;
    let mut session = session(table, 10);
    let mut tokens = session.generate(&[3], greedy(), &[]).unwrap();
    assert_eq!(tokens.next(), Some(Ok(1)));
    let Some(Err(GenerateError::Sampling(SamplingError::NotFinite { token: 2, .. }))) =
        tokens.next()
    else {
        panic!("a token was chosen");
    };
    assert_eq!(tokens.next(), None);
}

/// The log probability of a sequence of tokens.
fn log_probability(first: usize, tokens: &[usize]) -> f64 {
    let before = [first].into_iter().chain(tokens.iter().copied());
    let pairs = before.zip(tokens);
    pairs
        .map(|(before, &token)| {
            let sum: f64 = TABLE[before].iter().map(|x| x.exp()).sum();
            TABLE[before][token] - sum.ln()
        })
        .sum()
}

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

#[test]
#[should_panic(expected = "a session is of one sequence")]
fn a_session_has_one_sequence() {
    let room = Capacity {
        sequences: 2,
        capacity: 1,
    };
    let _ = Session::from(Sessions::new(Table(TABLE), room, TOKENS, TOKENS));
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
