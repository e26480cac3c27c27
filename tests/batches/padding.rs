//! Padding.

use super::rows;
use attn::{
    batches::{BatchSampler, pad, pad_next, pad_pairs},
    dfdx::prelude::*,
    model,
    ops::{CrossEntropyOptions, cross_entropy},
};

const IGNORED: usize = 9;

#[test]
fn no_text_and_empty_texts_are_batches() {
    let dev = Cpu::default();
    let none = pad(Vec::<Vec<usize>>::new(), 0, &dev).unwrap();
    assert_eq!((*none.ids.shape(), *none.lens.shape()), ((0, 0), (0,)));
    let batch = pad_next([vec![], vec![4], vec![5, 6]], 0, IGNORED, &dev).unwrap();
    assert_eq!(batch.lens.as_vec(), [0, 0, 1]);
    assert_eq!(rows(&batch.ids), [[0], [0], [5]]);
    assert_eq!(rows(&batch.targets), [[IGNORED], [IGNORED], [6]]);
}

model! {
    struct Translator<vocab = 9, d_model = 8>;

    fn forward(source: ids[batch, s], lens: lens[batch], target: ids[batch, t]) -> [batch, t, vocab] {
        let memory = embedding::<vocab, d_model, name = source>(source);
        let memory = memory + attention::<2, mask = padding>(memory, padding = lens);
        let y = embedding::<vocab, d_model, name = target>(target);
        let y = y + attention::<2, mask = causal>(y);
        linear::<vocab>(y + attention::<2, mask = padding, name = cross>(y, context = memory, padding = lens))
    }
}

/// A model reads what a batch has, and padding changes no loss: that of a batch is the mean over its targets.
#[test]
fn the_loss_of_a_batch_is_that_of_its_pairs() {
    let dev = Cpu::seed_from_u64(1);
    let net = dev.build_module::<Translator, f64>();
    let pairs = [
        (vec![3, 4, 5, 6], vec![1, 7, 8, 2]),
        (vec![5], vec![1, 6, 2]),
        (vec![6, 7], vec![1, 2]),
    ];
    let options = CrossEntropyOptions {
        ignore_index: Some(IGNORED),
        ..Default::default()
    };
    let loss = |indices: &[usize]| {
        let pairs = indices.iter().map(|&i| (&pairs[i].0, &pairs[i].1));
        let batch = pad_pairs(pairs, 0, IGNORED, &dev).unwrap();
        let counted: usize = batch.target.lens.as_vec().iter().sum();
        let input = (batch.source.ids, batch.source.lens, batch.target.ids);
        let loss = cross_entropy(net.forward(input), &batch.target.targets, options);
        (loss.array() * counted as f64, counted)
    };
    let (sum, counted) = loss(&[0, 1, 2]);
    assert_eq!(counted, 3 + 2 + 1);
    let each: f64 = (0..3).map(|i| loss(&[i]).0).sum();
    // Sums of some ten terms of order 1 in another order.
    assert!((sum - each).abs() < 1e-13 * each, "{sum} and {each}");
    for batch in BatchSampler::by_length(vec![4, 1, 2], 2).unwrap() {
        assert!(loss(&batch).0.is_finite());
    }
}
