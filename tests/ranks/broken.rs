//! A rank that ends makes all others end, with an error that names it.

use attn::{
    dfdx::prelude::*,
    model,
    train::{
        AdamWConfig, Algorithm, Collective, CollectiveError, Counted, NonFinite, SgdConfig,
        Threads, TrainError, Trainer, UpdateError,
    },
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
    type Gpts = Trainer<Gpt<f64, Cpu>, AdamWConfig>;
    let settings: [fn(Gpts) -> Gpts; 3] = [
        |trainer| trainer.seed(1),
        |trainer| trainer.ema(0.5),
        |trainer| trainer.non_finite(NonFinite::Skip),
    ];
    for set in settings {
        let ends = Threads::run(2, |rank| {
            let model = Gpt::<f64, Cpu>::with_seed(1);
            let trainer = model.trainer(AdamWConfig::default());
            let trainer = match rank.rank() {
                0 => trainer,
                _ => set(trainer),
            };
            trainer.across(rank).step(batch(0, 0..2)).map(drop)
        });
        for end in ends {
            let error = end.unwrap().unwrap_err().to_string();
            assert_eq!(
                error,
                "rank 1 has other settings than rank 0: give all trainers the same settings, learning rates and step"
            );
        }
    }
}

/// Every setting of an algorithm, and those of a group of parameters alone.
#[test]
fn settings_of_the_optimizer_that_differ() {
    fn errors<A: Algorithm>(
        make: impl Fn(usize) -> Trainer<Line<f64, Cpu>, A> + Sync,
    ) -> Vec<String> {
        let ends = Threads::run(2, |rank| {
            let mut trainer = make(rank.rank()).across(rank);
            trainer.step(line(1.0)).unwrap_err().to_string()
        });
        ends.into_iter().map(Result::unwrap).collect()
    }
    let model = || Cpu::seed_from_u64(1).build_module::<Line, f64>();
    let settings: [fn(&mut AdamWConfig); 4] = [
        |config| config.lr *= 1.0 + f64::EPSILON,
        |config| config.betas[1] = 0.9,
        |config| config.epsilon = 1e-6,
        |config| config.weight_decay = 0.5,
    ];
    let mut all = Vec::new();
    for set in settings {
        all.push(errors(|rank| {
            let mut config = AdamWConfig::default();
            if rank == 1 {
                set(&mut config);
            }
            model().trainer(config)
        }));
        all.push(errors(|rank| {
            let trainer = model().trainer(AdamWConfig::default());
            trainer.group("*bias", move |config| {
                if rank == 1 {
                    set(config);
                }
            })
        }));
    }
    all.push(errors(|rank| {
        let momentum = rank as f64 / 2.0;
        model().trainer(SgdConfig {
            momentum,
            ..SgdConfig::default()
        })
    }));
    for error in all.into_iter().flatten() {
        assert!(
            error.starts_with("rank 1 has other settings than rank 0"),
            "{error}"
        );
    }
}

/// A batch without targets changes nothing on any rank, and all go on. The loss of no targets may be a number on some of them.
#[test]
fn a_batch_without_targets_ends_no_rank() {
    let steps = |ranks: usize, fails: bool| {
        let ends = Threads::run(ranks, |rank| {
            let own = rank.rank();
            let model = Cpu::seed_from_u64(1).build_module::<Line, f64>();
            let mut trainer = model.trainer(SgdConfig::default()).across(rank);
            let none = |number| Counted {
                batch: line(number),
                count: 0,
            };
            let nan_on = |rank: usize| none(if own == rank { f64::NAN } else { 1.0 });
            for rank in (0..ranks).filter(|_| fails) {
                let error = trainer.step(nan_on(rank)).unwrap_err();
                assert!(
                    matches!(error, TrainError::EmptyBatch { step: 1 }),
                    "{error}"
                );
            }
            let first = trainer.step(none(2.0)).unwrap();
            [first, trainer.step(line(1.0)).unwrap()]
        });
        let ends: Vec<_> = ends.into_iter().map(Result::unwrap).collect();
        assert!(ends.iter().all(|steps| *steps == ends[0]));
        ends[0]
    };
    for ranks in 1..=3 {
        assert_eq!(steps(ranks, true), steps(ranks, false));
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

#[test]
fn a_step_that_one_rank_refuses() {
    let ends = Threads::run(2, |rank| {
        let own = rank.rank();
        let model = Gpt::<f64, Cpu>::with_seed(1);
        let mut trainer = model.trainer(AdamWConfig::default()).across(rank);
        trainer.step(batch(0, 0..2))?;
        if own == 1 {
            trainer.config_mut().lr = f64::NAN;
        }
        trainer.step(batch(1, 0..2)).map(drop)
    });
    let errors = ends.into_iter().map(|end| end.unwrap().unwrap_err());
    let errors: Vec<_> = errors.collect();
    assert!(
        matches!(errors[1], TrainError::Update(UpdateError::Config { .. })),
        "{}",
        errors[1]
    );
    let message = errors[0].to_string();
    assert!(message.starts_with("rank 1 has failed"), "{message}");
    assert!(message.contains(&errors[1].to_string()), "{message}");
}

model! {
    /// The derivative of `sqrt` at 0 is infinite.
    struct Root<classes = 2>;

    fn forward(x: [batch, classes]) -> [batch, classes] {
        param gain: [classes] = 1;
        let y = x * gain;
        sqrt(y)
    }

    fn loss(x: [batch, classes], targets: ids[batch]) -> [] {
        cross_entropy::<ignore_index = 0>(forward(x), targets)
    }
}

/// The loss of the second rank is NaN because it has no targets, which is not what ends the step.
#[test]
fn a_rank_without_targets_names_no_operation() {
    let ends = Threads::run(2, |rank| {
        let dev = Cpu::default();
        let ids = match rank.rank() {
            0 => vec![1, 1],
            _ => vec![0, 0],
        };
        let model = dev.build_module::<Root, f64>();
        let mut trainer = model.trainer(SgdConfig::default()).across(rank);
        let x = dev.tensor_from_vec(vec![0.0, 1.0, 1.0, 1.0], (2, Const::<2>));
        let targets = dev.tensor_from_vec(ids, (2,));
        trainer.step((x, targets)).map(drop)
    });
    for (rank, end) in ends.into_iter().enumerate() {
        match end.unwrap() {
            Err(TrainError::NotFinite {
                loss,
                parameter,
                first,
                search,
                ..
            }) => {
                assert!(loss.is_finite());
                assert_eq!(parameter.as_deref(), Some("gain.weight"));
                assert_eq!((first.is_some(), search.is_some()), (rank == 0, false));
            }
            end => panic!("{end:?}"),
        }
    }
}
