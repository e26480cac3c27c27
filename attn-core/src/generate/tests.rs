//! Sessions of a model that is a table: the logits depend on the last token only.

use dfdx::tensor::CpuError;

use super::{
    Acceptance, Beam, BeamSearch, CacheMemory, Capacity, Decoder, GenerateError, NewTokens,
    Sampling, SamplingError, Session, SessionError, Sessions,
};
use crate::{
    Error,
    fused::{Array, NamedTensor, VisitWeights},
};

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

    fn shortest(&self, _: usize) -> usize {
        0
    }

    fn truncate(&mut self, _: usize, _: usize) {}

    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::default()
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(self.clone())
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
    }
}

fn session(table: [[f64; TOKENS]; TOKENS], capacity: usize) -> Session<f64> {
    let room = Capacity {
        sequences: 1,
        capacity,
    };
    Session::from(Sessions::new(Table(table), room, TOKENS, TOKENS))
}

/// A model whose caches claim to take this many bytes.
struct Remembering(usize);

impl Decoder<f64> for Remembering {
    fn decode(&mut self, _: &NewTokens, results: &mut Array<f64>) {
        results.as_mut_slice().fill(0.0);
    }

    fn reset(&mut self, _: usize) {}

    fn shortest(&self, _: usize) -> usize {
        0
    }

    fn truncate(&mut self, _: usize, _: usize) {}

    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::of_capacity(self.0)
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(Self(self.0))
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
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
        results.as_mut_slice().fill(0.0);
        for (row, &id) in new.ids().iter().enumerate() {
            self.0.push(id);
            results.view_mut().row_mut(row)[likeliest_after(&self.0)] = 1.0;
        }
    }

    fn reset(&mut self, _: usize) {
        self.0.clear();
    }

    fn shortest(&self, _: usize) -> usize {
        0
    }

    fn truncate(&mut self, _: usize, len: usize) {
        self.0.truncate(len);
    }

    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::default()
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(self.clone())
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
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
    let mut until = |stops: &[&str], tokens: &[usize]| {
        session.reset();
        let text = session.write(&vocabulary, "c", greedy()).unwrap();
        let text = text.tokens(7).until_any(stops).until_token(tokens);
        text.map(Result::unwrap).collect::<String>()
    };
    // Over several tokens, and the one that is complete first.
    assert_eq!(until(&["a a a", " a "], &[]), "a");
    assert_eq!(until(&["b", ""], &[]), "a a a a");
    assert_eq!(until(&["b"], &[0]), "a");
    // Without the space, token 0: 3 -> 1 -> 2 -> 3
    session.reset();
    let text = session.write(&vocabulary, "c", greedy()).unwrap();
    let text = text
        .tokens(3)
        .constrain(|_, logits| logits[0] = f64::NEG_INFINITY);
    assert_eq!(text.map(Result::unwrap).collect::<String>(), "abc");
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
fn choices_have_the_log_probabilities_of_the_model() {
    let mut session = session(TABLE, 20);
    let sampling = Sampling {
        temperature: 3.0,
        top_k: Some(3),
        repetition_penalty: 1.7,
        seed: 5,
        ..Sampling::default()
    };
    let tokens = session.generate(&[3], sampling.clone(), &[]).unwrap();
    let tokens: Vec<usize> = tokens.take(12).collect::<Result<_, _>>().unwrap();
    session.reset();
    let choices = session.generate(&[3], sampling, &[]).unwrap();
    let choices = choices.log_probabilities(2).take(12);
    let choices: Vec<_> = choices.collect::<Result<_, _>>().unwrap();
    let mut sum = 0.0;
    for (place, choice) in choices.iter().enumerate() {
        assert_eq!(choice.token, tokens[place]);
        sum += choice.log_probability;
        assert!((sum - log_probability(3, &tokens[..=place])).abs() < 1e-12);
        let before = *[3].iter().chain(&tokens).nth(place).unwrap();
        let mut of_all: Vec<f64> = (0..TOKENS)
            .map(|token| log_probability(before, &[token]))
            .collect();
        of_all.sort_by(|a, b| b.total_cmp(a));
        let top: Vec<f64> = choice.top.iter().map(|(_, p)| *p).collect();
        assert!(top.iter().zip(&of_all).all(|(p, q)| (p - q).abs() < 1e-12));
        assert_eq!(top.len(), 2);
    }
}

