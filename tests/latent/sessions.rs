//! Sessions that remember the latents alone.

use super::*;

#[test]
fn a_session_of_the_absorbed_form_is_the_expanded_one() {
    let mut model = Cpu::default().build_module::<Mla, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 5, 0, 2, 6];
    let whole: Tensor<Rank3<1, 8, 7>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
    let mut absorbed = model.decode_session(8).unwrap();
    let mut expanded = model.session(8).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        for session in [&mut absorbed, &mut expanded] {
            let logits = session.prefill(&[token]).unwrap();
            assert_close(position, logits, &whole.array()[0][position], 1e-12);
        }
    }
}

/// The latent and the rotated key, against keys and values of all heads.
#[test]
fn a_session_of_the_absorbed_form_caches_the_latents_alone() {
    const LATENTS: usize = Mla::decode_cache_bytes_per_token();
    const EXPANDED: usize = Mla::cache_bytes_per_token();
    const { assert!(LATENTS == (8 + 4) * 4 && EXPANDED == 3 * (4 + 6 + 5) * 4) };
    let model = Cpu::default().build_module::<Mla, f32>();
    for capacity in [1, 8, 500] {
        let absorbed = model.decode_session(capacity).unwrap();
        assert_eq!(absorbed.cache_bytes(), capacity * LATENTS);
        let expanded = model.session(capacity).unwrap();
        assert_eq!(expanded.cache_bytes(), capacity * EXPANDED);
    }
}

model! {
    /// Values that are a part of their keys, in six ways.
    struct Parts<vocab = 7, d = 6, both = 12, heads = 2>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let q = rearrange::<[batch, seq, (heads, both)] -> [batch, seq, heads, both]>(linear::<24>(x));
        let c = tanh(x);
        let k = concat::<both>(sin(x), c);
        let mut y = attend::<mask = causal>(q, k, c);
        y += attend::<mask = sliding_window(20)>(q, k, k[both = 2..8]);
        y += attend::<mask = causal, position = rope(dims = 6)>(q, k, c);
        y += attend::<mask = causal>(q, k, k)[both = 6..];
        // The keys are cached in another way than the values.
        y += attend::<mask = causal, position = rope(dims = 8)>(q, k, c);
        y += attend::<mask = causal, qk_norm = l2>(q, k, c);
        linear::<vocab>(mean::<heads>(y))
    }
}

#[test]
fn values_that_are_a_part_of_their_keys_are_cached_once() {
    const { assert!(Parts::cache_bytes_per_token() == (4 * 12 + 2 * 18) * 4) };
    let mut model = Cpu::default().build_module::<Parts, f64>();
    scatter(&mut model);
    // More than the window and the new tokens of a step: keys are evicted.
    let tokens = ids((1, 400), 7);
    let whole = model.forward(tokens.clone()).as_vec();
    let tokens = tokens.as_vec();
    let mut session = model.session(400).unwrap();
    for step in [0..1, 1..200, 200..399, 399..400] {
        let logits = session.prefill(&tokens[step.clone()]).unwrap();
        assert_close(step.end, logits, &whole[7 * (step.end - 1)..][..7], 1e-12);
    }
    let mut copy = session.fork();
    copy.reset();
    let logits = copy.prefill(&tokens[..3]).unwrap();
    assert_close("again", logits, &whole[14..21], 1e-12);
}
