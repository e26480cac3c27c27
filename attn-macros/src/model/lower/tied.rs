//! Operations that use the table of an embedding which is there already.

use proc_macro2::Ident;

use super::call::Arguments;
use super::{Frame, Lowering};
use crate::messages::model as messages;
use crate::model::graph::{ModuleId, Op, Place, Submodule, ValueId};
use crate::model::syntax::{Call, first};
use crate::model::types::{Axis, Type};
use crate::spec::Size;

/// An embedding of the model.
pub(super) struct Table {
    pub(super) place: Place,
    vocab: Size,
    pub(super) width: Size,
}

impl Lowering<'_> {
    /// The embedding that is called `tied`; it has its sizes already.
    pub(super) fn table(&mut self, tied: &Ident, arguments: &Arguments) -> Option<Table> {
        let fields = self.modules[0].fields.iter();
        let tables = fields.filter_map(|field| match &field.layer {
            Submodule::Embedding { vocab, width } => Some((&field.name, vocab, width)),
            _ => None,
        });
        let found = tables.clone().find(|(name, ..)| tied == *name);
        let Some((field, vocab, width)) = found else {
            let names = tables.map(|(name, ..)| name.clone());
            let message = messages::unknown_embedding(tied, names);
            self.cx.error(tied, message);
            return None;
        };
        for entry in &arguments.entries {
            if entry.key.name != "out" {
                self.cx
                    .error(&entry.name, messages::key_of_tied(tied, entry.key.name));
            }
        }
        Some(Table {
            place: Place {
                module: ModuleId(0),
                field: field.clone(),
            },
            vocab: vocab.clone(),
            width: width.clone(),
        })
    }

    /// A linear map whose weight is the table.
    pub(super) fn tied_linear(
        &mut self,
        call: &Call,
        tied: &Ident,
        arguments: &Arguments,
        (x, ty): (ValueId, &Type),
        name: &str,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let Table {
            place,
            vocab,
            width,
        } = self.table(tied, arguments)?;
        let row = |size: &Size| Type::floats(vec![Axis::Size(size.clone())]);
        if let Some(out) = arguments.size("out") {
            let message = || messages::tied_size(&out, tied, &vocab);
            self.agree(&row(&out), &row(&vocab), first(&out.origin), message);
        }
        let found = self.width(call, ty)?;
        let message = || messages::tied_width(tied, &width, ty);
        self.agree(&row(&found), &row(&width), call.name.span(), message)
            .then(|| {
                let result = ty.ending_in(vocab);
                self.node(frame, Op::TiedLinear(place), vec![x], (name, result))
            })
    }
}
