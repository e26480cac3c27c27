//! What each rank keeps, sends and saves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use attn::{
    checkpoint::{CheckpointError, Checkpoints, LoadOptions, Problem},
    dfdx::prelude::*,
    model,
    train::{
        AdafactorConfig, AdamWConfig, Algorithm, Alone, MuonConfig, Threads, TrainError, Trainer,
        TrainerParameter,
    },
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

/// Lists by their names.
type Lists = BTreeMap<String, Vec<f64>>;

/// The lists that each rank has behind a step, and those of all.
fn lists<A: Algorithm>(
    ranks: usize,
    make: impl Fn(Gpt<f64, Cpu>) -> Trainer<Gpt<f64, Cpu>, A> + Sync,
) -> Vec<[Lists; 2]> {
    let all = Threads::run(ranks, |rank| {
        let mut trainer = make(Gpt::with_seed(1)).across(rank);
        let rows = rows(trainer.rank(), trainer.ranks());
        for number in 0..2 {
            trainer.step(batch(number, rows.clone())).unwrap();
        }
        let own = trainer.state().lists.clone();
        trainer.gather_state().unwrap();
        [own, trainer.state().lists.clone()]
    });
    all.into_iter().map(Result::unwrap).collect()
}

fn assert_near(found: &Lists, expected: &Lists) {
    assert!(found.keys().eq(expected.keys()));
    for (name, list) in expected {
        let found = &found[name];
        assert_eq!(found.len(), list.len(), "{name}");
        let mut both = found.iter().zip(list);
        assert!(
            both.all(|(found, expected)| (found - expected).abs() < 1e-12),
            "{name}"
        );
    }
}

#[test]
fn ranks_have_equal_parts_that_are_a_list_one_behind_the_other() {
    let make = |model: Gpt<f64, Cpu>| model.trainer(AdamWConfig::default()).ema(0.5);
    let [expected, _] = lists(1, make).swap_remove(0);
    // With 9 ranks, no parameter has a part on each.
    for ranks in [2, 3, 9] {
        let all = lists(ranks, make);
        for (name, whole) in &expected {
            let parts = all.iter().filter_map(|[own, _]| own.get(name));
            let parts: Vec<_> = parts.flatten().copied().collect();
            assert_eq!(all[0][1][name], parts, "{name}");
            assert_eq!(parts.len(), whole.len());
        }
        // Three lists, and a cache line at most that some ranks have more of each.
        let lens = all.iter().map(|[own, _]| own.values().map(Vec::len).sum());
        let lens: Vec<usize> = lens.collect();
        let of_all: usize = expected.values().map(Vec::len).sum();
        let padding = 16 * expected.len();
        assert!(
            lens.iter()
                .all(|len| *len <= of_all / ranks + padding / ranks + 3 * 16),
            "{lens:?} of {of_all}"
        );
        for [_, gathered] in &all {
            assert_near(gathered, &expected);
        }
    }
}

#[test]
fn an_algorithm_of_matrices_has_whole_ones_on_one_rank_and_parts_of_the_others() {
    let all = lists(3, |model| model.trainer(MuonConfig::default()));
    let expected = &all[0][1];
    let (mut whole, mut cut) = (0, 0);
    for (name, list) in expected {
        let parts = all.iter().filter_map(|[own, _]| own.get(name));
        let parts: Vec<_> = parts.map(Vec::len).collect();
        assert_eq!(parts.iter().sum::<usize>(), list.len());
        if name.ends_with(".momentum") {
            assert_eq!(parts.len(), 1, "{name}");
            whole += 1;
        } else if list.len() > 2 * 16 {
            assert_eq!(parts.len(), 3, "{name}");
            cut += 1;
        }
    }
    assert!(whole > 4 && cut > 1, "{whole}, {cut}");
    let all = lists(3, |model| model.trainer(AdafactorConfig::default()));
    let names: Vec<_> = all.iter().flat_map(|[own, _]| own.keys()).collect();
    let different: BTreeSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len());
}

model! {
    /// Parameters with fewer numbers than ranks, and one of a cache line and a number.
    struct Small<one = 1>;

    fn forward(x: [batch, one]) -> [batch, one] {
        linear::<one>(linear::<17, bias = false>(x))
    }

    fn loss(x: [batch, one], target: [batch, one]) -> [] {
        mean::<[batch, one]>(pow(forward(x) - target, 2))
    }
}

