//! Runs over texts of different lengths: batches of similar lengths, and several texts in a row with a mask of documents.

use attn::{
    batches::{BatchSampler, PackedBatch, PackedBatches, pad_next},
    train::{AdamWConfig, FitConfig, FitEnd, FitState},
};

use super::*;

model! {
    /// A text reads itself alone, and counts its own positions.
    struct Documents<vocab = 7, d = 4>;

    fn forward(ids: ids[batch, seq], document: ids[batch, seq], positions: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(ids);
        let x = x + attention::<2, mask = causal & document, position = rope(position_ids)>(
            layer_norm(x), document = document, position_ids = positions,
        );
        linear::<tied = embedding>(layer_norm(x))
    }

    fn loss(
        ids: ids[batch, seq],
        targets: ids[batch, seq],
        document: ids[batch, seq],
        positions: ids[batch, seq],
    ) -> [] {
        cross_entropy::<ignore_index = PAD>(forward(ids, document, positions), targets)
    }
}

type Four = (Ids, Ids, Ids, Ids);

fn texts() -> Vec<Vec<usize>> {
    let text = |len: usize| (0..len).map(|i| (len + i * i) % 7).collect();
    [9, 2, 5, 3, 8, 2, 6, 4, 9, 3].map(text).to_vec()
}

fn packed(batch: PackedBatch<Cpu>) -> Four {
    (batch.ids, batch.targets, batch.document, batch.positions)
}

/// The same texts, a row each.
fn padded(texts: &[Vec<usize>], batch: &[usize]) -> Four {
    let device = Cpu::default();
    let rows = batch.iter().map(|&index| &texts[index]);
    let batch = pad_next(rows, 0, PAD, &device).unwrap();
    let (rows, len) = *batch.ids.shape();
    let document = device.tensor_from_vec(vec![0; rows * len], (rows, len));
    let positions = (0..rows * len).map(|i| i % len).collect();
    let positions = device.tensor_from_vec(positions, (rows, len));
    (batch.ids, batch.targets, document, positions)
}

#[test]
fn packed_texts_and_those_of_similar_lengths_train_and_are_evaluated_alike() {
    let texts = texts();
    let device = Cpu::default();
    let in_rows = PackedBatches::new(&texts, (2, 12), &device).unwrap();
    let in_rows = in_rows.padding(0, PAD).shuffled(1);
    let in_rows = || in_rows.clone().map(|batch| batch.map(packed));
    let lengths = || texts.iter().map(Vec::len).collect();
    let by_length = || {
        let batches = BatchSampler::by_length(lengths(), 3).unwrap().shuffled(1);
        let batches = batches.map(|batch| Ok::<_, CpuError>(padded(&texts, &batch)));
        batches.collect::<Vec<_>>()
    };
    let counted = |batches: Vec<Four>| {
        let targets = batches.into_iter().flat_map(|batch| batch.1.as_vec());
        targets.filter(|target| *target != PAD).count()
    };
    let expected = texts.iter().map(|text| text.len() - 1).sum::<usize>();
    assert_eq!(counted(in_rows().map(Result::unwrap).collect()), expected);
    assert_eq!(
        counted(by_length().into_iter().map(Result::unwrap).collect()),
        expected
    );

    let mut model = Cpu::default().build_module::<Documents, f64>();
    scatter(&mut model);
    let mut trainer = model.trainer(AdamWConfig {
        lr: 0.03,
        ..AdamWConfig::default()
    });
    let config = FitConfig {
        steps: 12,
        evaluate_every: 6,
        ..FitConfig::default()
    };
    let mut state = FitState::default();
    let batches = by_length().into_iter().cycle().map(Result::unwrap);
    let end = trainer
        .fit(config)
        .evaluate(|trainer| trainer.try_evaluate_all(in_rows()))
        .run(batches.map(Ok::<_, CpuError>), &mut state)
        .unwrap();
    assert_eq!(end, FitEnd::Done);
    let [before, _, after] = [0, 1, 2].map(|index| state.evaluations[index].1);
    assert!(after < before, "{after} {before}");
    let other = trainer.try_evaluate_all(by_length()).unwrap();
    // Sums in another order.
    assert_close("evaluations", &[other], &[after], 1e-13);

    // It goes on with several texts in a row.
    let mut more = FitState::default();
    let batches = in_rows().chain(in_rows());
    let end = trainer.fit(config).run(batches, &mut more).unwrap();
    assert_eq!(end, FitEnd::NoMoreBatches);
    let last = trainer.try_evaluate_all(by_length()).unwrap();
    assert!(last < other, "{last} {other}");
}
