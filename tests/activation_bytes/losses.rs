//! Losses that compute their logits: these are kept, or the gradients are computed with them, or nothing is.

use super::*;

exact! {
    kept_logits {
        struct M<d = 3, vocab = 11>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
            cross_entropy::<label_smoothing = 0.1>(linear::<vocab>(tanh(x)), targets)
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 11));

    gradients_of_the_forward_pass {
        struct M<d = 3, vocab = 4100>;
        fn forward(x: [batch, 100, d], targets: ids[batch, 100]) -> [] {
            cross_entropy(linear::<vocab>(tanh(x)), targets)
        }
    } (batch: 3) (x: tensor::<_, E>("x", (batch, Const::<100>, Const::<3>)), ids((batch, Const::<100>), 4100));

    gradients_of_a_table {
        struct M<d = 3, vocab = 4100>;
        fn forward(tokens: ids[batch, 100]) -> [] {
            cross_entropy(linear::<tied = embedding>(layer_norm(embedding::<vocab, d>(tokens))), tokens)
        }
    } (batch: 3) (tokens: ids((batch, Const::<100>), 4100));

    logits_that_are_computed_again {
        struct M<d = 3, vocab = 4100>;
        fn forward(x: [batch, 100, d], targets: ids[batch, 100]) -> [batch] {
            let losses = cross_entropy::<reduction = none>(linear::<vocab>(tanh(x)), targets);
            sum::<[100]>(losses * losses)
        }
    } (batch: 3) (x: tensor::<_, E>("x", (batch, Const::<100>, Const::<3>)), ids((batch, Const::<100>), 4100));
}
