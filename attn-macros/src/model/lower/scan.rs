//! `scan seq { state h: [batch, hidden] = 0; h = ..; yield h; }`
//!
//! The body is lowered to a region of its own. A value from outside is read there as its slice at a step, if it has the axis. What depends on
//! no step is computed once, before the scan.

use std::collections::HashMap;

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;

use super::scope::Changes;
use super::statements::Later;
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::{Keep, Region, Scan, Slice, State, Step, Value, ValueId};
use crate::model::syntax::{self, Expr, Statement, TypeDraft, first};
use crate::model::types::{Axis, MOST_AXES_OF_TENSOR, Type, ValueKind};
use crate::ops::{Fusion, Permute};

/// The scan whose body is lowered.
pub(super) struct ScanBody {
    axis: Axis,
    /// The values before this one, and the variables before that one, are of outside.
    first_value: usize,
    first_variable: usize,
    slices: Vec<Slice>,
    /// The slices by the values that they are of, and the index of the axis there.
    known: HashMap<(usize, usize), ValueId>,
    /// The operations that bring the axis to the front.
    before: Region,
    /// The index of the axis in the first value that has it.
    place: Option<usize>,
    /// What it yields, each with where that was written.
    yields: Option<Vec<(ValueId, Span)>>,
    /// Whether all of that, and all initial values, are there.
    is_sound: bool,
}

/// A state, when a step begins.
struct Start {
    name: Ident,
    /// Its place among the variables.
    place: Option<usize>,
    before: ValueId,
    value: ValueId,
}

