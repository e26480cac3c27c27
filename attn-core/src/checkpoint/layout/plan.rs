//! A map, worked out for a model: which tensors a file has, and where in them ours are.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use super::{
    MapError, MapProblem, Rule, WeightMap,
    pattern::{Pattern, check_pair},
    rule::Part,
    view::View,
};
use crate::checkpoint::{Mismatch, Problem, TensorType, archive::Expected};

/// What a map means for a model.
#[derive(Debug)]
pub(in crate::checkpoint) struct Plan {
    /// The tensors of a file, in the order of the model.
    pub(super) theirs: Vec<Theirs>,
    /// Where each tensor of the model is.
    pub(super) ours: BTreeMap<String, Place>,
    /// Second names that a file may have, and the first.
    pub(super) tied: Vec<[String; 2]>,
    map: WeightMap,
}

/// A tensor of a file.
#[derive(Debug)]
pub(super) struct Theirs {
    pub(super) name: String,
    pub(super) described: TensorType,
    optional: bool,
    /// What it is in the model.
    parts: Vec<(String, TensorType)>,
}

/// Where a tensor of the model is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) theirs: String,
    /// Nothing if it is their tensor as it is.
    pub(super) view: Option<View>,
}

/// A tensor of the model and the rule that gives it.
type Given<'a> = (&'a Rule, &'a Expected);

