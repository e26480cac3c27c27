//! Choices and plans against the lines that are emitted, and against all others.

use std::collections::BTreeMap;

use super::facts::{Facts, NodeFacts};
use super::search::{Choice, MOST_TRIED, all, walk};
use super::select::{Both, MOST_PLANS, Plan, bounds, pool, select};
use super::simulation::Simulation;
use super::split;
use crate::emit::ExecMode;
use crate::model::diff::{BackwardStep, GradTarget, reads};
use crate::model::graph::{Model, Node, Region, Repeat, Step, ValueId};
use crate::model::passes::Passes;
use crate::model::plan::Forward;
use crate::tests::model::lower;

const MODELS: [&str; 5] = [
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
    "struct M<d = 8>; fn forward(x: [batch, d]) -> [batch, d] {
        let mut x = x;
        repeat 2 { x += linear::<d>(gelu(linear::<16>(x))); }
        let mut y = linear::<d>(layer_norm(x));
        repeat 3 { y += tanh(linear::<d>(y)); }
        y * x
    }",
];

/// The memory of a choice, along the lines that are emitted.
struct Walk<'m> {
    model: &'m Model,
    facts: &'m Facts,
    passes: &'m Passes<'m>,
    twice: &'m [ValueId],
    /// How many rounds of split loops are last ones.
    last: u64,
}

impl Walk<'_> {
    fn numbers(&self, value: ValueId) -> u64 {
        let axes = self.model.value(value).ty.axes.iter();
        // As `Facts` without any length.
        axes.map(|axis| axis.size().and_then(|size| size.value).unwrap_or(256))
            .product()
    }

    fn rounds(&self, repeat: &Repeat) -> u64 {
        let Some(part) = &repeat.part else {
            return repeat.count.value.expect("a number");
        };
        let loops = self
            .model
            .grouped
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Repeat(of) => of.part.as_ref().filter(|of| of.is_last),
                _ => None,
            });
        let behind = loops.rev().take_while(|of| of.at != part.at);
        let behind: u64 = behind.filter_map(|of| of.whole.value).sum();
        let whole = part.whole.value.expect("a number");
        let last = self.last.saturating_sub(behind).min(whole);
        if part.is_last { last } else { whole - last }
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
            Step::Repeat(repeat) => self.rounds(repeat) * self.kept(&repeat.body, &planned.body),
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
                if self.rounds(repeat) > 0 {
                    most = most.max(self.most(lines, &repeat.body, body, now));
                }
                now -= self.rounds(repeat) * self.kept(&repeat.body, body);
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
            BackwardStep::Zeros(buffer)
            | BackwardStep::Uninit(buffer)
            | BackwardStep::Copy { to: buffer, .. } => [of(*buffer), 0, 0],
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

fn facts(model: &Model) -> Facts {
    Facts::of(model, &BTreeMap::new())
}

/// The most numbers in the derivative with these choices.
fn walked(model: &Model, facts: &Facts, choices: &[Choice], last: u64) -> u64 {
    let chosen = facts.chosen(choices);
    let passes = Passes::of_session(model.block(), &[], &chosen);
    let walk = Walk {
        model,
        facts,
        passes: &passes,
        twice: &chosen.twice,
        last,
    };
    let forward = passes.plan(ExecMode::Forward);
    let kept = walk.kept(&model.grouped, forward);
    walk.most(&passes.backward.lines, &model.grouped, forward, kept)
}

/// Every choice takes the memory that the emitted lines take.
#[test]
fn the_simulation_is_that_of_the_lines() {
    for source in MODELS {
        let model = lower(source);
        let facts = facts(&model);
        for number in 0..count(&facts) {
            let candidate = facts.candidate(&facts.choices(number));
            let most = walked(&model, &facts, &candidate.choices, 0);
            let choices = &candidate.choices;
            assert_eq!(candidate.cost.numbers, most, "{choices:?} of {source}");
        }
    }
}

