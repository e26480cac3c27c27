//! Checks that a model, an optimizer and its state belong together.

use std::collections::BTreeSet;
use std::convert::Infallible;

use dfdx::{nn::TensorCollection, tensor::UniqueId};
use smallvec::SmallVec;

use super::{Optimizer, choices::Choices, step::keeps};
use crate::{
    Backend, Element,
    kernel::parallel::FEW,
    train::{Algorithm, List, Own, UpdateError, parameters::for_each},
};

/// The model of the last step.
pub(super) struct LastStep {
    /// The step count after it. Another count means that the user has set the state.
    pub(super) step: u64,
    pub(super) parameters: Vec<UniqueId>,
}

impl<E: Element, A: Algorithm> Optimizer<E, A> {
    /// Checks that the model has the parameters of the earlier steps, and returns them.
    pub(super) fn check_model<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> Result<Vec<UniqueId>, UpdateError<D::Err>> {
        let parameters = ids_of(model);
        let last_step = self.last_step.as_ref();
        match last_step.filter(|last_step| last_step.step == self.state.step) {
            Some(last_step) if last_step.parameters != parameters => Err(UpdateError::OtherModel {
                name: self.first_unknown(model, &last_step.parameters),
                optimizer: A::NAME,
            }),
            _ => Ok(parameters),
        }
    }

    /// The first parameter of the model that differs from that of the optimizer at its position, or one that only the optimizer
    /// has.
    fn first_unknown<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
        last_step: &[UniqueId],
    ) -> String {
        let mut names = BTreeSet::new();
        let mut last_step = last_step.iter();
        let strange = for_each(model, |path, parameter| {
            if last_step.next() != Some(&parameter.id()) {
                return Err(path.name);
            }
            names.insert(path.name);
            Ok(())
        });
        let mut known = self
            .state
            .lists
            .keys()
            .filter_map(|name| Some(name.rsplit_once('.')?.0));
        let missing = || known.find(|name| !names.contains(*name)).map(str::to_owned);
        strange.err().or_else(missing).unwrap_or_default()
    }

    /// Checks that the lists of the state have the lengths of the model's parameters, or of the parts of them that this rank has.
    pub(in crate::train) fn check_state<Dev>(
        &self,
        choices: &Choices,
        own: Option<&Own>,
    ) -> Result<(), UpdateError<Dev>> {
        for of in choices.all() {
            let choice = choices.of(of.id);
            let info = choice.info(&of.dims);
            let lists = A::LISTS.iter().zip(&of.lists);
            let found = lists.map(|(list, name)| (list, name, self.state.lists.get(name)));
            let kept: SmallVec<[_; FEW]> = self.with_settings(choice, |settings| {
                let is_kept = |(list, ..): &(&List, _, _)| keeps(settings, list, &info);
                found.filter(is_kept).collect()
            });
            let mut always = kept.iter().filter(|(list, ..)| list.always);
            let is_new = always.all(|(.., found)| found.is_none());
            for (list, name, found) in kept {
                let expected = list.size.of(&of.dims);
                let len = own.map_or(expected, |own| own.len(name, expected));
                let found = match found {
                    Some(numbers) => numbers.len(),
                    None if is_new || !list.always => len,
                    None => 0,
                };
                if found != len {
                    return Err(UpdateError::StateMismatch {
                        name: name.clone(),
                        expected,
                        found,
                    });
                }
            }
        }
        Ok(())
    }
}

/// The ids of all parameters, in the order of the model.
pub(super) fn ids_of<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
) -> Vec<UniqueId> {
    let mut parameters = Vec::new();
    let Ok(()) = for_each(model, |_, parameter| {
        parameters.push(parameter.id());
        Ok::<_, Infallible>(())
    });
    parameters
}
