//! The plans that are emitted: choices for first rounds, last rounds and what is outside of loops.
//!
//! Between two choices for all rounds lie those that have one of them in the first rounds and the other one in the last. A few such pairs, with
//! any number of rounds, come close to the best choice for any bound.

use super::facts::Facts;
use super::search::{Candidate, Choice, Fronts, search};
use super::simulation::{Cost, Simulation};
use crate::model::graph::{Model, ValueId};

/// How many plans are emitted at most.
pub(super) const MOST_PLANS: usize = 10;

/// For how many numbers of last rounds the cost of a plan is estimated at most.
const MOST_ROUNDS: u64 = 12;

/// How many choices for all rounds are paired with each other at most.
const MOST_ENDS: usize = 12;

/// A plan with its costs.
pub(super) struct Plan {
    /// Of the model with split loops, if it has two choices for rounds.
    pub(super) is_split: bool,
    pub(super) choices: Vec<Choice>,
    pub(super) work: Work,
    /// For some numbers of last rounds.
    pub(super) costs: Vec<Cost>,
}

/// The additional work of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Outside of loops.
    pub(crate) outside: u64,
    /// For each outer loop, that of a first and of a last round.
    pub(crate) rounds: Vec<[u64; 2]>,
}

/// A model as numbers, with its outer loops as they are and split.
pub(super) struct Both<'m> {
    pub(super) whole: Facts,
    pub(super) split: Option<(&'m Model, Facts)>,
}

/// The plans of a model. The first one computes nothing again.
pub(super) fn select(both: &Both<'_>) -> Vec<Plan> {
    cover(pool(both))
}

/// All plans that are taken into account.
pub(super) fn pool(both: &Both<'_>) -> Vec<Plan> {
    let Fronts { of_all, of_kept } = search(&both.whole);
    let same = of_all.candidates.iter().map(|of| Plan {
        is_split: false,
        choices: of.choices.clone(),
        work: both.whole.work(&Simulation::of(&both.whole, &of.choices)),
        costs: vec![of.cost],
    });
    let mut pool: Vec<_> = same.collect();
    pool.sort_by_key(|plan| (plan.costs[0].work, plan.costs[0].numbers));
    if both.split.is_some() {
        let mut ends = hull(&of_all.candidates, |cost| cost.numbers);
        ends.extend(hull(&of_kept.candidates, |cost| cost.kept));
        ends.sort_by_key(|of| (of.cost.work, of.cost.kept));
        ends.dedup_by(|a, b| a.choices == b.choices);
        let ends = spread(ends);
        for (index, last) in ends.iter().enumerate() {
            for first in &ends[index + 1..] {
                let [of_last, of_first] = [last, first].map(|of| &of.choices);
                let outside = [of_last, of_first];
                let is_same = both.outside(of_last) == both.outside(of_first);
                let outside = &outside[..if is_same { 1 } else { 2 }];
                let pairs = outside
                    .iter()
                    .filter_map(|outside| both.pair(of_first, of_last, outside));
                pool.extend(pairs);
            }
        }
    }
    pool
}

impl Both<'_> {
    fn outside(&self, choices: &[Choice]) -> Vec<Choice> {
        let nodes = self.whole.nodes.iter().zip(choices);
        let outside = nodes.filter(|(node, _)| node.region == 0);
        outside.map(|(_, choice)| *choice).collect()
    }

    /// A plan with these choices for first rounds, last rounds, and outside of loops.
    pub(super) fn pair(
        &self,
        first: &[Choice],
        last: &[Choice],
        outside: &[Choice],
    ) -> Option<Plan> {
        let (model, facts) = self.split.as_ref()?;
        let place = |result: ValueId| {
            let mut nodes = self.whole.nodes.iter();
            nodes.position(|node| node.result == result)
        };
        let choices = facts.nodes.iter().map(|node| {
            let choices = match facts.part(node.region) {
                None => outside,
                Some(0) => first,
                Some(_) => last,
            };
            place(model.original(node.result)).map_or(Choice::Kept, |place| choices[place])
        });
        let simulation = Simulation::of(facts, &choices.collect::<Vec<_>>());
        let rounds = facts.parts.iter().map(|part| part.rounds);
        let rounds = rounds.fold(0, u64::saturating_add);
        let steps = rounds.clamp(1, MOST_ROUNDS);
        let costs = (0..=steps).map(|step| {
            let last = u128::from(rounds) * u128::from(step) / u128::from(steps);
            simulation.cost(u64::try_from(last).unwrap_or(rounds))
        });
        let costs = costs.collect();
        let work = facts.work(&simulation);
        let differs = work.rounds.iter().any(|[first, last]| first != last);
        differs.then_some(Plan {
            is_split: true,
            choices: simulation.choices,
            work,
            costs,
        })
    }
}

impl Facts {
    /// The part of a loop that a region is in, 0 or 1.
    fn part(&self, region: usize) -> Option<usize> {
        let mut parts = self.parts.iter();
        let own = parts.find_map(|part| part.regions.iter().position(|of| *of == region));
        own.or_else(|| self.part(self.regions[region].around?))
    }

