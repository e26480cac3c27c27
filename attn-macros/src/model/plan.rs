//! The memory plan of the forward pass: values that are kept for the derivative, and memory that is used again.
//!
//! Kept are the values that the derivative of an operation reads, and what layers say they need: the statistics of a norm, what
//! comes into a nonlinearity, the logarithm of the sum of a softmax. No product of matrices is computed twice; what comes out of
//! a nonlinearity is, and so are the weights of an attention. What is computed with what: [`fusions`](super::fusion).

use super::fusion::{FuseWith, Fusions, Term};
use super::graph::{Block, Carried, Node, Region, Repeat, Step, ValueId};
use super::strips::{self, StripPass};
use crate::ops::Op;

/// The forward pass of a region.
#[derive(Debug, Default)]
pub(crate) struct Forward {
    /// The values that are kept for the derivative.
    pub(crate) saved: Vec<ValueId>,
    /// The plan of each step.
    pub(crate) steps: Vec<Planned>,
    /// Steps that are computed strip by strip.
    pub(crate) strips: Vec<StripPass>,
    /// In the body of a loop, of each carried variable, whether the next round takes the memory of this one's value.
    pub(crate) moved: Vec<bool>,
}

/// The memory plan of a step.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// The neighbour that it is computed with.
    pub(crate) with: Option<FuseWith>,
    /// The operands of an elementwise operation or of a dropout.
    pub(crate) terms: Vec<Term>,
    /// The term whose memory the result takes.
    pub(crate) reuse: Option<usize>,
    /// The values that nobody reads any more.
    pub(crate) free: Vec<ValueId>,
    /// The body of a loop, and whether each carried variable takes the memory of the value before.
    pub(crate) body: Forward,
    pub(crate) moved: Vec<bool>,
}

/// Plans the forward pass. Nothing is kept of the nodes with the results `again`, but what the others need to compute them again.
pub(crate) fn plan<O: Op + ?Sized>(block: Block<'_, O>, again: &[ValueId]) -> Forward {
    let mut saved = Saved {
        again,
        made_again: made_by(block, block.body, again),
        of: vec![(block.body, Vec::new())],
    };
    save(block, block.body, &[], &mut saved);
    region(block, block.body, &[], block.results, &saved)
}

/// Plans operations that run by themselves: behind them, the `ends` are in memory.
pub(crate) fn plan_some<O: Op + ?Sized>(
    block: Block<'_, O>,
    steps: &Region<O>,
    ends: &[ValueId],
) -> Forward {
    region(block, steps, &[], ends, &Saved::default())
}

/// Plans a forward pass without a derivative: nothing is kept but the results, and what is `given`.
pub(crate) fn plan_to_decode<O: Op + ?Sized>(block: Block<'_, O>, given: &[ValueId]) -> Forward {
    let ends = [block.results, given].concat();
    region(block, block.body, &[], &ends, &Saved::default())
}

/// A kept value of a step of a scan stands with those of the other steps: it takes no memory of another value.
pub(crate) fn keep_apart<O: Op + ?Sized>(block: Block<'_, O>, plan: &mut Forward) {
    let saved = &plan.saved;
    let steps = &block.body.steps;
    for (index, planned) in plan.steps.iter_mut().enumerate() {
        let behind = match planned.with {
            Some(FuseWith::Next) => steps.get(index + 1),
            _ => None,
        };
        let results = steps.get(index).into_iter().chain(behind);
        let results = results.filter_map(|step| match step {
            Step::Node(node) => Some(node.results()),
            _ => None,
        });
        if results.flatten().any(|id| saved.contains(&id))
            && let Some(term) = planned.reuse.take()
        {
            planned.free.push(planned.terms[term].value);
        }
    }
}

/// A result that its operation can write where the block returns it: nobody else reads it.
pub(crate) fn is_written_directly<O: ?Sized>(
    block: Block<'_, O>,
    id: ValueId,
    plan: &Forward,
) -> bool {
    let id = block.memory(id);
    let is_it = |other: &ValueId| block.memory(*other) == id;
    let steps = &block.body.steps;
    let defined = steps
        .iter()
        .any(|step| matches!(step, Step::Node(node) if node.results().any(|of| of == id)));
    let returned = block.results.iter().filter(|result| is_it(result)).count();
    let is_read = steps.iter().any(|step| uses(step).iter().any(is_it));
    defined && returned == 1 && !is_read && !plan.saved.contains(&id)
}

