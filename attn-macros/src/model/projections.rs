//! Projections that an `attend` computes itself: then it is what a layer of `attention!` is, and the passes over that apply. Projections of
//! one value become one product, and biases are added as vectors are loaded.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::graph::{Model, Node, ParamPath, Region, Repeat, Step, ValueId};
use super::latents::{latents, remembers_keys};
use super::transposes::without_transposes;
use super::types::same_axes;
use crate::graph::{AttentionLayer, Operand, Projected, fuse_operands};
use crate::ops::{Attention, Fusion, Gradient, Inputs, ModelOp};
use crate::spec::Size;

/// Makes the region of the fused form, where attentions have taken the projections that nobody else reads, and the layers of these.
pub(crate) fn take_projections(models: &mut [Model]) {
    for model in models.iter_mut() {
        model.grouped = without_transposes(model);
    }
    let plans: Vec<_> = models.iter().map(plans_of).collect();
    let agreed = agreed(plans.iter().flatten());
    for model in models.iter_mut() {
        model.grouped = rewritten(&model.grouped, &agreed);
    }
    let latents = latents(models);
    let Some(model) = models.first() else {
        return;
    };
    let mut attentions = Rc::clone(&model.attentions);
    if let Some(attentions) = without_others(&mut attentions, models) {
        for (index, plan) in &agreed {
            let AttentionLayer { graph, .. } = &attentions[*index];
            let fused = fuse_operands(graph, &plan.operands);
            attentions[*index].fused = fused;
            attentions[*index].operands = plan.operands.clone();
        }
        for (attention, start) in attentions.iter_mut().zip(latents) {
            attention.values_in_keys = start.filter(|start| remembers_keys(attention, start));
        }
    }
    let taken: Rc<[ParamPath]> = taken(models, &agreed).into();
    for model in models {
        model.attentions = Rc::clone(&attentions);
        model.taken = Rc::clone(&taken);
    }
}

/// The layers, when the models have given them up.
fn without_others<'a>(
    attentions: &'a mut Rc<[AttentionLayer]>,
    models: &mut [Model],
) -> Option<&'a mut [AttentionLayer]> {
    for model in models {
        model.attentions = Rc::new([]);
    }
    Rc::get_mut(attentions)
}

/// What an attention takes, where it stands once.
struct Plan {
    /// Its place among the attentions of the model.
    index: usize,
    operands: Vec<Operand>,
    /// The values that are its inputs.
    inputs: Vec<ValueId>,
    /// The values that are not computed any more.
    gone: Vec<ValueId>,
    result: ValueId,
}

impl Plan {
    fn takes(&self) -> impl Iterator<Item = &Projected> {
        self.operands.iter().filter_map(|operand| match operand {
            Operand::Projected(projected) => Some(projected),
            Operand::Input(_) => None,
        })
    }
}

/// The plans by the attention, where all functions that run it agree.
struct Agreed<'p> {
    operands: Vec<Operand>,
    plans: Vec<&'p Plan>,
}

fn agreed<'p>(plans: impl Iterator<Item = &'p Plan>) -> BTreeMap<usize, Agreed<'p>> {
    let mut agreed: BTreeMap<usize, Option<Agreed<'p>>> = BTreeMap::new();
    for plan in plans {
        let first = agreed.entry(plan.index).or_insert_with(|| {
            Some(Agreed {
                operands: plan.operands.clone(),
                plans: Vec::new(),
            })
        });
        match first {
            Some(all) if all.operands == plan.operands => all.plans.push(plan),
            other => *other = None,
        }
    }
    let agreed = agreed.into_iter();
    let agreed = agreed.filter_map(|(index, all)| Some((index, all?)));
    let is_any =
        |(_, all): &(usize, Agreed<'p>)| all.plans.iter().any(|plan| plan.takes().count() > 0);
    agreed.filter(is_any).collect()
}

fn plans_of(model: &Model) -> Vec<Plan> {
    let mut plans = Vec::new();
    if model.is_known() {
        plans_in(model, &model.grouped, &mut plans);
    }
    plans
}

fn plans_in(model: &Model, region: &Region, plans: &mut Vec<Plan>) {
    for step in &region.steps {
        match step {
            Step::Repeat(repeat) => plans_in(model, &repeat.body, plans),
            // In a scan, the products of all steps have the gradients of their weights behind the loop, and keys and values are computed
            // before it.
            Step::Scan(scan) => {
                let nodes = scan.body.nodes().into_iter();
                plans.extend(nodes.filter_map(as_it_stands));
            }
            Step::Node(node) => {
                let attention = node.attention();
                let attention = attention.filter(|attention| attention.inputs.saves_result);
                plans.extend(attention.map(|attention| plan(model, region, node, attention)));
            }
        }
    }
}

/// The plan of an attention that takes nothing.
fn as_it_stands(node: &Node) -> Option<Plan> {
    let attention = node.attention()?;
    attention.inputs.saves_result.then(|| Plan {
        index: attention.index,
        // Queries, keys and values.
        operands: (0..3).map(Operand::Input).collect(),
        inputs: node.operands[..attention.inputs.len()].to_vec(),
        gone: Vec::new(),
        result: node.result,
    })
}

