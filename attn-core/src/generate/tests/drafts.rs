//! Generation with a draft model.

use super::{Remembering, TABLE, TOKENS, context, greedy, session};
use crate::{
    fused::{Array, NamedTensor, VisitWeights},
    generate::{
        Acceptance, CacheMemory, Capacity, Decoder, GenerateError, NewTokens, Sampling, Session,
        SessionError, Sessions,
    },
};

/// A model of a state that only goes on.
struct OnlyOn;

impl Decoder<f64> for OnlyOn {
    fn most_new(&self) -> usize {
        usize::MAX
    }

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

    fn copied(&self, _: usize, _: usize) -> usize {
        0
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(Self)
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
    }
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
    let mut narrow = Session::from(Sessions::new(Remembering::default(), room, TOKENS, 3));
    let message =
        "the draft has results for 3 tokens, and the model for 4: both need the same vocabulary";
    assert_eq!(refused(&mut narrow, 2), message);
    let mut only_on = Session::from(Sessions::new(OnlyOn, room, TOKENS, TOKENS));
    let message = "sequence 0 has 0 tokens, and cannot be cut to 2 once it has more: a scan or a convolution keeps its last state alone. Only 0 tokens are possible; a fork from before can go on";
    assert_eq!(refused(&mut only_on, 2), message);
    assert!(only_on.is_empty());
    only_on.prefill(&[1, 2]).unwrap();
    let message = "sequence 0 has 2 tokens, and cannot be cut to 1: a scan or a convolution keeps its last state alone. Only 0 tokens are possible; a fork from before can go on";
    assert_eq!(only_on.truncate(1).unwrap_err().to_string(), message);
    only_on.truncate(0).unwrap();
    assert!(only_on.is_empty());
}

#[test]
fn prompts_that_do_not_fit_the_draft_change_no_session() {
    let room = Capacity {
        sequences: 1,
        capacity: 50,
    };
    let only_on = Session::from(Sessions::new(OnlyOn, room, TOKENS, TOKENS));
    let mut target = session(TABLE, 50);
    target.prefill(&[1]).unwrap();
    for mut draft in [session(TABLE, 4), only_on] {
        let tokens = target.generate_with_draft(&mut draft, 2, &[3, 1, 0, 1, 2], greedy(), &[]);
        assert!(matches!(tokens.err(), Some(GenerateError::Session(_))));
        assert_eq!((target.len(), draft.len()), (1, 0));
    }
}

#[test]
fn an_error_before_the_prompt_is_read_does_not_count_it() {
    let room = Capacity {
        sequences: 1,
        capacity: 50,
    };
    let mut target = session(TABLE, 50);
    let mut draft = Session::from(Sessions::new(OnlyOn, room, TOKENS, TOKENS));
    for read in [0, 3] {
        let tokens = target.generate_with_draft(&mut draft, 2, &[3, 1], greedy(), &[]);
        let expected = SessionError::Truncate {
            sequence: 0,
            tokens: read,
            len: read + 2,
            shortest: read + 3,
        };
        assert!(
            matches!(tokens.err(), Some(GenerateError::Session(found)) if found == expected),
            "{read}"
        );
        draft.prefill(&[1, 0, 1]).unwrap();
    }
}
