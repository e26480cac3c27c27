//! Operations that use the table of an embedding which is there already.

use proc_macro2::Ident;

use super::arguments::Arguments;
use super::call::is_without_bias;
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::{Field, Holder, ModuleId, ParamPath, Submodule};
use crate::spec::Size;

/// An embedding that is there already.
pub(crate) struct Table {
    pub(crate) place: ParamPath,
    pub(crate) vocab: Size,
    pub(crate) width: Size,
}

impl Lowering<'_> {
    /// The embedding that is called `tied`, of this module or of one around it; it has its sizes already.
    pub(crate) fn table(
        &mut self,
        tied: &Ident,
        arguments: &Arguments,
        builder: &RegionBuilder,
    ) -> Option<Table> {
        let modules = std::iter::successors(Some(builder.module), |inner| self.around(*inner));
        let tables = modules.flat_map(|module| self.tables(module));
        let mut tables: Vec<Table> = tables.collect();
        let is_it = |table: &Table| *tied == table.place.field;
        let Some(index) = tables.iter().position(is_it) else {
            let mut all = (0..self.modules.len()).flat_map(|module| self.tables(ModuleId(module)));
            let hidden = all
                .find(is_it)
                .map(|table| &self.modules[table.place.module.0].holder);
            let message = match hidden {
                Some(Holder::Variable(_)) => messages::embedding_of_repeat(tied),
                Some(Holder::Field(_)) => messages::embedding_of_block(tied),
                None => {
                    let names = tables.into_iter().map(|table| table.place.field);
                    messages::unknown_embedding(tied, names)
                }
            };
            self.cx.error(tied, message);
            return None;
        };
        let table = tables.swap_remove(index);
        for entry in &arguments.entries {
            let message = match entry.key.name {
                "out" => continue,
                "bias" if is_without_bias(entry) => continue,
                "init" => messages::init_of_tied(tied),
                key => messages::key_of_tied(tied, key),
            };
            self.cx.error(&entry.name, message);
        }
        Some(table)
    }

    /// The embeddings of a module.
    fn tables(&self, module: ModuleId) -> impl Iterator<Item = Table> {
        let fields = self.modules[module.0].fields.iter();
        fields.filter_map(move |field| match &field.layer {
            Submodule::Layer(layer) => {
                let [vocab, width] = layer.table()?.map(Size::clone);
                let field = field.name.clone();
                let place = ParamPath { module, field };
                Some(Table {
                    place,
                    vocab,
                    width,
                })
            }
            _ => None,
        })
    }

    /// The module that has the loop with this body. Around a block is the model that declares it, wherever it is called.
    fn around(&self, body: ModuleId) -> Option<ModuleId> {
        if let Holder::Field(_) = self.modules[body.0].holder {
            return Some(ModuleId(0));
        }
        let is_it = |field: &Field| matches!(field.layer, Submodule::Repeat { module, .. } if module == body);
        let mut modules = self.modules.iter();
        let outer = modules.position(|module| module.fields.iter().any(is_it));
        outer.map(ModuleId)
    }
}
