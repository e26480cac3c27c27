//! Forks of sessions: they share what they have in common, and go on as if each were alone.

use super::*;
use attn::{
    generate::{BeamSearch, CacheMemory, Sampling, Session},
    model,
};

/// The rows of a page.
const PAGE: usize = 512;
const CAPACITY: usize = 1300;

model! {
    /// A mask that keeps all keys.
    struct All<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(x + attention::<heads = 2, mask = causal, position = rope>(x))
    }
}

model! {
    /// The first key that a query attends to is in the middle of a page, so tiles of keys are in two.
    struct Late<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(x + attention::<heads = 2, kv_heads = 1>(x) {
            fn mask(q_idx, kv_idx) { kv_idx <= q_idx && (kv_idx >= 40 || q_idx < 60) }
        })
    }
}

model! {
    /// Heads that talk to each other.
    struct Talking<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(x + attention::<heads = 2, mask = causal, talking_heads = both>(x))
    }
}

model! {
    /// Keys that are evicted, values that a body reads for each key, and states.
    struct Mixed<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            let last = x[d = 0];
            x += attention::<heads = 2, mask = sliding_window(20)>(x, last = last, all = x) {
                data last: [batch, kv_len];
                data all: [batch, kv_len, 12];
                fn score(score, b, h, kv_idx) { score + last[b, kv_idx] + all[b, kv_idx, h + 1] }
            };
            x = x + conv1d::<seq, d, kernel = 3, padding = causal>(x);
        }
        linear::<vocab>(x)
    }
}

fn text(number: usize, len: usize) -> Vec<usize> {
    let token = |i: usize| (i * i + (3 + number) * i + number) % 11;
    (0..len).map(token).collect()
}

/// Reads tokens in calls of different lengths, of which most are single. Returns the results of the last one of each call.
fn read(session: &mut Session<f32>, tokens: &[usize]) -> Vec<f32> {
    let mut results = Vec::new();
    let mut rest = tokens;
    for len in [1, 1, 7, 1, 140, 1, 1].into_iter().cycle() {
        let (some, others) = rest.split_at(len.min(rest.len()));
        rest = others;
        if some.is_empty() {
            break;
        }
        results.extend(session.prefill(some).unwrap());
    }
    results
}

/// Forks at lengths around the ends of pages, and forks of these, have the bits of sessions that were never forked.
fn assert_forks_go_on_alone(start: &dyn Fn() -> Session<f32>) {
    for len in [3, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 90] {
        let prompt = text(0, len);
        let alone = |texts: &[&[usize]]| {
            let mut session = start();
            session.prefill(&prompt).unwrap();
            let results = texts.iter().map(|text| read(&mut session, text));
            results.last().unwrap()
        };
        let [a, b, c, d] = [1, 2, 3, 4].map(|number| text(number, 160));
        let mut first = start();
        first.prefill(&prompt).unwrap();
        let mut second = first.fork();
        assert_eq!(second.results(), first.results());
        // Both write, each once first.
        assert_eq!(read(&mut second, &b[..9]), alone(&[&b[..9]]), "{len}");
        assert_eq!(read(&mut first, &a), alone(&[&a]), "{len}");
        let mut third = second.fork();
        assert_eq!(read(&mut third, &c), alone(&[&b[..9], &c]), "{len}");
        // A session that has gone leaves what others share.
        drop(first);
        let fourth = second.fork();
        assert_eq!(read(&mut second, &d), alone(&[&b[..9], &d]), "{len}");
        drop(second);
        let mut fourth = fourth;
        assert_eq!(read(&mut fourth, &a), alone(&[&b[..9], &a]), "{len}");
        drop(third);
        fourth.reset();
        fourth.prefill(&prompt).unwrap();
        assert_eq!(read(&mut fourth, &b), alone(&[&b]), "{len}");
    }
}

/// A session of a model with random parameters.
macro_rules! session_of {
    ($Model:ident) => {{
        let mut model = Cpu::default().build_module::<$Model, f32>();
        scatter(&mut model);
        move || model.session(CAPACITY).unwrap()
    }};
}

#[test]
fn forks_go_on_with_the_bits_of_sessions_that_were_never_forked() {
    assert_forks_go_on_alone(&session_of!(All));
}

