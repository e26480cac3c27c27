//! Statements, one after the other.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;

use super::fields::Ties;
use super::results::Returned;
use super::scope::{Changes, Variable};
use super::unread::reads;
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::{Carried, ModuleId, ParamPath, Repeat, Step, Submodule, ValueId};
use crate::model::syntax::{self, Condition, Expr, ScanTo, Statement};
use crate::model::types::ValueKind;
use crate::spec::Size;

/// The statements behind a statement, in its block and in those around it.
pub(super) struct Later<'a> {
    statements: &'a [Statement],
    around: Option<&'a Later<'a>>,
}

impl Later<'_> {
    /// Whether a variable of this name is declared there.
    fn declares(&self, name: &Ident) -> bool {
        let mut blocks = std::iter::successors(Some(self), |block| block.around);
        let is_it = |statement: &Statement| match statement {
            Statement::Let { name: other, .. } | Statement::Param { name: other, .. } => {
                other == name
            }
            Statement::Buffer(buffer) => buffer.name == *name,
            Statement::LetParts { names, .. } => names.contains(name),
            Statement::Scan(scan) => scan.to.declares().contains(name),
            _ => false,
        };
        blocks.any(|block| block.statements.iter().any(is_it))
    }
}

impl Lowering<'_> {
    /// The values that the last of `statements` returns.
    pub(super) fn statements<'s>(
        &mut self,
        statements: &'s [Statement],
        around: Option<&Later<'_>>,
        builder: &mut RegionBuilder,
    ) -> Option<Returned<'s>> {
        let mut returned = None;
        for (index, statement) in statements.iter().enumerate() {
            let later = &Later {
                statements: &statements[index + 1..],
                around,
            };
            match statement {
                Statement::Let {
                    name,
                    mutable,
                    value,
                } => {
                    self.check_names(value, later);
                    let value = self.bound(name, value, builder);
                    self.note_shape(name, value);
                    let changes = match mutable {
                        true => Changes::Allowed,
                        false => Changes::Never,
                    };
                    self.scopes.declare(name, value, changes);
                }
                Statement::LetParts { names, of, value } => {
                    self.check_names(value, later);
                    let values = self.parts((names, of.as_ref()), value, builder);
                    for (index, name) in names.iter().enumerate() {
                        let value = values.as_ref().map(|values| values[index]);
                        self.note_shape(name, value);
                        self.scopes.declare(name, value, Changes::Never);
                    }
                }
                Statement::Param { name, ty, init } => {
                    let value = self.param(name, ty, init, builder);
                    self.note_shape(name, value);
                    self.scopes.declare(name, value, Changes::OfParam);
                }
                Statement::Buffer(buffer) => {
                    let value = self.buffer(buffer, builder);
                    self.note_shape(&buffer.name, value);
                    self.scopes.declare(&buffer.name, value, Changes::OfBuffer);
                }
                Statement::Assign { name, value } => {
                    let is_early = self.check_set_later(name, later);
                    if self.scopes.find(name).is_none() {
                        self.undeclared(name);
                    }
                    self.check_names(value, later);
                    let value = self.tensor(value, Some(name), builder);
                    self.note_shape(name, value);
                    self.assign(name, value.filter(|_| !is_early));
                }
                Statement::Repeat(repeat) => self.repeat(repeat, later, builder),
                Statement::Scan(scan) => {
                    let values = self.scan(scan, later, builder);
                    returned = self.results_of_scan(scan, values, later);
                }
                Statement::State { name, .. } => {
                    let message = match builder.is_scan {
                        true => messages::STATE_LATE,
                        false => messages::STATE_OUTSIDE,
                    };
                    self.cx.error(name, message);
                    self.scopes.declare_unknown(name);
                }
                Statement::Yield { at, values } => self.yielded(*at, values, later, builder),
                Statement::If {
                    at,
                    condition,
                    branches,
                } => {
                    let taken = self.taken(*at, condition, branches);
                    self.scopes.open();
                    let values = self.statements(taken, Some(later), builder);
                    self.scopes.close(self.cx);
                    if values.is_some() && index + 1 < statements.len() {
                        self.error(*at, messages::VALUE_OF_IF);
                    }
                    returned = values;
                }
                Statement::Unreadable { declares } => {
                    self.knows_variables = false;
                    let names = declares.iter();
                    names.for_each(|name| self.scopes.declare(name, None, Changes::Allowed));
                }
                Statement::Return { values, names } => {
                    values
                        .iter()
                        .for_each(|value| self.check_names(value, later));
                    let values = values.iter();
                    let values = values.map(|value| (self.tensor(value, None, builder), value));
                    returned = Some(Returned {
                        values: values.collect(),
                        names,
                    });
                }
            }
        }
        returned
    }

    pub(super) fn check_names(&mut self, value: &Expr, later: &Later<'_>) {
        value.for_each_name(&mut |name| {
            self.check_set_later(name, later);
        });
    }

    /// Names that are set only later have their own message. Whether this is one.
    fn check_set_later(&mut self, name: &Ident, later: &Later<'_>) -> bool {
        let is_early = self.scopes.find(name).is_none() && later.declares(name);
        if is_early {
            self.cx.error(name, messages::used_before_set(name));
            self.scopes.declare(name, None, Changes::Allowed);
        }
        is_early
    }

    fn assign(&mut self, name: &Ident, value: Option<ValueId>) {
        if self.is_outside_of_scan(name) {
            self.cx.error(name, messages::scan_changes(name));
            return self.scopes.allow_changes(name);
        }
        let message = match self.scopes.find(name).map(|variable| variable.changes) {
            None | Some(Changes::Allowed) => return self.scopes.assign(name, value, self.cx),
            Some(Changes::Never) => messages::not_mutable(name),
            Some(Changes::OfInput) => messages::input_changes(name),
            Some(Changes::OfParam) => messages::param_changes(name),
            Some(Changes::OfBuffer) => messages::buffer_changes(name),
        };
        // Once is enough.
        self.cx.error(name, message);
        self.scopes.allow_changes(name);
    }

    /// A variable that is set and was never declared.
    fn undeclared(&mut self, name: &Ident) {
        if self.knows_variables {
            let message = messages::undeclared(name, self.scopes.names());
            self.cx.error(name, message);
        }
        self.scopes.reads_unknown();
        self.scopes.declare_unknown(name);
    }

    /// For editors.
    pub(super) fn note_shape(&self, name: &Ident, value: Option<ValueId>) {
        if let Some(value) = value {
            self.cx.note_shape(name, self.ty(value));
        }
    }

    /// The value of a `let`.
    fn bound(
        &mut self,
        name: &Ident,
        value: &Expr,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        if !self.is_number(value) {
            return self.tensor(value, Some(name), builder);
        }
        let message = messages::number_in_let(name, &value.text(), &self.item.name);
        self.error(value.span(), message);
        None
    }

    /// Gives the results of a scan their names. Those of one that ends a function are returned.
    fn results_of_scan<'s>(
        &mut self,
        scan: &'s syntax::Scan,
        values: Vec<Option<ValueId>>,
        later: &Later<'_>,
    ) -> Option<Returned<'s>> {
        let (names, changes) = match &scan.to {
            ScanTo::Return if values.is_empty() => return None,
            ScanTo::Return => {
                let values = values.into_iter().map(|value| (value, &scan.result));
                return Some(Returned {
                    values: values.collect(),
                    names: &[],
                });
            }
            ScanTo::Assign(name) => (std::slice::from_ref(name), None),
            ScanTo::Let { names, mutable } => {
                let changes = match mutable {
                    true => Changes::Allowed,
                    false => Changes::Never,
                };
                (names.as_slice(), Some(changes))
            }
        };
        if !values.is_empty() && values.len() != names.len() {
            let message = messages::results_of_scan(names.len(), values.len());
            self.cx.error(&scan.at, message);
        }
        for (index, name) in names.iter().enumerate() {
            let value = values.get(index).copied().flatten();
            self.note_shape(name, value);
            match changes {
                Some(changes) => self.scopes.declare(name, value, changes),
                None => {
                    self.check_set_later(name, later);
                    if self.scopes.find(name).is_none() {
                        self.undeclared(name);
                    }
                    self.assign(name, value);
                }
            }
        }
        None
    }

    fn repeat(&mut self, repeat: &syntax::Repeat, later: &Later<'_>, builder: &mut RegionBuilder) {
        if let Some(index) = &repeat.index {
            return self.repeat_with_index(repeat, index, later, builder);
        }
        let count = self.size(&repeat.count, "repeat");
        let (name, share, tied) = self.repeat_options(repeat);
        let count = count.unwrap_or_else(|| Size::known(1));
        let at = syntax::first(&repeat.count);
        self.at_least_one(&count, at, messages::REPEAT_NOTHING.to_owned());
        let layer = |module| Submodule::Repeat {
            module,
            count: count.clone(),
            share,
            per_round: None,
        };
        let asked = ("blocks", name.as_ref());
        let (place, module, share) = match &tied {
            Some(tied) => match self.loop_to_tie(tied, &count, builder) {
                Some(found) => found,
                None => return self.skip(&repeat.statements),
            },
            None => {
                let made = self.submodule(builder.module, asked, layer, repeat.at.span());
                (made.place, made.module, share)
            }
        };
        let outer = tied
            .is_some()
            .then(|| self.ties.replace(Ties::new(repeat.at.span())));
        let rounds = (place, module, count, share);
        self.loop_over(repeat, rounds, builder, &mut |this, inner| {
            this.body_of_round(repeat, later, inner);
        });
        if let Some(outer) = outer {
            self.ties = outer;
        }
    }

    /// A loop over the parameters at a place. `body` lowers a round.
    pub(super) fn loop_over(
        &mut self,
        repeat: &syntax::Repeat,
        (place, module, count, share): (ParamPath, ModuleId, Size, bool),
        builder: &mut RegionBuilder,
        body: &mut dyn FnMut(&mut Self, &mut RegionBuilder),
    ) {
        let run = self.runs.entry(module.0).or_default();
        *run += 1;
        let run = *run;
        let mut inner = RegionBuilder::new(module);
        let carried = self.rounds(repeat, &mut inner, body);
        self.describe(&place, &carried);
        builder.region.steps.push(Step::Repeat(Repeat {
            place,
            module,
            count,
            share,
            run,
            part: None,
            carried,
            body: inner.region,
        }));
    }

    /// The statements of a loop.
    pub(super) fn body_of_round(
        &mut self,
        repeat: &syntax::Repeat,
        later: &Later<'_>,
        builder: &mut RegionBuilder,
    ) {
        self.scopes.open();
        if let Some(returned) = self.statements(&repeat.statements, Some(later), builder) {
            let at = returned.span().unwrap_or_else(|| repeat.at.span());
            self.error(at, messages::VALUE_OF_REPEAT);
        }
        self.scopes.close(self.cx);
    }

    /// The body of a loop, and the variables that it changes.
    fn rounds(
        &mut self,
        repeat: &syntax::Repeat,
        builder: &mut RegionBuilder,
        body: &mut dyn FnMut(&mut Self, &mut RegionBuilder),
    ) -> Vec<Carried> {
        let mut starts = Vec::new();
        let assigned = self.assigned(&repeat.statements);
        if assigned.is_empty() && self.is_understood {
            self.cx.error(&repeat.at, messages::REPEAT_CHANGES_NOTHING);
        }
        for name in assigned {
            let before = self.scopes.read(&name);
            let is_allowed = |x: &&Variable| x.changes == Changes::Allowed;
            let Some(before) = before.filter(is_allowed).and_then(|x| x.value) else {
                continue;
            };
            let ty = self.ty(before).clone();
            if ty.kind != ValueKind::Floats {
                self.cx
                    .error(&name, messages::repeat_changes_ids(&name, &ty));
                continue;
            }
            let Some(before) = self.seen(&name, before) else {
                continue;
            };
            let before = self.memory(before);
            let value = self.value(&name.unraw().to_string(), ty);
            self.scopes.set(&name, value, true);
            starts.push((name, before, value));
        }
        body(self, builder);
        let ends = starts.into_iter().filter_map(|(name, before, value)| {
            let after = self.scopes.find(&name)?.value?;
            let start = self.ty(value).clone();
            let end = self.ty(after).clone();
            self.agree(&start, &end, repeat.at.span(), || {
                messages::repeat_changes_shape(&name, &start, &end)
            });
            let after = self.memory(after);
            let carried = Carried {
                before,
                value,
                after,
            };
            Some((name, carried))
        });
        let (names, carried): (Vec<_>, Vec<_>) = ends.unzip();
        for (name, of) in names.iter().zip(&carried) {
            // Another variable may read it from round to round.
            let others = carried.iter().filter(|other| other.value != of.value);
            let others: Vec<_> = others.map(|other| other.after).collect();
            let is_read = reads(&builder.region, of.value, &others);
            self.scopes.set(name, of.value, is_read);
        }
        carried
    }

    /// `name = encoder` and `share = true`.
    pub(super) fn repeat_options(
        &mut self,
        repeat: &syntax::Repeat,
    ) -> (Option<Ident>, bool, Option<Ident>) {
        let mut name = None;
        let mut tied = None;
        let mut share = None;
        for option in &repeat.options {
            let value = option.value.to_string();
            match option.key.as_ref().map(Ident::to_string).as_deref() {
                Some("name") => self.set_once(&mut name, option, Self::name_of),
                Some("tied") => self.set_once(&mut tied, option, Self::name_of),
                Some("share") if value == "true" || value == "false" => {
                    self.set_once(&mut share, option, |_, _| Some(value == "true"));
                }
                _ => self.error(option.span(), messages::REPEAT_OPTIONS),
            }
        }
        if let Some(tied) = &tied {
            let beside = [("name", name.is_some()), ("share", share.is_some())];
            for (key, _) in beside.into_iter().filter(|(_, is_given)| *is_given) {
                self.cx.error(tied, messages::tied_with(key));
            }
        }
        (name, share == Some(true), tied)
    }

    /// The loop of a function before this one whose layers run again.
    fn loop_to_tie(
        &mut self,
        tied: &Ident,
        count: &Size,
        builder: &RegionBuilder,
    ) -> Option<(ParamPath, ModuleId, bool)> {
        let fields = &self.modules[builder.module.0].fields;
        let loops = fields.iter().filter_map(|field| match &field.layer {
            Submodule::Repeat {
                module,
                count,
                share,
                per_round: None,
            } => Some((&field.name, *module, count, *share)),
            _ => None,
        });
        let loops: Vec<_> = loops.collect();
        let found = loops.iter().find(|(name, ..)| *tied == name.as_str());
        let Some((name, module, rounds, share)) = found else {
            let names = loops.iter().map(|(name, ..)| name.as_str());
            self.cx.error(tied, messages::no_loop_to_tie(tied, names));
            return None;
        };
        let place = ParamPath {
            module: builder.module,
            field: (*name).clone(),
        };
        let (module, rounds, share) = (*module, Size::clone(rounds), *share);
        let message = messages::other_rounds(tied, &rounds, count);
        self.equal(&rounds, count, tied.span(), message)
            .then_some((place, module, share))
    }

    /// The table of the docs says of a loop what it carries.
    fn describe(&mut self, place: &ParamPath, carried: &[Carried]) {
        let types = carried
            .iter()
            .map(|carried| self.ty(carried.value).to_string());
        let output = types.collect::<Vec<_>>().join(", ");
        let fields = &mut self.modules[place.module.0].fields;
        if let Some(field) = fields.iter_mut().find(|field| field.name == place.field) {
            field.output = output;
        }
    }

    /// The statements of the branch that a condition of constants takes. Those of the other one count as read.
    fn taken<'s>(
        &mut self,
        at: Span,
        condition: &Condition,
        branches: &'s [Vec<Statement>; 2],
    ) -> &'s [Statement] {
        let Some(holds) = self.decided(at, condition) else {
            branches.iter().for_each(|branch| self.skip(branch));
            return &[];
        };
        self.skip(&branches[usize::from(holds)]);
        &branches[usize::from(!holds)]
    }

    /// The names in statements that are not taken count as read.
    pub(super) fn skip(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Let { value, .. }
                | Statement::LetParts { value, .. }
                | Statement::Assign { value, .. } => self.skip_value(value),
                Statement::Param { ty, init, .. } => {
                    ty.axes
                        .iter()
                        .chain([init])
                        .for_each(|tokens| self.sizes.skip(tokens));
                }
                Statement::Buffer(buffer) => {
                    let axes = buffer.ty.axes.iter();
                    axes.for_each(|tokens| self.sizes.skip(tokens));
                    self.skip_value(&buffer.value);
                }
                Statement::Repeat(repeat) => {
                    self.sizes.skip(&repeat.count);
                    self.skip(&repeat.statements);
                }
                Statement::Scan(scan) => {
                    self.sizes.skip(&scan.axis);
                    self.skip(&scan.statements);
                }
                Statement::State { ty, init, .. } => {
                    let axes = ty.axes.iter();
                    axes.for_each(|tokens| self.sizes.skip(tokens));
                    self.skip_value(init);
                }
                Statement::Yield { values, .. } => {
                    values.iter().for_each(|value| self.skip_value(value));
                }
                Statement::If {
                    condition,
                    branches,
                    ..
                } => {
                    self.skip_condition(condition);
                    branches.iter().for_each(|branch| self.skip(branch));
                }
                Statement::Return { values, .. } => {
                    values.iter().for_each(|value| self.skip_value(value));
                }
                Statement::Unreadable { .. } => {}
            }
        }
    }

    /// The variables that these statements assign to, but for those that they declare.
    fn assigned(&self, statements: &[Statement]) -> Vec<Ident> {
        let mut declared: Vec<&Ident> = Vec::new();
        let mut assigned: Vec<Ident> = Vec::new();
        for statement in statements {
            let names = match statement {
                Statement::Let { name, .. } | Statement::Param { name, .. } => {
                    declared.push(name);
                    continue;
                }
                Statement::Buffer(buffer) => {
                    declared.push(&buffer.name);
                    continue;
                }
                Statement::LetParts { names, .. } | Statement::Unreadable { declares: names } => {
                    declared.extend(names);
                    continue;
                }
                Statement::Assign { name, .. } => vec![name.clone()],
                Statement::Scan(scan) => match &scan.to {
                    ScanTo::Assign(name) => vec![name.clone()],
                    to => {
                        declared.extend(to.declares());
                        continue;
                    }
                },
                Statement::State { name, .. } => {
                    declared.push(name);
                    continue;
                }
                Statement::Yield { .. } => continue,
                Statement::Repeat(repeat) => self.assigned(&repeat.statements),
                Statement::If {
                    condition,
                    branches,
                    ..
                } => match self.holds(condition) {
                    Some(holds) => self.assigned(&branches[usize::from(!holds)]),
                    // One that depends on the index of a loop, or a mistake.
                    None => branches
                        .iter()
                        .flat_map(|branch| self.assigned(branch))
                        .collect(),
                },
                Statement::Return { .. } => continue,
            };
            for name in names {
                if !declared.contains(&&name) && !assigned.contains(&name) {
                    assigned.push(name);
                }
            }
        }
        assigned
    }
}
