//! Generated tokens, of one sequence and of several.

use super::{Context, TABLE, TOKENS, Table, greedy, likeliest_after, log_probability, session};
use crate::generate::{
    Capacity, GenerateError, Sampling, SamplingError, Session, SessionError, Sessions,
};

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
