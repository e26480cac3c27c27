//! A map applied to a model: the tensors of the file, and the locations of the model's tensors in them.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    AdapterScope, MapError, MapProblem, Rule, WeightMap,
    assemble::{FileTensor, RuleMatch, TensorSource, assemble},
    pattern::{Pattern, check_pair},
    rule::Split,
};
use crate::checkpoint::{Mismatch, Problem, TensorType, archive::Expected};

/// A map applied to a model.
#[derive(Debug)]
pub(super) struct Plan {
    /// The tensors of a file, in the order of the model.
    pub(super) theirs: Vec<FileTensor>,
    /// The location of each tensor of the model: one, or one for each head.
    pub(super) ours: BTreeMap<String, Vec<TensorSource>>,
    /// The tied tensors of the file: the second name and the first.
    pub(super) tied: Vec<[String; 2]>,
    /// The tensors of the model of which the file has fewer rows, with their number.
    pub(super) grown: Vec<(String, usize)>,
    /// The tensors of the file that rules map to fresh tensors of the model.
    replaced: HashSet<String>,
    map: WeightMap,
}

impl Plan {
    /// Applies a map to a model with these tensors.
    pub(super) fn new(map: &WeightMap, model: &[Expected]) -> Result<Self, Problem> {
        let mut names = HashSet::new();
        if let Some(twice) = model.iter().find(|tensor| !names.insert(&tensor.name)) {
            let name = twice.name.clone();
            return Err(Problem::Duplicate { name });
        }
        let mut problems = Vec::new();
        let Groups { given, replaced } = group(map, model, &mut problems);
        let mut plan = Self {
            theirs: Vec::new(),
            ours: BTreeMap::new(),
            tied: Vec::new(),
            grown: Vec::new(),
            replaced,
            map: map.clone(),
        };
        for (name, given) in given {
            let ours: Vec<_> = given.iter().map(|given| &given.tensor.name).collect();
            match assemble(&name, given) {
                Ok((theirs, sources)) => {
                    plan.theirs.push(theirs);
                    for (ours, source) in ours.into_iter().zip(sources) {
                        plan.ours.entry(ours.clone()).or_default().push(source);
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

    /// Expects no more rows than the file has of the tables that have [grown](WeightMap::grown).
    pub(super) fn grow<'f>(&mut self, found: impl Fn(&str) -> Option<&'f TensorType>) {
        for theirs in &mut self.theirs {
            let [(ours, _)] = theirs.parts.as_slice() else {
                continue;
            };
            let sources = self.ours.get(ours).map_or(&[][..], Vec::as_slice);
            let is_whole =
                matches!(sources, [source] if source.view.is_none() && source.part.is_none());
            let mut grown = self.map.grown.iter();
            let may_grow = grown.any(|name| Pattern::new(name).matches(ours));
            let Some(found) = found(&theirs.name).filter(|_| is_whole && may_grow) else {
                continue;
            };
            if let ([rows, width @ ..], [fewer, found @ ..]) =
                (&mut *theirs.described.shape, &*found.shape)
                && *fewer < *rows
                && width == found
            {
                *rows = *fewer;
                self.grown.push((ours.clone(), *fewer));
            }
        }
    }

    /// Whether a tensor of the model is none of those that the map is for.
    pub(super) fn leaves(&self, ours: &str) -> bool {
        let scope = self.map.scope_of_adapters;
        matches!(scope, AdapterScope::Adapters(_)) && !scope.has(ours)
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

    /// The expected tensors of the file.
    pub(super) fn expected(&self) -> Vec<Expected> {
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

    /// Whether this tensor of the file is ignored.
    pub(super) fn ignores(&self, theirs: &str) -> bool {
        let mut scopes = self.map.scopes.iter();
        let mut ignored = self.map.ignored.iter();
        let left_out = !scopes.any(|[_, scope]| Pattern::prefix(scope).matches(theirs))
            || ignored.any(|name| Pattern::new(name).matches(theirs))
            || self.replaced.contains(theirs);
        left_out && self.theirs.iter().all(|mapped| mapped.name != theirs)
    }

    /// Checks that a name in the file has the prefix of the map.
    pub(super) fn check_prefix<'n>(
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
        Err(Problem::Prefix {
            expected,
            found: begins,
        })
    }

    /// Adds the names and types in the model to the differences.
    pub(super) fn explain(&self, mismatch: &mut Mismatch) {
        let missing = mismatch.missing.iter().map(|(name, _)| name);
        let different = mismatch
            .different
            .iter()
            .map(|difference| &difference.tensor);
        for name in missing.chain(different) {
            let Some(theirs) = self.theirs.iter().find(|theirs| theirs.name == *name) else {
                continue;
            };
            // A tensor with the same name and shape in both needs no explanation.
            if theirs.parts != [(name.clone(), theirs.described.clone())] {
                mismatch.ours.insert(name.clone(), theirs.parts.clone());
            }
        }
    }
}

/// The tensors of the model, grouped by the tensors of the file.
#[derive(Default)]
struct Groups<'a> {
    /// A tensor of the file and its parts in the model, in the order of their rules.
    given: Vec<(String, Vec<RuleMatch<'a>>)>,
    /// The tensors of the file that would be loaded into fresh tensors.
    replaced: HashSet<String>,
}

/// Groups the tensors of the model by the tensor of the file that their rules name.
fn group<'a>(
    map: &'a WeightMap,
    model: &'a [Expected],
    problems: &mut Vec<MapProblem>,
) -> Groups<'a> {
    let pairs = map.rules.iter().map(|rule| [&rule.ours, &rule.theirs]);
    let pairs = pairs.chain(map.tied.iter().map(|[copy, name]| [name, copy]));
    let pairs = pairs.chain(map.scopes.iter().map(|[ours, theirs]| [ours, theirs]));
    let checked = pairs.map(|[ours, theirs]| check_pair(ours, theirs));
    problems.extend(checked.filter_map(Result::err));
    let is_unclear = |rule: &&Rule| {
        let said = Split::INDICES.map(|index| rule.theirs.contains(index));
        let index = rule.split.map(Split::index);
        said != Split::INDICES.map(|said| index == Some(said))
    };
    let unclear = map.rules.iter().filter(is_unclear);
    problems.extend(unclear.map(|rule| MapProblem::HeadName {
        rule: rule.to_string(),
    }));
    if !problems.is_empty() {
        return Groups::default();
    }
    check_model_names(map, model, problems);

    let mut used = vec![false; map.rules.len()];
    let mut replaced = HashSet::new();
    let mut groups: Vec<(String, Vec<(usize, RuleMatch<'a>)>)> = Vec::new();
    let mut at = HashMap::new();
    for tensor in model {
        if !map.scope_of_adapters.has(&tensor.name) {
            continue;
        }
        if is_fresh(map, &tensor.name) {
            for (index, rule, name) in best_rules(map, &tensor.name) {
                used[index] = true;
                replaced.extend(names(rule, &name));
            }
        } else if let Some((index, rule, name)) = find(map, tensor, problems) {
            used[index] = true;
            let parts = match RuleMatch::all(rule, tensor) {
                Ok(parts) => parts,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            for (part, name) in parts.into_iter().zip(names(rule, &name)) {
                let at = *at.entry(name.clone()).or_insert_with(|| {
                    groups.push((name, Vec::new()));
                    groups.len() - 1
                });
                groups[at].1.push((index, part));
            }
        }
    }
    let unused = map.rules.iter().zip(used);
    let is_for_all = !matches!(map.scope_of_adapters, AdapterScope::Adapters(_));
    let unused = unused.filter(|(rule, used)| !used && !rule.optional && is_for_all);
    problems.extend(unused.map(|(rule, _)| MapProblem::Unused {
        rule: rule.to_string(),
    }));
    let given = groups.into_iter().map(|(name, mut given)| {
        given.sort_by_key(|&(index, _)| index);
        (name, given.into_iter().map(|(_, given)| given).collect())
    });
    Groups {
        given: given.collect(),
        replaced,
    }
}

/// The names in the file: one, or one for each head or expert.
fn names(rule: &Rule, name: &str) -> Vec<String> {
    let Some(split) = rule.split else {
        return vec![name.to_owned()];
    };
    let name_of = |head: usize| name.replace(split.index(), &head.to_string());
    (0..split.heads).map(name_of).collect()
}

/// Checks that the model has the tensors that the map names outside of its rules.
fn check_model_names(map: &WeightMap, model: &[Expected], problems: &mut Vec<MapProblem>) {
    let prefixes = map.scopes.iter().map(|[ours, _]| ours);
    for prefix in prefixes.filter(|prefix| !prefix.is_empty()) {
        let pattern = Pattern::prefix(prefix);
        if !model.iter().any(|tensor| pattern.matches(&tensor.name)) {
            let prefix = prefix.clone();
            problems.push(MapProblem::NoModelPrefix { prefix });
        }
    }
    for ours in &map.fresh {
        let pattern = Pattern::new(ours);
        if !model.iter().any(|tensor| pattern.matches(&tensor.name)) {
            let ours = ours.clone();
            problems.push(MapProblem::UnusedFresh { ours });
        }
    }
    for ours in &map.grown {
        let pattern = Pattern::new(ours);
        if !model.iter().any(|tensor| pattern.matches(&tensor.name)) {
            let ours = ours.clone();
            problems.push(MapProblem::UnusedGrown { ours });
        }
    }
}

fn is_fresh(map: &WeightMap, ours: &str) -> bool {
    let mut fresh = map.fresh.iter();
    fresh.any(|name| Pattern::new(name).matches(ours))
}

/// The index of a rule in its map, the rule, and the name in the file.
type Found<'a> = (usize, &'a Rule, String);

/// The rule for a tensor, and the name of the tensor in the file.
fn find<'a>(
    map: &'a WeightMap,
    tensor: &Expected,
    problems: &mut Vec<MapProblem>,
) -> Option<Found<'a>> {
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
    let best = best_rules(map, name);
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

/// The most specific rules for a name: one, if the map is valid.
fn best_rules<'a>(map: &'a WeightMap, name: &str) -> Vec<Found<'a>> {
    let fitting = map.rules.iter().enumerate().filter_map(|(index, rule)| {
        let pattern = Pattern::new(&rule.ours);
        let captured = pattern.captures(name)?;
        let theirs = Pattern::new(&rule.theirs).filled(&captured);
        Some((pattern.specificity(), (index, rule, theirs)))
    });
    let mut best: Vec<_> = Vec::new();
    let mut most = 0;
    for (specificity, found) in fitting {
        if specificity > most {
            best.clear();
        }
        if specificity >= most {
            most = specificity;
            best.push(found);
        }
    }
    best
}
