//! Models of text.

cases! {
    // Lester et al. 2021: learned vectors before the tokens.
    prompt_tuning {
        struct M<vocab = 7, d = 4, tokens = 3, all = 5>;
        fn forward(ids: ids[batch, tokens]) -> [batch, vocab] {
            param prompt: [2, d] = normal(0.02);
            let mut x = concat::<all>(prompt, embedding::<vocab, d>(ids));
            x += learned_position::<8, d>(x);
            repeat 2 {
                x += attention::<heads = 2, mask = causal>(layer_norm(x));
                x += feed_forward::<8, activation = gelu_tanh>(layer_norm(x));
            }
            let x = layer_norm(x);
            linear::<tied = embedding>(x[all = -1])
        }
    } (ids: ids[_, 3]);

    // Gemma Team 2024: scaled embeddings, norms before and after, soft caps, every other layer a window.
    gemma_2 {
        struct M<vocab = 7, d = 4>;
        fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(ids) * sqrt(d);
            repeat 2 {
                let y = attention::<
                    2, kv_heads = 1, head_dim = 4, scale = 0.4, softcap = 0.8, mask = sliding_window(2), position = rope, bias = false, name = local
                >(rms_norm(x));
                x += rms_norm(y);
                let y = rms_norm(x);
                let y = gelu_tanh(linear::<8, bias = false>(y)) * linear::<8, bias = false>(y);
                x += rms_norm(linear::<d, bias = false>(y));
                let y = attention::<
                    2, kv_heads = 1, head_dim = 4, scale = 0.4, softcap = 0.8, mask = causal, position = rope, bias = false, name = global
                >(rms_norm(x));
                x += rms_norm(y);
            }
            let logits = linear::<tied = embedding>(rms_norm(x));
            3 * tanh(logits / 3)
        }
    } (ids: ids[_, _]);

    // GPT-NeoX, Black et al. 2022: attention and the feed-forward layer read the same sum, and a part of each head is rotated.
    parallel_residual {
        struct M<vocab = 7, d = 8>;
        fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(ids);
            repeat 2 {
                x = x
                    + attention::<heads = 2, mask = causal, position = rope(dims = 2)>(layer_norm(x))
                    + feed_forward::<12, activation = gelu>(layer_norm(x));
            }
            linear::<vocab, bias = false>(layer_norm(x))
        }
    } (ids: ids[_, _]);

    // A gate of what an attention read (Qiu et al. 2025), behind its output projection.
    gated_attention {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = rms_norm(x);
            x + sigmoid(linear::<d, bias = false>(y)) * attention::<heads = 2, mask = causal, qk_norm = rms, position = rope, bias = false>(y)
        }
    } (x: floats[_, _, 4]);

    // Zhou et al. 2024: the values of the first layer are mixed with those of each other layer.
    value_residual {
        struct M<d = 6, heads = 2, width = 3>;
        block values(x: [batch, seq, d]) -> [batch, heads, seq, width] {
            rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<d, bias = false>(x))
        }
        block weighted(x: [batch, seq, d], v: [batch, heads, seq, width]) -> [batch, seq, d] {
            let q = linear::<d, bias = false, name = q>(x);
            let k = linear::<d, bias = false, name = k>(x) as [batch, kv = seq, d];
            let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(q);
            let k = rearrange::<[batch, kv, (heads, width)] -> [batch, heads, kv, width]>(k);
            let scores = einsum::<[batch, heads, seq, kv]>(q, k) / sqrt(width);
            let scores = if arange::<kv>() <= arange::<seq>() { scores } else { -1e30 };
            let y = einsum::<[batch, heads, seq, width]>(softmax::<kv>(scores), v as [batch, heads, kv = seq, width]);
            linear::<d, bias = false, name = out>(rearrange::<[batch, seq, (heads, width)]>(y))
        }
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = rms_norm(x);
            let first = values(y);
            let mut x = x + weighted::<name = attend>(y, first);
            repeat 2 {
                param mix: [2] = 0.5;
                let y = rms_norm(x);
                x += weighted::<name = attend>(y, mix[2 = 0] * values(y) + mix[2 = 1] * first);
            }
            x
        }
    } (x: floats[_, _, 6]);

    // The speed runs of nanoGPT (Jordan et al. 2024): skips from the first half of the layers to the second, mixtures with the first
    // value, norms without gains, squared ReLU and capped logits.
    skips_of_a_u {
        struct M<vocab = 7, d = 4>;
        fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
            param mix: [2] = 0.5;
            param skip: [2] = ones;
            let x = embedding::<vocab, d>(ids);
            let first = x / sqrt(mean::<d>(x * x) + 1e-6);
            let a = first + attention::<heads = 2, mask = causal, qk_norm = rms, position = rope, bias = false>(first);
            let b = a + linear::<d, bias = false>(relu_squared(linear::<8, bias = false>(a / sqrt(mean::<d>(a * a) + 1e-6))));
            let c = mix[2 = 0] * (b + skip[2 = 0] * b) + mix[2 = 1] * first;
            let c = c + attention::<heads = 2, mask = causal, qk_norm = rms, position = rope, bias = false>(c / sqrt(mean::<d>(c * c) + 1e-6));
            let e = c + skip[2 = 1] * a;
            let e = e + linear::<d, bias = false>(relu_squared(linear::<8, bias = false>(e / sqrt(mean::<d>(e * e) + 1e-6))));
            let logits = linear::<vocab, bias = false>(e / sqrt(mean::<d>(e * e) + 1e-6));
            15 * tanh(logits / 15)
        }
    } (ids: ids[_, _]);

    // nGPT, Loshchilov et al. 2024: vectors of length 1, and learned steps from one to the next.
    normalized_transformer {
        struct M<vocab = 7, d = 4, hidden = 6>;
        block step(h: [.., d], y: [.., d]) -> [.., d] {
            param rate: [d] = 0.05;
            l2_norm(h + abs(rate) * (l2_norm(y) - h))
        }
        fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
            param of_logits: [vocab] = ones;
            let mut h = l2_norm(embedding::<vocab, d>(ids));
            repeat 2 {
                param of_hidden: [hidden] = ones;
                h = step(h, attention::<heads = 2, mask = causal, qk_norm = l2, scale = 1.5, position = rope, bias = false>(h));
                let (gate, up) = split(linear::<{ 2 * hidden }, bias = false>(h));
                h = step(h, linear::<d, bias = false, name = down>(of_hidden * up * silu(sqrt(d) * of_hidden * gate)));
            }
            of_logits * linear::<vocab, bias = false, name = head>(h)
        }
    } (ids: ids[_, _]);

    // Katharopoulos et al. 2020: an attention in linear time, which sums up products of keys and values.
    linear_attention {
        struct M<d = 4, width = 3>;
        block positive(x: [..]) -> [..] { if x > 0 { 1 + x } else { exp(x) } }
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let q = positive(linear::<width, bias = false, name = q>(x));
            let k = positive(linear::<width, bias = false, name = k>(x));
            let v = linear::<d, bias = false, name = v>(x);
            let memory = cumsum::<seq>(einsum::<[batch, seq, width, d]>(k, v));
            einsum::<[batch, seq, d]>(q, memory) / einsum::<[batch, seq]>(q, cumsum::<seq>(k))
        }
    } (x: floats[_, _, 4]);

    // DeepSeek-V2: the queries are brought to the latents, which are keys and values of all heads. 1 / sqrt(2 + 3) is the scale.
    multi_head_latent_attention {
        struct M<vocab = 7, d = 6, heads = 2, rank = 4, rot = 2, nope = 3, value = 3, scale = 0.4472135954999579>;
        fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
            param up_k: [rank, heads, nope] = normal(0.2);
            param up_v: [rank, heads, value] = normal(0.2);
            let x = embedding::<vocab, d>(ids);
            let rotated = linear::<{ heads * rot }, bias = false, name = q_rotated>(x);
            let rotated = rope::<seq>(rearrange::<[batch, seq, (heads, rot)] -> [batch, seq, heads, rot]>(rotated));
            let content = linear::<{ heads * nope }, bias = false, name = q_content>(x);
            let content = rearrange::<[batch, seq, (heads, nope)] -> [batch, seq, heads, nope]>(content);
            let latent = rms_norm(linear::<rank, bias = false, name = down>(x));
            let key = rope(linear::<rot, bias = false, name = key>(x));
            let q = concat(rotated, einsum::<[batch, seq, heads, rank]>(content, up_k));
            let y = attend::<mask = causal, scale = scale>(q, concat(key, latent), latent);
            let y = rearrange::<[batch, seq, (heads, value)]>(einsum::<[batch, seq, heads, value]>(y, up_v));
            linear::<tied = embedding>(x + linear::<d, bias = false, name = merged>(y))
        }
    } (ids: ids[_, _]);
}
