//! Steps of a trainer, of all parameters, and of the last block and the head alone.

use attn::{dfdx::prelude::*, train::AdamWConfig};
use criterion::Criterion;

use crate::{SMALL, Small, group};

/// The small model of `examples/throughput`, which has 4 blocks.
pub(crate) fn small(criterion: &mut Criterion) {
    let dev = Cpu::default();
    let batch = (SMALL.tokens(), SMALL.tokens());
    let mut group = group(criterion, "small model of a trainer", &batch.0, 20);
    let trainer = || {
        let model = dev.build_module::<Small, f32>();
        model.trainer(AdamWConfig::default()).clip(1.0)
    };
    let frozen = trainer()
        .freeze("*")
        .unfreeze(&format!("blocks.{}.*", SMALL.layers - 1))
        .unfreeze("layer_norm.*")
        .unfreeze("linear.*");
    for (name, mut trainer) in [("all", trainer()), ("the last block and the head", frozen)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| trainer.step(batch.clone()).expect("a finite loss"));
        });
    }
    group.finish();
}
