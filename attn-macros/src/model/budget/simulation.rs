//! What choices cost: the lines of the derivative as numbers, with what runs again in front of them.

use super::facts::{Facts, LineFacts};
use super::search::Choice;

/// The numbers that are in memory, and the additional work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Where they are the most.
    pub(super) numbers: u64,
    /// When the derivative begins.
    pub(super) kept: u64,
    pub(super) work: u64,
}

pub(super) struct Simulation<'f> {
    facts: &'f Facts,
    /// Without what nothing needs.
    pub(super) choices: Vec<Choice>,
    /// Of each place, whether it is kept.
    is_kept: Vec<bool>,
    regions: Vec<Walked>,
}

/// What runs in front of the lines of a region.
#[derive(Default)]
struct Walked {
    runs: Vec<Vec<Run>>,
    /// Of each place, how many of the lines there are up to the last one that reads it, or in front of which something runs that does.
    last: Vec<usize>,
}

/// A node that runs in front of a line.
struct Run {
    node: usize,
    /// Whether what it keeps is forgotten.
    forgets: bool,
}

impl<'f> Simulation<'f> {
    pub(super) fn of(facts: &'f Facts, chosen: &[Choice]) -> Self {
        let mut is_read = vec![false; facts.places.len()];
        let lines = facts.regions.iter().flat_map(|region| &region.lines);
        let reads = lines.flat_map(|line| &line.reads);
        reads.for_each(|place| is_read[*place] = true);
        let mut choices = vec![Choice::Kept; facts.nodes.len()];
        let mut is_made = vec![false; facts.places.len()];
        for (index, node) in facts.nodes.iter().enumerate().rev() {
            let is_needed = node.kept.is_some() || node.makes.iter().any(|place| is_read[*place]);
            if chosen[index] != Choice::Kept && is_needed {
                choices[index] = chosen[index];
                node.reads.iter().for_each(|place| is_read[*place] = true);
                node.makes.iter().for_each(|place| is_made[*place] = true);
            }
        }
        let is_kept = is_read.iter().zip(&is_made);
        let is_kept = is_kept.map(|(read, made)| *read && !made).collect();
        let mut simulation = Simulation {
            facts,
            choices,
            is_kept,
            regions: Vec::new(),
        };
        let regions = facts.regions.iter().enumerate();
        let walked = regions.map(|(index, region)| simulation.walk(index, &region.lines));
        simulation.regions = walked.collect();
        simulation
    }

    /// With so many last rounds of the loops that are split.
    pub(super) fn cost(&self, last: u64) -> Cost {
        let rounds = self.facts.rounds(last);
        let kept = self.kept(0, &rounds);
        let work = (0..self.facts.regions.len()).map(|region| {
            self.facts
                .times(region, &rounds)
                .saturating_mul(self.work(region))
        });
        Cost {
            numbers: self.pass(0, &rounds, kept),
            kept,
            work: work.fold(0, u64::saturating_add),
        }
    }

    /// What one round of a region keeps, that of loops in it included.
    fn kept(&self, region: usize, rounds: &[u64]) -> u64 {
        let places = self.facts.places.iter().zip(&self.is_kept);
        let places = places.filter(|(place, is_kept)| **is_kept && place.region == region);
        let values = places.map(|(place, _)| place.numbers);
        let nodes = self.facts.nodes.iter().zip(&self.choices);
        let nodes =
            nodes.filter(|(node, choice)| **choice == Choice::Kept && node.region == region);
        let memory = nodes.filter_map(|(node, _)| node.kept);
        let lines = self.facts.regions[region].lines.iter();
        let inner = lines.filter_map(|line| line.inner);
        let inner = inner.map(|inner| self.kept_of_rounds(inner, rounds));
        values
            .chain(memory)
            .chain(inner)
            .fold(0, u64::saturating_add)
    }

    fn kept_of_rounds(&self, region: usize, rounds: &[u64]) -> u64 {
        self.kept(region, rounds).saturating_mul(rounds[region])
    }

    /// The work of what runs again in one round of a region, without that of loops in it.
    pub(super) fn work(&self, region: usize) -> u64 {
        let Walked { runs, last } = &self.regions[region];
        let runs = runs.iter().enumerate();
        let runs = runs.flat_map(|(at, runs)| runs.iter().map(move |run| (at, run)));
        let work = runs.map(|(at, run)| {
            let node = &self.facts.nodes[run.node];
            let is_read = node.makes.iter().any(|place| last[*place] > at);
            let left_out = if is_read { 0 } else { node.of_result };
            node.work.saturating_sub(left_out)
        });
        work.fold(0, u64::saturating_add)
    }

