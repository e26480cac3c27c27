//! Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), expanded for training and absorbed for sessions.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod formula;
mod sessions;
mod stacked;

use attn::{dfdx::prelude::*, model};
use support::cases::{ids, scatter};
use support::close::assert_close;
use support::compare::{Outcome, assert_same, backpropagate};

model! {
    /// Keys and values are made of a latent for each token, and all heads share one key that is rotated by the position.
    struct Mla<vocab = 7, d_model = 12, heads = 3, q_rank = 10, rank = 8, rot = 4, nope = 6, value = 5, scale = 0.31622776601683794>;

    /// In training, each head has its keys and values.
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let { x, rotated, content, key, latent, up_k, up_v } = latents(tokens);
        let k = einsum::<[batch, seq, heads, nope]>(latent, up_k);
        let v = einsum::<[batch, seq, heads, value]>(latent, up_v);
        let key = expand::<[batch, seq, heads, rot]>(key);
        logits(x, attend::<mask = causal>(concat(rotated, content), concat(key, k), v))
    }

    /// The same with queries that are brought to the latents: keys and values are the latents themselves.
    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let { x, rotated, content, key, latent, up_k, up_v } = latents(tokens);
        let q = concat(rotated, einsum::<[batch, seq, heads, rank]>(content, up_k));
        let y = attend::<mask = causal, scale = scale>(q, concat(key, latent), latent);
        logits(x, einsum::<[batch, seq, heads, value]>(y, up_v))
    }

    fn latents(tokens: ids[batch, seq]) -> {
        x: [batch, seq, d_model],
        rotated: [batch, seq, heads, rot], content: [batch, seq, heads, nope],
        key: [batch, seq, rot], latent: [batch, seq, rank],
        up_k: [rank, heads, nope], up_v: [rank, heads, value]
    } {
        param up_k: [rank, heads, nope] = normal(0.3);
        param up_v: [rank, heads, value] = normal(0.3);
        let x = embedding::<vocab, d_model>(tokens);
        let q = rms_norm::<name = q_norm>(linear::<q_rank, bias = false, name = q_down>(x));
        let rotated = linear::<{ heads * rot }, bias = false, name = q_rotated>(q);
        let content = linear::<{ heads * nope }, bias = false, name = q_content>(q);
        let latent = rms_norm::<name = kv_norm>(linear::<rank, bias = false, name = kv_down>(x));
        let key = rope(linear::<rot, bias = false, name = k_rotated>(x));
        {
            x, key, latent, up_k, up_v,
            rotated: rope::<seq>(rearrange::<[batch, seq, (heads, rot)] -> [batch, seq, heads, rot]>(rotated)),
            content: rearrange::<[batch, seq, (heads, nope)] -> [batch, seq, heads, nope]>(content)
        }
    }

    fn logits(x: [batch, seq, d_model], y: [batch, seq, heads, value]) -> [batch, seq, vocab] {
        let y = linear::<d_model, bias = false, name = output>(rearrange::<[batch, seq, (heads, value)]>(y));
        linear::<tied = embedding>(x + y)
    }
}
