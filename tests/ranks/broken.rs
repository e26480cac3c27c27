//! A rank that ends makes all others end, with an error that names it.

use attn::{
    dfdx::prelude::*,
    train::{AdamWConfig, Collective, CollectiveError, NonFinite, SgdConfig, Threads, TrainError},
};

use super::{
    numbers::{Line, line},
    training::*,
};

/// The errors of the ranks but the one that breaks.
fn errors_of_others(
    breaks: impl Fn(&mut Threads) -> Result<(), CollectiveError> + Sync,
) -> Vec<String> {
    let ends = Threads::run(3, |mut rank| {
        rank.barrier()?;
        match rank.rank() {
            1 => breaks(&mut rank),
            _ => rank.sum(&[1.0]).map(drop),
        }
    });
    let ends = ends.into_iter().enumerate().filter(|(rank, _)| *rank != 1);
    ends.map(|(_, end)| end.unwrap().unwrap_err().to_string())
        .collect()
}

#[test]
fn a_rank_that_panics() {
    for error in errors_of_others(|_| panic!("on purpose")) {
        assert_eq!(
            error,
            "rank 1 has failed, so this one ends in its sum: it has panicked"
        );
    }
}

#[test]
fn a_rank_that_leaves() {
    for error in errors_of_others(|_| Ok(())) {
        assert!(
            error.starts_with("rank 1 has left the run") || error.starts_with("rank 1 has failed"),
            "{error}"
        );
    }
}

#[test]
fn a_rank_that_fails() {
    for error in errors_of_others(|rank| {
        rank.fail("the disk is full");
        assert!(rank.barrier().is_err());
        Ok(())
    }) {
        assert_eq!(
            error,
            "rank 1 has failed, so this one ends in its sum: the disk is full"
        );
    }
}

#[test]
fn a_rank_in_another_operation() {
    let errors = errors_of_others(|rank| {
        let error = rank.barrier().unwrap_err().to_string();
        assert!(
            error.contains("is in `sum`, the operation 2 of its run"),
            "{error}"
        );
        Ok(())
    });
    assert!(
        errors.iter().any(|error| error.contains(
            "rank 1 is in `barrier`, the operation 2 of its run, and this rank in `sum`, its operation 2"
        ) || error.contains("rank 1 has failed")),
        "{errors:?}"
    );
}

#[test]
fn roots_that_differ() {
    let ends = Threads::run(2, |mut rank| {
        let other = 1 - rank.rank();
        rank.broadcast(other, vec![1]).map(drop)
    });
    for end in ends {
        let error = end.unwrap().unwrap_err();
        assert!(matches!(
            error,
            CollectiveError::Order { .. } | CollectiveError::Failed { .. }
        ));
    }
}

#[test]
fn settings_that_differ() {
    let ends = Threads::run(2, |rank| {
        let seed = rank.rank() as u64;
        let model = Gpt::<f64, Cpu>::with_seed(1);
        let trainer = model.trainer(AdamWConfig::default()).seed(seed);
        trainer.across(rank).step(batch(0, 0..2)).map(drop)
    });
    for end in ends {
        let error = end.unwrap().unwrap_err().to_string();
        assert_eq!(error, "rank 1 has another settings than rank 0");
    }
}

#[test]
fn a_batch_that_one_rank_refuses() {
    let ends = Threads::run(2, |rank| {
        let own = rank.rank();
        let model = Gpt::<f64, Cpu>::with_seed(1);
        let mut trainer = model.trainer(AdamWConfig::default()).across(rank);
        trainer.step(batch(0, 0..2))?;
        let (tokens, targets) = batch(0, 0..2);
        let ids = tokens.as_vec().iter().map(|id| id + 11 * own).collect();
        let tokens = Cpu::default().tensor_from_vec(ids, *tokens.shape());
        trainer.step((tokens, targets)).map(drop)
    });
    let errors = ends.into_iter().map(|end| end.unwrap().unwrap_err());
    let errors: Vec<_> = errors.collect();
    assert!(matches!(errors[1], TrainError::Call(_)));
    let message = errors[0].to_string();
    assert!(message.starts_with("rank 1 has failed"), "{message}");
    assert!(message.contains(&errors[1].to_string()), "{message}");
}

#[test]
fn a_number_that_is_not_finite_ends_the_step_of_all() {
    for skipped in [false, true] {
        let ends = Threads::run(2, |rank| {
            let number = if rank.rank() == 1 { f64::NAN } else { 1.0 };
            let non_finite = match skipped {
                true => NonFinite::Skip,
                false => NonFinite::Stop,
            };
            let model = Cpu::seed_from_u64(1).build_module::<Line, f64>();
            let trainer = model.trainer(SgdConfig::default());
            let mut trainer = trainer.non_finite(non_finite).across(rank);
            let ended = trainer.step(line(number)).map(|step| step.skipped);
            // The next one is taken.
            assert!(!trainer.step(line(1.0)).unwrap().skipped);
            ended
        });
        for end in ends {
            match end.unwrap() {
                Ok(was_skipped) => assert!(skipped && was_skipped),
                Err(error) => {
                    assert!(!skipped);
                    let message = error.to_string();
                    assert!(
                        message.contains("`linear.weight` is the first"),
                        "{message}"
                    );
                }
            }
        }
    }
}