#[test]
fn a_parameter_may_have_fewer_numbers_than_there_are_ranks() {
    let run = |ranks: usize| {
        let all = Threads::run(ranks, |rank| {
            let dev = Cpu::seed_from_u64(1);
            let model = dev.build_module::<Small, f64>();
            let trainer = model.trainer(AdamWConfig::default());
            let mut trainer = trainer.across(rank).clip(0.1).bucket_bytes(1);
            let mut steps = Vec::new();
            for number in 0..5 {
                // The batch is the same on all ranks, so the step does not depend on their number.
                let x = [0.5 + f64::from(number), -1.0, 2.0];
                let [x, target] = [x, x.map(|x| 1.0 - x * x)];
                let x = dev.tensor_from_vec(x.to_vec(), (3, Const::<1>));
                let target = dev.tensor_from_vec(target.to_vec(), (3, Const::<1>));
                let step = trainer.step((x, target)).unwrap();
                steps.push([step.loss, step.grad_norm]);
            }
            trainer.gather_state().unwrap();
            (steps, trainer.state().lists.clone())
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let (steps, expected) = run(1).swap_remove(0);
    assert_eq!(expected["linear_2.bias.mean"].len(), 1);
    for ranks in [2, 3, 5] {
        for (found, lists) in run(ranks) {
            assert_same(&found, &steps, 1e-12);
            assert_near(&lists, &expected);
        }
    }
}

#[test]
fn lists_of_a_frozen_parameter_are_parts_too() {
    let run = |ranks: usize| {
        let all = Threads::run(ranks, |rank| {
            let mut trainer = trainer(rank);
            step(&mut trainer, 0);
            trainer.set_frozen("blocks.*", true).unwrap();
            step(&mut trainer, 1);
            let own = trainer.state().lists.clone();
            trainer.gather_state().unwrap();
            [own, trainer.state().lists.clone()]
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let [_, expected] = run(1).swap_remove(0);
    for [own, gathered] in run(3) {
        assert_near(&gathered, &expected);
        let len = |lists: &Lists| lists.values().map(Vec::len).sum::<usize>();
        assert!(len(&own) < len(&expected) / 2);
    }
}

#[test]
fn bytes_of_a_step_are_those_of_gradients_and_parameters() {
    const OF_TWO: usize = Gpt::bytes_per_step(2);
    let parameters = Gpt::<f64, Cpu>::with_seed(1)
        .trainer(AdamWConfig::default())
        .parameters();
    let len = |of: &TrainerParameter| of.dims.iter().product::<usize>();
    assert_eq!(OF_TWO, 2 * 4 * parameters.iter().map(len).sum::<usize>());
    for ranks in [2, 3] {
        let sent = Threads::run(ranks, |rank| {
            let mut trainer = trainer(rank);
            // A rank without a row would send no gradients.
            let row = trainer.rank();
            trainer.step(batch(0, row..row + 1)).unwrap();
            let before = trainer.bytes_sent();
            trainer.step(batch(1, row..row + 1)).unwrap();
            trainer.bytes_sent() - before
        });
        let sent: u64 = sent.into_iter().map(Result::unwrap).sum();
        // Each rank says two numbers of its batch and two of its gradients, and to each other one of each gradient that this has a part of
        // whether it is there. Parts are cut behind 16 numbers.
        let parts = parameters.iter().map(|of| len(of).div_ceil(16).min(ranks));
        let said = (ranks - 1) * (ranks * 4 * 8 + parts.sum::<usize>());
        assert_eq!(sent as usize, 2 * Gpt::bytes_per_step(ranks) + said);
    }
}

#[test]
fn bytes_of_a_rank_are_those_of_parameters_gradients_and_a_part_of_the_lists() {
    let parameters = Gpt::<f64, Cpu>::with_seed(1)
        .trainer(AdamWConfig::default())
        .parameters()
        .len();
    for ranks in [1, 2, 3] {
        let found = Threads::run(ranks, |rank| {
            let mut trainer = trainer(rank);
            step(&mut trainer, 0);
            let lists = trainer.state().lists.values().map(Vec::len).sum::<usize>();
            8 * Gpt::PARAMS + trainer.gradient_bytes() + 8 * lists
        });
        let expected = 2 * Gpt::training_bytes(ranks, 2);
        // Some cache lines that one rank has more.
        let units = parameters * 16 * 2 * 8;
        for found in found {
            let found = found.unwrap();
            let allowed = if ranks == 1 {
                0
            } else {
                units / ranks + 2 * 16 * 8
            };
            assert!(found.abs_diff(expected) <= allowed, "{found} of {expected}");
        }
    }
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
    // The parts of two ranks, changed with each other: they may be as long.
    let [first, third] = [1, 3].map(|rank| fs::read(of(1, rank)).unwrap());
    fs::write(of(1, 1), &third).unwrap();
    fs::copy(of(1, 3), of(1, 2)).unwrap();
    fs::write(of(1, 3), &first).unwrap();
    let error = load(&checkpoints).unwrap_err();
    let Problem::OtherRank { found, expected: 0 } = &error.problem else {
        panic!("{error}")
    };
    assert_eq!(found.as_deref(), Some("2"));
    assert_eq!(error.path, of(1, 1));
    assert!(
        error
            .to_string()
            .contains("the shard of rank 2, in place of that of rank 0")
    );
    // A part twice in place of another one.
    fs::write(of(1, 1), &first).unwrap();
    fs::write(of(1, 3), &third).unwrap();
    fs::copy(of(1, 1), of(1, 2)).unwrap();
    let error = load(&checkpoints).unwrap_err();
    assert!(
        matches!(error.problem, Problem::OtherRank { .. }),
        "{error}"
    );
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
        assert_near(&found, &expected);
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
