//! The optimizer's lists, of which each rank has its own.

use std::collections::BTreeSet;

use super::{Across, bytes, bytes::Reader};
use crate::{
    Element,
    train::{
        OptimizerState,
        collective::{Call, CollectiveError},
        parameter_of,
        trainer::parameters::Parameters,
    },
};

impl Across {
    /// Every rank has the whole state, as behind a checkpoint.
    pub(in crate::train::trainer) fn is_whole(&mut self) {
        self.own = None;
    }

    /// Drops the lists of the parameters that other ranks update.
    pub(in crate::train::trainer) fn keep_own<E: Element, A>(
        &mut self,
        parameters: &Parameters<E>,
        state: &mut OptimizerState<E, A>,
    ) {
        if self.own.is_some() {
            return;
        }
        let all = parameters.all.iter();
        let own = all.filter(|of| of.is_own).map(|of| of.path.name.clone());
        let own: BTreeSet<_> = own.collect();
        state
            .lists
            .retain(|list, _| own.contains(parameter_of(list)));
        self.own = Some(own);
    }

    /// Gives every rank the lists of all.
    pub(in crate::train::trainer) fn gather_state<E: Element, A>(
        &mut self,
        state: &mut OptimizerState<E, A>,
    ) -> Result<(), CollectiveError> {
        let Some(own) = &self.own else {
            return Ok(());
        };
        let mut message = Vec::new();
        // A state that was set has the lists of other ranks too, as they were then.
        let lists = state.lists.iter();
        let lists: Vec<_> = lists
            .filter(|(name, _)| own.contains(parameter_of(name)))
            .collect();
        bytes::write_word(lists.len() as u64, &mut message);
        for (name, list) in lists {
            bytes::write_text(name, &mut message);
            bytes::write_list(list, &mut message);
        }
        let updates = state.updates.iter();
        let updates: Vec<_> = updates.filter(|(name, _)| own.contains(*name)).collect();
        bytes::write_word(updates.len() as u64, &mut message);
        for (name, count) in updates {
            bytes::write_text(name, &mut message);
            bytes::write_word(*count, &mut message);
        }
        state.updates.clear();
        for (rank, message) in self.collective.all_gather(message)?.iter().enumerate() {
            read(&mut Reader(message), state).ok_or(CollectiveError::Length {
                rank,
                call: Call::AllGather,
                found: message.len(),
                expected: message.len() + 1,
            })?;
        }
        self.is_whole();
        Ok(())
    }
}

fn read<E: Element, A>(reader: &mut Reader<'_>, state: &mut OptimizerState<E, A>) -> Option<()> {
    for _ in 0..reader.word()? {
        let name = reader.text()?.to_owned();
        state.lists.insert(name, reader.list()?);
    }
    for _ in 0..reader.word()? {
        let name = reader.text()?.to_owned();
        state.updates.insert(name, reader.word()?);
    }
    Some(())
}
