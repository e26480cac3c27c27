//! The plans that are worth emitting: none of them has one beside it that takes less memory and is less work.

use super::facts::{Facts, LineFacts};

/// How many plans are emitted at most.
const MOST_PLANS: usize = 10;

/// Up to so many nodes, every choice of some of them is tried.
const TRIED: usize = 11;

/// How many choices are tried of more.
const MOST_TRIED: usize = 4000;

/// A choice of the nodes that run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(super) nodes: Vec<usize>,
    /// Numbers in memory where these are the most.
    pub(super) numbers: u64,
    pub(super) work: u64,
}

/// The plans of a model, in the order of their work. The first one is none.
pub(super) fn plans(facts: &Facts) -> Vec<Plan> {
    let mut front = Front::default();
    let count = facts.nodes.len();
    if count <= TRIED {
        (0..1usize << count).for_each(|mask| {
            let chosen = (0..count).map(|node| mask >> node & 1 == 1);
            front.insert(facts.plan(&chosen.collect::<Vec<_>>()));
        });
    } else {
        walk(facts, &mut front);
    }
    front.plans.sort_by_key(|plan| (plan.work, plan.numbers));
    thin(front.plans)
}

/// Plans of which none is better than another in both ways.
#[derive(Default)]
struct Front {
    plans: Vec<Plan>,
}

impl Front {
    /// Whether the plan is new, and no other one is as good.
    fn insert(&mut self, plan: Plan) -> bool {
        let is_as_good = |a: &Plan, b: &Plan| a.numbers <= b.numbers && a.work <= b.work;
        if self.plans.iter().any(|other| is_as_good(other, &plan)) {
            return false;
        }
        self.plans.retain(|other| !is_as_good(&plan, other));
        self.plans.push(plan);
        true
    }
}

/// From plan to plan of the front, by a node more or less, with or without all that it reads.
fn walk(facts: &Facts, front: &mut Front) {
    let count = facts.nodes.len();
    let all = 0..count;
    let mut waiting = vec![vec![false; count], vec![true; count]];
    for region in 0..facts.regions.len() {
        let inside = all.clone().map(|node| facts.nodes[node].region == region);
        waiting.push(inside.collect());
    }
    let mut tried = 0;
    let mut at = 0;
    while at < waiting.len() && tried < MOST_TRIED {
        let chosen = waiting[at].clone();
        at += 1;
        let plan = facts.plan(&chosen);
        let mut pruned = vec![false; count];
        plan.nodes.iter().for_each(|node| pruned[*node] = true);
        tried += 1;
        if !front.insert(plan) && at > 2 + facts.regions.len() {
            continue;
        }
        for node in all.clone() {
            let mut one = pruned.clone();
            one[node] = !one[node];
            let mut with_operands = one.clone();
            if one[node] {
                facts.add_operands(node, &mut with_operands);
            }
            for next in [one, with_operands] {
                if !waiting.contains(&next) {
                    waiting.push(next);
                }
            }
        }
    }
}

/// Some of many plans, with the first and the last one, such that from one to the next the memory falls by about the same part.
fn thin(mut plans: Vec<Plan>) -> Vec<Plan> {
    while plans.len() > MOST_PLANS {
        let gap = |index: &usize| {
            let [before, after] = [index - 1, index + 1].map(|at| plans[at].numbers.max(1) as f64);
            before / after
        };
        let least = (1..plans.len() - 1).min_by(|a, b| gap(a).total_cmp(&gap(b)));
        let Some(least) = least else { break };
        plans.remove(least);
    }
    plans
}

impl Facts {
    /// Adds the nodes of the same region that a node reads, and those that these read.
    fn add_operands(&self, node: usize, chosen: &mut [bool]) {
        let region = self.nodes[node].region;
        let mut reads = self.nodes[node].reads.clone();
        for before in (0..node).rev() {
            let of = &self.nodes[before];
            if of.region == region && of.makes.iter().any(|place| reads.contains(place)) {
                chosen[before] = true;
                reads.extend(&of.reads);
            }
        }
    }

    /// What these nodes cost if they run again, without those that nothing needs.
    pub(super) fn plan(&self, chosen: &[bool]) -> Plan {
        let simulation = Simulation::of(self, chosen);
        let again = &simulation.again;
        let nodes: Vec<_> = (0..again.len()).filter(|node| again[*node]).collect();
        let work = nodes.iter().map(|node| self.nodes[*node].work);
        Plan {
            numbers: simulation.numbers(),
            work: work.fold(0, u64::saturating_add),
            nodes,
        }
    }
}

/// The backward pass with its memory.
struct Simulation<'f> {
    facts: &'f Facts,
    again: Vec<bool>,
    /// Of each place, whether it is kept.
    is_kept: Vec<bool>,
}