#[test]
fn forks_of_a_mask_that_begins_within_a_page_go_on_alone() {
    let mut model = Cpu::default().build_module::<Late, f32>();
    scatter(&mut model);
    // Alone, it is what a pass over all tokens computes.
    let tokens = text(5, 700);
    let whole = model.forward(Cpu::default().tensor_from_vec(tokens.clone(), (1, 700)));
    let mut session = model.session(CAPACITY).unwrap();
    session.prefill(&tokens[..699]).unwrap();
    let last = session.step(tokens[699]).unwrap();
    let whole = whole.as_vec();
    for (found, expected) in last.iter().zip(&whole[699 * 11..]) {
        // Sums of 660 terms in another order.
        assert!((found - expected).abs() < 1e-5 * expected.abs().max(1.0));
    }
    assert_forks_go_on_alone(&|| model.session(CAPACITY).unwrap());
}

#[test]
fn forks_of_heads_that_talk_go_on_alone() {
    assert_forks_go_on_alone(&session_of!(Talking));
}

#[test]
fn forks_of_windows_states_and_values_of_keys_go_on_alone() {
    assert_forks_go_on_alone(&session_of!(Mixed));
}

/// Both of two forks can be cut, within a page and to one before it.
#[test]
fn a_fork_that_is_cut_leaves_the_other() {
    let start = session_of!(All);
    let prompt = text(0, 2 * PAGE + 50);
    let other = text(6, 260);
    for len in [1, PAGE - 1, PAGE, PAGE + 3, 2 * PAGE + 1] {
        for cuts_fork in [true, false] {
            let mut one = start();
            one.prefill(&prompt).unwrap();
            let mut fork = one.fork();
            let (cut, kept) = match cuts_fork {
                true => (&mut fork, &mut one),
                false => (&mut one, &mut fork),
            };
            cut.truncate(len).unwrap();
            let found = read(cut, &other);
            let mut alone = start();
            alone.prefill(&prompt).unwrap();
            alone.truncate(len).unwrap();
            assert_eq!(found, read(&mut alone, &other), "{len}");
            let mut alone = start();
            alone.prefill(&prompt).unwrap();
            assert_eq!(kept.step(7).unwrap(), alone.step(7).unwrap(), "{len}");
        }
    }
}

/// The bytes of keys and values of so many tokens.
const fn bytes(tokens: usize) -> usize {
    tokens * 2 * 12 * size_of::<f32>()
}

#[test]
fn the_memory_of_a_session_says_what_is_shared() {
    let start = session_of!(All);
    let memory = |own, shared| CacheMemory {
        capacity: bytes(CAPACITY),
        own: bytes(own),
        shared: bytes(shared),
    };
    let mut one = start();
    assert_eq!(one.cache_memory(), memory(0, 0));
    one.prefill(&text(0, PAGE + 1)).unwrap();
    assert_eq!(one.cache_memory(), memory(2 * PAGE, 0));
    let mut fork = one.fork();
    assert_eq!(fork.cache_memory(), memory(0, 2 * PAGE));
    fork.step(1).unwrap();
    assert_eq!(fork.cache_memory(), memory(PAGE, PAGE));
    assert_eq!(one.cache_memory(), memory(PAGE, PAGE));
    fork.truncate(3).unwrap();
    fork.step(1).unwrap();
    // The page of its own behind the end is kept.
    assert_eq!(fork.cache_memory(), memory(2 * PAGE, 0));
    drop(fork);
    assert_eq!(one.cache_memory(), memory(2 * PAGE, 0));
    // The last page has the tokens that there is room for.
    one.prefill(&text(0, CAPACITY - PAGE - 1)).unwrap();
    assert_eq!(one.cache_memory(), memory(CAPACITY, 0));
    assert_eq!(one.cache_bytes(), bytes(CAPACITY));
}

model! {
    /// A body that reads 12 numbers for each key.
    struct Read<vocab = 11, d = 12>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(attention::<heads = 2, mask = causal>(x, all = x) {
            data all: [batch, kv_len, 12];
            fn score(score, b, h, kv_idx) { score + all[b, kv_idx, h + 1] }
        })
    }
}

