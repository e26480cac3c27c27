//! Models of layers with options, as those of [`cases`](crate::cases): norms, feed-forward layers, rotary embeddings, positions.

/// Layers without dropout.
#[macro_export]
macro_rules! layer_options {
    ($run:ident) => {
        $run! {
            layer_norms {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = layer_norm::<gain = false, bias = false>(x);
                    let b = layer_norm::<bias = false>(x + a);
                    let c = layer_norm::<gain = false>(b);
                    let d = layer_norm::<gain = one_plus>(c);
                    layer_norm::<gain = one_plus, bias = false>(d) * 2
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            rms_norms {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = rms_norm::<gain = false, epsilon = 0.1>(x);
                    exp(rms_norm::<gain = one_plus>(x + a))
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            group_norms_of_vectors {
                struct M<d = 12>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = group_norm::<3, gain = false, bias = false, epsilon = 0.1>(x);
                    let b = group_norm::<groups = 2, gain = one_plus>(x * a);
                    group_norm::<4, bias = false, epsilon = 0.1>(b) + group_norm::<1, gain = false>(b)
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<12>))) reads x;

            group_norms_of_channels {
                struct M<channels = 4, width = 3>;
                fn forward(x: [batch, channels, width, seq]) -> [batch, channels, width, seq] {
                    let a = group_norm::<2, axis = channels>(x);
                    group_norm::<4, axis = channels, gain = one_plus, bias = false>(x * a) + group_norm::<1, axis = width>(a)
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, Const::<4>, Const::<3>, seq))) reads x;

            feed_forwards_with_keys {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = feed_forward::<5, bias = false, activation = gelu_tanh>(x);
                    let b = feed_forward::<5, activation = geglu_tanh>(a);
                    feed_forward::<5, activation = swiglu, bias = true>(a + b)
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            rotations {
                struct M<d = 12>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = attention::<2, mask = causal, position = rope(scaling = llama3(4, 1, 4, 16))>(x);
                    let b = attention::<2, position = rope(interleaved, dims = 4)>(x + a);
                    let c = attention::<2, position = rope(scaling = yarn(4, 16)), qk_norm = rms(gain = one_plus)>(b);
                    attention::<2, position = rope(scaling = dynamic_ntk(2, 2)), qk_norm = rms(gain = false)>(c)
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<12>))) reads x;

            long_rotations {
                struct M<d = 12, short = [1.0, 1.25, 2.0]>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = attention::<2, mask = causal, position = rope(scaling = longrope(short, [2.0, 3.0, 5.0], 4, 8))>(x);
                    attention::<2, position = rope(scaling = longrope([3, 2.0, 4.0], short, 2.0, 2, attention_factor = 1.5))>(x + a)
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<12>))) reads x;

            bilinear_with_gain {
                struct M<d = 12>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    attention::<2, score = bilinear, qk_norm = rms(gain = one_plus)>(x)
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<12>))) reads x;

            positions {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d], places: ids[batch, seq], same: ids[seq]) -> [batch, seq, d] {
                    let x = x + learned_position::<9, d>(x, position_ids = places) + learned_position::<9, d>(x, position_ids = same);
                    let a = attention::<2, mask = causal, position = rope>(x, position_ids = places);
                    attention::<2, position = rope(dims = 2, interleaved)>(x + a, position_ids = same)
                }
            } (batch: 2, seq: 3) (
                x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<8>)),
                $crate::cases::ids((batch, seq), 9), $crate::cases::ids((seq,), 9)
            ) reads x;

            positions_of_two_sequences {
                struct M<d = 8>;
                fn forward(x: [batch, q, d], y: [batch, k, d], of_x: ids[q], of_y: ids[batch, k]) -> [batch, q, d] {
                    attention::<2, position = rope>(x, context = y, position_ids = (of_x, of_y))
                }
            } (batch: 2, q: 3, k: 4) (
                x: $crate::cases::tensor::<_, E>("x", (batch, q, Const::<8>)),
                $crate::cases::tensor::<_, E>("y", (batch, k, Const::<8>)),
                $crate::cases::ids((q,), 30_000), $crate::cases::ids((batch, k), 9)
            ) reads x;
        }
    };
}

/// Layers with dropout.
#[macro_export]
macro_rules! layer_dropouts {
    ($run:ident) => {
        $run! {
            dropout_of_hidden_layers {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = feed_forward::<9, dropout = 0.3, activation = tanh>(x);
                    dropout::<0.2>(feed_forward::<7, activation = geglu_tanh, dropout = 0.4>(x + a)) + a
                }
            } (batch: 2, seq: 3) (x: $crate::cases::tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;
        }
    };
}
