//! A network of several layers: the loop of the absorbed form runs the layers of the expanded one.

use super::*;

model! {
    struct Stack<vocab = 7, d_model = 12, heads = 2, rank = 6, rot = 2, nope = 4, value = 3, layers = 3, scale = 0.4082482904638631>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embed(tokens);
        repeat layers {
            x += mla(rms_norm(x));
            x += feed_forward::<16, activation = gelu>(rms_norm(x));
        }
        logits(x)
    }

    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embed(tokens);
        repeat layers, tied = blocks {
            x += mla::<absorbed = true>(rms_norm(x));
            x += feed_forward::<16, activation = gelu>(rms_norm(x));
        }
        logits(x)
    }

    fn embed(tokens: ids[batch, seq]) -> [batch, seq, d_model] { embedding::<vocab, d_model>(tokens) }

    fn logits(x: [batch, seq, d_model]) -> [batch, seq, vocab] { linear::<tied = embedding>(rms_norm(x)) }

    block mla(x: [batch, seq, d_model], absorbed = false) -> [batch, seq, d_model] {
        param up_k: [rank, heads, nope] = normal(0.3);
        param up_v: [rank, heads, value] = normal(0.3);
        let rotated = linear::<{ heads * rot }, name = q_rotated>(x);
        let rotated = rope::<seq>(rearrange::<[batch, seq, (heads, rot)] -> [batch, seq, heads, rot]>(rotated));
        let content = linear::<{ heads * nope }, name = q_content>(x);
        let content = rearrange::<[batch, seq, (heads, nope)] -> [batch, seq, heads, nope]>(content);
        let latent = rms_norm(linear::<rank>(x));
        let key = rope(linear::<rot>(x));
        let y = if absorbed {
            einsum::<[batch, seq, heads, value]>(
                attend::<mask = causal, scale = scale>(
                    concat(rotated, einsum::<[batch, seq, heads, rank]>(content, up_k)), concat(key, latent), latent
                ),
                up_v
            )
        } else {
            attend::<mask = causal>(
                concat(rotated, content),
                concat(expand::<[batch, seq, heads, rot]>(key), einsum::<[batch, seq, heads, nope]>(latent, up_k)),
                einsum::<[batch, seq, heads, value]>(latent, up_v)
            )
        };
        linear::<d_model, name = output>(rearrange::<[batch, seq, (heads, value)]>(y))
    }
}

#[test]
fn both_loops_have_the_same_layers() {
    let mla = 6 * 2 * (4 + 3)
        + (12 * 2 * 2 + 2 * 2)
        + (12 * 2 * 4 + 2 * 4)
        + (12 * 6 + 6)
        + 6
        + (12 * 2 + 2)
        + (2 * 3 * 12 + 12);
    let others = 2 * 12 + (12 * 16 + 16) + (16 * 12 + 12);
    assert_eq!(Stack::PARAMS, 7 * 12 + 12 + 3 * (mla + others));
    let mut model = Cpu::default().build_module::<Stack, f64>();
    scatter(&mut model);
    let tokens = ids((2, 9), 7);
    let expanded: Outcome = backpropagate(model.forward(tokens.leaky_trace())).parameters(&model);
    let absorbed = backpropagate(model.decode(tokens.leaky_trace())).parameters(&model);
    assert_same("absorbed", &absorbed, &expanded, 1e-11);
}

#[test]
fn a_session_of_all_layers_caches_the_latents_alone() {
    const { assert!(Stack::decode_cache_bytes_per_token() == 3 * (6 + 2) * 4) };
    let mut model = Cpu::default().build_module::<Stack, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 5, 0, 2, 6];
    let whole: Tensor<Rank3<1, 8, 7>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
    let mut session = model.decode_session(8).unwrap();
    assert_eq!(
        session.cache_bytes(),
        8 * 2 * Stack::decode_cache_bytes_per_token()
    );
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        assert_close(position, logits, &whole.array()[0][position], 1e-11);
    }
}

model! {
    /// Both loops have an `attend` that learns, behind one that does not.
    struct Learned<vocab = 7, d = 6, heads = 2, w = 3, layers = 2>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers { x += mix(x); }
        linear::<vocab>(x)
    }

    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<tied = embedding>(tokens);
        repeat layers, tied = blocks { x += mix(x); }
        linear::<tied = embedding>(x)
    }

    block mix(x: [batch, seq, d]) -> [batch, seq, d] {
        let q = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(linear::<d>(x));
        let y = attend::<mask = causal>(q, q, q);
        let y = attend::<mask = causal, normalizer = sink>(y, q, y) {
            param slope: [heads] = alibi_slopes;
            fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
        };
        rearrange::<[batch, seq, (heads, w)]>(y)
    }
}

/// The slopes and the sinks of the second loop are those of the first one.
#[test]
fn an_attention_that_learns_is_tied() {
    assert_eq!(
        Learned::PARAMS,
        7 * 6 + 2 * ((6 * 6 + 6) + 2 + 2) + (6 * 7 + 7)
    );
    let mut model = Cpu::default().build_module::<Learned, f64>();
    scatter(&mut model);
    let tokens = ids((2, 5), 7);
    let ran: Outcome = backpropagate(model.decode(tokens.leaky_trace())).parameters(&model);
    let slopes = ran.gradients().filter(|(name, _)| name.contains("slope"));
    let slopes: Vec<_> = slopes.collect();
    assert_eq!(slopes.len(), 2, "{slopes:?}");
    for (name, d) in slopes {
        assert!(d.iter().any(|d| *d != 0.0), "{name}: {d:?}");
    }
}