    /// The most numbers in a backward pass over a region, in which `now` are there when it begins.
    fn pass(&self, region: usize, rounds: &[u64], mut now: u64) -> u64 {
        let Walked { runs, last } = &self.regions[region];
        let mut most = now;
        let mut is_there = self.is_kept.clone();
        for (at, line) in self.facts.regions[region].lines.iter().enumerate() {
            for Run { node, forgets } in &runs[at] {
                let node = &self.facts.nodes[*node];
                let kept = node.kept.unwrap_or(0);
                most = most.max(now.saturating_add(kept).saturating_add(node.scratch));
                for place in &node.makes {
                    if !is_there[*place] && last[*place] > at {
                        is_there[*place] = true;
                        now = now.saturating_add(self.facts.places[*place].numbers);
                    }
                }
                most = most.max(now.saturating_add(kept));
                now = now.saturating_add(if *forgets { 0 } else { kept });
            }
            now = now.saturating_add(line.made);
            most = most.max(now.saturating_add(line.scratch));
            if let Some(inner) = line.inner.filter(|inner| rounds[*inner] > 0) {
                most = most.max(self.pass(inner, rounds, now));
                now = now.saturating_sub(self.kept_of_rounds(inner, rounds));
            }
            let kept = line.kept.iter();
            let kept = kept.filter_map(|node| self.facts.nodes[*node].kept);
            let freed = kept.fold(line.freed, u64::saturating_add);
            now = now.saturating_sub(freed);
            for (place, of) in self.facts.places.iter().enumerate() {
                let is_last = is_there[place] && of.region == region;
                if is_last && last[place] <= at + 1 {
                    is_there[place] = false;
                    now = now.saturating_sub(of.numbers);
                }
            }
        }
        most
    }

    fn walk(&self, region: usize, lines: &[LineFacts]) -> Walked {
        let runs = self.runs(region, lines);
        let mut last = vec![0; self.facts.places.len()];
        for (at, (line, runs)) in lines.iter().zip(&runs).enumerate() {
            let of_runs = runs
                .iter()
                .flat_map(|run| &self.facts.nodes[run.node].reads);
            of_runs
                .chain(&line.reads)
                .for_each(|place| last[*place] = at + 1);
        }
        Walked { runs, last }
    }

    /// The nodes that run in front of each line.
    fn runs(&self, region: usize, lines: &[LineFacts]) -> Vec<Vec<Run>> {
        let nodes = self.facts.nodes.iter().enumerate();
        let waiting = nodes
            .filter(|(index, node)| node.region == region && self.choices[*index] != Choice::Kept);
        // For its result, and for what it keeps.
        let mut waiting: Vec<(usize, [bool; 2])> = waiting
            .map(|(index, node)| (index, [true, node.kept.is_some()]))
            .collect();
        let runs = lines.iter().map(|line| {
            let mut reads = line.reads.clone();
            let mut run = Vec::new();
            for (node, [for_result, for_kept]) in waiting.iter_mut().rev() {
                let of = &self.facts.nodes[*node];
                let is_read = of.makes.iter().any(|place| reads.contains(place));
                let is_kept = line.kept.contains(node);
                if !(*for_result && is_read || *for_kept && is_kept) {
                    continue;
                }
                *for_result = false;
                let forgets = self.choices[*node] == Choice::Twice && !is_kept;
                *for_kept &= forgets;
                reads.extend(&of.reads);
                run.push(Run {
                    node: *node,
                    forgets,
                });
            }
            run.reverse();
            run
        });
        runs.collect()
    }
}

impl Facts {
    /// The rounds of each region, with so many last rounds of the loops that are split.
    fn rounds(&self, last: u64) -> Vec<u64> {
        let mut rounds: Vec<_> = self.regions.iter().map(|region| region.rounds).collect();
        let mut rest = last;
        for part in self.parts.iter().rev() {
            let last = rest.min(part.rounds);
            rest -= last;
            let [of_first, of_last] = part.regions;
            rounds[of_first] = part.rounds - last;
            rounds[of_last] = last;
        }
        rounds
    }

    /// How often a region runs.
    pub(super) fn times(&self, region: usize, rounds: &[u64]) -> u64 {
        let around = self.regions[region].around;
        let around = around.map_or(1, |around| self.times(around, rounds));
        around.saturating_mul(rounds[region])
    }
}