impl Lowering<'_> {
    /// A value as it is seen here: in a scan, the slice at a step of a value that has the axis.
    pub(super) fn seen(&mut self, name: &Ident, value: ValueId) -> Option<ValueId> {
        let Some(scan) = &self.scan else {
            return Some(value);
        };
        if value.0 >= scan.first_value {
            return Some(value);
        }
        let ty = self.ty(value).clone();
        let mut axes = ty.axes.iter();
        let Some(place) = axes.position(|axis| axis.name() == scan.axis.name()) else {
            return Some(value);
        };
        if ty.kind != ValueKind::Floats {
            let message = messages::scan_of_indices(name, &ty, &scan.axis);
            self.cx.error(name, message);
            return None;
        }
        let slice = self.slice_at_a_step(value, place)?;
        self.note_shape(name, Some(slice));
        Some(slice)
    }

    /// The value at a step, without its axis at this index. Of a value with other names for its axes it is that of the value itself, with
    /// these names.
    fn slice_at_a_step(&mut self, value: ValueId, place: usize) -> Option<ValueId> {
        let key = (value.0, place);
        if let Some(slice) = self.scan.as_ref()?.known.get(&key) {
            return Some(*slice);
        }
        let Value { source, mut ty, .. } = self.values[value.0].clone();
        ty.axes.remove(place);
        let memory = self.memory(value);
        let slice = match memory == value {
            true => {
                let whole = self.steps_first(value, place, &source);
                let slice = self.value(&source, ty);
                let scan = self.scan.as_mut()?;
                scan.slices.push(Slice { whole, slice });
                scan.place.get_or_insert(place);
                slice
            }
            false => {
                let of_memory = self.slice_at_a_step(memory, place)?;
                let renamed = self.value(&source, ty);
                self.aliases.insert(renamed.0, of_memory);
                renamed
            }
        };
        self.scan.as_mut()?.known.insert(key, slice);
        Some(slice)
    }

    /// The value with this axis in front.
    fn steps_first(&mut self, value: ValueId, place: usize, source: &str) -> ValueId {
        if place == 0 {
            return value;
        }
        let mut order: Vec<usize> = (0..self.ty(value).axes.len()).collect();
        let axis = order.remove(place);
        order.insert(0, axis);
        let from = &self.ty(value).axes;
        let ty = Type::floats(order.iter().map(|axis| from[*axis].clone()).collect());
        let mut before = RegionBuilder::new(crate::model::graph::ModuleId(0));
        let name = format!("{source}_steps");
        let whole = self.node(&mut before, Permute::new(order), vec![value], (&name, ty));
        if let Some(scan) = &mut self.scan {
            scan.before.steps.append(&mut before.region.steps);
        }
        whole
    }

    /// The axis of the scan whose body is lowered.
    pub(super) fn axis_of_steps(&self) -> Option<&Axis> {
        self.scan.as_ref().map(|scan| &scan.axis)
    }

    /// Whether a variable is of outside of the scan whose body this is.
    pub(super) fn is_outside_of_scan(&self, name: &Ident) -> bool {
        let place = self.scopes.place(name);
        let scan = self.scan.as_ref();
        let is_known = self
            .scopes
            .find(name)
            .is_some_and(|variable| variable.value.is_some());
        scan.zip(place)
            .is_some_and(|(scan, place)| is_known && place < scan.first_variable)
    }

    pub(super) fn yielded(
        &mut self,
        at: Span,
        values: &[Expr],
        later: &Later<'_>,
        builder: &mut RegionBuilder,
    ) {
        for value in values {
            self.check_names(value, later);
        }
        if !builder.is_scan {
            return self.error(at, messages::YIELD_OUTSIDE);
        }
        let lowered = values.iter().map(|value| {
            let id = self.tensor(value, None, builder)?;
            Some((id, value.span()))
        });
        let lowered: Vec<_> = lowered.collect::<Vec<_>>();
        let is_again = self.scan.as_ref().is_some_and(|scan| scan.yields.is_some());
        if is_again {
            return self.error(at, messages::YIELD_TWICE);
        }
        for (id, at) in lowered.iter().flatten() {
            let ty = self.ty(*id).clone();
            if ty.kind != ValueKind::Floats || ty.axes.len() >= MOST_AXES_OF_TENSOR {
                self.error(*at, messages::yield_of(&ty, MOST_AXES_OF_TENSOR - 1));
            }
        }
        if let Some(scan) = &mut self.scan {
            scan.is_sound &= lowered.iter().all(Option::is_some);
            scan.yields = Some(lowered.into_iter().flatten().collect());
        }
    }

    pub(super) fn scan(
        &mut self,
        scan: &syntax::Scan,
        later: &Later<'_>,
        builder: &mut RegionBuilder,
    ) -> Vec<Option<ValueId>> {
        let before = self.cx.count();
        let results = self.scanned(scan, later, builder);
        let is_sound = self.cx.count() == before && !results.is_empty();
        // How many results there are is not known.
        self.is_understood &= is_sound;
        let results = results.into_iter().map(|id| id.filter(|_| is_sound));
        results.collect()
    }

    fn scanned(
        &mut self,
        scan: &syntax::Scan,
        later: &Later<'_>,
        builder: &mut RegionBuilder,
    ) -> Vec<Option<ValueId>> {
        if self.scan.is_some() {
            self.cx.error(&scan.at, messages::SCAN_IN_SCAN);
            return Vec::new();
        }
        let axis = self.axis_of_scan(scan);
        let (reverse, keep) = self.scan_options(scan);
        let is_state = |statement: &&Statement| matches!(statement, Statement::State { .. });
        let count = scan.statements.iter().take_while(is_state).count();
        let (states, statements) = scan.statements.split_at(count);
        let befores: Vec<_> = states
            .iter()
            .map(|state| self.initial(state, later, builder))
            .collect();
        let Some(axis) = axis else {
            return Vec::new();
        };
        self.scopes.open();
        self.scan = Some(ScanBody {
            axis: axis.clone(),
            first_value: self.values.len(),
            first_variable: self.scopes.count(),
            slices: Vec::new(),
            known: HashMap::new(),
            before: Region::default(),
            place: None,
            yields: None,
            is_sound: befores.iter().flatten().all(|(_, before)| before.is_some()),
        });
        let mut starts = Vec::new();
        for (name, before) in befores.into_iter().flatten() {
            let value = before.map(|before| {
                let ty = self.ty(before).clone();
                self.value(&name.unraw().to_string(), ty)
            });
            self.scopes.declare(&name, value, Changes::Allowed);
            if let (Some(before), Some(value)) = (before, value) {
                self.scopes.set(&name, value, true);
                starts.push(Start {
                    before: self.memory(before),
                    place: self.scopes.place(&name),
                    name,
                    value,
                });
            }
        }
        let mut inner = RegionBuilder::of_scan(builder.module);
        let returned = self.statements(statements, Some(later), &mut inner);
        let returned = returned.map_or_else(Vec::new, |returned| returned.values);
        let lasts = returned
            .into_iter()
            .map(|(_, value)| self.last(value, &starts));
        let lasts: Vec<Option<usize>> = lasts.collect();
        let states = starts
            .iter()
            .map(|start| self.state(start, scan.at.span()))
            .collect::<Vec<_>>();
        self.scopes.close(self.cx);
        let Some(body) = self.scan.take() else {
            return Vec::new();
        };
        let states: Vec<State> = states.into_iter().flatten().collect();
        if !body.is_sound || states.len() < starts.len() || lasts.contains(&None) {
            return Vec::new();
        }
        if body.yields.is_none() && lasts.is_empty() {
            if self.is_understood {
                self.cx.error(&scan.at, messages::SCAN_YIELDS_NOTHING);
            }
            return Vec::new();
        }
        self.close_scan((axis, reverse, keep), body, states, &lasts, inner, builder)
    }

    /// The axis, which has a name.
    fn axis_of_scan(&mut self, scan: &syntax::Scan) -> Option<Axis> {
        let at = first(&scan.axis);
        let axis = self.axis(&scan.axis)?;
        if axis.name().is_none() {
            self.error(at, messages::SCAN_AXIS);
            return None;
        }
        Some(axis)
    }

    /// `reverse = true, keep = sqrt`
    fn scan_options(&mut self, scan: &syntax::Scan) -> (bool, Keep) {
        let mut reverse = None;
        let mut keep = None;
        for option in &scan.options {
            let value = option.value.to_string();
            match option.key.as_ref().map(Ident::to_string).as_deref() {
                Some("reverse") if value == "true" || value == "false" => {
                    self.set_once(&mut reverse, option, |_, _| Some(value == "true"));
                }
                Some("keep") if value == "all" => {
                    self.set_once(&mut keep, option, |_, _| Some(Keep::All));
                }
                Some("keep") if value == "sqrt" => {
                    self.set_once(&mut keep, option, |_, _| Some(Keep::Sqrt));
                }
                Some("keep") => self.error(option.span(), messages::scan_keeps(&value)),
                _ => self.error(option.span(), messages::SCAN_OPTIONS),
            }
        }
        (reverse == Some(true), keep.unwrap_or(Keep::All))
    }

    /// The value of a state before the first step, with all of its axes.
    fn initial(
        &mut self,
        state: &Statement,
        later: &Later<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<(Ident, Option<ValueId>)> {
        let Statement::State { name, ty, init } = state else {
            return None;
        };
        self.check_names(init, later);
        let declared = self.type_of_state(name, ty);
        let value = match self.is_number(init) {
            true => self.constant(name, init, builder),
            false => self.tensor(init, None, builder),
        };
        let before = declared.zip(value).and_then(|(ty, value)| {
            let from = self.ty(value).clone();
            let differ = messages::initial_state(name, &ty, &from);
            let common = self.common([&ty, &from], init.span(), &differ)?;
            let is_one = |ty: &Type| ty.axes.iter().filter(|axis| axis.is_one()).count();
            if common.axes.len() != ty.axes.len() || is_one(&common) != is_one(&ty) {
                self.error(init.span(), differ);
                return None;
            }
            Some(self.expanded(value, &ty, builder))
        });
        self.note_shape(name, before);
        Some((name.clone(), before))
    }

    fn type_of_state(&mut self, name: &Ident, draft: &TypeDraft) -> Option<Type> {
        let ty = match draft.kind.is_none() && draft.axes.is_empty() {
            true => Type::floats(Vec::new()),
            false => self.declared_type(draft)?,
        };
        if ty.kind != ValueKind::Floats {
            self.cx
                .error(&draft.kind, messages::state_of_indices(name, &ty));
            return None;
        }
        Some(ty)
    }

    /// A state at the end of a step.
    fn state(&mut self, start: &Start, at: Span) -> Option<State> {
        let Start {
            name,
            place,
            before,
            value,
        } = start;
        if self.scopes.place(name) != *place {
            self.cx.error(name, messages::state_is_hidden(name));
            return None;
        }
        let after = self.scopes.find(name)?.value?;
        if after == *value {
            self.cx.error(name, messages::state_is_constant(name));
            return None;
        }
        let [begins, ends] = [*value, after].map(|id| self.ty(id).clone());
        let agrees = self.agree(&begins, &ends, at, || {
            messages::scan_changes_shape(name, &begins, &ends)
        });
        self.scopes.set(name, after, true);
        agrees.then_some(State {
            before: *before,
            value: *value,
            after: self.memory(after),
            last: None,
        })
    }

    /// The index of the state whose last value is a result.
    fn last(&mut self, value: &Expr, starts: &[Start]) -> Option<usize> {
        let index = match value {
            Expr::Name(name) => starts.iter().position(|start| start.name == *name),
            _ => None,
        };
        if index.is_none() && self.is_understood {
            let names = starts.iter().map(|start| start.name.to_string());
            self.error(
                value.span(),
                messages::last_value(&names.collect::<Vec<_>>()),
            );
        }
        index
    }

    fn close_scan(
        &mut self,
        (axis, reverse, keep): (Axis, bool, Keep),
        scan: ScanBody,
        mut states: Vec<State>,
        lasts: &[Option<usize>],
        inner: RegionBuilder,
        builder: &mut RegionBuilder,
    ) -> Vec<Option<ValueId>> {
        builder.region.steps.extend(scan.before.steps);
        let (once, body) = split_once(inner.region, scan.first_value);
        builder.region.steps.extend(once.steps);
        let mut yields = Vec::new();
        for (value, _) in scan.yields.iter().flatten() {
            let source = self.values[value.0].source.clone();
            let mut axes = self.ty(*value).axes.clone();
            axes.insert(0, axis.clone());
            let whole = self.value(&format!("{source}_steps"), Type::floats(axes));
            let slice = self.memory(*value);
            yields.push(Slice { whole, slice });
        }
        let mut ends: Vec<ValueId> = Vec::new();
        for index in lasts.iter().flatten() {
            let state = &mut states[*index];
            let last = match state.last {
                Some(last) => last,
                None => {
                    let [name, ty] = [state.value; 2].map(|id| &self.values[id.0]);
                    let (name, ty) = (format!("last_{}", name.source), ty.ty.clone());
                    self.value(&name, ty)
                }
            };
            states[*index].last = Some(last);
            ends.push(last);
        }
        let after = states.iter().map(|state| state.after);
        let results: Vec<ValueId> = yields.iter().map(|of| of.slice).chain(after).collect();
        let place = scan.place.unwrap_or(0);
        let wholes: Vec<_> = yields.iter().map(|of| of.whole).collect();
        let mut scan = Scan {
            axis,
            module: builder.module,
            reverse,
            keep,
            slices: scan.slices,
            states,
            yields,
            inputs: Vec::new(),
            results,
            body,
        };
        scan.find_inputs();
        builder.region.steps.push(Step::Scan(Box::new(scan)));
        let wholes = wholes
            .into_iter()
            .map(|whole| Some(self.steps_behind(whole, place, builder)));
        let wholes: Vec<_> = wholes.collect();
        wholes
            .into_iter()
            .chain(ends.into_iter().map(Some))
            .collect()
    }

    /// The value with its first axis at this index.
    fn steps_behind(
        &mut self,
        whole: ValueId,
        place: usize,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let from = self.ty(whole).axes.clone();
        let place = place.min(from.len() - 1);
        if place == 0 {
            return whole;
        }
        let mut order: Vec<usize> = (1..from.len()).collect();
        order.insert(place, 0);
        let ty = Type::floats(order.iter().map(|axis| from[*axis].clone()).collect());
        let source = self.values[whole.0].source.clone();
        let name = source.trim_end_matches("_steps").to_owned();
        self.node(builder, Permute::new(order), vec![whole], (&name, ty))
    }
}

/// The operations that depend on no step, and those that do. A dropout draws anew at each step.
fn split_once(region: Region, first_value: usize) -> (Region, Region) {
    let mut once = Region::default();
    let mut body = Region::default();
    let mut known = Vec::new();
    for step in region.steps {
        let is_once = match &step {
            Step::Node(node) => {
                let is_known = |id: &ValueId| id.0 < first_value || known.contains(id);
                let is_dropout = matches!(node.fusion(), Fusion::Dropout(_));
                node.operands.iter().all(is_known) && !is_dropout
            }
            Step::Repeat(_) | Step::Scan(_) => false,
        };
        if let (Step::Node(node), true) = (&step, is_once) {
            known.extend(node.results());
            once.steps.push(step);
        } else {
            body.steps.push(step);
        }
    }
    (once, body)
}