/// The values that a step reads, those of loops in it included.
pub(super) fn uses<O: ?Sized>(step: &Step<O>) -> Vec<ValueId> {
    match step {
        Step::Node(node) => node.operands.clone(),
        Step::Repeat(repeat) => {
            let carried = repeat.carried.iter();
            let inside = repeat.body.steps.iter().flat_map(uses);
            carried
                .flat_map(|carried| [carried.before, carried.after])
                .chain(inside)
                .collect()
        }
        Step::Scan(scan) => scan.operands(),
    }
}

/// The values of each region that are kept.
struct Saved<'m, O: ?Sized> {
    of: Vec<(&'m Region<O>, Vec<ValueId>)>,
    /// The nodes that are computed again, by their results, and all values that these make.
    again: &'m [ValueId],
    made_again: Vec<ValueId>,
}

impl<O: ?Sized> Default for Saved<'_, O> {
    fn default() -> Self {
        Saved {
            of: Vec::new(),
            again: &[],
            made_again: Vec::new(),
        }
    }
}

/// The values in memory that these nodes make, by their results.
pub(super) fn made_by<O: ?Sized>(
    block: Block<'_, O>,
    region: &Region<O>,
    nodes: &[ValueId],
) -> Vec<ValueId> {
    let all = region.nodes().into_iter();
    let some = all.filter(|node| nodes.contains(&node.result));
    let made = some.flat_map(Node::results);
    made.map(|value| block.memory(value)).collect()
}

/// Notes what the derivatives of a region's operations read, with the regions around it, and what those define.
fn save<'m, O: Op + ?Sized>(
    block: Block<'m, O>,
    region: &'m Region<O>,
    outside: &[(&'m Region<O>, Vec<ValueId>)],
    saved: &mut Saved<'m, O>,
) {
    let defined = region.steps.iter().flat_map(|step| match step {
        Step::Node(node) => node.results().collect(),
        Step::Repeat(repeat) => carried_values(&repeat.carried),
        Step::Scan(scan) => scan.defined(),
    });
    let mut inside = outside.to_vec();
    match inside.last_mut() {
        // The start of a round was noted.
        Some((last, values)) if std::ptr::eq(*last, region) => values.extend(defined),
        _ => inside.push((region, defined.collect())),
    }
    for step in &region.steps {
        match step {
            Step::Node(node) => {
                keep(block, node.saved(), &inside, saved);
                if saved.again.contains(&node.result) {
                    keep(block, node.operands.clone(), &inside, saved);
                }
            }
            Step::Scan(scan) => keep(block, scan.saved(block), &inside, saved),
            Step::Repeat(repeat) => {
                let mut around = inside.clone();
                around.push((&repeat.body, carried_values(&repeat.carried)));
                saved.of.push((&repeat.body, Vec::new()));
                save(block, &repeat.body, &around, saved);
            }
        }
    }
}

/// Notes that these values are kept, in the regions that define them.
fn keep<'m, O: ?Sized>(
    block: Block<'m, O>,
    values: Vec<ValueId>,
    inside: &[(&'m Region<O>, Vec<ValueId>)],
    saved: &mut Saved<'m, O>,
) {
    for value in values {
        let value = block.memory(value);
        if block.is_given(value) || saved.made_again.contains(&value) {
            continue;
        }
        let mut regions = inside.iter().rev();
        let home = regions.find(|(_, defined)| defined.contains(&value));
        if let Some((home, _)) = home {
            note(home, value, saved);
        }
    }
}

fn region<'m, O: Op + ?Sized>(
    block: Block<'m, O>,
    region: &'m Region<O>,
    carried: &[Carried],
    ends: &[ValueId],
    saved: &Saved<'m, O>,
) -> Forward {
    let mut of = saved.of.iter();
    let kept = of.find(|(other, _)| std::ptr::eq(*other, region));
    let kept = kept.map_or_else(Vec::new, |(_, values)| values.clone());
    let ends: Vec<_> = ends.iter().map(|end| block.memory(*end)).collect();
    // What nodes read that run again is in memory.
    let read: Vec<_> = match saved.again {
        [] => ends.clone(),
        _ => ends.iter().chain(&kept).copied().collect(),
    };
    let fusions = Fusions::of(block, region, &read);
    let steps = 0..region.steps.len();
    let memory = |value: ValueId| block.memory(value);
    let uses = steps.map(|index| fusions.uses(index).into_iter().map(memory).collect());
    let uses: Vec<Vec<ValueId>> = uses.collect();
    let mut own = carried_values(carried);
    let mut steps: Vec<Planned> = Vec::new();
    for (index, step) in region.steps.iter().enumerate() {
        // Values of this region that are read here for the last time.
        let is_last = |value: &ValueId| {
            own.contains(value)
                && !kept.contains(value)
                && !ends.contains(value)
                && !uses[index + 1..].iter().any(|uses| uses.contains(value))
        };
        let mut free: Vec<_> = uses[index].iter().copied().filter(is_last).collect();
        free.sort_by_key(|value| value.0);
        free.dedup();
        let mut planned = match step {
            Step::Node(node) => {
                let terms = fusions.terms(node);
                Planned {
                    with: fusions.with[index],
                    reuse: reusable(&terms, &free),
                    terms,
                    ..Planned::default()
                }
            }
            Step::Repeat(repeat) => rounds(block, repeat, &free, saved),
            Step::Scan(_) => Planned::default(),
        };
        let taken = taken(block, step, &planned);
        free.retain(|value| !taken.contains(value));
        planned.free = free;
        steps.push(planned);
        match step {
            Step::Node(node) if block.is_alias(node.result) => {}
            Step::Node(node) => own.extend(node.results()),
            Step::Repeat(repeat) => own.extend(carried_values(&repeat.carried)),
            Step::Scan(scan) => own.extend(scan.defined()),
        }
    }
    let moved = carried.iter().map(|of| {
        let after = block.memory(of.after);
        let wanted = ends.iter().filter(|end| **end == after);
        own.contains(&after) && !kept.contains(&after) && wanted.count() == 1
    });
    Forward {
        moved: moved.collect(),
        saved: kept,
        steps,
        strips: strips::passes(block, region, &fusions),
    }
}

fn rounds<'m, O: Op + ?Sized>(
    block: Block<'m, O>,
    repeat: &'m Repeat<O>,
    free: &[ValueId],
    saved: &Saved<'m, O>,
) -> Planned {
    let ends: Vec<_> = repeat.carried.iter().map(|of| of.after).collect();
    let moved = repeat.carried.iter().map(|of| {
        let before = block.memory(of.before);
        let is_it = |other: &ValueId| block.memory(*other) == before;
        let wanted = repeat.carried.iter();
        let wanted = wanted.filter(|other| is_it(&other.before)).count();
        let mut inside = repeat.body.steps.iter();
        let is_read_inside = inside.any(|step| uses(step).iter().any(is_it));
        free.contains(&before) && wanted == 1 && !is_read_inside && !ends.iter().any(is_it)
    });
    Planned {
        moved: moved.collect(),
        body: region(block, &repeat.body, &repeat.carried, &ends, saved),
        ..Planned::default()
    }
}

