//! Sessions of a model that is a table: the logits depend on the last token only.

mod beams;
mod drafts;
mod generation;
mod sessions;

use std::sync::{Arc, Mutex};

use super::{CacheMemory, Capacity, Decoder, NewTokens, Sampling, Session, Sessions};
use crate::fused::{Array, NamedTensor, VisitWeights};

const TOKENS: usize = 4;

/// The logits after each token.
const TABLE: [[f64; TOKENS]; TOKENS] = [
    [0.1, 1.2, -0.3, 0.4],
    [1.5, -0.2, 1.4, 0.3],
    [-0.6, 0.9, 0.2, 1.1],
    [0.7, 0.8, -0.1, -0.9],
];

#[derive(Clone)]
struct Table([[f64; TOKENS]; TOKENS]);

impl Decoder<f64> for Table {
    fn most_new(&self) -> usize {
        usize::MAX
    }

    fn decode(&mut self, new: &NewTokens, results: &mut Array<f64>) {
        for (row, &id) in new.ids().iter().enumerate() {
            results.view_mut().row_mut(row).copy_from_slice(&self.0[id]);
        }
    }

    fn reset(&mut self, _: usize) {}

    fn shortest(&self, _: usize) -> usize {
        0
    }

    fn truncate(&mut self, _: usize, _: usize) {}

    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::default()
    }

    fn copied(&self, _: usize, _: usize) -> usize {
        0
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(self.clone())
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
    }
}

fn session(table: [[f64; TOKENS]; TOKENS], capacity: usize) -> Session<f64> {
    let room = Capacity {
        sequences: 1,
        capacity,
    };
    Session::from(Sessions::new(Table(table), room, TOKENS, TOKENS))
}

/// A model whose caches claim to take so many bytes, and that counts the tokens of its steps.
#[derive(Clone, Default)]
struct Remembering {
    bytes: usize,
    copied: usize,
    most_new: Option<usize>,
    steps: Arc<Mutex<Vec<usize>>>,
}

impl Decoder<f64> for Remembering {
    fn most_new(&self) -> usize {
        self.most_new.unwrap_or(usize::MAX)
    }

    fn decode(&mut self, new: &NewTokens, results: &mut Array<f64>) {
        let mut steps = self.steps.lock().expect("no test panics with it");
        steps.push(new.ids().len());
        results.as_mut_slice().fill(0.0);
    }

    fn reset(&mut self, _: usize) {}

    fn shortest(&self, _: usize) -> usize {
        0
    }

    fn truncate(&mut self, _: usize, _: usize) {}

    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::of_capacity(self.bytes)
    }

    fn copied(&self, _: usize, _: usize) -> usize {
        self.copied
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(self.clone())
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
    }
}

fn greedy() -> Sampling {
    Sampling {
        temperature: 0.0,
        ..Sampling::default()
    }
}

/// A model whose likeliest token depends on all tokens that it has read.
#[derive(Clone, Default)]
struct Context(Vec<usize>);

fn likeliest_after(context: &[usize]) -> usize {
    let numbered = context.iter().enumerate();
    numbered.fold(0, |sum, (place, token)| {
        (sum * 3 + (place + 1) * token + 1) % TOKENS
    })
}

impl Decoder<f64> for Context {
    fn most_new(&self) -> usize {
        usize::MAX
    }

    fn decode(&mut self, new: &NewTokens, results: &mut Array<f64>) {
        results.as_mut_slice().fill(0.0);
        for (row, &id) in new.ids().iter().enumerate() {
            self.0.push(id);
            results.view_mut().row_mut(row)[likeliest_after(&self.0)] = 1.0;
        }
    }

    fn reset(&mut self, _: usize) {
        self.0.clear();
    }

    fn shortest(&self, _: usize) -> usize {
        0
    }

    fn truncate(&mut self, _: usize, len: usize) {
        self.0.truncate(len);
    }

    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::default()
    }

    fn copied(&self, _: usize, _: usize) -> usize {
        0
    }

    fn round_cache(&mut self) {}

    fn fork(&self) -> Box<dyn Decoder<f64>> {
        Box::new(self.clone())
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<f64>, &[NamedTensor])> {
        None
    }
}

/// A session of [`Context`], whose tokens depend on all that it has read, so a truncated or repeated token changes them.
fn context(capacity: usize) -> Session<f64> {
    let room = Capacity {
        sequences: 1,
        capacity,
    };
    Session::from(Sessions::new(Context::default(), room, TOKENS, TOKENS))
}

/// The log probability of a sequence of tokens.
fn log_probability(first: usize, tokens: &[usize]) -> f64 {
    let before = [first].into_iter().chain(tokens.iter().copied());
    let pairs = before.zip(tokens);
    pairs
        .map(|(before, &token)| {
            let sum: f64 = TABLE[before].iter().map(|x| x.exp()).sum();
            TABLE[before][token] - sum.ln()
        })
        .sum()
}
