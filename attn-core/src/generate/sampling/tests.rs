use super::*;

fn chosen(sampling: &Sampling, logits: &[f64], before: &[usize], times: usize) -> Vec<usize> {
    let mut sampler = Sampler::new(sampling.clone()).unwrap();
    let choose = |_| sampler.choose(logits, before).unwrap();
    (0..times).map(choose).collect()
}

#[test]
fn choices_follow_the_probabilities() {
    let logits = [0.0, 2.0, 1.0, -1.0];
    let temperature = 0.7;
    let sampling = Sampling {
        temperature,
        seed: 3,
        ..Sampling::default()
    };
    let n = 20_000;
    let tokens = chosen(&sampling, &logits, &[], n);
    let sum: f64 = logits.iter().map(|x| (x / temperature).exp()).sum();
    for (token, logit) in logits.iter().enumerate() {
        let p = (logit / temperature).exp() / sum;
        let found = tokens.iter().filter(|t| **t == token).count() as f64 / n as f64;
        // Five standard deviations of a mean of n.
        let most = 5.0 * (p * (1.0 - p) / n as f64).sqrt();
        assert!((found - p).abs() < most, "{token}: {found} is not {p}");
    }
}

#[test]
fn a_seed_determines_the_choices() {
    let logits = [0.1, 0.2, 0.3, 0.0, 0.2];
    let of = |seed| {
        let sampling = Sampling {
            seed,
            ..Sampling::default()
        };
        chosen(&sampling, &logits, &[], 50)
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn temperature_0_chooses_the_first_of_the_likeliest_tokens() {
    let greedy = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    assert_eq!(chosen(&greedy, &[1.0, 3.0, 3.0, 2.0], &[], 3), [1, 1, 1]);
}

#[test]
fn repeated_tokens_are_less_likely() {
    let greedy = Sampling {
        temperature: 0.0,
        repetition_penalty: 2.0,
        ..Sampling::default()
    };
    // 3 becomes 1.5 however often it occurred; tokens that are not among the logits do no harm.
    assert_eq!(chosen(&greedy, &[2.0, 3.0], &[1, 1, 9], 1), [0]);
    assert_eq!(chosen(&greedy, &[1.0, 3.0], &[1, 1], 1), [1]);
    // -1 becomes -2.
    assert_eq!(chosen(&greedy, &[-1.0, -1.5], &[0], 1), [1]);
}

#[test]
fn penalties_that_overflow_leave_a_choice() {
    for repetition_penalty in [f64::MIN_POSITIVE, f64::MAX] {
        let sampling = Sampling {
            repetition_penalty,
            ..Sampling::default()
        };
        // Divided, 9 is infinite; multiplied, -9 is.
        let tokens = chosen(&sampling, &[9.0, 9.5, 0.0, -9.0], &[0, 1, 3], 20);
        let expected = if repetition_penalty < 1.0 { 0..2 } else { 0..3 };
        assert!(
            tokens.iter().all(|token| expected.contains(token)),
            "{tokens:?}"
        );
        assert!(tokens.contains(&0) && tokens.contains(&1));
    }
}

#[test]
fn tokens_outside_of_the_vocabulary_are_not_chosen() {
    let sampling = Sampling {
        vocabulary: Some(2),
        ..Sampling::default()
    };
    let tokens = chosen(&sampling, &[0.0, 0.0, 90.0], &[], 50);
    assert!(tokens.contains(&0) && tokens.contains(&1) && !tokens.contains(&2));
}

#[test]
fn constraints_exclude_tokens_whatever_the_options() {
    let logits = [0.0, 5.0, 4.0, -1.0, 0.0];
    for (temperature, top_k, top_p) in [(0.0, None, 1.0), (1.0, Some(4), 1.0), (3.0, None, 0.9)] {
        let sampling = Sampling {
            temperature,
            top_k,
            top_p,
            repetition_penalty: 1.5,
            ..Sampling::default()
        };
        let mut sampler = Sampler::new(sampling).unwrap();
        for _ in 0..200 {
            let token = sampler.choose_where(&logits, &[3], |before, logits| {
                assert_eq!((before, logits[3]), (&[3][..], -1.5));
                (logits[1], logits[4]) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
            });
            assert!([0, 2, 3].contains(&token.unwrap()));
        }
    }
}

#[test]
fn constraints_may_change_the_probabilities() {
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    let mut count = 0;
    let n = 10_000;
    for _ in 0..n {
        let halved = |_: &[usize], logits: &mut [f64]| logits[1] += 3.0_f64.ln();
        count += sampler.choose_where(&[0.5, 0.5], &[], halved).unwrap();
    }
    // 3/4 within five standard deviations.
    assert!((count as f64 / n as f64 - 0.75).abs() < 5.0 * (0.1875 / n as f64).sqrt());
}

#[test]
fn tokens_whose_logit_is_minus_infinity_are_not_chosen() {
    let logits = [f64::NEG_INFINITY, 0.5, 0.0, f64::NEG_INFINITY, 0.5];
    for (temperature, top_k, repetition_penalty) in
        [(0.0, None, 1.0), (1.0, None, 1.5), (1e300, Some(4), 1.5)]
    {
        let sampling = Sampling {
            temperature,
            top_k,
            repetition_penalty,
            ..Sampling::default()
        };
        // A penalty of an excluded token leaves it excluded.
        let tokens = chosen(&sampling, &logits, &[0, 3, 4], 200);
        assert!(tokens.iter().all(|token| [1, 2, 4].contains(token)));
    }
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    let all = [f32::NEG_INFINITY; 3];
    assert_eq!(sampler.choose(&all, &[]), Err(SamplingError::NoTokens));
    // As `log_softmax` of PyTorch.
    let choice = super::super::Choice::new(0, &logits, 5).unwrap();
    assert_eq!(choice.log_probability, f64::NEG_INFINITY);
    assert_eq!((choice.top[0].0, choice.top[4].0), (1, 3));
}

#[test]
fn constraints_that_leave_no_choice_are_errors() {
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    let mut refused = |value| {
        let refused = sampler.choose_where(&[0.0, 1.0], &[], |_, logits| logits.fill(value));
        refused.unwrap_err().to_string()
    };
    assert_eq!(
        refused(f64::NEG_INFINITY),
        "there are no tokens to choose from"
    );
    let expected = "a constraint changed the logit of token 0 to NaN: it must be a number, or -inf to exclude the token";
    assert_eq!(refused(f64::NAN), expected);
    assert!(refused(f64::INFINITY).contains("to inf: it must be"));
}

#[test]
fn invalid_options_are_errors() {
    let of = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::default();
        change(&mut sampling);
        Sampler::new(sampling).err().map(|error| error.to_string())
    };
    let cases: [(fn(&mut Sampling), &str); 9] = [
        (
            |s| s.temperature = -1.0,
            "`temperature` is -1, but must be finite and not negative",
        ),
        (
            |s| s.temperature = f64::NAN,
            "`temperature` is NaN, but must be finite and not negative",
        ),
        (
            |s| s.temperature = f64::INFINITY,
            "`temperature` is inf, but must be finite and not negative",
        ),
        (|s| s.top_k = Some(0), "`top_k` is 0, but must be 1 or more"),
        (|s| s.top_p = 1.5, "`top_p` is 1.5, but must be from 0 to 1"),
        (
            |s| s.min_p = -0.1,
            "`min_p` is -0.1, but must be from 0 to 1",
        ),
        (
            |s| s.repetition_penalty = 0.0,
            "`repetition_penalty` is 0, but must be finite and greater than 0, and not subnormal",
        ),
        (
            |s| s.repetition_penalty = f64::INFINITY,
            "`repetition_penalty` is inf, but must be finite and greater than 0",
        ),
        (
            |s| s.repetition_penalty = f64::MIN_POSITIVE / 4.0,
            "`repetition_penalty` is 0.000",
        ),
    ];
    for (change, message) in cases {
        let found = of(change).unwrap_or_default();
        assert!(found.starts_with(message), "{found}");
    }
    assert_eq!(of(|_| ()), None);
}

#[test]
fn logits_of_nan_and_infinity_are_errors() {
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    let nan = sampler.choose(&[f64::NEG_INFINITY, f64::NAN, 0.0], &[]);
    assert!(matches!(
        nan,
        Err(SamplingError::NotFinite { token: 1, .. })
    ));
    let refused = sampler.choose(&[0.0, f32::INFINITY], &[]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the logit of token 1 is inf: the weights of the model are damaged"
    );
    assert_eq!(
        sampler.choose::<f32>(&[], &[]),
        Err(SamplingError::NoTokens)
    );
}