impl Plan {
    /// Works a map out for a model with these tensors.
    pub(in crate::checkpoint) fn new(map: &WeightMap, model: &[Expected]) -> Result<Self, Problem> {
        let mut problems = Vec::new();
        let groups = group(map, model, &mut problems);
        let mut plan = Self {
            theirs: Vec::new(),
            ours: BTreeMap::new(),
            tied: Vec::new(),
            map: map.clone(),
        };
        for (name, given) in groups {
            match assemble(&name, &given) {
                Ok((theirs, places)) => {
                    plan.theirs.push(theirs);
                    for (place, (_, tensor)) in places.into_iter().zip(given) {
                        let before = plan.ours.insert(tensor.name.clone(), place);
                        if before.is_some() {
                            let name = tensor.name.clone();
                            return Err(Problem::Duplicate { name });
                        }
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(Problem::Map(MapError { problems }));
        }
        plan.tied = plan.second_names();
        Ok(plan)
    }

    fn second_names(&self) -> Vec<[String; 2]> {
        let names = |[copy, name]: &[String; 2]| {
            let theirs = self.theirs.iter().filter_map(|theirs| {
                let captured = Pattern::new(name).captures(&theirs.name)?;
                Some([Pattern::new(copy).filled(&captured), theirs.name.clone()])
            });
            theirs.collect::<Vec<_>>()
        };
        let mut tied: Vec<_> = self.map.tied.iter().flat_map(names).collect();
        tied.retain(|[copy, _]| self.theirs.iter().all(|theirs| theirs.name != *copy));
        tied
    }

    /// The tensors that a file should have.
    pub(in crate::checkpoint) fn expected(&self) -> Vec<Expected> {
        let theirs = self.theirs.iter().map(|theirs| Expected {
            name: theirs.name.clone(),
            described: theirs.described.clone(),
            optional: theirs.optional,
        });
        let copies = self.tied.iter().filter_map(|[copy, name]| {
            let theirs = self.theirs.iter().find(|theirs| theirs.name == *name)?;
            Some(Expected {
                name: copy.clone(),
                described: theirs.described.clone(),
                optional: true,
            })
        });
        theirs.chain(copies).collect()
    }

    /// Whether a file may have this tensor, although nothing in the model is it.
    pub(in crate::checkpoint) fn leaves_out(&self, theirs: &str) -> bool {
        let mut scopes = self.map.scopes.iter();
        let mut ignored = self.map.ignored.iter();
        !scopes.any(|[_, scope]| Pattern::prefix(scope).matches(theirs))
            || ignored.any(|name| Pattern::new(name).matches(theirs))
    }

    /// That something in a file begins as the names in the map do.
    pub(in crate::checkpoint) fn check_prefix<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), Problem> {
        let mut begins: Vec<String> = Vec::new();
        for name in names {
            let mut scopes = self.map.scopes.iter();
            if scopes.any(|[_, scope]| Pattern::prefix(scope).matches(name)) {
                return Ok(());
            }
            let first = name.split_inclusive('.').next().unwrap_or_default();
            if begins.last().is_none_or(|last| last != first) {
                begins.push(first.into());
            }
        }
        let scopes = self.map.scopes.iter().map(|[_, scope]| scope.clone());
        let expected: Vec<String> = scopes.filter(|scope| !scope.is_empty()).collect();
        if expected.is_empty() {
            return Ok(());
        }
        let found = begins;
        Err(Problem::Prefix { expected, found })
    }

    /// Tells what those tensors of a file are in the model in which the two differ.
    pub(in crate::checkpoint) fn explain(&self, mismatch: &mut Mismatch) {
        let missing = mismatch.missing.iter().map(|(name, _)| name);
        let different = mismatch
            .different
            .iter()
            .map(|difference| &difference.tensor);
        for name in missing.chain(different) {
            let theirs = self.theirs.iter().find(|theirs| theirs.name == *name);
            let parts = theirs.map_or(&[][..], |theirs| &theirs.parts);
            // What has the same name and the same shape in both needs no explanation.
            if let Some(theirs) = theirs
                && *parts != [(name.clone(), theirs.described.clone())]
            {
                mismatch.ours.insert(name.clone(), parts.to_vec());
            }
        }
    }
}

/// Finds the rule for each tensor of the model, and with it the tensor of theirs. Parts of one are in the order of their rules.
fn group<'a>(
    map: &'a WeightMap,
    model: &'a [Expected],
    problems: &mut Vec<MapProblem>,
) -> Vec<(String, Vec<Given<'a>>)> {
    let pairs = map.rules.iter().map(|rule| [&rule.ours, &rule.theirs]);
    let pairs = pairs.chain(map.tied.iter().map(|[copy, name]| [name, copy]));
    let pairs = pairs.chain(map.scopes.iter().map(|[ours, theirs]| [ours, theirs]));
    let checked = pairs.map(|[ours, theirs]| check_pair(ours, theirs));
    problems.extend(checked.filter_map(Result::err));
    if !problems.is_empty() {
        return Vec::new();
    }
    check_model_prefixes(map, model, problems);

    let mut used = vec![false; map.rules.len()];
    let mut groups: Vec<(String, Vec<(usize, Given<'a>)>)> = Vec::new();
    let mut at = HashMap::new();
    for tensor in model {
        if let Some((index, rule, name)) = find(map, tensor, problems) {
            used[index] = true;
            let at = *at.entry(name.clone()).or_insert_with(|| {
                groups.push((name, Vec::new()));
                groups.len() - 1
            });
            groups[at].1.push((index, (rule, tensor)));
        }
    }
    let unused = map.rules.iter().zip(used);
    let unused = unused.filter(|(rule, used)| !used && !rule.optional);
    problems.extend(unused.map(|(rule, _)| MapProblem::Unused {
        rule: rule.to_string(),
    }));
    let groups = groups.into_iter().map(|(name, mut given)| {
        given.sort_by_key(|&(index, _)| index);
        (name, given.into_iter().map(|(_, given)| given).collect())
    });
    groups.collect()
}

fn check_model_prefixes(map: &WeightMap, model: &[Expected], problems: &mut Vec<MapProblem>) {
    let prefixes = map.scopes.iter().map(|[ours, _]| ours);
    for prefix in prefixes.filter(|prefix| !prefix.is_empty()) {
        let pattern = Pattern::prefix(prefix);
        if !model.iter().any(|tensor| pattern.matches(&tensor.name)) {
            let prefix = prefix.clone();
            problems.push(MapProblem::NoModelPrefix { prefix });
        }
    }
}

/// The rule for a tensor, and the name that it gives.
fn find<'a>(
    map: &'a WeightMap,
    tensor: &Expected,
    problems: &mut Vec<MapProblem>,
) -> Option<(usize, &'a Rule, String)> {
    let Expected {
        name,
        described,
        optional: scalar,
    } = tensor;
    let mut scopes = map.scopes.iter();
    let outside = !scopes.any(|[scope, _]| Pattern::prefix(scope).matches(name));
    if outside || *scalar && !map.scalars {
        return None;
    }
    let fitting = map.rules.iter().enumerate().filter_map(|(index, rule)| {
        let pattern = Pattern::new(&rule.ours);
        let captured = pattern.captures(name)?;
        let theirs = Pattern::new(&rule.theirs).filled(&captured);
        Some((pattern.says(), (index, rule, theirs)))
    });
    let mut best: Vec<_> = Vec::new();
    let mut most = 0;
    for (says, found) in fitting {
        if says > most {
            best.clear();
        }
        if says >= most {
            most = says;
            best.push(found);
        }
    }
    match &best[..] {
        [] => problems.push(MapProblem::NotGiven {
            tensor: name.clone(),
            described: described.clone(),
        }),
        [(_, one, _), (_, other, _), ..] => problems.push(MapProblem::GivenTwice {
            tensor: name.clone(),
            rules: [one.to_string(), other.to_string()],
        }),
        _ => {}
    }
    best.into_iter().next()
}

/// One of our tensors in the axes of theirs.
struct Laid {
    /// The shape of their tensor, if it had nothing but ours.
    shape: Vec<usize>,
    /// Which axis of theirs each of ours is.
    axes: Vec<usize>,
    /// The axis of theirs along which ours is a part.
    along: Option<usize>,
    /// Where on it.
    range: Range<usize>,
}

/// What their tensor is, and where ours are in it.
fn assemble(name: &str, given: &[Given<'_>]) -> Result<(Theirs, Vec<Place>), MapProblem> {
    let mut laid: Vec<Laid> = Vec::new();
    for &(rule, tensor) in given {
        let behind = laid.last().map_or(0, |before| before.range.end);
        laid.push(lay(rule, tensor, behind)?);
    }
    let parts = given
        .iter()
        .map(|(_, tensor)| (tensor.name.clone(), tensor.described.clone()));
    let parts: Vec<_> = parts.collect();
    let mut shape = laid[0].shape.clone();
    if let Some(axis) = laid[0].along {
        shape[axis] = check_parts(name, &parts, &laid, axis)?;
    } else if let [(one, _), (other, _), ..] = &parts[..] {
        return Err(MapProblem::Overlap {
            theirs: name.into(),
            ours: [one.clone(), other.clone()],
        });
    }
    let places = laid.iter().zip(given).map(|(laid, (rule, _))| Place {
        theirs: name.into(),
        view: (!rule.is_plain()).then(|| view(rule, laid, &shape)),
    });
    let places = places.collect();
    let theirs = Theirs {
        name: name.into(),
        described: TensorType {
            dtype: given[0].1.described.dtype,
            shape,
        },
        optional: given.iter().all(|(_, tensor)| tensor.optional),
        parts,
    };
    Ok((theirs, places))
}

/// Our tensor in the axes of theirs: what the rule does, backwards.
fn lay(rule: &Rule, tensor: &Expected, behind: usize) -> Result<Laid, MapProblem> {
    let refused = |reason: String| MapProblem::Shape {
        rule: rule.to_string(),
        tensor: tensor.name.clone(),
        described: tensor.described.clone(),
        reason,
    };
    let ours = &tensor.described.shape;
    if let Some(reason) = rule.heads.and_then(|heads| heads.refuses(ours)) {
        return Err(refused(reason));
    }
    let rank = ours.len() + rule.squeezed.len();
    let mut axes: Vec<usize> = (0..rank)
        .filter(|axis| !rule.squeezed.contains(axis))
        .collect();
    if axes.len() != ours.len() {
        let axes = &rule.squeezed;
        return Err(refused(format!(
            "theirs cannot be without the axes {axes:?}"
        )));
    }
    if rule.transposed {
        axes.reverse();
    }
    let mut shape = vec![1; rank];
    for (&axis, &len) in axes.iter().zip(ours) {
        shape[axis] = len;
    }
    let (mut along, mut range) = (None, 0..0);
    if let Some(Part { axis, range: taken }) = &rule.part {
        let (Some(&len), Some(&theirs)) = (ours.get(*axis), axes.get(*axis)) else {
            return Err(refused(format!("it has no axis {axis}")));
        };
        range = taken.clone().unwrap_or(behind..behind + len);
        along = Some(theirs);
        if range.end.checked_sub(range.start) != Some(len) {
            return Err(refused(format!("its axis {axis} has the length {len}")));
        }
    }
    Ok(Laid {
        shape,
        axes,
        along,
        range,
    })
}

/// That the parts are those of one tensor, all of it, and none of it twice; and how long it is along the axis.
fn check_parts(
    name: &str,
    parts: &[(String, TensorType)],
    laid: &[Laid],
    axis: usize,
) -> Result<usize, MapProblem> {
    let across = |laid: &Laid| {
        let mut shape = laid.shape.clone();
        if let Some(len) = shape.get_mut(axis) {
            *len = 0;
        }
        (laid.along, shape)
    };
    for (other, part) in laid.iter().zip(parts) {
        if across(other) != across(&laid[0]) || part.1.dtype != parts[0].1.dtype {
            return Err(MapProblem::Uneven {
                theirs: name.into(),
                ours: [parts[0].clone(), part.clone()],
            });
        }
    }
    let mut order: Vec<_> = laid.iter().map(|laid| &laid.range).zip(parts).collect();
    order.sort_by_key(|(range, _)| (range.start, range.end));
    let mut end = 0;
    let mut before = &order[0].1.0;
    for (range, (ours, _)) in order {
        if range.start > end {
            return Err(MapProblem::Gap {
                theirs: name.into(),
                axis,
                range: end..range.start,
            });
        }
        if range.start < end {
            return Err(MapProblem::Overlap {
                theirs: name.into(),
                ours: [before.clone(), ours.clone()],
            });
        }
        (end, before) = (range.end, ours);
    }
    Ok(end)
}

/// Where the numbers of ours are in a tensor of theirs with this shape.
fn view(rule: &Rule, laid: &Laid, shape: &[usize]) -> View {
    let axes = laid.axes.iter().enumerate().map(|(ours, &theirs)| {
        let stride: usize = shape[theirs + 1..].iter().product();
        let start = match laid.along {
            Some(along) if along == theirs => laid.range.start,
            _ => 0,
        };
        let len = laid.shape[theirs];
        let order = match rule.heads {
            Some(heads) if ours == 0 => heads.order(len),
            _ => (0..len).collect(),
        };
        order.into_iter().map(|i| (start + i) * stride).collect()
    });
    View {
        axes: axes.collect(),
    }
}

impl Rule {
    /// Whether it does nothing but give another name.
    fn is_plain(&self) -> bool {
        let Self {
            squeezed,
            transposed,
            part,
            heads,
            ours: _,
            theirs: _,
            optional: _,
        } = self;
        squeezed.is_empty() && !transposed && part.is_none() && heads.is_none()
    }
}
