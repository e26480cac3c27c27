//! Blocks of a long text.

use super::rows;
use attn::batches::{Blocks, DataError, RandomBlocks, TokenFile, TokenWidth};
use attn::dfdx::prelude::*;
use std::collections::BTreeSet;

fn dev() -> Cpu {
    Cpu::default()
}

#[test]
fn targets_are_the_tokens_after_those_that_are_read() {
    let text: Vec<usize> = (0..50).collect();
    let batch = RandomBlocks::new(&text, (40, 9), 1, &dev()).unwrap().next();
    let batch = batch.unwrap().unwrap();
    let targets = rows(&batch.targets);
    assert_eq!(targets.len(), 40);
    for (ids, targets) in rows(&batch.ids).into_iter().zip(targets) {
        assert_eq!(ids, (ids[0]..ids[0] + 9).collect::<Vec<_>>());
        assert_eq!(targets, (ids[0] + 1..ids[0] + 10).collect::<Vec<_>>());
    }
}

#[test]
fn every_place_is_drawn_the_first_and_the_last_too() {
    let text: Vec<usize> = (0..12).collect();
    let blocks = RandomBlocks::new(&text, (10, 3), 1, &dev()).unwrap();
    let starts: BTreeSet<usize> = blocks
        .take(30)
        .flat_map(|batch| rows(&batch.unwrap().ids))
        .map(|ids| ids[0])
        .collect();
    // A place is missed by 300 draws with a chance of (8 / 9)^300 < 1e-15.
    assert_eq!(starts, (0..9).collect());
    let shortest = RandomBlocks::new(vec![7, 8, 9], (3, 2), 1, &dev())
        .unwrap()
        .next();
    assert_eq!(
        shortest.unwrap().unwrap().targets.as_vec(),
        [8, 9, 8, 9, 8, 9]
    );
}

#[test]
fn a_file_and_its_tokens_in_memory_are_the_same_text_and_go_on_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.bin");
    let text: Vec<usize> = (0..1000).map(|i| i * i % 601).collect();
    TokenFile::write(&path, TokenWidth::U16, text.iter().copied()).unwrap();
    let file = TokenFile::open(&path, TokenWidth::U16).unwrap();
    let all = |batches: RandomBlocks<&TokenFile, Cpu>, count| -> Vec<Vec<usize>> {
        let batches = batches.take(count);
        batches.map(|batch| batch.unwrap().ids.as_vec()).collect()
    };
    let of_file = |seed| RandomBlocks::new(&file, (4, 7), seed, &dev()).unwrap();
    let whole = all(of_file(3), 10);
    let in_memory = RandomBlocks::new(&text, (4, 7), 3, &dev())
        .unwrap()
        .take(10);
    assert!(
        in_memory
            .map(|batch| batch.unwrap().ids.as_vec())
            .eq(whole.clone())
    );
    assert_ne!(all(of_file(4), 10), whole);
    let mut first = of_file(3);
    first.by_ref().take(6).for_each(drop);
    assert_eq!(first.position(), 6);
    assert_eq!(all(of_file(3).at(6), 4), whole[6..]);
    let different: BTreeSet<_> = whole.iter().collect();
    assert_eq!(different.len(), 10, "every batch has places of its own");
}

#[test]
fn consecutive_blocks_ask_for_every_token_but_the_first_once() {
    for len in [2, 5, 9, 10, 11, 33] {
        let text: Vec<usize> = (0..len).collect();
        for (batch, seq) in [(1, 1), (2, 4), (3, 4), (1, 100), (100, 3)] {
            let blocks = Blocks::new(&text, (batch, seq), &dev()).unwrap();
            let mut targets = Vec::new();
            for block in blocks.clone() {
                let block = block.unwrap();
                let (count, found) = *block.targets.shape();
                assert!(count <= batch && found <= seq);
                targets.extend(block.targets.as_vec());
            }
            assert_eq!(
                targets,
                (1..len).collect::<Vec<_>>(),
                "{len} in {batch} x {seq}"
            );
            let asked: usize = blocks.ranges().map(|range| range.len()).sum();
            assert_eq!(asked, len - 1);
        }
    }
}

#[test]
fn batches_are_full_but_the_last_two_and_go_on_anywhere() {
    let text: Vec<usize> = (0..24).collect();
    let blocks = || Blocks::new(&text, (2, 4), &dev()).unwrap();
    let shapes: Vec<_> = blocks().map(|batch| *batch.unwrap().ids.shape()).collect();
    // Five blocks of four, and one of three.
    assert_eq!(shapes, [(2, 4), (2, 4), (1, 4), (1, 3)]);
    let mut first = blocks();
    first.by_ref().take(2).for_each(drop);
    assert_eq!(first.position(), 4);
    let rest: Vec<_> = first.map(|batch| batch.unwrap().ids.as_vec()).collect();
    let resumed: Vec<_> = blocks()
        .at(4)
        .map(|batch| batch.unwrap().ids.as_vec())
        .collect();
    assert_eq!(rest, resumed);
    assert_eq!(rest[0], [16, 17, 18, 19]);
    assert!(blocks().at(6).next().is_none() && blocks().at(u64::MAX).next().is_none());
}

#[test]
fn blocks_are_spread_over_the_text() {
    let text: Vec<usize> = (0..101).collect();
    let blocks = |count| Blocks::new(&text, (2, 10), &dev()).unwrap().spread(count);
    assert!(blocks(3).ranges().eq([0..10, 30..40, 60..70]));
    assert_eq!(blocks(99).ranges().len(), 10);
    assert_eq!(blocks(3).count(), 2);
    assert_eq!(blocks(0).count(), 0);
}

#[test]
fn batches_that_exceed_any_memory_are_errors() {
    let text: Vec<usize> = (0..10).collect();
    for batch in [usize::MAX, 1 << 60] {
        let error = RandomBlocks::new(&text, (batch, 3), 1, &dev()).unwrap_err();
        assert!(matches!(error, DataError::BatchTooLarge { block: 3, .. }));
        assert_eq!(
            error.to_string(),
            format!("a batch of {batch} by 3 tokens does not fit into memory")
        );
    }
    // Consecutive blocks are no more than the text has.
    let mut blocks = Blocks::new(&text, (usize::MAX, 3), &dev()).unwrap();
    assert_eq!(*blocks.next().unwrap().unwrap().ids.shape(), (3, 3));
}

#[test]
fn the_last_position_stays() {
    let text: Vec<usize> = (0..10).collect();
    let blocks = RandomBlocks::new(&text, (2, 3), 1, &dev()).unwrap();
    let mut blocks = blocks.at(u64::MAX);
    let mut next = || blocks.next().unwrap().unwrap().ids.as_vec();
    assert_eq!(next(), next());
    assert_eq!(blocks.position(), u64::MAX);
}

#[test]
fn sizes_of_nothing_are_errors() {
    let text = vec![1, 2, 3];
    let error = |shape| {
        RandomBlocks::new(&text, shape, 0, &dev())
            .err()
            .map(|e| e.to_string())
    };
    let expected = |what: &str| Some(format!("{what} is 0: at least 1 is needed"));
    assert_eq!(error((0, 2)), expected("the number of blocks in a batch"));
    assert_eq!(error((2, 0)), expected("the length of a block"));
    assert!(Blocks::new(&text, (2, 0), &dev()).is_err());
    let one = Blocks::new(vec![1], (2, 4), &dev()).err();
    assert!(matches!(one, Some(DataError::TooShort { tokens: 1, .. })));
    assert!(Blocks::new(Vec::new(), (2, 4), &dev()).is_err());
}
