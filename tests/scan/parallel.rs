//! Recurrences that are linear in their states, and their parallel forms.

use super::claim::tolerance;
use super::*;
use attn::model;
use support::compare::assert_same;

model! {
    struct LinearAttention<key = 4, value = 3>;
    fn forward(q: [batch, seq, key], k: [batch, seq, key], v: [batch, seq, value]) -> [batch, seq, value] {
        scan seq {
            state s: [batch, key, value] = 0.0;
            s = s + einsum::<[batch, key, value]>(k, v);
            yield einsum::<[batch, value]>(q, s);
        }
    }
}

model! {
    struct ParallelLinearAttention<key = 4, value = 3>;
    fn forward(q: [batch, seq, key], k: [batch, seq, key], v: [batch, seq, value]) -> [batch, seq, value] {
        attend::<mask = causal, scale = 1>(q, k, v) {
            fn normalize(score) { score }
        }
    }
}

model! {
    struct Retention<key = 4, value = 3>;
    fn forward(q: [batch, seq, key], k: [batch, seq, key], v: [batch, seq, value]) -> [batch, seq, value] {
        scan seq {
            state s: [batch, key, value] = 0.0;
            s = 0.9 * s + einsum::<[batch, key, value]>(k, v);
            yield einsum::<[batch, value]>(q, s);
        }
    }
}

model! {
    struct ParallelRetention<key = 4, value = 3>;
    fn forward(q: [batch, seq, key], k: [batch, seq, key], v: [batch, seq, value]) -> [batch, seq, value] {
        attend::<mask = causal, scale = 1>(q, k, v) {
            fn normalize(score, q_idx, kv_idx) { score * exp((q_idx - kv_idx) as f32 * ln(0.9)) }
        }
    }
}

/// The output, and the gradients of queries, keys and values.
macro_rules! run {
    ($Model:ident) => {{
        let model = Cpu::default().build_module::<$Model, f64>();
        let [q, k] = ["q", "k"].map(|name| tensor::<_, f64>(name, (2, 7, Const::<4>)));
        let v = tensor::<_, f64>("v", (2, 7, Const::<3>));
        let y = model.forward((q.clone().leaky_traced(), k.clone(), v.clone()));
        let ran: Backpropagated<f64> = backpropagate(y);
        let outcome: Outcome = ran
            .input("q", &q)
            .input("k", &k)
            .input("v", &v)
            .parameters(&());
        outcome
    }};
}

#[test]
fn a_linear_recurrence_is_a_product_with_a_mask() {
    let recurrent = run!(LinearAttention);
    let parallel = run!(ParallelLinearAttention);
    assert_same(
        "linear attention",
        &parallel,
        &recurrent,
        tolerance::<f64>(),
    );
    let recurrent = run!(Retention);
    let parallel = run!(ParallelRetention);
    assert_same("retention", &parallel, &recurrent, tolerance::<f64>());
}