impl<'f> Simulation<'f> {
    fn of(facts: &'f Facts, chosen: &[bool]) -> Self {
        let mut is_read = vec![false; facts.places.len()];
        let lines = facts.regions.iter().flat_map(|region| &region.lines);
        let reads = lines.flat_map(|line| &line.reads);
        reads.for_each(|place| is_read[*place] = true);
        let mut again = vec![false; facts.nodes.len()];
        let mut is_made = vec![false; facts.places.len()];
        for (index, node) in facts.nodes.iter().enumerate().rev() {
            let is_needed = node.kept.is_some() || node.makes.iter().any(|place| is_read[*place]);
            if chosen[index] && is_needed {
                again[index] = true;
                node.reads.iter().for_each(|place| is_read[*place] = true);
                node.makes.iter().for_each(|place| is_made[*place] = true);
            }
        }
        let is_kept = is_read.iter().zip(&is_made);
        let is_kept = is_kept.map(|(read, made)| *read && !made).collect();
        Simulation {
            facts,
            again,
            is_kept,
        }
    }

    /// What one round of a region keeps, that of loops in it included.
    fn kept(&self, region: usize) -> u64 {
        let places = self.facts.places.iter().zip(&self.is_kept);
        let places = places.filter(|(place, is_kept)| **is_kept && place.region == region);
        let values: u64 = places.map(|(place, _)| place.numbers).sum();
        let nodes = self.facts.nodes.iter().zip(&self.again);
        let nodes = nodes.filter(|(node, again)| !**again && node.region == region);
        let memory: u64 = nodes.filter_map(|(node, _)| node.kept).sum();
        let lines = self.facts.regions[region].lines.iter();
        let inner = lines.filter_map(|line| line.inner);
        let inner = inner.map(|inner| self.kept(inner) * self.facts.regions[inner].rounds);
        values + memory + inner.sum::<u64>()
    }

    fn numbers(&self) -> u64 {
        self.pass(0, self.kept(0))
    }

    /// The most numbers in a backward pass over a region, in which `now` are there when it begins.
    fn pass(&self, region: usize, mut now: u64) -> u64 {
        let lines = &self.facts.regions[region].lines;
        let runs = self.runs(region, lines);
        let mut most = now;
        let mut is_there = self.is_kept.clone();
        for (at, line) in lines.iter().enumerate() {
            let run = &runs[at];
            let later = |place: usize| {
                lines[at..].iter().any(|line| line.reads.contains(&place))
                    || runs[at + 1..]
                        .iter()
                        .flatten()
                        .any(|node| self.facts.nodes[*node].reads.contains(&place))
            };
            let nodes = run.iter().map(|node| &self.facts.nodes[*node]);
            let mut made = 0;
            for node in nodes.clone() {
                now += node.kept.unwrap_or(0);
                for place in &node.makes {
                    made += self.facts.places[*place].numbers;
                }
            }
            most = most.max(now + made);
            for place in nodes.flat_map(|node| &node.makes) {
                if later(*place) {
                    is_there[*place] = true;
                    now += self.facts.places[*place].numbers;
                }
            }
            now += line.made;
            most = most.max(now);
            if let Some(inner) = line.inner {
                most = most.max(self.pass(inner, now));
                now -= self.kept(inner) * self.facts.regions[inner].rounds;
            }
            now -= line.freed.min(now);
            now -= line
                .kept
                .iter()
                .filter_map(|node| self.facts.nodes[*node].kept)
                .sum::<u64>()
                .min(now);
            let rest = &lines[at + 1..];
            let of_runs = runs[at + 1..].iter().flatten();
            let of_runs: Vec<_> = of_runs
                .flat_map(|node| &self.facts.nodes[*node].reads)
                .collect();
            for (place, of) in self.facts.places.iter().enumerate() {
                let is_read = |place: usize| {
                    rest.iter().any(|line| line.reads.contains(&place)) || of_runs.contains(&&place)
                };
                if is_there[place] && of.region == region && !is_read(place) {
                    is_there[place] = false;
                    now -= of.numbers.min(now);
                }
            }
        }
        most
    }

    /// The nodes that run in front of each line.
    fn runs(&self, region: usize, lines: &[LineFacts]) -> Vec<Vec<usize>> {
        let nodes = 0..self.again.len();
        let nodes =
            nodes.filter(|node| self.again[*node] && self.facts.nodes[*node].region == region);
        let mut waiting: Vec<_> = nodes.collect();
        let runs = lines.iter().map(|line| {
            let mut reads = line.reads.clone();
            let mut run = Vec::new();
            for at in (0..waiting.len()).rev() {
                let node = waiting[at];
                let of = &self.facts.nodes[node];
                if line.kept.contains(&node) || of.makes.iter().any(|place| reads.contains(place)) {
                    reads.extend(&of.reads);
                    run.push(waiting.remove(at));
                }
            }
            run.reverse();
            run
        });
        runs.collect()
    }
}
