//! Updates on several threads.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use std::time::{Duration, Instant};

use dfdx::{
    shapes::Rank0,
    tensor::{Cpu, Tensor, ZerosTensor},
};

use super::*;
use crate::fused::id_of;
use crate::train::{
    AdafactorConfig, AdamWConfig, InvalidSetting, LionConfig, MuonConfig, ScheduleFreeConfig,
    SgdConfig,
};

/// Parameters around and within ranges: vectors and matrices, small ones and large ones, and one without numbers.
const DIMS: [&[usize]; 9] = [
    &[5],
    &[3, 7],
    &[SMALL - 27],
    &[0],
    &[130, 257],
    &[1],
    &[64, 30],
    &[2, 9, 11],
    &[SMALL + 1],
];

fn numbers(len: usize, seed: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 37 + seed * 101) % 1009) as f32 / 500.0 - 1.0;
    (0..len).map(number).collect()
}

fn in_pool_of<R: Send>(threads: usize, body: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("a pool").install(body)
}

/// A parameter of an algorithm.
fn named<A: Algorithm>(name: &str, dims: &[usize]) -> Named {
    let tensor: Tensor<Rank0, f32, _> = Cpu::default().zeros();
    Named::new::<A>(id_of(&tensor), name, dims)
}

/// All parameters, and the lists of the state.
type Trained = (Vec<Vec<f32>>, Vec<(String, Vec<f32>)>);

/// Takes steps, in each of which so many parameters are updated at a time.
fn train<A: Algorithm>(algorithm: A, steps: u64, at_a_time: usize) -> Trained {
    let mut optimizer = Optimizer::<f32, A>::new(algorithm);
    let choices = (0..DIMS.len()).map(|index| {
        let mut choice = Choice {
            decays: true,
            ..Choice::default()
        };
        choice.path.name = format!("p{index}");
        choice
    });
    let choices: Vec<_> = choices.collect();
    let all = choices.iter().zip(DIMS);
    let all = all.map(|(choice, dims)| named::<A>(&choice.path.name, dims));
    let all: Vec<_> = all.collect();
    let lens = DIMS.map(|dims| dims.iter().product());
    let mut parameters: Vec<_> = lens.iter().map(|len| numbers(*len, 0)).collect();
    for step in 1..=steps {
        optimizer.state.step = step;
        let begun = optimizer.config.begin(step, &mut optimizer.state.numbers);
        begun.expect("a step can begin");
        let gradients = lens.map(|len| numbers(len, step as usize));
        let with_gradients = parameters.iter_mut().zip(&gradients).enumerate();
        let mut targets: Vec<_> = with_gradients
            .map(|(index, (parameter, gradient))| Target {
                of: &all[index],
                choice: &choices[index],
                start: 0,
                numbers: parameter,
                gradient: Some(gradient),
            })
            .collect();
        while !targets.is_empty() {
            let others = targets.split_off(at_a_time.min(targets.len()));
            optimizer.update_all(std::mem::replace(&mut targets, others));
        }
    }
    (parameters, optimizer.state.lists.into_iter().collect())
}

fn assert_same_bits<A: Algorithm + Copy + Send>(algorithm: A) {
    let one_by_one = in_pool_of(1, || train(algorithm, 3, 1));
    for threads in [1, 2, 3, 8] {
        let together = in_pool_of(threads, || train(algorithm, 3, DIMS.len()));
        assert!(together == one_by_one, "{} on {threads} threads", A::NAME);
    }
}

#[test]
fn updates_have_the_same_bits_for_any_number_of_threads_and_parameters_at_a_time() {
    assert_same_bits(AdamWConfig {
        lr: 0.1,
        ..Default::default()
    });
    assert_same_bits(SgdConfig {
        momentum: 0.9,
        ..Default::default()
    });
    assert_same_bits(SgdConfig::default());
    assert_same_bits(LionConfig::default());
    assert_same_bits(ScheduleFreeConfig::default());
    assert_same_bits(AdafactorConfig::default());
    assert_same_bits(MuonConfig::default());
}

/// Records what it is called with: names, starts and lengths.
#[derive(Clone, Copy, Debug)]
struct Recorded<'a> {
    is_elementwise: bool,
    parts: &'a Mutex<Vec<(String, usize, usize)>>,
}

