//! The plans that are worth emitting: none of them has one beside it that takes less memory and is less work.

use std::collections::HashSet;

use super::facts::{Facts, LineFacts, NodeFacts};

/// How many plans are emitted at most.
const MOST_PLANS: usize = 10;

/// How many choices are tried. If there are more, the search goes from one to its neighbours.
const MOST_TRIED: usize = 3000;

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
pub(crate) struct Plan {
    pub(super) choices: Vec<Choice>,
    /// Numbers in memory where these are the most.
    pub(super) numbers: u64,
    pub(super) work: u64,
}

/// The plans of a model, in the order of their work. The first one is none.
pub(super) fn plans(facts: &Facts) -> Vec<Plan> {
    let count = facts.nodes.iter().try_fold(1usize, |count, node| {
        let count = count.checked_mul(node.choices().len())?;
        (count <= MOST_TRIED).then_some(count)
    });
    let mut front = match count {
        Some(count) => all(facts, count),
        None => walk(facts),
    };
    front.plans.sort_by_key(|plan| (plan.work, plan.numbers));
    thin(front.plans)
}

/// The front of all choices.
fn all(facts: &Facts, count: usize) -> Front {
    let mut front = Front::default();
    for number in 0..count {
        front.insert(facts.plan(&facts.choices(number)));
    }
    front
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

/// From plan to plan of the front: another choice for a node, with or without all that it reads, and for a whole region.
fn walk(facts: &Facts) -> Front {
    let mut front = Front::default();
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
        let plan = facts.plan(&waiting[at]);
        let choices = plan.choices.clone();
        let is_better = front.insert(plan);
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
    front
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

impl NodeFacts {
    fn choices(&self) -> &'static [Choice] {
        // A node with less has nothing to forget.
        match self.kept.is_some() && self.scratch > 0 {
            true => &[Choice::Kept, Choice::Again, Choice::Twice],
            false => &[Choice::Kept, Choice::Again],
        }
    }
}

impl Facts {
    /// The choices of this number among all.
    fn choices(&self, mut number: usize) -> Vec<Choice> {
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
    pub(super) fn plan(&self, choices: &[Choice]) -> Plan {
        let simulation = Simulation::of(self, choices);
        let regions = 0..self.regions.len();
        Plan {
            numbers: simulation.pass(0, simulation.kept(0)),
            work: regions.map(|region| simulation.work(region)).sum(),
            choices: simulation.choices,
        }
    }
}

/// The backward pass with its memory.
struct Simulation<'f> {
    facts: &'f Facts,
    choices: Vec<Choice>,
    /// Of each place, whether it is kept.
    is_kept: Vec<bool>,
}

/// A node that runs in front of a line.
struct Run {
    node: usize,
    /// Whether what it keeps is forgotten.
    forgets: bool,
}

impl<'f> Simulation<'f> {
    fn of(facts: &'f Facts, chosen: &[Choice]) -> Self {
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
        Simulation {
            facts,
            choices,
            is_kept,
        }
    }

    /// What one round of a region keeps, that of loops in it included.
    fn kept(&self, region: usize) -> u64 {
        let places = self.facts.places.iter().zip(&self.is_kept);
        let places = places.filter(|(place, is_kept)| **is_kept && place.region == region);
        let values: u64 = places.map(|(place, _)| place.numbers).sum();
        let nodes = self.facts.nodes.iter().zip(&self.choices);
        let nodes =
            nodes.filter(|(node, choice)| **choice == Choice::Kept && node.region == region);
        let memory: u64 = nodes.filter_map(|(node, _)| node.kept).sum();
        let lines = self.facts.regions[region].lines.iter();
        let inner = lines.filter_map(|line| line.inner);
        let inner = inner.map(|inner| self.kept(inner) * self.facts.regions[inner].rounds);
        values + memory + inner.sum::<u64>()
    }

    /// The work of what runs again in all rounds of a region.
    fn work(&self, region: usize) -> u64 {
        let lines = &self.facts.regions[region].lines;
        let runs = self.runs(region, lines);
        let last = self.last_reads(lines, &runs);
        let mut work = 0u64;
        for (at, run) in runs.iter().enumerate() {
            for Run { node, .. } in run {
                let node = &self.facts.nodes[*node];
                let is_read = node.makes.iter().any(|place| last[*place] > at);
                work = work.saturating_add(node.work);
                work -= if is_read { 0 } else { node.of_result.min(work) };
            }
        }
        work
    }

    /// Of each place, how many of the lines there are up to the last one that reads it, or in front of which something runs that does.
    fn last_reads(&self, lines: &[LineFacts], runs: &[Vec<Run>]) -> Vec<usize> {
        let mut last = vec![0; self.facts.places.len()];
        for (at, (line, runs)) in lines.iter().zip(runs).enumerate() {
            let of_runs = runs
                .iter()
                .flat_map(|run| &self.facts.nodes[run.node].reads);
            of_runs
                .chain(&line.reads)
                .for_each(|place| last[*place] = at + 1);
        }
        last
    }

    /// The most numbers in a backward pass over a region, in which `now` are there when it begins.
    fn pass(&self, region: usize, mut now: u64) -> u64 {
        let lines = &self.facts.regions[region].lines;
        let runs = self.runs(region, lines);
        let last = self.last_reads(lines, &runs);
        let mut most = now;
        let mut is_there = self.is_kept.clone();
        for (at, line) in lines.iter().enumerate() {
            for Run { node, forgets } in &runs[at] {
                let node = &self.facts.nodes[*node];
                let kept = node.kept.unwrap_or(0);
                most = most.max(now + kept + node.scratch);
                for place in &node.makes {
                    if !is_there[*place] && last[*place] > at {
                        is_there[*place] = true;
                        now += self.facts.places[*place].numbers;
                    }
                }
                most = most.max(now + kept);
                now += if *forgets { 0 } else { kept };
            }
            now += line.made;
            most = most.max(now + line.scratch);
            if let Some(inner) = line.inner {
                most = most.max(self.pass(inner, now));
                now -= self.kept(inner) * self.facts.regions[inner].rounds;
            }
            let kept = line.kept.iter();
            let kept = kept.filter_map(|node| self.facts.nodes[*node].kept);
            now = now.saturating_sub(line.freed + kept.sum::<u64>());
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::diff::{BackwardStep, GradTarget, reads};
    use crate::model::graph::{Model, Node, Region, Step, ValueId};
    use crate::model::passes::Passes;
    use crate::model::plan::Forward;
    use crate::tests::model::lower;

    const MODELS: [&str; 4] = [
        "struct M<d = 8>; fn forward(x: [batch, d]) -> [batch, d] {
            let mut x = linear::<d>(x);
            repeat 3 { x += linear::<d>(gelu(linear::<32>(layer_norm(x)))); }
            layer_norm(x)
        }",
        "struct M<d = 8>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 4 {
                x += dropout::<0.1>(attention::<heads = 2>(layer_norm(x)));
                x += feed_forward::<32>(layer_norm(x));
            }
            x
        }",
        "struct M<d = 8>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let a = softmax(linear::<16>(x));
            let b = sigmoid(linear::<16>(a)) * a;
            let y = rms_norm(b);
            linear::<d>(x) + linear::<d>(tanh(y) * y)
        }",
        "struct M<d = 4>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let mut y = layer_norm(x);
                repeat 3 { y = tanh(linear::<d>(y)) * y; }
                x += feed_forward::<64>(y);
            }
            x
        }",
    ];

    /// The memory of a choice, along the lines that are emitted.
    struct Walk<'m> {
        model: &'m Model,
        facts: &'m Facts,
        passes: &'m Passes<'m>,
        twice: &'m [ValueId],
    }

    impl Walk<'_> {
        fn numbers(&self, value: ValueId) -> u64 {
            let axes = self.model.value(value).ty.axes.iter();
            // As `Facts` without any length.
            axes.map(|axis| axis.size().and_then(|size| size.value).unwrap_or(256))
                .product()
        }

        fn facts(&self, node: &Node) -> Option<&NodeFacts> {
            let mut nodes = self.facts.nodes.iter();
            nodes.find(|of| of.result == node.result)
        }

        fn kept(&self, region: &Region, plan: &Forward) -> u64 {
            let values: u64 = plan.saved.iter().map(|id| self.numbers(*id)).sum();
            let steps = region.steps.iter().zip(&plan.steps);
            let others = steps.map(|(step, planned)| match step {
                Step::Node(node) if self.passes.is_again(node.result) => 0,
                Step::Node(node) => self.facts(node).and_then(|of| of.kept).unwrap_or(0),
                Step::Repeat(repeat) => {
                    repeat.count.value.unwrap_or(0) * self.kept(&repeat.body, &planned.body)
                }
                Step::Scan(_) => 0,
            });
            values + others.sum::<u64>()
        }

        fn most(
            &self,
            lines: &[BackwardStep<'_>],
            region: &Region,
            plan: &Forward,
            mut now: u64,
        ) -> u64 {
            let block = self.model.block();
            let mut most = now;
            let mut live = plan.saved.clone();
            for (index, line) in lines.iter().enumerate() {
                if let BackwardStep::Recompute(again) = line {
                    let nodes = again.steps.nodes();
                    for node in &nodes {
                        let facts = self.facts(node).expect("it runs again");
                        let kept = facts.kept.unwrap_or(0);
                        most = most.max(now + kept + facts.scratch);
                        for id in node.results().map(|id| block.memory(id)) {
                            let mut operands = nodes.iter().flat_map(|node| &node.operands);
                            let is_read = operands.any(|of| block.memory(*of) == id);
                            if !live.contains(&id) && (is_read || again.ends.contains(&id)) {
                                live.push(id);
                                now += self.numbers(id);
                            }
                        }
                        most = most.max(now + kept);
                        if !again.forgotten.contains(&node.result) {
                            now += kept;
                        }
                        assert!(
                            !again.forgotten.contains(&node.result)
                                || self.twice.contains(&node.result)
                        );
                    }
                    continue;
                }
                let [made, scratch, freed] = self.change(line);
                now += made;
                most = most.max(now + scratch);
                if let BackwardStep::Repeat { repeat, lines, .. } = line {
                    let steps = region.steps.iter().zip(&plan.steps);
                    let mut bodies = steps.filter_map(|(step, planned)| match step {
                        Step::Repeat(of) if std::ptr::eq(of, *repeat) => Some(&planned.body),
                        _ => None,
                    });
                    let body = bodies.next().expect("the loop has a plan");
                    most = most.max(self.most(lines, &repeat.body, body, now));
                    now -= repeat.count.value.expect("a number") * self.kept(&repeat.body, body);
                }
                now = now.saturating_sub(freed);
                let later: Vec<_> = lines[index + 1..]
                    .iter()
                    .flat_map(|line| reads(block, line))
                    .collect();
                live.retain(|id| {
                    let is_read = later.contains(id);
                    if !is_read {
                        now = now.saturating_sub(self.numbers(*id));
                    }
                    is_read
                });
            }
            most
        }

        /// The numbers that a line makes, those that it needs for a moment, and those that it frees.
        fn change(&self, line: &BackwardStep<'_>) -> [u64; 3] {
            let of = |buffer| self.numbers(self.passes.backward.of(buffer));
            match line {
                BackwardStep::Zeros(buffer) | BackwardStep::Copy { to: buffer, .. } => {
                    [of(*buffer), 0, 0]
                }
                BackwardStep::Free(buffer) => [0, 0, of(*buffer)],
                BackwardStep::Adjoint { node, to, .. } => {
                    let new = to.iter().map(|(_, to)| match to {
                        GradTarget::New(buffer) => of(*buffer),
                        _ => 0,
                    });
                    let facts = self.facts(node).filter(|of| of.kept.is_some());
                    let kept = facts.and_then(|of| of.kept);
                    let scratch = facts.map_or(0, |of| of.scratch);
                    [new.sum(), scratch, kept.unwrap_or(0)]
                }
                BackwardStep::Strips { lines, .. } => {
                    let changes = lines.iter().map(|line| self.change(line));
                    changes.fold([0; 3], |sum, [made, _, freed]| {
                        [sum[0] + made, 0, sum[2] + freed]
                    })
                }
                _ => [0; 3],
            }
        }
    }

    fn count(facts: &Facts) -> usize {
        facts
            .nodes
            .iter()
            .map(|node| node.choices().len())
            .product()
    }

    /// Every choice takes the memory that the emitted lines take.
    #[test]
    fn the_simulation_is_that_of_the_lines() {
        for source in MODELS {
            let model = lower(source);
            let facts = Facts::of(&model, &BTreeMap::new());
            for number in 0..count(&facts) {
                let plan = facts.plan(&facts.choices(number));
                let chosen = facts.chosen(&plan);
                let passes = Passes::of_session(model.block(), &[], &chosen);
                let walk = Walk {
                    model: &model,
                    facts: &facts,
                    passes: &passes,
                    twice: &chosen.twice,
                };
                let forward = passes.plan(crate::emit::ExecMode::Forward);
                let kept = walk.kept(&model.grouped, forward);
                let most = walk.most(&passes.backward.lines, &model.grouped, forward, kept);
                assert_eq!(plan.numbers, most, "{:?} of {source}", plan.choices);
            }
        }
    }

    /// No choice of nodes has less work than a plan that takes no more memory.
    #[test]
    fn no_choice_is_better_than_the_plans() {
        for source in MODELS {
            let model = lower(source);
            let facts = Facts::of(&model, &BTreeMap::new());
            let all = all(&facts, count(&facts));
            let walked = walk(&facts);
            for number in 0..count(&facts) {
                let other = facts.plan(&facts.choices(number));
                for front in [&all, &walked] {
                    let mut plans = front.plans.iter();
                    let is_known =
                        plans.any(|plan| plan.numbers <= other.numbers && plan.work <= other.work);
                    assert!(is_known, "{other:?} of {source}");
                }
            }
        }
    }
}
