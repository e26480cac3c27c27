//! Statements, one after the other.

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::{Frame, Lowering};
use crate::messages::model as messages;
use crate::model::graph::{Carried, Module, ModuleId, Place, Repeat, Step, Submodule, ValueId};
use crate::model::syntax::{self, Expr, ModelDraft, Statement};
use crate::model::types::Type;
use crate::spec::Size;

/// A returned value, and where it was written.
pub(super) type Returned<'a> = Vec<(Option<ValueId>, &'a Expr)>;

impl Lowering<'_> {
    /// What the last of `statements` returns.
    pub(super) fn statements<'s>(
        &mut self,
        statements: &'s [Statement],
        frame: &mut Frame,
    ) -> Option<Returned<'s>> {
        let mut returned = None;
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Let {
                    name,
                    mutable,
                    value,
                } => {
                    self.check_set_later(value, &statements[index + 1..]);
                    let value = self.tensor(value, Some(name), frame);
                    self.scopes.declare(name, value, *mutable);
                }
                Statement::Assign { name, value } => {
                    self.check_set_later(value, &statements[index + 1..]);
                    let value = self.tensor(value, Some(name), frame);
                    self.assign(name, value);
                }
                Statement::Repeat(repeat) => self.repeat(repeat, frame),
                Statement::Return(values) => {
                    let values = values.iter();
                    let values = values.map(|value| (self.tensor(value, None, frame), value));
                    returned = Some(values.collect());
                }
            }
        }
        returned
    }

    /// Names that are set only later have their own message.
    fn check_set_later(&mut self, value: &Expr, later: &[Statement]) {
        value.for_each_name(&mut |name| {
            let is_set = later.iter().any(
                |statement| matches!(statement, Statement::Let { name: other, .. } if other == name),
            );
            if is_set && self.scopes.find(name).is_none() {
                self.cx.error(name, messages::used_before_set(name));
                self.scopes.declare(name, None, false);
            }
        });
    }

    fn assign(&mut self, name: &Ident, value: Option<ValueId>) {
        match self.scopes.find(name) {
            None => self
                .cx
                .error(name, messages::unknown_variable(name, self.scopes.names())),
            Some(variable) if !variable.mutable => {
                self.cx.error(name, messages::not_mutable(name));
            }
            Some(_) => self.scopes.assign(name, value, self.cx),
        }
    }

    fn repeat(&mut self, repeat: &syntax::Repeat, frame: &mut Frame) {
        let count = self.size(&repeat.count, "repeat");
        let (name, share) = self.repeat_options(repeat);
        let count = count.unwrap_or_else(|| Size::known(1));
        if count.value == Some(0) {
            self.error(syntax::first(&repeat.count), messages::REPEAT_NOTHING);
        }
        let module = ModuleId(self.modules.len());
        let layer = Submodule::Repeat {
            module,
            count: count.clone(),
            share,
        };
        let place = self.field(
            frame.module,
            ("blocks", name.as_ref()),
            layer,
            String::new(),
        );
        let ty = self.type_name(frame.module, &place.field, repeat.at.span());
        let var = self.fresh(&place.field);
        self.modules.push(Module {
            name: ty,
            var,
            fields: Vec::new(),
        });
        let mut inner = Frame::new(module);
        let carried = self.rounds(repeat, &mut inner);
        self.describe(&place, &carried);
        frame.region.steps.push(Step::Repeat(Repeat {
            place,
            module,
            count,
            share,
            carried,
            body: inner.region,
        }));
    }

    /// The body of a loop, and the variables that it changes.
    fn rounds(&mut self, repeat: &syntax::Repeat, frame: &mut Frame) -> Vec<Carried> {
        let mut starts = Vec::new();
        for name in assigned(&repeat.statements) {
            let before = self.scopes.read(&name);
            let Some(before) = before.and_then(|x| x.value.filter(|_| x.mutable)) else {
                continue;
            };
            let ty = self.ty(before).clone();
            let value = self.value(&name.unraw().to_string(), ty);
            self.scopes.set(&name, value, true);
            starts.push((name, before, value));
        }
        self.scopes.open();
        if let Some(returned) = self.statements(&repeat.statements, frame) {
            let at = returned.first().map(|(_, value)| value.span());
            self.error(
                at.unwrap_or_else(|| repeat.at.span()),
                messages::VALUE_OF_REPEAT,
            );
        }
        self.scopes.close(self.cx);
        if starts.is_empty() {
            self.cx.error(&repeat.at, messages::REPEAT_CHANGES_NOTHING);
        }
        let ends = starts.into_iter().filter_map(|(name, before, value)| {
            let after = self.scopes.find(&name)?.value?;
            let (start, end) = (self.ty(value).clone(), self.ty(after).clone());
            self.agree(&start, &end, repeat.at.span(), || {
                messages::repeat_changes_shape(&name, &start, &end)
            });
            self.scopes.set(&name, value, false);
            Some(Carried {
                before,
                value,
                after,
            })
        });
        ends.collect()
    }

    /// `name = encoder` and `share = true`.
    fn repeat_options(&mut self, repeat: &syntax::Repeat) -> (Option<Ident>, bool) {
        let (mut name, mut share) = (None, false);
        for option in &repeat.options {
            let value = option.value.to_string();
            match option.key.as_ref().map(Ident::to_string).as_deref() {
                Some("name") => name = self.name_of(option).or(name),
                Some("share") if value == "true" || value == "false" => share = value == "true",
                _ => self.error(option.span(), messages::REPEAT_OPTIONS),
            }
        }
        (name, share)
    }

    /// The table of the docs says of a loop what it carries.
    fn describe(&mut self, place: &Place, carried: &[Carried]) {
        let types = carried
            .iter()
            .map(|carried| self.ty(carried.value).to_string());
        let output = types.collect::<Vec<_>>().join(", ");
        let fields = &mut self.modules[place.module.0].fields;
        if let Some(field) = fields.iter_mut().find(|field| field.name == place.field) {
            field.output = output;
        }
    }

    /// A name that no value has.
    fn fresh(&mut self, name: &str) -> String {
        let count = self.names.entry(name.to_owned()).or_default();
        *count += 1;
        match count {
            1 => name.to_owned(),
            count => format!("{name}_{count}"),
        }
    }

    /// What `forward` returns, against what it declares.
    pub(super) fn returned(
        &mut self,
        returned: Option<Returned<'_>>,
        declared: &[Option<Type>],
        draft: &ModelDraft,
    ) -> Vec<ValueId> {
        let Some(returned) = returned else {
            if !draft.poisoned {
                self.cx.error(&draft.item.name, messages::NOTHING_RETURNED);
            }
            return Vec::new();
        };
        if returned.len() != declared.len() {
            let at = returned.first().map(|(_, value)| value.span());
            self.error(
                at.unwrap_or_else(|| draft.item.name.span()),
                messages::number_of_results(declared.len(), returned.len()),
            );
        }
        let mut results = Vec::new();
        for ((value, at), declared) in returned.into_iter().zip(declared) {
            let (Some(value), Some(declared)) = (value, declared) else {
                continue;
            };
            let found = self.ty(value).clone();
            self.agree(declared, &found, at.span(), || {
                messages::result_differs(declared, &found)
            });
            results.push(value);
        }
        results
    }
}

/// The variables that these statements assign to, but for those that they declare.
fn assigned(statements: &[Statement]) -> Vec<Ident> {
    let mut declared: Vec<&Ident> = Vec::new();
    let mut assigned: Vec<Ident> = Vec::new();
    for statement in statements {
        let names = match statement {
            Statement::Let { name, .. } => {
                declared.push(name);
                continue;
            }
            Statement::Assign { name, .. } => vec![name.clone()],
            Statement::Repeat(repeat) => self::assigned(&repeat.statements),
            Statement::Return(_) => continue,
        };
        for name in names {
            if !declared.contains(&&name) && !assigned.contains(&name) {
                assigned.push(name);
            }
        }
    }
    assigned
}
