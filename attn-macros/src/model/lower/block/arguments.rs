//! The operands and keys of the call of a block.

use proc_macro2::Ident;
use quote::ToTokens;

use super::super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::sizes::ConstValue;
use crate::model::syntax::{BlockDraft, Call, Expr};

/// The arguments between `<` and `>` in a call of a block.
pub(super) struct BlockArguments {
    pub(super) name: Option<Ident>,
    /// The call whose layers run again.
    pub(super) tied: Option<Ident>,
    /// The value of each key, if it is given.
    pub(super) keys: Vec<Option<ConstValue>>,
}

impl Lowering<'_> {
    /// The values of the operands: as many as the block has.
    pub(super) fn operands_of_block(
        &mut self,
        call: &Call,
        block: &BlockDraft,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        if call.body.is_some() {
            self.cx
                .error(&call.name, messages::body_of(&call.name.to_string()));
        }
        for (name, values) in &call.named {
            let message = messages::named_operand_of_block(block, name);
            self.cx.error(name, message);
            self.read_all(values, builder);
        }
        let mut operands = Vec::new();
        for operand in &call.operands {
            if self.is_number(operand) {
                let message = messages::number_as_operand_of_block(block, &operand.text());
                self.error(operand.span(), message);
                operands.push(None);
            } else {
                operands.push(self.tensor(operand, None, builder));
            }
        }
        let operands: Vec<ValueId> = operands.into_iter().collect::<Option<_>>()?;
        let expected = block.operands().count();
        if operands.len() != expected && call.named.is_empty() {
            let message = messages::operands_of_block(block, operands.len());
            let surplus = call.operands.get(expected).map(Expr::span);
            let at = surplus.unwrap_or_else(|| call.name.span());
            self.error(at, message);
            return None;
        }
        call.named.is_empty().then_some(operands)
    }

    /// The keys of a call, in the order of the block: by name, or by their position. `None` after a mistake.
    pub(super) fn arguments_of_block(
        &mut self,
        call: &Call,
        block: &BlockDraft,
        is_function: bool,
    ) -> Option<BlockArguments> {
        if let Some(error) = &call.misplaced {
            self.cx.push(error.clone());
        }
        let before = self.cx.count();
        let keys: Vec<_> = block.keys().collect();
        let mut arguments = BlockArguments {
            name: None,
            tied: None,
            keys: vec![None; keys.len()],
        };
        for (index, argument) in call.arguments.iter().enumerate() {
            if argument.is_rest() {
                continue;
            }
            let place = match &argument.key {
                Some(key) if key == "name" && !is_function => {
                    self.set_once(&mut arguments.name, argument, Self::name_of);
                    continue;
                }
                // A block may have a key of this name.
                Some(key)
                    if key == "tied"
                        && !is_function
                        && !keys.iter().any(|(name, _)| *name == key) =>
                {
                    self.set_once(&mut arguments.tied, argument, Self::name_of);
                    continue;
                }
                Some(key) => keys.iter().position(|(name, _)| *name == key),
                None => Some(index).filter(|index| *index < keys.len()),
            };
            let Some(place) = place else {
                let message = match &argument.key {
                    Some(key) => messages::unknown_key_of_block(block, key),
                    None => messages::too_many_keys_of_block(block, &argument.value),
                };
                self.error(argument.span(), message);
                continue;
            };
            let key = keys[place].0;
            if argument.value.is_empty() {
                self.error(argument.span(), messages::size_without_value(key));
            } else if arguments.keys[place].is_some() {
                self.error(
                    argument.span(),
                    crate::messages::duplicate_key(&key.to_string()),
                );
            } else {
                arguments.keys[place] = self.given(&argument.value, key);
            }
        }
        if let (Some(tied), Some(_)) = (&arguments.tied, &arguments.name) {
            self.cx.error(tied, messages::tied_with("name"));
        }
        self.rest_of_keys(call, block, &mut arguments.keys);
        (self.cx.count() == before).then_some(arguments)
    }

    /// `block::<..>(x)`: each key that is not given has the constant of its name, if there is one.
    fn rest_of_keys(&mut self, call: &Call, block: &BlockDraft, given: &mut [Option<ConstValue>]) {
        let mut rest = call.arguments.iter().enumerate();
        let Some((place, rest)) = rest.find(|(_, argument)| argument.is_rest()) else {
            return;
        };
        let mut behind = call.arguments[place + 1..].iter();
        if let Some(other) = behind.find(|other| other.key.is_none()) {
            let message = messages::key_behind_rest(block, &other.value);
            return self.error(other.span(), message);
        }
        let mut is_read = false;
        let known = self.names_for_rest();
        for ((key, _), given) in block.keys().zip(given) {
            if given.is_none() && known.contains(&key.to_string()) {
                let mut name = key.clone();
                name.set_span(rest.span());
                *given = self.given(&name.to_token_stream(), key);
                is_read = true;
            }
        }
        if !is_read {
            self.error(rest.span(), messages::rest_without_keys(block));
        }
    }

    /// The names that `..` may stand for: the keys of the block whose body is lowered, or the constants of the header.
    fn names_for_rest(&self) -> Vec<String> {
        let block = self.calls.last().map(|index| &self.blocks[*index]);
        match block.filter(|block| !block.is_function) {
            Some(block) => {
                let keys = block.draft.keys();
                keys.map(|(key, _)| key.to_string()).collect()
            }
            None => self.sizes.names().collect(),
        }
    }

    /// Whether all keys are given that have no default.
    pub(super) fn has_keys(
        &self,
        call: &Call,
        block: &BlockDraft,
        arguments: &BlockArguments,
    ) -> bool {
        let missing = block.keys().zip(&arguments.keys);
        let mut missing =
            missing.filter(|((_, default), given)| default.is_none() && given.is_none());
        let missing = missing.next();
        if let Some(((key, _), _)) = missing {
            let message = messages::missing_key_of_block(block, key);
            self.cx.error(&call.name, message);
        }
        missing.is_none()
    }

    pub(super) fn report_unused_keys(&self, block: &BlockDraft) {
        for (key, _) in block.keys() {
            if self.sizes.is_used(key) || key.to_string().starts_with('_') {
                continue;
            }
            match self.sizes.misspelt(key) {
                Some(other) => {
                    let message = messages::key_for_another(&block.name, &other, key);
                    self.cx.error(other, message);
                }
                None => self.cx.error(key, messages::unused_key(&block.name, key)),
            }
        }
    }
}