#[test]
fn constraints_see_the_tokens_from_the_prompt_on() {
    let mut session = session(TABLE, 10);
    let mut seen = Vec::new();
    let tokens = session.generate(&[3], greedy(), &[]).unwrap();
    let tokens = tokens.constrain(|tokens, logits| {
        seen.push(tokens.to_vec());
        logits[1] = f64::NEG_INFINITY;
    });
    // The likeliest tokens but 1: 3 -> 0 -> 3.
    let tokens = tokens.take(3).collect::<Result<Vec<_>, _>>();
    assert_eq!(tokens.unwrap(), [0, 3, 0]);
    assert_eq!(seen, [vec![3], vec![3, 0], vec![3, 0, 3]]);
    session.reset();
    let mut nothing = session
        .generate(&[3], greedy(), &[])
        .unwrap()
        .constrain(|_, logits| logits.fill(f64::NEG_INFINITY));
    let refused = GenerateError::Sampling(SamplingError::NoTokens);
    assert_eq!(nothing.next(), Some(Err(refused)));
    assert_eq!(nothing.next(), None);
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

/// A session of [`Context`], whose tokens depend on all that it has read, so a truncated or repeated token changes them.
fn context(capacity: usize) -> Session<f64> {
    let room = Capacity {
        sequences: 1,
        capacity,
    };
    Session::from(Sessions::new(Context::default(), room, TOKENS, TOKENS))
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

/// The tokens of a target with a draft, and what the draft was worth.
fn with_draft(
    [target, draft]: [&mut Session<f64>; 2],
    k: usize,
    sampling: &Sampling,
    count: usize,
) -> (Vec<usize>, Acceptance) {
    let mut tokens = target
        .generate_with_draft(draft, k, &[3], sampling.clone(), &[])
        .unwrap();
    let all = tokens.by_ref().take(count).collect::<Result<_, _>>();
    (all.unwrap(), tokens.acceptance())
}

#[test]
fn greedy_tokens_are_those_of_the_target_whatever_the_draft() {
    // The draft knows a part of the text alone, and is wrong most of the time.
    for k in 1..6 {
        for room in [40, 20, 5] {
            for count in [0, 1, 2, 3, 7, 18] {
                let [mut alone, mut target, mut draft] = [40, 40, room].map(context);
                let tokens = alone.generate(&[3], greedy(), &[]).unwrap();
                let tokens: Vec<usize> = tokens.take(count).collect::<Result<_, _>>().unwrap();
                draft.prefill(&[2, 2]).unwrap();
                let (found, _) = with_draft([&mut target, &mut draft], k, &greedy(), count);
                assert_eq!(found, tokens, "{k} {room} {count}");
                // It has read as many as without a draft, and goes on in the same way.
                assert_eq!(target.len(), alone.len().max(1));
                let last = tokens.last().copied().unwrap_or(0);
                assert_eq!(target.step(last), alone.step(last));
                assert!(draft.len() <= target.len() + 2);
            }
        }
    }
}

#[test]
fn a_draft_that_equals_the_target_is_always_right() {
    for sampling in [greedy(), Sampling::default()] {
        let mut sessions = [40, 40].map(|capacity| session(TABLE, capacity));
        let [target, draft] = sessions.each_mut();
        let (tokens, acceptance) = with_draft([target, draft], 4, &sampling, 16);
        assert_eq!(tokens.len(), 16);
        assert_eq!(acceptance.rate(), 1.0);
        // The first token needs no round, and a round is five.
        assert_eq!((acceptance.rounds, acceptance.drafted), (3, 12));
    }
}

#[test]
fn tokens_up_to_the_capacity_need_no_more() {
    for k in [1, 3, 9] {
        let mut sessions = [7, 7].map(context);
        let [target, draft] = sessions.each_mut();
        let mut tokens = target
            .generate_with_draft(draft, k, &[3], greedy(), &[])
            .unwrap();
        let found: Vec<_> = tokens.by_ref().collect();
        drop(tokens);
        let mut alone = context(7);
        let expected: Vec<_> = alone.generate(&[3], greedy(), &[]).unwrap().collect();
        assert_eq!(found, expected);
        assert!(matches!(
            found[7],
            Err(GenerateError::Session(SessionError::Full { .. }))
        ));
    }
}

#[test]
fn a_stop_token_ends_what_was_accepted() {
    for k in 1..5 {
        let mut sessions = [30, 30].map(|capacity| session(TABLE, capacity));
        let [target, draft] = sessions.each_mut();
        let tokens = target
            .generate_with_draft(draft, k, &[3], greedy(), &[0])
            .unwrap();
        // 3 -> 1 -> 0 -> 1
        assert_eq!(tokens.collect::<Result<Vec<_>, _>>().unwrap(), [1]);
        assert_eq!(target.len(), 2);
    }
}

#[test]
fn sampled_tokens_are_distributed_as_those_of_the_target() {
    let mut other = TABLE;
    other.rotate_left(1);
    other[2] = [0.0, -3.0, 2.0, 0.5];
    let sampling = Sampling {
        temperature: 0.8,
        top_k: Some(3),
        ..Sampling::default()
    };
    let odds = |before: usize| {
        let weights = TABLE[before].map(|x| (x / 0.8).exp());
        let least = weights.iter().copied().fold(f64::INFINITY, f64::min);
        let weights = weights.map(|w| if w == least { 0.0 } else { w });
        let sum: f64 = weights.iter().sum();
        weights.map(|w| w / sum)
    };
    let n = 20_000;
    let mut sessions = [TABLE, other].map(|table| session(table, n + 10));
    let [target, draft] = sessions.each_mut();
    let (tokens, acceptance) = with_draft([target, draft], 3, &sampling, n);
    assert!((0.1..0.9).contains(&acceptance.rate()), "{acceptance:?}");
    // Tokens depend on the one before: pairs are independent choices, each of its row.
    let mut pairs = [[0.0; TOKENS]; TOKENS];
    for pair in tokens.windows(2) {
        pairs[pair[0]][pair[1]] += 1.0;
    }
    for (before, counts) in pairs.iter().enumerate() {
        let sum: f64 = counts.iter().sum();
        assert!(sum > 500.0, "{before}: {sum}");
        for (count, p) in counts.iter().zip(odds(before)) {
            // Five standard deviations of a mean of so many.
            let most = 5.0 * (p * (1.0 - p) / sum).sqrt();
            assert!(
                (count / sum - p).abs() <= most,
                "{before}: {} is not {p}",
                count / sum
            );
        }
    }
}

/// A model of a state that only goes on.
struct OnlyOn;

impl Decoder<f64> for OnlyOn {
    fn decode(&mut self, _: &NewTokens, results: &mut Array<f64>) {
        results.as_mut_slice().fill(0.0);
    }

    fn reset(&mut self, _: usize) {}

    fn shortest(&self, _: usize) -> usize {
        usize::MAX
    }

    fn truncate(&mut self, _: usize, _: usize) {
        unreachable!("it is not possible")
    }

    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::default()
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(Self)
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
    }
}

#[test]
fn drafts_that_do_not_fit_are_refused() {
    let room = Capacity {
        sequences: 1,
        capacity: 9,
    };
    let mut target = session(TABLE, 9);
    let mut refused = |draft: &mut Session<f64>, k| {
        target.reset();
        let tokens = target.generate_with_draft(draft, k, &[1, 2], greedy(), &[]);
        tokens.err().unwrap().to_string()
    };
    let message = "`k` is 0, but must be 1 or more";
    assert_eq!(refused(&mut session(TABLE, 9), 0), message);
    let mut narrow = Session::from(Sessions::new(Remembering(0), room, TOKENS, 3));
    let message =
        "the draft has results for 3 tokens, and the model for 4: both need the same vocabulary";
    assert_eq!(refused(&mut narrow, 2), message);
    let mut only_on = Session::from(Sessions::new(OnlyOn, room, TOKENS, TOKENS));
    let message = "sequence 0 has 2 tokens, and cannot be cut to 1: a scan or a convolution keeps its last state alone. Only 0 tokens are possible; a fork from before can go on";
    assert_eq!(refused(&mut only_on, 2), message);
    assert_eq!(only_on.truncate(1).unwrap_err().to_string(), message);
    only_on.truncate(0).unwrap();
    assert!(only_on.is_empty());
}

#[test]
fn prompts_of_different_lengths_are_continued_as_alone() {
    let prompts: [&[usize]; 4] = [&[3, 1, 2], &[0], &[1, 1, 0, 2, 3], &[0]];
    for stop in [&[][..], &[2], &[3, 0]] {
        let sampling = Sampling {
            seed: u64::MAX,
            repetition_penalty: 1.3,
            ..Sampling::default()
        };
        let room = Capacity {
            sequences: 4,
            capacity: 20,
        };
        let mut sessions = Sessions::new(Table(TABLE), room, TOKENS, TOKENS);
        let batch = sessions.generate(&prompts, sampling.clone(), stop).unwrap();
        let found = batch.continuations(9).unwrap();
        for (sequence, prompt) in prompts.iter().enumerate() {
            let seed = sampling.seed.wrapping_add(sequence as u64);
            let sampling = Sampling {
                seed,
                ..sampling.clone()
            };
            let mut alone = session(TABLE, 20);
            let expected = alone.generate(prompt, sampling, stop).unwrap().take(9);
            let expected: Vec<usize> = expected.collect::<Result<_, _>>().unwrap();
            assert_eq!(found[sequence], expected, "{sequence} up to {stop:?}");
        }
        // Both have the same prompt, and seeds of their own.
        assert!(!stop.is_empty() || found[1] != found[3]);
    }
}

#[test]
fn a_batch_ends_when_all_of_its_sequences_have() {
    let room = Capacity {
        sequences: 2,
        capacity: 5,
    };
    let mut sessions = Sessions::new(Table(TABLE), room, TOKENS, TOKENS);
    // 3 -> 1 -> 0 -> 1, and 0 -> 1.
    let batch = sessions.generate(&[&[3], &[0, 2]], greedy(), &[0]).unwrap();
    let rounds: Vec<_> = batch.map(Result::unwrap).collect();
    assert_eq!(rounds, [[Some(1), Some(3)], [None, Some(1)]]);
    let batch = sessions.generate(&[&[3]], greedy(), &[0]).err();
    let refused = SessionError::Sequences {
        given: 1,
        sequences: 2,
    };
    assert_eq!(batch, Some(GenerateError::Session(refused)));
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