fn with_both<R>(source: &str, run: impl FnOnce(&Both<'_>) -> R) -> R {
    let model = lower(source);
    let split = split(&model);
    run(&Both {
        whole: facts(&model),
        split: split.as_ref().map(|split| (split, facts(split))),
    })
}

/// So does every choice for first and last rounds.
#[test]
fn the_simulation_of_split_loops_is_that_of_the_lines() {
    for source in MODELS {
        with_both(source, |both| {
            let Some((model, facts)) = &both.split else {
                return;
            };
            let rounds: u64 = facts.parts.iter().map(|part| part.rounds).sum();
            let plans = pool(both).into_iter().filter(|plan| plan.is_split);
            for plan in plans {
                let simulation = Simulation::of(facts, &plan.choices);
                for last in 0..=rounds {
                    let most = walked(model, facts, &plan.choices, last);
                    let choices = &plan.choices;
                    let numbers = simulation.cost(last).numbers;
                    assert_eq!(numbers, most, "{last} last, {choices:?} of {source}");
                }
            }
        });
    }
}

/// No choice of nodes has less work than a candidate that takes no more memory.
#[test]
fn no_choice_is_better_than_the_candidates() {
    for source in MODELS {
        let facts = facts(&lower(source));
        let fronts = [all(&facts, count(&facts)), walk(&facts)];
        for number in 0..count(&facts) {
            let other = facts.candidate(&facts.choices(number)).cost;
            for front in &fronts {
                let mut known = front.of_all.candidates.iter().map(|of| of.cost);
                let is_known = known.any(|of| of.numbers <= other.numbers && of.work <= other.work);
                assert!(is_known, "{other:?} of {source}");
                let mut known = front.of_kept.candidates.iter().map(|of| of.cost);
                let is_known = known.any(|of| of.kept <= other.kept && of.work <= other.work);
                assert!(is_known, "{other:?} of {source}");
            }
        }
    }
}

/// The work of a forward pass.
fn forward(facts: &Facts) -> u64 {
    let rounds: Vec<_> = facts.regions.iter().map(|region| region.rounds).collect();
    let nodes = facts.nodes.iter();
    let nodes = nodes.map(|node| node.work * facts.times(node.region, &rounds));
    nodes.sum()
}

fn least(plans: &[Plan], bound: u64) -> Option<u64> {
    let costs = plans.iter().flat_map(|plan| &plan.costs);
    let fits = costs.filter(|cost| cost.numbers <= bound);
    fits.map(|cost| cost.work).min()
}

/// For each bound, these plans have at most so many percent of a forward pass more work than the best of `others`.
fn assert_covered(plans: &[Plan], others: &[Plan], forward: u64, percent: u64, source: &str) {
    for bound in bounds(others) {
        let best = least(others, bound);
        let (Some(best), Some(found)) = (best, least(plans, bound)) else {
            panic!("{bound} is possible, and no plan meets it: {source}");
        };
        let more = found.saturating_sub(best) * 100;
        assert!(
            more <= percent * forward,
            "{bound}: {found} in place of {best}, {forward} forward, {}%: {source}",
            more / forward
        );
    }
}

/// The plans that are emitted.
fn selected(both: &Both<'_>) -> Vec<Plan> {
    let plans = select(both);
    assert!(plans.len() <= MOST_PLANS);
    assert!(plans[0].choices.iter().all(|of| *of == Choice::Kept));
    plans
}

/// The plans that are emitted are a selection: between two of them a bound costs some work.
#[test]
fn the_plans_are_close_to_all_that_are_known() {
    for source in MODELS {
        with_both(source, |both| {
            let forward = forward(&both.whole);
            assert_covered(&selected(both), &pool(both), forward, 3, source);
        });
    }
}

/// The same beside every choice for first rounds with every choice for last ones, of small models.
#[test]
fn the_plans_are_close_to_every_choice() {
    let small = "struct M<d = 8>; fn forward(x: [batch, d]) -> [batch, d] {
        let mut x = x;
        repeat 4 { x += linear::<d>(gelu(linear::<32>(layer_norm(x)))); }
        x
    }";
    let attention = "struct M<d = 8>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let mut x = x;
        repeat 3 { x += attention::<heads = 2>(layer_norm(x)); }
        x
    }";
    for source in [small, attention] {
        with_both(source, |both| {
            let count = count(&both.whole);
            assert!(count <= MOST_TRIED);
            let choices: Vec<_> = (0..count)
                .map(|number| both.whole.choices(number))
                .collect();
            let pairs = choices.iter().flat_map(|first| {
                let last = choices.iter();
                last.filter_map(|last| both.pair(first, last, last))
            });
            let pairs: Vec<_> = pairs.chain(pool(both)).collect();
            let forward = forward(&both.whole);
            assert_covered(&selected(both), &pairs, forward, 4, source);
        });
    }
}

