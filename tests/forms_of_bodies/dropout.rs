//! Dropout in training: on devices with the same seed, both forms drop the same weights.

use support::agreement::{agree, agree_across, agree_beyond_a_tile};
use support::subject::{Sizes, Way};

tests! {
    agree_beyond_a_tile, |x, _case| x;

    half_beyond_a_tile [heads = 2, d_model = 8, mask = causal, dropout = 0.5];
}

tests! {
    agree, |x, _case| x;

    none [heads = 2, d_model = 8, dropout = 0];
    a_tenth [heads = 2, d_model = 8, dropout = 0.1];
    most [heads = 2, d_model = 8, dropout = 0.9];
    shared_keys [heads = 4, kv_heads = 2, d_model = 8, dropout = 0.3, mask = causal];
    softmax1 [heads = 2, d_model = 8, dropout = 0.3, normalizer = softmax1];
    sink [heads = 2, d_model = 8, dropout = 0.3, normalizer = sink];
    entmax15 [heads = 2, d_model = 8, dropout = 0.3, normalizer = entmax15];
    sigmoid [heads = 2, d_model = 8, dropout = 0.3, normalizer = sigmoid];
    additive_scores [heads = 2, d_model = 8, dropout = 0.3, score = additive(hidden = 3)];
    biased_scores [heads = 2, d_model = 8, dropout = 0.3, position = rel_pos_bias(6, 20), softcap = 2];
}

tests! {
    agree, |x, case| (x, case.documents());

    within_documents [heads = 2, d_model = 8, dropout = 0.3, mask = document];
}

tests! {
    agree_across, |x, context, _case| (x, context);

    a_context [heads = 2, d_model = 8, d_context = 6, dropout = 0.3];
}

/// Without this, the agreement above would prove nothing.
#[test]
fn dropout_changes_the_output() {
    let with = subject!(|x, _case| x, [heads = 2, d_model = 8, dropout = 0.3]);
    let without = subject!(|x, _case| x, [heads = 2, d_model = 8]);
    let case = with.case(Sizes::square(2, 17));
    for way in [Way::Fused, Way::Composed] {
        let [with, without] = [&with, &without].map(|subject| (subject.double)(way, &case));
        for (name, gradient) in with.gradients() {
            if name != "o_proj.bias" {
                assert_ne!(gradient, without.gradient(name), "{way:?}: {name}");
            }
        }
        assert_ne!(with.get("output"), without.get("output"), "{way:?}");
    }
}