fn plan(model: &Model, region: &Region, node: &Node, attention: &Attention) -> Plan {
    let mut plan = Plan {
        index: attention.index,
        operands: Vec::new(),
        inputs: Vec::new(),
        gone: Vec::new(),
        result: node.result,
    };
    // Of each input: whether it is projected.
    let mut are_projected: Vec<bool> = Vec::new();
    let fields = ["q_proj", "k_proj", "v_proj"];
    for (operand, field) in node.operands.iter().zip(fields) {
        let taken = projection(model, region, *operand, attention);
        let value = taken.as_ref().map_or(*operand, |taken| taken.x);
        let mut known = plan.inputs.iter().zip(&are_projected);
        let known = known
            .position(|(input, is_projected)| *input == value && *is_projected && taken.is_some());
        let input = known.unwrap_or(plan.inputs.len());
        if known.is_none() {
            plan.inputs.push(value);
            are_projected.push(taken.is_some());
        }
        plan.operands.push(match taken {
            None => Operand::Input(input),
            Some(taken) => {
                plan.gone.extend(taken.gone);
                Operand::Projected(Projected {
                    input,
                    field,
                    place: taken.place,
                    bias: taken.bias,
                    width: taken.width,
                })
            }
        });
    }
    // What the body reads stays behind them.
    let others = &node.operands[plan.operands.len()..attention.inputs.len()];
    plan.inputs.extend(others);
    plan
}

/// A projection of `x` that only one attention reads.
struct Taken {
    x: ValueId,
    width: Size,
    place: ParamPath,
    bias: bool,
    gone: Vec<ValueId>,
}

/// The projection that an operand is, perhaps in another shape.
fn projection(
    model: &Model,
    region: &Region,
    operand: ValueId,
    attention: &Attention,
) -> Option<Taken> {
    let mut gone = vec![operand];
    loop {
        let id = *gone.last()?;
        if reads(model, id) != 1 {
            return None;
        }
        let node = region.steps.iter().find_map(|step| match step {
            Step::Node(node) if node.result == id => Some(node),
            _ => None,
        })?;
        let x = node.operands.first().copied();
        match node.fusion() {
            Fusion::Reshape => gone.push(x?),
            Fusion::Projection(linear) => {
                let rows = |id: ValueId| {
                    let axes = &model.value(id).ty.axes;
                    &axes[..axes.len() - 1]
                };
                let is_near = linear.place.module == attention.place.module;
                let fits = is_near && same_axes(rows(id), rows(operand));
                return fits.then_some(Taken {
                    x: x?,
                    width: model.value(x?).ty.width()?.clone(),
                    place: linear.place.clone(),
                    bias: linear.bias,
                    gone,
                });
            }
            _ => return None,
        }
    }
}

/// How often a value is read or returned.
pub(super) fn reads(model: &Model, id: ValueId) -> usize {
    let is_it = |other: &&ValueId| **other == id;
    model.results.iter().filter(is_it).count() + reads_in(&model.grouped, id)
}

fn reads_in(region: &Region, id: ValueId) -> usize {
    let reads = region.steps.iter().map(|step| match step {
        Step::Node(node) => node.operands.iter().filter(|other| **other == id).count(),
        Step::Repeat(repeat) => {
            let carried = repeat.carried.iter();
            let ends = carried.flat_map(|carried| [carried.before, carried.after]);
            ends.filter(|other| *other == id).count() + reads_in(&repeat.body, id)
        }
        Step::Scan(scan) => scan.operands().iter().filter(|other| **other == id).count(),
    });
    reads.sum()
}

/// The region with attentions that take projections.
fn rewritten(region: &Region, agreed: &BTreeMap<usize, Agreed<'_>>) -> Region {
    let plans: Vec<&Plan> = agreed
        .values()
        .flat_map(|all| all.plans.iter().copied())
        .collect();
    let steps = region.steps.iter().filter_map(|step| match step {
        Step::Repeat(repeat) => Some(Step::Repeat(Repeat {
            body: rewritten(&repeat.body, agreed),
            ..repeat.clone()
        })),
        Step::Scan(_) => Some(step.clone()),
        Step::Node(node) if plans.iter().any(|plan| plan.gone.contains(&node.result)) => None,
        Step::Node(node) => {
            let plan = plans.iter().find(|plan| plan.result == node.result);
            let attended = plan.zip(node.attention());
            let attended = attended.map(|(plan, attention)| attend(node, attention, plan));
            Some(Step::Node(attended.unwrap_or_else(|| node.clone())))
        }
    });
    Region {
        steps: steps.collect(),
    }
}

fn attend(node: &Node, attention: &Attention, plan: &Plan) -> Node {
    let input_of = |operand: &Operand| match operand {
        Operand::Input(input) => *input,
        Operand::Projected(projected) => projected.input,
    };
    let others = attention.inputs.len() - plan.operands.len();
    let gradients = (0..plan.inputs.len() - others).map(|input| {
        match plan.takes().any(|projected| projected.input == input) {
            true => Gradient::Together,
            false => Gradient::Apart,
        }
    });
    let op: Rc<dyn ModelOp> = Rc::new(Attention {
        place: attention.place.clone(),
        index: attention.index,
        inputs: Inputs {
            gradients: gradients.collect(),
            keys: plan.operands.last().map_or(0, input_of),
            saves_result: true,
        }
        .and(others),
        dropout: attention.dropout,
    });
    let data = &node.operands[attention.inputs.len()..];
    Node {
        op,
        operands: [&plan.inputs, data].concat(),
        ..node.clone()
    }
}

/// The projections that only attentions read.
fn taken(models: &[Model], agreed: &BTreeMap<usize, Agreed<'_>>) -> Vec<ParamPath> {
    let runs = |place: &ParamPath| {
        let mut nodes = models.iter().flat_map(|model| model.grouped.nodes());
        nodes.any(
            |node| matches!(node.fusion(), Fusion::Projection(linear) if linear.place == *place),
        )
    };
    let plans = agreed.values().filter_map(|all| all.plans.first());
    let places = plans
        .flat_map(|plan| plan.takes())
        .map(|projected| &projected.place);
    places.filter(|place| !runs(place)).cloned().collect()
}
