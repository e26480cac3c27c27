//! The choices for the nodes of a model that are worth it, the same in all rounds of a loop.

use std::collections::HashSet;

use super::facts::{Facts, NodeFacts};
use super::simulation::{Cost, Simulation};

/// How many choices are tried. If there are more, the search goes from one to its neighbours.
pub(super) const MOST_TRIED: usize = 3000;

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Choice {
    /// What the derivative reads of it is kept.
    Kept,
    /// It runs again.
    Again,
    /// It runs again for its result, and once more for what it keeps beside that.
    Twice,
}

/// A choice for each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) choices: Vec<Choice>,
    pub(super) cost: Cost,
}

/// The candidates of which no other one is better in both ways.
#[derive(Default)]
pub(super) struct Fronts {
    /// By the numbers where they are the most, and work.
    pub(super) of_all: Front,
    /// By the numbers that are kept, and work: what counts for rounds whose derivative runs when there is memory again.
    pub(super) of_kept: Front,
}

#[derive(Default)]
pub(super) struct Front {
    pub(super) candidates: Vec<Candidate>,
}

/// The fronts of all choices, or of those that the search finds.
pub(super) fn search(facts: &Facts) -> Fronts {
    match count(facts) {
        Some(count) => all(facts, count),
        None => walk(facts),
    }
}

/// The number of all choices, unless there are too many.
fn count(facts: &Facts) -> Option<usize> {
    facts.nodes.iter().try_fold(1usize, |count, node| {
        let count = count.checked_mul(node.choices().len())?;
        (count <= MOST_TRIED).then_some(count)
    })
}

pub(super) fn all(facts: &Facts, count: usize) -> Fronts {
    let mut fronts = Fronts::default();
    for number in 0..count {
        fronts.insert(facts.candidate(&facts.choices(number)));
    }
    fronts
}

impl Fronts {
    /// Whether the candidate is new to one of them, and no other one there is as good.
    fn insert(&mut self, candidate: Candidate) -> bool {
        let is_new = self
            .of_all
            .insert(&candidate, |cost| (cost.numbers, cost.kept, cost.work));
        let is_kept = self
            .of_kept
            .insert(&candidate, |cost| (cost.kept, cost.numbers, cost.work));
        is_new || is_kept
    }
}

impl Front {
    /// By the first number, or else the second one, and the third.
    fn insert(&mut self, candidate: &Candidate, by: fn(&Cost) -> (u64, u64, u64)) -> bool {
        let is_as_good = |a: &Candidate, b: &Candidate| {
            let [a, b] = [a, b].map(|of| by(&of.cost));
            (a.0, a.1) <= (b.0, b.1) && a.2 <= b.2
        };
        let mut others = self.candidates.iter();
        if others.any(|other| is_as_good(other, candidate)) {
            return false;
        }
        self.candidates
            .retain(|other| !is_as_good(candidate, other));
        self.candidates.push(candidate.clone());
        true
    }
}

/// From candidate to candidate: another choice for a node, with or without all that it reads, and for a whole region.
pub(super) fn walk(facts: &Facts) -> Fronts {
    let mut fronts = Fronts::default();
    let nodes = 0..facts.nodes.len();
    let mut waiting = vec![vec![Choice::Kept; nodes.len()]];
    for region in 0..facts.regions.len() {
        let inside = facts.nodes.iter().map(|node| match node.region == region {
            true => Choice::Again,
            false => Choice::Kept,
        });
        waiting.push(inside.collect());
    }
    waiting.push(vec![Choice::Again; nodes.len()]);
    let starts = waiting.len();
    let mut known: HashSet<_> = waiting.iter().cloned().collect();
    let mut at = 0;
    while at < waiting.len() && at < MOST_TRIED {
        let candidate = facts.candidate(&waiting[at]);
        let choices = candidate.choices.clone();
        let is_better = fronts.insert(candidate);
        at += 1;
        if !is_better && at > starts {
            continue;
        }
        for node in nodes.clone() {
            for choice in facts.nodes[node].choices() {
                let mut one = choices.clone();
                one[node] = *choice;
                let mut with_operands = one.clone();
                facts.add_operands(node, &mut with_operands);
                for next in [one, with_operands] {
                    if known.insert(next.clone()) {
                        waiting.push(next);
                    }
                }
            }
        }
    }
    fronts
}

impl NodeFacts {
    pub(super) fn choices(&self) -> &'static [Choice] {
        // A node with less has nothing to forget.
        match self.kept.is_some() && self.scratch > 0 {
            true => &[Choice::Kept, Choice::Again, Choice::Twice],
            false => &[Choice::Kept, Choice::Again],
        }
    }
}

impl Facts {
    /// The choices of this number among all.
    pub(super) fn choices(&self, mut number: usize) -> Vec<Choice> {
        let choices = self.nodes.iter().map(|node| {
            let of_node = node.choices();
            let choice = of_node[number % of_node.len()];
            number /= of_node.len();
            choice
        });
        choices.collect()
    }

    /// Adds the nodes of the same region that a node reads, and those that these read.
    fn add_operands(&self, node: usize, choices: &mut [Choice]) {
        let region = self.nodes[node].region;
        let mut reads = self.nodes[node].reads.clone();
        for before in (0..node).rev() {
            let of = &self.nodes[before];
            if of.region == region && of.makes.iter().any(|place| reads.contains(place)) {
                if choices[before] == Choice::Kept {
                    choices[before] = Choice::Again;
                }
                reads.extend(&of.reads);
            }
        }
    }

    /// What these choices cost, without the nodes that nothing needs.
    pub(super) fn candidate(&self, choices: &[Choice]) -> Candidate {
        let simulation = Simulation::of(self, choices);
        let cost = simulation.cost(0);
        Candidate {
            choices: simulation.choices,
            cost,
        }
    }
}
