//! Scans: recurrent layers of PyTorch, and formulas of papers in their parallel forms.

cases! {
    gru {
        struct M<d = 3, hidden = 4>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, hidden], [batch, hidden]) {
            scan seq {
                state h: [batch, hidden] = 0.0;
                let (xr, xz, xn) = split(linear::<{ 3 * hidden }, name = w_ih>(x));
                let (hr, hz, hn) = split(linear::<{ 3 * hidden }, name = w_hh>(h));
                let z = sigmoid(xz + hz);
                h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
                yield h;
                h
            }
        }
    } (x: floats[_, _, 3]);

    lstm {
        struct M<d = 3, hidden = 4>;
        fn forward(x: [batch, seq, d], start: [batch, hidden], start_cell: [batch, hidden]) -> ([batch, seq, hidden], [batch, hidden]) {
            scan seq {
                state h: [batch, hidden] = start;
                state c: [batch, hidden] = start_cell;
                let gates = linear::<{ 4 * hidden }, name = w_ih>(x) + linear::<{ 4 * hidden }, name = w_hh>(h);
                let (i, f, g, o) = split(gates);
                c = sigmoid(f) * c + sigmoid(i) * tanh(g);
                h = sigmoid(o) * tanh(c);
                yield h;
                c
            }
        }
    } (x: floats[_, _, 3], start: floats[_, 4], start_cell: floats[_, 4]);

    bidirectional_rnn {
        struct M<d = 3, hidden = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 8] {
            let forwards = scan seq {
                state h: [batch, hidden] = 0.0;
                h = tanh(linear::<hidden, name = forwards_ih>(x) + linear::<hidden, name = forwards_hh>(h));
                yield h;
            };
            let backwards = scan seq, reverse = true {
                state h: [batch, hidden] = 0.0;
                h = tanh(linear::<hidden, name = backwards_ih>(x) + linear::<hidden, name = backwards_hh>(h));
                yield h;
            };
            concat(forwards, backwards)
        }
    } (x: floats[_, _, 3]);

    decoder_with_additive_attention {
        struct M<d = 3, hidden = 6, e = 4>;
        fn forward(x: [batch, seq, d], memory: [batch, src, e], lens: lens[batch]) -> ([batch, seq, hidden], [batch, seq, src]) {
            let keys = linear::<hidden, bias = false, name = keys>(memory);
            let (y, alignment) = scan seq {
                state h: [batch, hidden] = 0.0;
                let query = linear::<hidden, name = query>(h);
                let (context, weights) = attend::<score = additive(hidden = hidden), mask = padding, name = alignment>(
                    query, keys, memory, padding = lens
                );
                h = tanh(linear::<hidden, name = input>(concat(x, context)) + linear::<hidden, bias = false, name = before>(h));
                yield (h, weights);
            };
            (y, alignment)
        }
    } (x: floats[_, _, 3], memory: floats[_, _, 4], lens: lens[_]);

    linear_attention {
        struct M<key = 3, value = 3>;
        fn forward(q: [batch, seq, key], k: [batch, seq, key], v: [batch, seq, value]) -> [batch, seq, value] {
            scan seq {
                state s: [batch, key, value] = 0.0;
                state z: [batch, key] = 0.0;
                let q = if q > 0 { q + 1 } else { exp(q) };
                let k = if k > 0 { k + 1 } else { exp(k) };
                s = s + einsum::<[batch, key, value]>(k, v);
                z = z + k;
                yield einsum::<[batch, value]>(q, s) / einsum::<[batch]>(q, z);
            }
        }
    } (q: floats[_, _, 3], k: floats[_, _, 3], v: floats[_, _, 3]);

    retention {
        struct M<key = 3, value = 3>;
        fn forward(q: [batch, seq, key], k: [batch, seq, key], v: [batch, seq, value]) -> [batch, seq, value] {
            scan seq {
                state s: [batch, key, value] = 0.0;
                s = 0.9 * s + einsum::<[batch, key, value]>(k, v);
                yield einsum::<[batch, value]>(q, s);
            }
        }
    } (q: floats[_, _, 3], k: floats[_, _, 3], v: floats[_, _, 3]);

    selective_state_space {
        struct M<d = 3, n = 2>;
        fn forward(x: [batch, seq, d], b: [batch, seq, n], c: [batch, seq, n]) -> [batch, seq, d] {
            param a: [d, n] = normal(0.5);
            param skip: [d] = ones;
            scan seq {
                state h: [batch, d, n] = 0.0;
                let delta = ln(1 + exp(linear::<d>(x)));
                let decay = exp(-einsum::<[batch, d, n]>(delta, exp(a)));
                h = decay * h + einsum::<[batch, d, n]>(delta * x, b);
                yield einsum::<[batch, d]>(h, c) + skip * x;
            }
        }
    } (x: floats[_, _, 3], b: floats[_, _, 2], c: floats[_, _, 2]);
}
