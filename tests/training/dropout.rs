//! Gradients with dropout are those of the function that the step has: its dropouts are the same at every point.

use attn::train::SgdConfig;

use super::*;

model! {
    /// Dropout of values, of attention weights and in a feed-forward network.
    struct Drops<vocab = 7, d = 4>;

    fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(ids);
        let x = x + dropout::<0.3>(linear::<d>(x));
        let x = x + attention::<2, mask = causal, dropout = 0.3>(layer_norm(x));
        let x = x + dropout::<0.4>(feed_forward::<hidden = 6>(layer_norm(x)));
        linear::<vocab>(x)
    }

    fn loss(ids: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = PAD>(forward(ids), targets)
    }
}

fn trainer() -> Trainer<Drops<f64, Cpu>, SgdConfig> {
    let mut model = Cpu::default().build_module::<Drops, f64>();
    scatter(&mut model);
    // A step of length 1 is the gradient.
    let sgd = SgdConfig {
        lr: 1.0,
        ..SgdConfig::default()
    };
    model.trainer(sgd).seed(3)
}

#[test]
fn gradients_are_those_of_differences() {
    // The second batch of a step has other dropouts than the first.
    for number in 0..2 {
        let mut stepped = trainer();
        let before = parameters(stepped.model());
        for _ in 0..=number {
            stepped.accumulate(batch(0)).unwrap();
        }
        let kept = stepped.evaluate(batch(0)).unwrap();
        stepped.apply().unwrap();
        let after = parameters(stepped.model());

        // The mean of the losses of the step, with one number changed.
        let mut moved = trainer();
        let mut loss = |name: &str, at: usize, by: f64| {
            support::tensors::fill(moved.model_mut(), |of, values| {
                let values = values.into_iter().enumerate();
                let by = |i| if of == name && i == at { by } else { 0.0 };
                values.map(|(i, value)| value + by(i)).collect()
            });
            let losses = (0..=number).map(|_| moved.accumulate(batch(0)).unwrap());
            losses.sum::<f64>() / (number as f64 + 1.0)
        };
        let dropped = loss("", 0, 0.0);
        assert!((dropped - kept).abs() > 1e-3, "the dropouts drop");
        for (before, after) in before.iter().zip(after) {
            for at in (0..before.values.len()).step_by(3) {
                const BY: f64 = 1e-5;
                let above = loss(&before.name, at, BY);
                let below = loss(&before.name, at, -2.0 * BY);
                // Back again.
                loss(&before.name, at, BY);
                let expected = (above - below) / (2.0 * BY);
                let found = before.values[at] - after.values[at];
                // The error of the difference: `BY²` times a third derivative, and roundings over `BY`.
                assert!(
                    (found - expected).abs() < 1e-7,
                    "{} {at}: {found} {expected}",
                    before.name
                );
            }
        }
    }
}
