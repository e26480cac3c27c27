//! The results of a layer do not depend on the number of threads, nor on their order: not in the last bit.

use super::{
    compare::Outcome,
    subject::{Case, Sizes, Subject, Way},
};
use rayon::ThreadPoolBuilder;

/// The number of repetitions on the threads of the process.
const RUNS: usize = 20;

/// Numbers of threads of the pools.
const POOLS: [usize; 4] = [1, 2, 3, 8];

/// Sizes with several tasks in every part of the kernels: heads of two sequences, and three blocks of queries.
const SIZES: Sizes = Sizes::square(2, 137);

/// Sizes with several tasks for the keys of one head, each of which has 512 keys.
const LONG: Sizes = Sizes::square(1, 1100);

fn fused(run: fn(Way, &Case) -> Outcome, case: &Case) -> Outcome {
    run(Way::Fused, case)
}

#[track_caller]
fn assert_identical(what: &str, outcome: &Outcome, expected: &Outcome) {
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert!(
        bits(outcome.get("output")) == bits(expected.get("output")),
        "{what}: output"
    );
    for (name, gradient) in expected.gradients() {
        assert!(
            bits(outcome.gradient(name)) == bits(gradient),
            "{what}: gradient of {name}"
        );
    }
}

fn assert_same_in_all_pools(run: fn(Way, &Case) -> Outcome, case: &Case, expected: &Outcome) {
    for threads in POOLS {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.expect("threads can be started");
        let outcome = pool.install(|| fused(run, case));
        assert_identical(&format!("{threads} threads"), &outcome, expected);
    }
}

/// Runs a layer repeatedly, and in pools of different sizes.
fn steady(subject: &Subject) {
    let case = subject.case(SIZES);
    let expected = fused(subject.single, &case);
    for run in 0..RUNS {
        let outcome = fused(subject.single, &case);
        assert_identical(&format!("run {run}"), &outcome, &expected);
    }
    assert_same_in_all_pools(subject.single, &case, &expected);
    let expected = fused(subject.double, &case);
    assert_same_in_all_pools(subject.double, &case, &expected);
}

/// The same over more than one block of keys.
fn steady_over_blocks_of_keys(subject: &Subject) {
    let case = subject.case(LONG);
    let expected = fused(subject.single, &case);
    assert_same_in_all_pools(subject.single, &case, &expected);
}

tests! {
    steady, |x, _case| x;

    causal [heads = 2, d_model = 8, mask = causal];
    dropout [heads = 2, d_model = 8, dropout = 0.3];
    additive [heads = 2, d_model = 8, score = additive(hidden = 3)];
    bilinear [heads = 2, d_model = 8, score = bilinear];
    shared_keys [heads = 4, kv_heads = 2, d_model = 8, qk_norm = rms, position = rope];
    heads_that_talk [heads = 4, kv_heads = 2, d_model = 8, mask = causal, normalizer = sink, position = rel_pos_bias(8, 60), talking_heads = both];
    relative_bias [heads = 2, d_model = 8, position = rel_pos_bias(8, 60)];
    learned_by_each_head [heads = 2, d_model = 8, mask = causal] {
        param slope: [heads] = ones;
        param near: [heads, 7] = zeros;
        fn score(score, h, kv_idx) { score * slope[h] + near[h, kv_idx % 7] }
    };
    learned_by_all_heads [heads = 2, d_model = 8] {
        param mix: [5] = zeros;
        fn score(score, q_idx, kv_idx) { score * sigmoid(mix[q_idx % 5]) + mix[kv_idx % 5] }
    };
    // The projections are wide enough to be partitioned.
    wide [heads = 4, d_model = 192, mask = causal, qk_norm = rms];
}

tests! {
    steady_over_blocks_of_keys, |x, _case| x;

    long [heads = 1, d_model = 8, mask = causal, position = rel_pos_bias(8, 60), qk_norm = rms];
}