fn carried_values(carried: &[Carried]) -> Vec<ValueId> {
    carried.iter().map(|carried| carried.value).collect()
}

fn note<O: ?Sized>(home: &Region<O>, value: ValueId, saved: &mut Saved<'_, O>) {
    let of_home = saved
        .of
        .iter_mut()
        .find(|(region, _)| std::ptr::eq(*region, home));
    if let Some((_, values)) = of_home.filter(|(_, values)| !values.contains(&value)) {
        values.push(value);
    }
}

/// The term that is not needed any more, and that the operation reads once.
fn reusable(terms: &[Term], free: &[ValueId]) -> Option<usize> {
    let is_read_once =
        |value: ValueId| terms.iter().filter(|term| term.value == value).count() == 1;
    let can_be_reused = |index: &usize| {
        let value = terms[*index].value;
        free.contains(&value) && is_read_once(value) && !terms[*index].is_repeated
    };
    (0..terms.len()).rev().find(can_be_reused)
}

/// The values whose memory something else takes.
fn taken<O: ?Sized>(block: Block<'_, O>, step: &Step<O>, planned: &Planned) -> Vec<ValueId> {
    match step {
        Step::Node(_) => {
            let reused = planned.reuse.map(|index| planned.terms[index].value);
            reused.into_iter().collect()
        }
        Step::Repeat(repeat) => {
            let carried = repeat.carried.iter().zip(&planned.moved);
            let moved = carried.filter(|(_, moved)| **moved);
            moved
                .map(|(carried, _)| block.memory(carried.before))
                .collect()
        }
        Step::Scan(_) => Vec::new(),
    }
}