impl Algorithm for Recorded<'_> {
    const NAME: &'static str = "Recorded";
    const LISTS: &'static [List] = &[List::of_elements("list")];

    fn check(&self) -> Result<(), InvalidSetting> {
        Ok(())
    }

    fn keeps(&self, _: &List, _: &ParameterInfo<'_>) -> bool {
        true
    }

    fn begin(&self, _: u64, _: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
        Ok(())
    }

    fn is_elementwise(&self, _: &ParameterInfo<'_>) -> bool {
        self.is_elementwise
    }

    fn update<E: Element>(&self, update: Update<'_, E>) {
        let len = update.parameter.len();
        assert_eq!((update.gradient.len(), update.lists[0].len()), (len, len));
        let part = (update.info.name.to_owned(), update.start, len);
        self.parts.lock().expect("no update panics").push(part);
    }
}

/// All parts in their order: names, starts and lengths.
fn parts(is_elementwise: bool) -> Vec<(String, usize, usize)> {
    let parts = Mutex::default();
    let recorded = Recorded {
        is_elementwise,
        parts: &parts,
    };
    in_pool_of(3, || train(recorded, 1, DIMS.len()));
    let mut parts = parts.into_inner().expect("no update panics");
    parts.sort();
    parts
}

#[test]
fn elementwise_updates_are_of_ranges_that_begin_within_parameters() {
    let parts = parts(true);
    let of = |name: &str| {
        let of = parts.iter().filter(|part| part.0 == name);
        of.map(|part| (part.1, part.2)).collect::<Vec<_>>()
    };
    // The first range has one number more than the first three parameters.
    assert_eq!(of("p2"), [(0, SMALL - 27)]);
    assert_eq!(of("p4")[..2], [(0, 1), (1, SMALL)]);
    for (index, dims) in DIMS.iter().enumerate() {
        let mut end = 0;
        for (start, len) in of(&format!("p{index}")) {
            assert_eq!(start, end, "p{index}");
            assert!(len <= SMALL);
            end += len;
        }
        assert_eq!(end, dims.iter().product::<usize>(), "p{index}");
    }
}

#[test]
fn other_updates_are_of_whole_parameters() {
    let whole = DIMS.iter().enumerate();
    let whole = whole.map(|(index, dims)| (format!("p{index}"), 0, dims.iter().product()));
    assert_eq!(parts(false), whole.collect::<Vec<_>>());
}

/// Each update waits for another one on another thread.
#[derive(Debug)]
struct Meeting<'a> {
    is_elementwise: bool,
    inside: &'a AtomicUsize,
    met: &'a AtomicUsize,
}

impl Algorithm for Meeting<'_> {
    const NAME: &'static str = "Meeting";
    const LISTS: &'static [List] = &[];

    fn check(&self) -> Result<(), InvalidSetting> {
        Ok(())
    }

    fn keeps(&self, _: &List, _: &ParameterInfo<'_>) -> bool {
        false
    }

    fn begin(&self, _: u64, _: &mut BTreeMap<String, f64>) -> Result<(), &'static str> {
        Ok(())
    }

    fn is_elementwise(&self, _: &ParameterInfo<'_>) -> bool {
        self.is_elementwise
    }

    fn update<E: Element>(&self, _: Update<'_, E>) {
        self.inside.fetch_add(1, SeqCst);
        let start = Instant::now();
        while self.met.load(SeqCst) == 0 && start.elapsed() < Duration::from_secs(20) {
            if self.inside.load(SeqCst) > 1 {
                self.met.fetch_add(1, SeqCst);
            }
            std::thread::yield_now();
        }
        self.inside.fetch_sub(1, SeqCst);
    }
}

#[test]
fn small_parameters_are_updated_by_several_threads() {
    for is_elementwise in [false, true] {
        let (inside, met) = Default::default();
        let meeting = Meeting {
            is_elementwise,
            inside: &inside,
            met: &met,
        };
        in_pool_of(2, || {
            let mut optimizer = Optimizer::<f32, _>::new(meeting);
            let choice = Choice::default();
            let named = named::<Meeting<'_>>("p", &[1000]);
            let mut parameters = vec![[0.0; 1000]; 40];
            let targets = parameters.iter_mut().map(|numbers| Target {
                of: &named,
                choice: &choice,
                start: 0,
                numbers,
                gradient: Some(&[0.0; 1000]),
            });
            optimizer.update_all(targets.collect());
        });
        assert!(met.into_inner() > 0, "elementwise: {is_elementwise}");
    }
}