/// A GPT with its sizes, or with constants of the user in their place.
fn gpt(sizes: [&str; 4]) -> String {
    let [layers, d_model, seq, vocab] = sizes;
    format!(
        "struct M<d = {d_model}>; fn forward(tokens: ids[batch, seq]) -> [batch, seq, {vocab}] {{
            let mut x = embedding::<{vocab}, d>(tokens) + learned_position::<{seq}, d>(tokens);
            repeat {layers} {{
                x += attention::<4, d, mask = causal>(layer_norm(x));
                x += feed_forward::<{{ 4 * d }}, activation = gelu_tanh>(layer_norm(x));
            }}
            linear::<{vocab}>(layer_norm(x))
        }}"
    )
}

/// The plans that are chosen without sizes are close to all those that are known with them.
#[test]
fn the_plans_are_close_where_sizes_are_not_known() {
    let unknown = gpt(["LAYERS", "{ WIDTH }", "LENGTH", "VOCAB"]);
    let plans = with_both(&unknown, selected);
    // The smaller a model, the more counts what is moved in memory: it is less work than with the sizes that are assumed.
    let sizes = [
        ([8, 256], ["6", "384", "256", "65"], 1),
        ([12, 64], ["4", "128", "64", "65"], 14),
        ([1, 1024], ["12", "768", "1024", "50257"], 1),
        ([64, 32], ["2", "48", "32", "1000"], 16),
    ];
    for ([batch, seq], sizes, most) in sizes {
        let source = gpt(sizes);
        let model = lower(&source);
        let split = split(&model).expect("it has a loop");
        let lengths = [("batch", batch), ("seq", seq)];
        let lengths = lengths.map(|(axis, length)| (axis.to_owned(), length));
        let lengths = BTreeMap::from(lengths);
        let both = Both {
            whole: Facts::of(&model, &lengths),
            split: Some((&split, Facts::of(&split, &lengths))),
        };
        let plans = plans.iter().map(|plan| both.with_sizes(plan));
        let plans: Vec<_> = plans.collect();
        let forward = forward(&both.whole);
        assert_covered(&plans, &pool(&both), forward, most, &source);
    }
}

impl Both<'_> {
    /// A plan that was chosen without sizes, with its costs for all numbers of rounds.
    fn with_sizes(&self, plan: &Plan) -> Plan {
        let facts = match (&self.split, plan.is_split) {
            (Some((_, facts)), true) => facts,
            _ => &self.whole,
        };
        let simulation = Simulation::of(facts, &plan.choices);
        let rounds: u64 = facts.parts.iter().map(|part| part.rounds).sum();
        let costs = (0..=rounds).map(|last| simulation.cost(last));
        Plan {
            is_split: plan.is_split,
            choices: simulation.choices.clone(),
            work: plan.work.clone(),
            costs: costs.collect(),
        }
    }
}

/// A bound between two choices for all rounds is used up by some rounds of each.
#[test]
fn a_bound_between_two_choices_is_used_up() {
    with_both(MODELS[1], |both| {
        let same: Vec<_> = pool(both)
            .into_iter()
            .filter(|plan| !plan.is_split)
            .collect();
        let plans = select(both);
        let sum = |plans: &[Plan], bounds: &[u64]| -> u64 {
            bounds.iter().filter_map(|bound| least(plans, *bound)).sum()
        };
        let bounds = bounds(&pool(both));
        let bounds: Vec<_> = bounds
            .into_iter()
            .filter(|bound| least(&same, *bound).is_some())
            .collect();
        assert!(sum(&plans, &bounds) * 10 < sum(&same, &bounds) * 9);
    });
}
