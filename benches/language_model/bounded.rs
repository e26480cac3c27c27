//! The step of a trainer of the medium model with bounds on its memory: all of it, a half, and a quarter.

use attn::{dfdx::prelude::*, model, train::AdamWConfig};
use criterion::Criterion;

use super::{MEDIUM, VOCAB_OF_SIZES as VOCAB, group};

const BATCH: usize = MEDIUM.batch;
const SEQ: usize = MEDIUM.length;

macro_rules! bounded {
    ($Name:ident, $bytes:expr) => {
        model! {
            struct $Name<d_model = { MEDIUM.d_model }, layers = { MEDIUM.layers }, memory = { $bytes } B for (batch = BATCH, seq = SEQ)>;

            fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
                let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<SEQ, d_model>(tokens);
                repeat layers {
                    x += attention::<6, d_model, mask = causal>(layer_norm(x));
                    x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
                }
                linear::<VOCAB>(layer_norm(x))
            }

            fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
                cross_entropy(forward(tokens), targets)
            }
        }
    };
}

bounded!(All, usize::MAX / 2);
bounded!(Half, ALL / 2);
bounded!(Quarter, ALL / 4);

const ALL: usize = All::loss_activation_bytes(BATCH, SEQ);

/// What a bound costs.
pub(super) fn memory(criterion: &mut Criterion) {
    let dev = Cpu::default();
    let batch = (MEDIUM.tokens(), MEDIUM.tokens());
    let mut group = group(
        criterion,
        "medium model step with a bound on the memory",
        &batch.0,
        10,
    );
    macro_rules! bounded {
        ($($Model:ident: $name:literal),*) => {$(
            let bytes = $Model::loss_activation_bytes(BATCH, SEQ);
            let name = format!("{}, {} MB", $name, bytes / 1_000_000);
            let model = dev.build_module::<$Model, f32>();
            let mut trainer = model.trainer(AdamWConfig::default()).clip(1.0);
            group.bench_function(&name, |bencher| {
                bencher.iter(|| trainer.step(batch.clone()).expect("a finite loss"));
            });
        )*};
    }
    bounded!(All: "all", Half: "a half", Quarter: "a quarter");
    group.finish();
}
