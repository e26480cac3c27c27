//! The optimizer's lists, of which each rank has its part.

use std::collections::BTreeMap;

use super::{Across, bytes, bytes::Reader};
use crate::{
    Element,
    train::{
        OptimizerState, Own,
        collective::{Call, CollectiveError},
        trainer::parameters::Parameters,
    },
};

/// Lists by their names.
type Lists<E> = BTreeMap<String, Vec<E>>;

impl<E: Element> Across<E> {
    /// Every rank has the whole state, as behind a checkpoint.
    pub(in crate::train::trainer) fn is_whole(&mut self) {
        self.own = None;
    }

    /// The part of the lists that this rank has. Without it, every rank has all lists.
    pub(in crate::train::trainer) fn own(&self) -> Option<&Own> {
        self.own.as_ref()
    }

    /// Drops what other ranks update of the lists.
    pub(in crate::train::trainer) fn keep_own<A>(
        &mut self,
        parameters: &Parameters<E>,
        state: &mut OptimizerState<E, A>,
    ) {
        let own = self.own.get_or_insert_with(|| {
            let all = parameters.all.iter();
            let all = all.map(|of| (of.name.clone(), of.range.len(), of.own.clone()));
            Own::new(all)
        });
        own.keep(state);
    }

    /// Gives every rank the lists of all.
    pub(in crate::train::trainer) fn gather_state<A>(
        &mut self,
        state: &mut OptimizerState<E, A>,
    ) -> Result<(), CollectiveError> {
        let Some(own) = &self.own else {
            return Ok(());
        };
        // A state that was set has the lists of other ranks too, as they were then.
        own.keep(state);
        let mut message = Vec::new();
        bytes::write_word(state.lists.len() as u64, &mut message);
        for (name, list) in &state.lists {
            bytes::write_text(name, &mut message);
            bytes::write_list(list, &mut message);
        }
        let updates = state.updates.iter();
        let updates: Vec<_> = updates.filter(|(name, _)| own.has(name)).collect();
        bytes::write_word(updates.len() as u64, &mut message);
        for (name, count) in updates {
            bytes::write_text(name, &mut message);
            bytes::write_word(*count, &mut message);
        }
        let messages = self.collective.all_gather(message)?;
        let mut lists = Lists::new();
        let mut updates = BTreeMap::new();
        for (rank, message) in messages.iter().enumerate() {
            let read = read(&mut Reader(message), &mut lists, &mut updates);
            read.ok_or(CollectiveError::Length {
                rank,
                call: Call::AllGather,
                found: message.len(),
                expected: message.len() + 1,
            })?;
        }
        (state.lists, state.updates) = (lists, updates);
        self.is_whole();
        Ok(())
    }
}

/// Appends the parts of a rank to those of the ranks before it: ranges ascend with the ranks.
fn read<E: Element>(
    reader: &mut Reader<'_>,
    lists: &mut Lists<E>,
    updates: &mut BTreeMap<String, u64>,
) -> Option<()> {
    for _ in 0..reader.word()? {
        let name = reader.text()?.to_owned();
        lists.entry(name).or_default().extend(reader.list::<E>()?);
    }
    for _ in 0..reader.word()? {
        let name = reader.text()?.to_owned();
        updates.insert(name, reader.word()?);
    }
    Some(())
}
