//! What each rank keeps, sends and saves.

use std::{collections::BTreeSet, fs, path::PathBuf};

use attn::{
    checkpoint::{CheckpointError, Checkpoints, LoadOptions, Problem},
    dfdx::prelude::*,
    train::{AdamWConfig, Alone, Threads, TrainError, Trainer},
};

use super::training::*;

fn trainer(rank: Threads) -> Trainer<Gpt<f64, Cpu>, AdamWConfig> {
    let model = Gpt::with_seed(1);
    model.trainer(AdamWConfig::default()).across(rank)
}

fn step(trainer: &mut Trainer<Gpt<f64, Cpu>, AdamWConfig>, number: usize) -> f64 {
    let rows = rows(trainer.rank(), trainer.ranks());
    trainer.step(batch(number, rows)).unwrap().loss
}

#[test]
fn each_list_is_on_one_rank() {
    let all = Threads::run(3, |rank| {
        let mut trainer = trainer(rank);
        step(&mut trainer, 0);
        trainer.state().lists.clone()
    });
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    let names: BTreeSet<_> = all.iter().flatten().map(|(name, _)| name).collect();
    assert_eq!(names.len(), all.iter().flatten().count());
    let lens = |rank: usize| all[rank].values().map(Vec::len).sum::<usize>();
    let lens = [0, 1, 2].map(lens);
    let sum: usize = lens.iter().sum();
    let parameters = 2 * Gpt::<f64, Cpu>::with_seed(1)
        .trainer(AdamWConfig::default())
        .parameters()
        .iter()
        .map(|of| of.dims.iter().product::<usize>())
        .sum::<usize>();
    assert_eq!(sum, parameters);
    assert!(lens.iter().all(|len| *len * 3 < sum + sum / 4), "{lens:?}");
}

#[test]
fn bytes_of_a_step_are_those_of_gradients_and_parameters() {
    let sent = Threads::run(2, |rank| {
        let mut trainer = trainer(rank);
        step(&mut trainer, 0);
        let before = trainer.bytes_sent();
        step(&mut trainer, 1);
        trainer.bytes_sent() - before
    });
    let sent: u64 = sent.into_iter().map(Result::unwrap).sum();
    let parameters = Gpt::<f64, Cpu>::with_seed(1)
        .trainer(AdamWConfig::default())
        .parameters();
    let numbers: usize = parameters
        .iter()
        .map(|of| of.dims.iter().product::<usize>())
        .sum();
    // Each number goes to the other rank as a gradient, or as a parameter; each rank says two numbers of its batch and two of its gradients,
    // and of each gradient whether it is there.
    let expected = 2 * 8 * numbers + parameters.len() + 2 * 4 * 8;
    assert_eq!(sent as usize, expected);
}

#[test]
fn a_checkpoint_goes_on_with_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let expected: Vec<_> = Threads::run(1, |rank| {
        let mut trainer = trainer(rank);
        (0..8).map(|number| step(&mut trainer, number)).collect()
    })
    .swap_remove(0)
    .unwrap();
    let expected: Vec<f64> = expected;
    for (before, after) in [(1, 2), (2, 3), (3, 1), (2, 2)] {
        let checkpoints = Checkpoints::new(folder.path().join(format!("{before}_{after}")));
        let first = Threads::run(before, |rank| {
            let mut trainer = trainer(rank);
            let losses: Vec<_> = (0..4).map(|number| step(&mut trainer, number)).collect();
            checkpoints.save(4, &trainer.contents(), None).unwrap();
            // Steps go on behind it.
            (losses, step(&mut trainer, 4))
        });
        let first: Vec<_> = first.into_iter().map(Result::unwrap).collect();
        let second = Threads::run(after, |rank| {
            let mut trainer = trainer(rank);
            let checkpoint = checkpoints.latest().unwrap().unwrap();
            trainer.load(&checkpoint, LoadOptions::default()).unwrap();
            (4..8)
                .map(|number| step(&mut trainer, number))
                .collect::<Vec<_>>()
        });
        let second = second.into_iter().next().unwrap().unwrap();
        let found = [&first[0].0[..], &second].concat();
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-12, "{found} and {expected}");
        }
        if before == after {
            assert_eq!(first[0].1, second[0]);
        }
    }
}

/// Checkpoints of two steps by three ranks, with other folders for some of them.
fn save(folder: impl Fn(usize) -> PathBuf + Sync) -> Vec<Result<(), CheckpointError>> {
    let saved = Threads::run(3, |rank| {
        let mut trainer = trainer(rank);
        let checkpoints = Checkpoints::new(folder(trainer.rank()));
        for number in 0..2 {
            step(&mut trainer, number);
            checkpoints.save(
                number as u64,
                &trainer.contents().json("n.json", &number),
                None,
            )?;
        }
        Ok(())
    });
    saved.into_iter().map(Result::unwrap).collect()
}

fn load(checkpoints: &Checkpoints) -> Result<u64, CheckpointError> {
    let mut trainer = Gpt::<f64, Cpu>::with_seed(1).trainer(AdamWConfig::default());
    let checkpoint = checkpoints.latest()?.unwrap();
    trainer.load(&checkpoint, LoadOptions::default())?;
    Ok(trainer.state().step)
}

