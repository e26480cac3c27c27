//! Token by token: ids of the call and computed ones, along the numbers of a token.

use super::claim::tolerance;
use super::*;
use attn::model;

/// A token may be any of these.
const VOCAB: usize = 7;

/// How many numbers a token has.
const WIDTH: usize = 5;

/// The tokens of two sequences, with the largest one.
const TOKENS: [[usize; 5]; 2] = [[3, 1, 6, 1, 2], [0, 6, 6, 5, 4]];

/// Claims that a session computes what the forward pass does: of single tokens, of several at once, and of two sequences.
macro_rules! sessions {
    ($($name:ident { $($model:tt)* })*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            let mut model = Cpu::default().build_module::<M, f64>();
            scatter(&mut model);
            let whole = |tokens: &[usize]| {
                let shape = (1, tokens.len());
                let tokens: Tensor<(usize, usize), usize, Cpu> = Cpu::default().tensor_from_vec(tokens.to_vec(), shape);
                let results = model.forward(tokens).as_vec();
                results[results.len() - WIDTH..].to_vec()
            };
            let mut alone = model.session(5).unwrap();
            let mut at_once = model.session(5).unwrap();
            let mut two = model.sessions(2, 5).unwrap();
            at_once.prefill(&TOKENS[0][..3]).unwrap();
            for place in 0..5 {
                let [first, second] = TOKENS.map(|tokens| whole(&tokens[..=place]));
                assert_close(stringify!($name), alone.step(TOKENS[0][place]).unwrap(), &first);
                if place >= 3 {
                    assert_close(stringify!($name), at_once.step(TOKENS[0][place]).unwrap(), &first);
                } else if place == 2 {
                    assert_close(stringify!($name), at_once.results(), &first);
                }
                let results = two.step(&TOKENS.map(|tokens| tokens[place])).unwrap();
                assert_close(stringify!($name), results.row(0), &first);
                assert_close(stringify!($name), results.row(1), &second);
            }
            alone.reset();
            assert!(alone.step(VOCAB).is_err(), "a token beyond the table");
        }
    )*};
}

fn assert_close(name: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let mut pairs = found.iter().zip(expected);
    assert!(
        pairs.all(|(a, b)| (a - b).abs() < tolerance::<f64>()),
        "{name}: {found:?}, not {expected:?}"
    );
}

sessions! {
    // Computed ids are of a smaller table than the tokens are.
    embeddings_of_computed_ids {
        struct M<vocab = 7, few = 3, d = 5>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            let x = embedding::<vocab, d>(tokens);
            let x = x + embedding::<few, d>(argmax::<few>(linear::<few>(x)));
            x + attention::<heads = 1, mask = causal>(x)
        }
    }

    rows_at_computed_ids {
        struct M<vocab = 7, few = 3, d = 5>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            param table: [vocab, d] = normal(1.0);
            param other: [few, d] = normal(1.0);
            let x = table[tokens] + attention::<heads = 1, mask = causal>(tanh(table)[tokens]);
            other[argmax::<few>(linear::<few>(x))] * x
        }
    }

    a_number_of_each_token {
        struct M<vocab = 7, d = 5>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 1, mask = causal>(x);
            let logits = linear::<vocab>(x);
            let surprise = logits[vocab = tokens] - logsumexp::<vocab>(logits);
            x * surprise + x[d = argmax::<d>(x)] - x[d = [0, 2, 2, -1, 1]]
        }
    }

    ones {
        struct M<vocab = 7, d = 5>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            let x = linear::<d>(one_hot::<vocab>(tokens));
            let x = x + attention::<heads = 1, mask = causal>(x);
            x * one_hot::<d>(argmax::<d>(x)) - 0.5 * detach(x)
        }
    }

    largest_numbers {
        struct M<vocab = 7, d = 5, experts = 4>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            param gains: [experts, d] = normal(1.0);
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 1, mask = causal>(x);
            let (values, chosen) = top_k::<k = 2>(linear::<experts>(x));
            x * sum::<2>(gains[chosen] * softmax(values))
        }
    }

    sums_by_id_of_each_token {
        struct M<vocab = 7, d = 5, experts = 4>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 1, mask = causal>(x);
            let (values, chosen) = top_k::<k = 2>(linear::<experts>(x));
            linear::<d>(scatter_add::<[batch, seq, experts], axis = experts>(softmax(values), chosen))
        }
    }

    // The other table is larger than the sums.
    sums_by_the_token_itself {
        struct M<vocab = 7, more = 9, d = 5>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            let x = linear::<d>(one_hot::<more>(tokens));
            let x = x + attention::<heads = 1, mask = causal>(x);
            linear::<d>(scatter_add::<[batch, seq, vocab]>(sum::<d>(x), tokens))
        }
    }

    sums_by_id_of_parameters {
        struct M<vocab = 7, d = 5, n = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            param table: [vocab, d] = normal(1.0);
            param kinds: [vocab, n] = normal(1.0);
            let of_kind = scatter_add::<[n, d]>(table, argmax::<n>(kinds));
            let x = table[tokens] + attention::<heads = 1, mask = causal>(table[tokens]);
            x * einsum::<[batch, seq, d]>(softmax(linear::<n>(x)), of_kind)
        }
    }

    along_the_numbers_of_a_token {
        struct M<vocab = 7, d = 5, rows = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            param places: [4, d] = normal(1.0);
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 1, mask = causal>(x);
            let y = rearrange::<[batch, seq, (rows, d)] -> [batch, seq, rows, d]>(linear::<{ rows * d }>(x));
            let y = y + places[arange::<rows>()];
            let (values, best) = top_k::<rows, k = 2>(cumsum::<rows>(y));
            let z = l2_norm::<rows>(y)[rows = best] * values;
            sum::<2>(z) + y[rows = argmax::<rows>(cumsum(y))]
        }
    }

    in_rounds {
        struct M<vocab = 7, d = 5>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            let mut x = embedding::<vocab, d>(tokens);
            repeat 2 {
                param table: [vocab, d] = normal(1.0);
                x += attention::<heads = 1, mask = causal>(x) + table[tokens];
                x += 0.5 * table[argmax::<d>(x)];
            }
            x
        }
    }
}
