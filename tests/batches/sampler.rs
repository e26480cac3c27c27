//! Which texts are a batch.

use attn::batches::{BatchSampler, DataError, Position};

fn sorted(batches: &[Vec<usize>]) -> Vec<usize> {
    let mut all = batches.concat();
    all.sort_unstable();
    all
}

#[test]
fn an_epoch_has_every_text_once() {
    let all: Vec<usize> = (0..103).collect();
    let lengths: Vec<usize> = all.iter().map(|i| i * 37 % 50).collect();
    let sampler = || BatchSampler::new(103, 8).unwrap();
    let by_length = || {
        BatchSampler::by_length(lengths.clone(), 8)
            .unwrap()
            .window(3)
    };
    for sampler in [
        sampler(),
        sampler().shuffled(1),
        by_length(),
        by_length().shuffled(1),
    ] {
        let batches: Vec<_> = sampler.clone().collect();
        assert_eq!(batches.len(), 13);
        assert_eq!(sampler.batches(), 13);
        assert_eq!(batches.iter().filter(|batch| batch.len() != 8).count(), 1);
        assert_eq!(sorted(&batches), all);
        let full: Vec<_> = sampler.drop_last().collect();
        assert_eq!(full.len(), 12);
        assert!(full.iter().all(|batch| batch.len() == 8));
    }
}

#[test]
fn orders_are_of_the_seed_and_the_epoch() {
    let of = |seed| -> Vec<_> {
        let sampler = BatchSampler::new(20, 5).unwrap().shuffled(seed);
        sampler.epochs(2).collect()
    };
    let batches = of(1);
    assert_eq!(batches.len(), 8);
    assert_eq!(batches, of(1));
    assert_ne!(batches, of(2));
    assert_ne!(batches[..4], batches[4..]);
    assert_eq!(sorted(&batches[..4]), sorted(&batches[4..]));
}

#[test]
fn texts_of_similar_lengths_need_less_padding() {
    let lengths: Vec<usize> = (0..1000_usize).map(|i| 1 + i * i * 7919 % 100).collect();
    let padded = |sampler: BatchSampler| -> usize {
        let batches = sampler.shuffled(1);
        let longest = |batch: &Vec<usize>| batch.iter().map(|i| lengths[*i]).max();
        batches
            .map(|batch| batch.len() * longest(&batch).unwrap())
            .sum()
    };
    let tokens: usize = lengths.iter().sum();
    let by_chance = padded(BatchSampler::new(1000, 10).unwrap());
    let by_length = BatchSampler::by_length(lengths.clone(), 10).unwrap();
    let windows = padded(by_length.clone());
    let all = padded(by_length.window(100));
    assert!(by_chance > tokens * 3 / 2, "{by_chance} of {tokens}");
    assert!(windows < tokens * 11 / 10, "{windows} of {tokens}");
    assert!(all <= windows);
}

/// Batches of long texts do not all come first.
#[test]
fn shuffled_batches_by_length_are_in_no_order_of_lengths() {
    let lengths: Vec<usize> = (0..100).collect();
    let batches = BatchSampler::by_length(lengths, 5).unwrap().shuffled(3);
    let first: Vec<usize> = batches.map(|batch| batch[0]).collect();
    assert!(!first.is_sorted() && !first.iter().rev().is_sorted());
}

#[test]
fn a_resumed_sampler_goes_on_with_the_same_batches() {
    let lengths: Vec<usize> = (0..53).map(|i| i * 31 % 17).collect();
    let sampler = || {
        let sampler = BatchSampler::by_length(lengths.clone(), 4).unwrap();
        sampler.window(2).shuffled(9).epochs(3)
    };
    let all: Vec<_> = sampler().collect();
    assert_eq!(all.len(), 3 * 14);
    for count in [0, 1, 13, 14, 15, 41, 42] {
        let mut first = sampler();
        first.by_ref().take(count).for_each(drop);
        let saved: [u64; 2] = first.position().into();
        let resumed: Vec<_> = sampler().at(Position::from(saved)).collect();
        assert_eq!(resumed, all[count..], "{count}");
    }
}

/// More ranks than rows in the last batch of an epoch, among others.
#[test]
fn the_parts_of_the_ranks_are_the_batches_of_one_process() {
    let lengths: Vec<usize> = (0..22).map(|i| i * 31 % 17).collect();
    let sampler = || {
        let sampler = BatchSampler::by_length(lengths.clone(), 5).unwrap();
        sampler.window(2).shuffled(9).epochs(2)
    };
    let at = Position { epoch: 0, batch: 2 };
    let whole: Vec<_> = sampler().at(at).collect();
    assert_eq!(whole.len(), 8);
    for ranks in 1..=5 {
        let of = |rank| sampler().of_rank(rank, ranks).unwrap().at(at);
        let parts: Vec<Vec<_>> = (0..ranks).map(|rank| of(rank).collect()).collect();
        for (number, batch) in whole.iter().enumerate() {
            let parts = parts.iter().map(|of| of[number].clone());
            let parts: Vec<_> = parts.collect();
            assert_eq!(parts.concat(), *batch);
            let mut lens = parts.iter().map(Vec::len);
            assert!(lens.all(|len| len.abs_diff(batch.len() / ranks) <= 1));
        }
        let mut first = of(ranks - 1);
        first.by_ref().take(5).for_each(drop);
        assert_eq!(first.position(), Position { epoch: 1, batch: 2 });
    }
    assert!(matches!(
        sampler().of_rank(0, 6),
        Err(DataError::Ranks { batch: 5, ranks: 6 })
    ));
    for (rank, ranks) in [(2, 2), (7, 3), (0, 0)] {
        let error = sampler().of_rank(rank, ranks).map(drop).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("there is no rank {rank} of {ranks}: they are counted from 0")
        );
    }
}

#[test]
fn no_texts_have_no_batches() {
    assert_eq!(BatchSampler::new(0, 3).unwrap().endless().next(), None);
    assert_eq!(
        BatchSampler::new(2, 3)
            .unwrap()
            .drop_last()
            .endless()
            .next(),
        None
    );
    assert_eq!(BatchSampler::new(2, 3).unwrap().epochs(0).next(), None);
    assert!(matches!(
        BatchSampler::new(2, 0),
        Err(DataError::Zero { .. })
    ));
}