    fn work(&self, simulation: &Simulation<'_>) -> Work {
        let outer = (0..self.regions.len()).filter(|of| self.regions[*of].around == Some(0));
        let whole: Vec<_> = outer.map(|of| [of, of]).collect();
        let split: Vec<_> = self.parts.iter().map(|part| part.regions).collect();
        let loops = if split.is_empty() { whole } else { split };
        let of_loops = loops.into_iter();
        let of_loops =
            of_loops.map(|regions| regions.map(|region| self.work_of_round(simulation, region)));
        Work {
            outside: simulation.work(0),
            rounds: of_loops.collect(),
        }
    }

    /// The work of a round, with that of loops in it.
    fn work_of_round(&self, simulation: &Simulation<'_>, region: usize) -> u64 {
        let inner = (0..self.regions.len()).filter(|of| self.regions[*of].around == Some(region));
        let inner = inner.map(|of| {
            let rounds = self.regions[of].rounds;
            rounds.saturating_mul(self.work_of_round(simulation, of))
        });
        inner.fold(simulation.work(region), u64::saturating_add)
    }
}

/// Those of a front that no mixture of two others is better than.
fn hull(candidates: &[Candidate], numbers: fn(&Cost) -> u64) -> Vec<Candidate> {
    let mut all: Vec<_> = candidates.iter().collect();
    all.sort_by_key(|of| (of.cost.work, numbers(&of.cost)));
    let at = |of: &Candidate| [of.cost.work as f64, numbers(&of.cost) as f64];
    let mut hull: Vec<&Candidate> = Vec::new();
    for next in all {
        while let [.., before, last] = hull.as_slice() {
            let [a, b, c] = [before, last, &next].map(|of| at(of));
            let is_below = (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0]);
            if is_below {
                break;
            }
            hull.pop();
        }
        hull.push(next);
    }
    hull.into_iter().cloned().collect()
}

/// Some of many candidates, with the first and the last one.
fn spread(all: Vec<Candidate>) -> Vec<Candidate> {
    if all.len() <= MOST_ENDS {
        return all;
    }
    let places = (0..MOST_ENDS).map(|index| index * (all.len() - 1) / (MOST_ENDS - 1));
    places.map(|place| all[place].clone()).collect()
}

/// A few of many plans, the first one among them, such that for all bounds together the work is little more than with all.
fn cover(mut pool: Vec<Plan>) -> Vec<Plan> {
    if pool.is_empty() {
        return pool;
    }
    let bounds = bounds(&pool);
    let works: Vec<_> = pool.iter().map(|plan| plan.works(&bounds)).collect();
    let sum = |works: &[u64]| works.iter().map(|work| u128::from(*work)).sum::<u128>();
    let with = |best: &[u64], plan: usize| -> Vec<u64> {
        let both = best.iter().zip(&works[plan]);
        both.map(|(a, b)| *a.min(b)).collect()
    };
    // Where sizes are not known, the plan that takes the least may be one that keeps the least by these estimates, or another one.
    let least = |by: fn(&Cost) -> (u64, u64)| {
        let costs = |plan: &usize| pool[*plan].costs.iter().map(by).min();
        (0..pool.len()).min_by_key(costs).unwrap_or(0)
    };
    let mut chosen = vec![
        0,
        least(|cost| (cost.numbers, cost.work)),
        least(|cost| (cost.kept, cost.numbers)),
    ];
    chosen.sort_unstable();
    chosen.dedup();
    let mut best = works[0].clone();
    for plan in &chosen {
        best = with(&best, *plan);
    }
    while chosen.len() < MOST_PLANS {
        let next = (0..pool.len()).min_by_key(|plan| sum(&with(&best, *plan)));
        let Some(next) = next.filter(|next| sum(&with(&best, *next)) < sum(&best)) else {
            break;
        };
        best = with(&best, next);
        chosen.push(next);
    }
    let mut index = 0;
    pool.retain(|_| {
        index += 1;
        chosen.contains(&(index - 1))
    });
    pool
}

/// The bounds for which the least work of these plans differs.
pub(super) fn bounds(plans: &[Plan]) -> Vec<u64> {
    let costs = plans.iter().flat_map(|plan| &plan.costs);
    let mut points: Vec<_> = costs.map(|cost| (cost.numbers, cost.work)).collect();
    points.sort_unstable();
    let mut bounds = Vec::new();
    let mut least = u64::MAX;
    for (numbers, work) in points {
        if work < least {
            least = work;
            bounds.push(numbers);
        }
    }
    bounds
}

impl Plan {
    /// The least work for each bound. One that the plan does not meet counts as a lot.
    pub(super) fn works(&self, bounds: &[u64]) -> Vec<u64> {
        let least = |bound: &u64| {
            let fits = self.costs.iter().filter(|cost| cost.numbers <= *bound);
            fits.map(|cost| cost.work).min().unwrap_or(u64::MAX)
        };
        bounds.iter().map(least).collect()
    }
}
