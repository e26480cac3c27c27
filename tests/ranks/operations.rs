//! What every `Collective` does, whatever carries its messages.

use std::{
    thread,
    time::{Duration, Instant},
};

use attn::train::{Call, Collective, CollectiveError, Outgoing};

/// Runs all of them. All ranks call it.
pub(crate) fn run(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    messages_come_from_every_rank(ranks)?;
    long_messages_arrive(ranks)?;
    sums_are_in_the_order_of_ranks(ranks)?;
    operations_overlap(ranks)?;
    values_agree(ranks)?;
    bytes_are_counted(ranks)?;
    waiting_is_measured(ranks)?;
    ranks.barrier()
}

fn messages_come_from_every_rank(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    let (own, all) = (ranks.rank(), ranks.ranks());
    // A message of `to` bytes, from each to each; the first rank gets an empty one.
    let messages = (0..all).map(|to| vec![own as u8; to]).collect();
    for (from, message) in ranks.all_to_all(messages)?.iter().enumerate() {
        assert_eq!(**message, vec![from as u8; own]);
    }
    let gathered = ranks.all_gather(vec![7; own])?;
    let lens = gathered.iter().map(|message| message.len());
    assert!(lens.eq(0..all));
    for root in 0..all {
        let message = ranks.broadcast(root, vec![own as u8; 3])?;
        assert_eq!(*message, [root as u8; 3]);
    }
    Ok(())
}

fn long_messages_arrive(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    let message = |from: usize| (0..5_000_001).map(move |i| (i * 31 + from) as u8);
    let gathered = ranks.all_gather(message(ranks.rank()).collect())?;
    for (from, found) in gathered.iter().enumerate() {
        assert!(found.iter().copied().eq(message(from)));
    }
    Ok(())
}

fn sums_are_in_the_order_of_ranks(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    let numbers = |rank: usize| [1.0 / (rank as f64 + 3.0), 1e16_f64.powi(rank as i32)];
    let mut expected = [0.0; 2];
    for rank in 0..ranks.ranks() {
        for (sum, number) in expected.iter_mut().zip(numbers(rank)) {
            *sum += number;
        }
    }
    assert_eq!(ranks.sum(&numbers(ranks.rank()))?, expected);
    Ok(())
}

fn operations_overlap(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    let own = ranks.rank() as u8;
    let mut pending = Vec::new();
    for number in 0..4 {
        let message = Outgoing::Same(vec![number, own]);
        pending.push(ranks.begin(Call::AllGather, message)?);
    }
    // The last one first.
    for (number, pending) in (0..4).zip(pending).rev() {
        for (from, message) in ranks.wait(pending)?.iter().enumerate() {
            assert_eq!(**message, [number, from as u8]);
        }
    }
    Ok(())
}

fn values_agree(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    ranks.agree("data", b"the same")?;
    let last = ranks.ranks() - 1;
    let value = [u8::from(ranks.rank() == last && last > 0)];
    match ranks.agree("data", &value) {
        Err(error) => {
            assert_eq!(
                error.to_string(),
                format!(
                    "rank {last} has other data than rank 0: copy the same files to all machines, and read them in the same way"
                )
            );
        }
        Ok(()) => assert_eq!(last, 0),
    }
    Ok(())
}

fn bytes_are_counted(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    let before = ranks.bytes_sent();
    ranks.all_gather(vec![0; 10])?;
    let others = ranks.ranks() as u64 - 1;
    assert_eq!(ranks.bytes_sent() - before, 10 * others);
    Ok(())
}

/// The ranks wait for one that sleeps. A busy machine may be late in one round, not in all of them.
fn waiting_is_measured(ranks: &mut impl Collective) -> Result<(), CollectiveError> {
    let sleep = Duration::from_millis(20);
    let (begin, before) = (Instant::now(), ranks.waited());
    for _ in 0..5 {
        if ranks.rank() == 0 {
            thread::sleep(sleep);
        }
        ranks.barrier()?;
    }
    let waited = ranks.waited() - before;
    assert!(waited <= begin.elapsed());
    assert!(ranks.rank() == 0 || waited >= sleep / 2, "{waited:?}");
    Ok(())
}