#[test]
fn a_fork_copies_the_last_page_of_what_a_body_reads_of_keys() {
    /// The numbers of a page.
    const NUMBERS: usize = 4096;
    let tokens = 2 * PAGE + 1;
    let mut one = session_of!(Read)();
    one.prefill(&text(0, tokens)).unwrap();
    let mut fork = one.fork();
    assert_eq!(fork.cache_memory().own, 0);
    fork.step(1).unwrap();
    // The last pages are shorter: there is room for 1300 tokens.
    let last = bytes(CAPACITY - 2 * PAGE) + (CAPACITY * 12 - 3 * NUMBERS) * size_of::<f32>();
    let expected = CacheMemory {
        capacity: bytes(CAPACITY) + CAPACITY * 12 * size_of::<f32>(),
        own: last,
        shared: bytes(2 * PAGE) + 3 * NUMBERS * size_of::<f32>(),
    };
    assert_eq!(fork.cache_memory(), expected);
    assert_eq!(one.cache_memory(), expected);
}

#[test]
fn a_sequence_that_becomes_a_fork_of_another_one_goes_on_alone() {
    let mut model = Cpu::default().build_module::<Mixed, f32>();
    scatter(&mut model);
    let prompts = [text(0, 600), text(1, 30), text(2, 4)];
    let mut sessions = model.sessions(3, CAPACITY).unwrap();
    let of: Vec<&[usize]> = prompts.iter().map(Vec::as_slice).collect();
    sessions.prefill(&of).unwrap();
    sessions.copy(0, 2);
    sessions.copy(1, 1);
    assert_eq!(sessions.lens(), [600, 30, 600]);
    assert_eq!(sessions.results().row(2), sessions.results().row(0));
    let tokens = [3, 5, 7];
    let found = sessions.step(&tokens).unwrap();
    for (sequence, prompt) in [0, 1, 0].into_iter().enumerate() {
        let mut alone = model.session(CAPACITY).unwrap();
        alone.prefill(&prompts[prompt]).unwrap();
        let expected = alone.step(tokens[sequence]).unwrap();
        for (found, expected) in found.row(sequence).iter().zip(expected) {
            // Products of three tokens at once sum in another order.
            assert!((found - expected).abs() < 1e-5 * expected.abs().max(1.0));
        }
    }
}

/// The prompt is in memory once, and each sample is what a session of its own generates.
#[test]
fn samples_of_a_prompt_share_it() {
    let mut model = Cpu::default().build_module::<All, f32>();
    scatter(&mut model);
    let prompt = text(0, 2 * PAGE);
    let sampling = |seed| Sampling {
        seed,
        ..Sampling::default()
    };
    let mut sessions = model.sessions(3, CAPACITY).unwrap();
    let samples = sessions
        .generate_samples(&prompt, sampling(8), &[])
        .unwrap();
    let samples = samples.continuations(12).unwrap();
    for (sample, seed) in samples.iter().zip(8..) {
        let mut alone = model.session(CAPACITY).unwrap();
        let expected = alone.generate(&prompt, sampling(seed), &[]).unwrap();
        let expected = expected.take(12).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(*sample, expected, "seed {seed}");
    }
    assert_ne!(samples[0], samples[1]);
    // Each has a page of its own for its new tokens.
    let memory = sessions.cache_memory();
    assert_eq!(memory.own, 3 * bytes(CAPACITY - 2 * PAGE));
    assert_eq!(memory.shared, 3 * bytes(2 * PAGE));
    assert!(
        model
            .sessions(0, 5)
            .unwrap()
            .generate_samples(&[1], sampling(0), &[])
            .is_err()
    );
}

#[test]
fn beams_leave_the_session_and_are_the_continuations_of_a_longer_prompt() {
    let start = session_of!(All);
    let prompt = text(0, PAGE + 70);
    let mut session = start();
    session.prefill(&prompt[..PAGE]).unwrap();
    let search = BeamSearch {
        beams: 3,
        tokens: 8,
        ..BeamSearch::default()
    };
    let beams = session.beam_search(&prompt[PAGE..], &search).unwrap();
    assert_eq!(session.len(), PAGE);
    assert_eq!(session.cache_memory().own, bytes(PAGE));
    // The probability of the best one, token by token.
    let mut alone = start();
    alone.prefill(&prompt[..PAGE]).unwrap();
    alone.prefill(&prompt[PAGE..]).unwrap();
    let mut log_probability = 0.0;
    for token in &beams[0].tokens {
        let choice = attn::generate::Choice::new(*token, alone.results(), 0).unwrap();
        log_probability += choice.log_probability;
        alone.step(*token).unwrap();
    }
    assert_eq!(beams[0].log_probability, log_probability);
}
