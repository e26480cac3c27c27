//! Packing.

use super::rows;
use attn::{
    batches::{DataError, PackedBatch, PackedBatches, Position, pad_next},
    dfdx::prelude::*,
    model,
    ops::{CrossEntropyOptions, cross_entropy},
};
use std::collections::BTreeMap;

const IGNORED: usize = 99;

/// Texts of many lengths: none, one, and more than three rows.
fn texts() -> Vec<Vec<usize>> {
    (0..40_usize)
        .map(|text| {
            (0..text * 7 % 29)
                .map(|i| (text * 31 + i * 5) % 50)
                .collect()
        })
        .collect()
}

fn batches<'a>(
    texts: &'a [Vec<usize>],
    shape: (usize, usize),
) -> PackedBatches<'a, Vec<usize>, Cpu> {
    PackedBatches::new(texts, shape, &Cpu::default())
        .unwrap()
        .padding(0, IGNORED)
}

/// How often each pair of a token and the next one is asked for.
fn pairs(tokens: &[usize], targets: &[usize], counts: &mut BTreeMap<(usize, usize), usize>) {
    for (&token, &target) in tokens.iter().zip(targets) {
        if target != IGNORED {
            *counts.entry((token, target)).or_default() += 1;
        }
    }
}

#[test]
fn an_epoch_asks_for_every_token_but_the_first_of_each_text_once() {
    let texts = texts();
    let mut expected = BTreeMap::new();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        pairs(text, &text[1..], &mut expected);
    }
    let plain = batches(&texts, (3, 8));
    for batches in [plain.clone(), plain.shuffled(5)] {
        let mut found = BTreeMap::new();
        for batch in batches {
            let batch = batch.unwrap();
            pairs(&batch.ids.as_vec(), &batch.targets.as_vec(), &mut found);
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn documents_and_positions_restart_with_every_text() {
    for batch in batches(&texts(), (3, 8)) {
        let PackedBatch {
            ids,
            targets,
            document,
            positions,
        } = batch.unwrap();
        let [ids, targets, document, positions] =
            [ids, targets, document, positions].map(|ids| rows(&ids));
        for row in 0..ids.len() {
            for at in 0..8 {
                let starts = at == 0 || document[row][at] != document[row][at - 1];
                let expected = if starts {
                    0
                } else {
                    positions[row][at - 1] + 1
                };
                assert_eq!(positions[row][at], expected);
                if !starts {
                    let is_padding = targets[row][at] == IGNORED;
                    assert_eq!(is_padding, targets[row][at - 1] == IGNORED);
                    assert!(is_padding || ids[row][at] == targets[row][at - 1]);
                }
            }
        }
    }
}

#[test]
fn little_of_a_row_is_padding() {
    let texts = texts();
    let asked: usize = texts.iter().map(|text| text.len().saturating_sub(1)).sum();
    let rows: usize = batches(&texts, (4, 32))
        .map(|batch| batch.unwrap().ids.shape().0)
        .sum();
    assert!(
        rows * 32 < asked * 11 / 10,
        "{asked} tokens in {rows} rows of 32"
    );
    // The texts one by one would take a row each.
    assert!(rows < texts.len() / 2);
}

#[test]
fn resumed_packing_goes_on_with_the_same_batches() {
    let texts = texts();
    let of = |position| {
        let batches = batches(&texts, (3, 8)).shuffled(2).epochs(2).at(position);
        batches
            .map(|batch| batch.unwrap().ids.as_vec())
            .collect::<Vec<_>>()
    };
    let all = of(Position::default());
    let half = all.len() / 2;
    assert_eq!(all.len() % 2, 0);
    assert_ne!(
        all[..half],
        all[half..],
        "another order in the second epoch"
    );
    assert_eq!(of(Position { epoch: 0, batch: 5 }), all[5..]);
    assert_eq!(of(Position { epoch: 1, batch: 2 }), all[half + 2..]);
    let full = batches(&texts, (3, 8)).drop_last();
    assert!(full.clone().all(|batch| batch.unwrap().ids.shape().0 == 3));
    assert!(batches(&[vec![1]], (3, 8)).endless().next().is_none());
}

/// The last batch has one row, and none for some ranks.
#[test]
fn the_parts_of_the_ranks_are_the_rows_of_one_process() {
    let texts = texts();
    let batches = || batches(&texts, (5, 8)).shuffled(2).epochs(2);
    let read = |batch: PackedBatch<Cpu>| {
        let all = [batch.ids, batch.targets, batch.document, batch.positions];
        assert!(all.iter().all(|ids| *ids.shape() == *all[0].shape()));
        all.map(|ids| rows(&ids))
    };
    let whole: Vec<_> = batches().map(|batch| read(batch.unwrap())).collect();
    assert!(whole.iter().any(|[ids, ..]| ids.len() == 1));
    for ranks in 1..=5 {
        let of = |rank| batches().of_rank(rank, ranks).unwrap();
        let parts = (0..ranks).map(|rank| of(rank).map(|batch| read(batch.unwrap())));
        let parts: Vec<Vec<_>> = parts.map(Iterator::collect).collect();
        assert!(parts.iter().all(|part| part.len() == whole.len()));
        for (number, batch) in whole.iter().enumerate() {
            for (list, expected) in batch.iter().enumerate() {
                let parts = parts.iter().map(|of| of[number][list].clone());
                assert_eq!(parts.collect::<Vec<_>>().concat(), *expected);
            }
        }
    }
    assert!(batches().of_rank(0, 6).is_err());
}

model! {
    struct Net<vocab = 50, d_model = 8>;

    fn forward(ids: ids[batch, seq], document: ids[batch, seq], positions: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(ids);
        let y = attention::<2, mask = causal & document, position = rope(position_ids)>(x, document = document, position_ids = positions);
        linear::<vocab>(x + y)
    }
}

/// A text does not see those beside it: the losses of all rows are those of the texts.
#[test]
fn the_loss_of_packed_texts_is_that_of_the_texts() {
    let dev = Cpu::seed_from_u64(1);
    let net = dev.build_module::<Net, f64>();
    let options = CrossEntropyOptions {
        ignore_index: Some(IGNORED),
        ..Default::default()
    };
    // None is longer than a row: the parts of such a text would not see each other.
    let texts: Vec<_> = texts().into_iter().filter(|text| text.len() > 1).collect();
    let mut packed = 0.0;
    for batch in batches(&texts, (3, 32)) {
        let PackedBatch {
            ids,
            targets,
            document,
            positions,
        } = batch.unwrap();
        let counted = targets
            .as_vec()
            .iter()
            .filter(|target| **target != IGNORED)
            .count();
        let loss = cross_entropy(net.forward((ids, document, positions)), &targets, options);
        packed += loss.array() * counted as f64;
    }
    let mut each = 0.0;
    for text in &texts {
        let batch = pad_next([text], 0, IGNORED, &dev).unwrap();
        let len = text.len() - 1;
        let document = dev.tensor_from_vec(vec![0; len], (1, len));
        let positions = dev.tensor_from_vec((0..len).collect(), (1, len));
        let loss = cross_entropy(
            net.forward((batch.ids, document, positions)),
            &batch.targets,
            options,
        );
        each += loss.array() * len as f64;
    }
    // Sums of some hundred terms in another order.
    assert!((packed - each).abs() < 1e-12 * each, "{packed} and {each}");
}

#[test]
fn a_row_that_exceeds_any_memory_is_an_error() {
    let texts = texts();
    let refused = PackedBatches::new(&texts, (2, usize::MAX), &Cpu::default()).err();
    assert!(
        matches!(refused, Some(DataError::BatchTooLarge { batch: 1, .. })),
        "{refused:?}"
    );
}
