//! Layers with parameters, positions and dropout.

cases! {
    embeddings {
        struct M<vocab = 7, d = 4>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            embedding::<vocab, d>(tokens) + learned_position::<5, d>(tokens) + sinusoidal_position::<d>(tokens)
        }
    } (tokens: ids[_, _]);

    positions_of_floats {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            x * learned_position::<3, d>(x) - sinusoidal_position::<d>(x)
        }
    } (x: floats[_, _, 4]);

    tied_tables {
        struct M<vocab = 7, d = 4>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            linear::<tied = embedding>(gelu(x) + embedding::<tied = embedding>(tokens))
        }
    } (tokens: ids[_, _]);

    linears {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 2] { linear::<2, bias = false>(linear::<5>(x)) }
    } (x: floats[_, _, 4]);

    mixtures_of_experts {
        struct M<d = 4, experts = 5, hidden = 6>;
        fn forward(x: [batch, seq, d], speaker: ids[batch]) -> ([batch, seq, d], []) {
            let chances = softmax(linear::<experts, bias = false, name = gate>(x));
            let (best, ids) = top_k::<k = 2>(chances);
            let h = silu(grouped_linear::<hidden, experts, bias = false, name = w1>(x, ids));
            let h = h * grouped_linear::<hidden, experts, bias = false, name = w3>(x, ids);
            let y = sum::<2>(best / sum::<2>(best) * grouped_linear::<d, experts, bias = false, name = w2>(h, ids));
            let share = mean::<[batch, seq]>(sum::<2>(one_hot::<experts>(ids)));
            let balance = experts * sum::<experts>(share * mean::<[batch, seq]>(chances));
            (y + grouped_linear::<d, groups = 3, name = adapter>(x, speaker), balance)
        }
    } (x: floats[_, _, 4], speaker: ids[_]);

    experts_with_a_capacity {
        struct M<d = 4, experts = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let (best, ids) = top_k::<k = 1>(softmax(linear::<experts, name = gate>(x)));
            sum::<1>(best * grouped_linear::<d, experts, capacity_factor = 0.8, name = expert>(x, ids))
        }
    } (x: floats[_, _, 4]);

    feed_forwards {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 28] {
            concat(
                feed_forward::<6, activation = gelu>(x),
                feed_forward::<3, activation = gelu_tanh>(x),
                feed_forward::<5, activation = relu>(x),
                feed_forward::<2, activation = relu_squared>(x),
                feed_forward::<3, activation = silu>(x),
                feed_forward::<4, activation = sigmoid>(x),
                feed_forward::<1, activation = tanh>(x),
            )
        }
    } (x: floats[_, _, 4]);

    gated_feed_forwards {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 12] {
            concat(
                feed_forward::<6, activation = swiglu>(x),
                feed_forward::<3, activation = geglu>(x),
                feed_forward::<5, activation = reglu>(x),
            )
        }
    } (x: floats[_, _, 4]);

    norms {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { layer_norm(x) * rms_norm(x) }
    } (x: floats[_, _, 4]);

    group_norms {
        struct M<d = 8, channels = 4, height = 3, width = 2>;
        fn forward(x: [batch, seq, d], image: [batch, channels, height, width]) -> ([batch, seq, d], [batch, channels, height, width]) {
            (group_norm::<2>(x), group_norm::<2, axis = channels, name = channels_norm>(image))
        }
    } (x: floats[_, _, 8], image: floats[_, 4, 3, 2]);

    norms_with_a_large_epsilon {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 16] {
            concat(
                layer_norm::<epsilon = 0.5>(x),
                rms_norm::<epsilon = 0.25>(x),
                l2_norm::<epsilon = 100.0>(x),
                l2_norm(x),
            )
        }
    } (x: floats[_, _, 4]);

    dropout_acts_in_training_only {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { dropout::<0.5>(x) + dropout::<0.0>(linear::<d>(x)) }
    } (x: floats[_, _, 4]);

    learned_tensors {
        struct M<seq = 3, d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param table: [seq, d] = normal(1.0);
            param token: [d] = zeros;
            param temperature: [] = 1;
            (x * table + token) / (2 + temperature * temperature)
        }
    } (x: floats[_, 3, 4]);

    rounds {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 3 {
                param gain: [d] = ones;
                x += gain * linear::<d>(layer_norm(x));
            }
            repeat 2, share = true, name = shared { x = tanh(linear::<d, bias = false>(x)); }
            x
        }
    } (x: floats[_, _, 4]);
}