#[test]
fn each_rank_writes_its_shard_and_one_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    for saved in save(|_| folder.path().into()) {
        saved.unwrap();
    }
    let checkpoints = Checkpoints::new(folder.path());
    let files = |step| {
        let files = fs::read_dir(checkpoints.at(step).unwrap().folder()).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        files.collect::<BTreeSet<_>>()
    };
    let shard = |rank| format!("optimizer-0000{rank}-of-00003.safetensors");
    let shards = [1, 2, 3].map(shard);
    let expected = ["model.safetensors", "n.json"].map(String::from);
    let expected: BTreeSet<_> = expected.into_iter().chain(shards.clone()).collect();
    assert_eq!(files(1), expected);
    assert_eq!(load(&checkpoints).unwrap(), 2);

    // A shard of another step, and one that is not there.
    let of = |step: u64, rank| checkpoints.at(step).unwrap().folder().join(shard(rank));
    fs::copy(of(0, 2), of(1, 2)).unwrap();
    let error = load(&checkpoints).unwrap_err();
    assert!(matches!(error.problem, Problem::OtherShard), "{error}");
    assert_eq!(error.path, of(1, 2));
    fs::remove_file(of(1, 2)).unwrap();
    let error = load(&checkpoints).unwrap_err();
    let Problem::Shard { name, ranks: 3 } = &error.problem else {
        panic!("{error}")
    };
    assert_eq!(*name, shard(2));
    assert!(
        error
            .to_string()
            .contains("`optimizer-00002-of-00003.safetensors` is missing")
    );
}

#[test]
fn a_folder_that_ranks_do_not_share_gets_no_checkpoint() {
    let all = tempfile::tempdir().unwrap();
    let folder = |rank| all.path().join((rank == 2).to_string());
    for (rank, saved) in save(folder).into_iter().enumerate() {
        let error = saved.unwrap_err();
        let is_named = match (rank, &error.problem) {
            (2, Problem::NotShared { rank: 2 }) => true,
            (_, Problem::Rank { rank: 2, reason }) => reason.contains("all ranks share"),
            _ => false,
        };
        assert!(is_named, "{error}");
    }
    assert!(Checkpoints::new(folder(0)).steps().unwrap().is_empty());
    assert_eq!(
        fs::read_dir(folder(0)).unwrap().count(),
        1,
        "the lock alone"
    );
}

/// The batches before it count in the step behind it, and the averages are those of all ranks.
#[test]
fn a_state_that_is_gathered_between_batches_changes_no_step() {
    let run = |ranks: usize, gathers: bool| {
        let all = Threads::run(ranks, |rank| {
            let mut trainer = trainer(rank).ema(0.5);
            let rows = rows(trainer.rank(), trainer.ranks());
            let mut losses = Vec::new();
            for number in 0..6 {
                trainer.accumulate(batch(number, rows.clone())).unwrap();
                if gathers && number % 2 == 0 {
                    trainer.gather_state().unwrap();
                } else if gathers {
                    drop(trainer.averaged().unwrap());
                }
                let step = trainer.apply().unwrap();
                losses.push([step.loss, step.grad_norm]);
            }
            let averaged = trainer.averaged().unwrap().evaluate(batch(1, 0..ROWS));
            losses.push([averaged.unwrap(), 0.0]);
            losses
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let expected = run(1, false);
    let found = run(2, true);
    assert_eq!(found, run(2, false));
    for found in found {
        assert_same(&found, &expected[0], 1e-12);
    }
}

#[test]
fn a_rank_gathers_the_lists_that_others_have_updated_since_the_state_was_set() {
    let run = |ranks: usize| {
        let all = Threads::run(ranks, |rank| {
            let mut trainer = trainer(rank);
            step(&mut trainer, 0);
            trainer.gather_state().unwrap();
            let whole = trainer.state().clone();
            step(&mut trainer, 1);
            *trainer.state_mut() = whole;
            step(&mut trainer, 2);
            trainer.gather_state().unwrap();
            trainer.state().lists.clone()
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let expected = run(1).swap_remove(0);
    for found in run(2) {
        assert!(found.keys().eq(expected.keys()));
        for (name, list) in &expected {
            let mut both = found[name].iter().zip(list);
            assert!(
                both.all(|(found, expected)| (found - expected).abs() < 1e-12),
                "{name}"
            );
        }
    }
}

/// All leave for a run of their own. The last rank may have ended before.
#[test]
fn a_trainer_goes_on_alone_with_the_state_of_all_ranks() {
    let run = |ranks: usize, ends: bool| {
        let all = Threads::run(ranks, |rank| {
            let mut trainer = trainer(rank);
            for number in 0..3 {
                step(&mut trainer, number);
            }
            if ends && trainer.rank() == 2 {
                return Ok(Vec::new());
            }
            let mut trainer = trainer.across(Alone::default());
            let mut steps = Vec::new();
            for number in 3..6 {
                let step = trainer.step(batch(number, 0..ROWS))?;
                steps.push([step.loss, step.grad_norm]);
            }
            Ok::<_, TrainError<CpuError>>(steps)
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let expected = run(1, false).swap_remove(0).unwrap();
    for found in run(3, false) {
        assert_same(&found.unwrap(), &expected, 1e-12);
    }
    for refused in &run(3, true)[..2] {
        assert!(matches!(refused, Err(TrainError::Share)), "{refused:?}");
    }
}
