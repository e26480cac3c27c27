//! The names of what a model runs.

use crate::kernel::attention::MaskBlocks;

/// The operations of a model in the order of execution: the names of their results, and its attentions with the blocks of their masks.
#[derive(Debug, Default)]
pub struct Outline {
    path: String,
    pub(crate) results: Vec<Named>,
    pub(crate) attentions: Vec<(String, Option<Blocks>)>,
}

pub(crate) type Blocks = fn(usize, usize) -> MaskBlocks;

/// The name of a result, and the operation that computes it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) value: String,
    pub(crate) operation: String,
}

impl Outline {
    /// Adds results with their operations.
    pub fn results(&mut self, all: &[(&str, &str)]) {
        let path = &self.path;
        let named = all.iter().map(|(value, operation)| Named {
            value: format!("{path}{value}"),
            operation: format!("{path}{operation}"),
        });
        self.results.extend(named);
    }

    /// Adds an attention of this name.
    pub fn attention(&mut self, name: &str, blocks: Blocks) {
        self.attentions
            .push((format!("{}{name}", self.path), Some(blocks)));
    }

    /// Adds the attentions of the steps of a scan: together they have the queries of all steps, which the blocks of a mask do not know.
    pub fn steps(&mut self, body: impl Fn(&mut Self)) {
        let [results, attentions] = [self.results.len(), self.attentions.len()];
        body(self);
        self.results.truncate(results);
        for (_, blocks) in &mut self.attentions[attentions..] {
            *blocks = None;
        }
    }

    /// Adds what the rounds of a loop of this name run.
    pub fn repeat(&mut self, name: &str, rounds: usize, body: impl Fn(&mut Self)) {
        let outside = self.path.len();
        for round in 0..rounds {
            self.path.push_str(&format!("{name}.{round}."));
            body(self);
            self.path.truncate(outside);
        }
    }
}
