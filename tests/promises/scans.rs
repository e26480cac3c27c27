//! Scans without steps, steps that are no numbers, and what sessions of scans remember.

use super::*;

/// `[batch, seq, d]`
type Steps = Tensor<(usize, usize, Const<3>), f64, Cpu>;

model! {
    struct Learned<d = 3>;
    fn forward(x: [batch, seq, d]) -> [batch, d] {
        param start: [d] = normal(1.0);
        scan seq {
            state h: [batch, d] = start;
            h = tanh(linear::<d>(x) + h);
            h
        }
    }
}

type Last = Traced<(usize, Const<3>)>;

/// The last state of no steps is the first one, whose gradient is the sum over the batch of what comes from behind.
#[test]
fn without_steps_a_learned_start_has_the_gradient_of_the_last_state() {
    let mut model = Cpu::default().build_module::<Learned, f64>();
    scatter(&mut model);
    let start = model.start.weight.as_vec();
    for batch in [1, 2] {
        let x: Steps = tensor("x", (batch, 0, Const));
        let factors = support::numbers::scattered("factors of the loss", batch * 3);
        let of_start: Vec<f64> = (0..3)
            .map(|i| factors.chunks(3).map(|row| row[i]).sum())
            .collect();
        let check = |form: &str, last: Last| {
            assert_eq!(last.as_vec(), start.repeat(batch), "{form}, {batch}");
            let gradients = weighted_sum(last).backward();
            let found = flat(&gradients.get(&model.start.weight));
            assert_eq!(found, of_start, "{form}, {batch}");
            gradients
        };
        let gradients = check("fused", model.forward(x.leaky_trace()));
        assert_eq!(flat(&gradients.get(&model.linear.weight)), [0.0; 9]);
        // The chain of operations never reads the layer, so dfdx has no gradient for it.
        check("composed", model.composed().forward(x.leaky_trace()));
    }
}

model! {
    struct Rnn<d = 3>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        scan seq {
            state h: [batch, d] = 0.0;
            h = tanh(linear::<d, name = ih>(x) + linear::<d, name = hh>(h));
            yield h;
        }
    }
}

/// A step that is NaN reaches the steps behind it of its own sequence, in both forms. The gradient of a loss of the steps before it and of the
/// other sequence is the same as without it.
#[test]
fn not_a_number_goes_forward_in_its_own_sequence_alone() {
    let mut model = Cpu::default().build_module::<Rnn, f64>();
    scatter(&mut model);
    let clean: Steps = tensor("x", (2, 4, Const));
    let mut numbers = clean.as_vec();
    // The third step of the first sequence.
    numbers[2 * 3] = f64::NAN;
    let poisoned = Cpu::default().tensor_from_vec(numbers, *clean.shape());
    let is_reached = |place: usize| (2 * 3..4 * 3).contains(&place);
    type Form = fn(&Rnn<f64>, &Steps) -> Traced<(usize, usize, Const<3>)>;
    let forms: [(&str, Form); 2] = [
        ("fused", |model, x| model.forward(x.leaky_trace())),
        ("composed", |model, x| {
            model.composed().forward(x.leaky_trace())
        }),
    ];
    for (form, run) in forms {
        let expected = run(&model, &clean).as_vec();
        let found = run(&model, &poisoned).as_vec();
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            match is_reached(place) {
                true => assert!(found.is_nan(), "{form}, {place}"),
                false => assert_eq!(found, expected, "{form}, {place}"),
            }
        }
    }
}

model! {
    struct Gru<vocab = 7, d = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let y = scan seq {
            state h: [batch, d] = 0.0;
            let (xr, xz, xn) = split(linear::<{ 3 * d }>(x));
            let (hr, hz, hn) = split(linear::<{ 3 * d }>(h));
            let z = sigmoid(xz + hz);
            h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
            yield h;
        };
        linear::<vocab>(y)
    }
}

model! {
    /// A state for each pair of a key and a value.
    struct Retention<vocab = 7, d = 4, e = 5>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let v = linear::<e>(x);
        let y = scan seq {
            state s: [batch, d, e] = 0.0;
            s = 0.9 * s + einsum::<[batch, d, e]>(x, v);
            yield einsum::<[batch, e]>(x, s);
        };
        linear::<vocab>(y)
    }
}

#[test]
fn the_memory_of_a_session_does_not_grow_with_its_capacity() {
    const { assert!(Gru::cache_bytes_per_token() == 0) };
    const { assert!(Retention::cache_bytes_per_token() == 0) };
    let dev = Cpu::default();
    let [gru, retention] = [(); 2].map(|()| Vec::new());
    let mut found = [gru, retention];
    for capacity in [10, 10_000] {
        let gru = dev.build_module::<Gru, f32>();
        let retention = dev.build_module::<Retention, f32>();
        found[0].push(gru.session(capacity).unwrap().cache_bytes());
        found[1].push(retention.session(capacity).unwrap().cache_bytes());
    }
    // Four numbers of a GRU, and four times five of retention.
    assert_eq!(found, [vec![4 * 4; 2], vec![4 * 20; 2]]);
}

#[test]
fn states_that_exceed_the_memory_are_an_error() {
    let model = Cpu::default().build_module::<Gru, f32>();
    let refused = model.sessions(1 << 48, 1).err();
    let is_too_large = matches!(refused, Some(attn::Error::TooLarge { .. }));
    assert!(is_too_large, "{refused:?}");
}

/// The same while a session goes on.
#[test]
fn the_memory_of_a_session_does_not_grow_with_its_tokens() {
    let model = Cpu::default().build_module::<Retention, f32>();
    let mut session = model.session(1000).unwrap();
    session.prefill(&[3, 1, 4]).unwrap();
    let first = session.cache_bytes();
    for token in 0..500 {
        session.step(token % 7).unwrap();
    }
    assert_eq!(session.cache_bytes(), first);
}
