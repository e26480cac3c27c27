//! The keys of a call, against the table of its operation.

use proc_macro2::{Ident, TokenStream};

use super::Lowering;
use crate::messages::model as messages;
use crate::model::syntax::{Argument, Call, first};
use crate::ops::{Lower, Operation};
use crate::spec::Size;
use crate::spec::keys::{self, Key};
use crate::spec::parse::{Entry, Value, parse_value};

/// The arguments of a call, read by the table of its operation.
pub(crate) struct Arguments {
    pub(crate) entries: Vec<Entry>,
    /// `name = attn`
    pub(crate) name: Option<Ident>,
    /// `tied = embedding`
    pub(crate) tied: Option<Ident>,
    /// Whether all of them were understood. Otherwise what is missing may be meant by one that was not.
    pub(crate) complete: bool,
}

impl Arguments {
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        let entry = self.entries.iter().find(|entry| entry.key.name == key);
        entry.map(|entry| &entry.value)
    }

    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    pub(crate) fn size(&self, key: &str) -> Option<Size> {
        match self.value(key)? {
            Value::Size(size) => Some(size.clone()),
            _ => None,
        }
    }

    pub(crate) fn tokens(&self, key: &str) -> Option<&TokenStream> {
        match self.value(key)? {
            Value::Tokens(tokens) => Some(tokens),
            _ => None,
        }
    }

    pub(crate) fn word(&self, key: &str) -> Option<&'static str> {
        self.value(key).and_then(word_of)
    }
}

impl Lowering<'_> {
    /// The keys of a call: by name, or, the first of them, by their position.
    pub(super) fn arguments(&mut self, call: &Call, operation: &Operation) -> Arguments {
        let mut arguments = Arguments {
            entries: Vec::new(),
            name: None,
            tied: None,
            complete: true,
        };
        let before = self.cx.count();
        let odd = self.odd_one(call, operation);
        for (index, argument) in call.arguments.iter().enumerate() {
            let key = argument.key.as_ref().map(Ident::to_string);
            match key.as_deref() {
                Some("name") => {
                    self.set_once(&mut arguments.name, argument, Self::name_of);
                }
                Some("tied") if operation.may_be_tied => {
                    self.set_once(&mut arguments.tied, argument, Self::name_of);
                }
                _ => {
                    if argument.key.is_none() && odd.is_some() {
                        continue;
                    }
                    let entry = self.entry(call, index, operation);
                    let Some(entry) = entry else { continue };
                    let is_given = |other: &Entry| other.key.name == entry.key.name;
                    if arguments.entries.iter().any(is_given) {
                        let at = first(&argument.value);
                        self.error(at, crate::messages::duplicate_key(entry.key.name));
                    } else {
                        arguments.entries.push(entry);
                    }
                }
            }
        }
        let is_invalid = |entry: &Entry| matches!(entry.value, Value::Invalid);
        arguments.complete = self.cx.count() == before && !arguments.entries.iter().any(is_invalid);
        arguments
    }

    /// The first value that has no position, if there are more values than positions.
    fn odd_one(&mut self, call: &Call, operation: &Operation) -> Option<usize> {
        let positional = call.arguments.iter().enumerate();
        let positional = positional.filter(|(_, argument)| argument.key.is_none());
        let values: Vec<(usize, String)> = positional
            .map(|(index, argument)| (index, argument.value.to_string()))
            .collect();
        let names = operation.positional();
        let surplus = values.get(names.len())?;
        let last = values.last()?;
        let is_word = |(_, value): &(usize, String)| operation.key_of_word(value).is_some();
        if values.iter().any(is_word) {
            return None;
        }
        let is_name = |(_, value): &(usize, String)| names.contains(&value.as_str());
        let odd = values.iter().find(|value| !is_name(value));
        let (index, found) = odd.filter(|_| is_name(last)).unwrap_or(surplus);
        let at = first(&call.arguments[*index].value);
        self.error(at, messages::too_many_positional(operation, found));
        Some(*index)
    }

    /// The name of a layer, as the value of `name` or `tied`.
    pub(super) fn name_of(&self, argument: &Argument) -> Option<Ident> {
        let is_word = argument.value.to_string();
        let name = syn::parse2::<Ident>(argument.value.clone());
        let name = name
            .ok()
            .filter(|_| is_word != "true" && is_word != "false")
            .filter(|name| !messages::is_never_raw(name));
        if name.is_none() {
            let key = argument.key.as_ref().map(Ident::to_string);
            let message = messages::expected_layer_name(&key.unwrap_or_default(), &argument.value);
            match argument.value.is_empty() {
                true => self.error(argument.span(), message),
                false => self.cx.error(&argument.value, message),
            }
        }
        name
    }

    /// Sets what a key is for. A key that is given again is reported.
    pub(super) fn set_once<T>(
        &self,
        option: &mut Option<T>,
        argument: &Argument,
        read: impl FnOnce(&Self, &Argument) -> Option<T>,
    ) {
        match (&option, &argument.key) {
            (Some(_), Some(key)) => {
                let message = crate::messages::duplicate_key(&key.to_string());
                self.cx.error(key, message);
            }
            _ => *option = read(self, argument),
        }
    }

    fn entry(&mut self, call: &Call, index: usize, operation: &Operation) -> Option<Entry> {
        let argument = &call.arguments[index];
        let (key, name) = match &argument.key {
            Some(name) => {
                let key = operation.key(&name.to_string());
                if key.is_none() {
                    self.cx
                        .error(name, messages::unknown_key_of(operation, name));
                }
                (key?, name.clone())
            }
            None => {
                let key = self.positional(call, index, operation)?;
                (key, Ident::new(key.name, first(&argument.value)))
            }
        };
        let Some(given) = self.value_of_key(&argument.value) else {
            let origin = argument.value.clone();
            return Some(Entry::new(key, name, Value::Invalid, origin));
        };
        let origin = match key.kind {
            keys::KeyKind::Type => self.sizes.substitute_in_type(&given),
            // They are found by name.
            keys::KeyKind::Axes | keys::KeyKind::Pattern | keys::KeyKind::Index => given.clone(),
            _ => self.sizes.substitute(&given),
        };
        if origin.is_empty() {
            self.cx
                .error(&name, crate::messages::key_without_value(key));
            return None;
        }
        let mut value = match key.kind {
            keys::KeyKind::Size
            | keys::KeyKind::Number
            | keys::KeyKind::Sizes
            | keys::KeyKind::SizePerAxis(_)
                if !self.is_constant(&given) =>
            {
                Value::Invalid
            }
            _ if !self.sizes.is_sound(&given) => Value::Invalid,
            _ => parse_value(key, &origin, self.cx),
        };
        let sizes: &[Size] = match &value {
            Value::Size(size) => std::slice::from_ref(size),
            Value::Sizes(sizes) => sizes,
            _ => &[],
        };
        // Attentions have lower limits of their own.
        let has_limit = matches!(operation.lower, Lower::Attention(_));
        let is_too_large = |size: &Size| self.is_too_large(size, &given, key.name);
        if !has_limit && sizes.iter().any(is_too_large) {
            value = Value::Invalid;
        }
        value.for_each_constant(&mut |value| self.constants.name(value));
        if let Value::Size(size) = &mut value {
            size.axis = self.sizes.axis(&given);
        }
        Some(Entry::new(key, name, value, origin))
    }

    /// The key at this position. What is the name of another key there was meant for that one, if nothing else is.
    fn positional(
        &mut self,
        call: &Call,
        index: usize,
        operation: &Operation,
    ) -> Option<&'static Key> {
        let value = &call.arguments[index].value;
        let at = first(value);
        let found = value.to_string();
        if !self.sizes.names().any(|size| size == found)
            && let Some((key, word)) = operation.key_of_word(&found)
        {
            self.error(at, messages::word_by_position(key, word, &found));
            return None;
        }
        let positional = operation.positional();
        let Some(expected) = positional.get(index) else {
            self.error(at, messages::too_many_positional(operation, &found));
            return None;
        };
        let own = positional.iter().position(|key| *key == found);
        let is_given = |(place, other): (usize, &Argument)| match &other.key {
            Some(key) => *key == found,
            None => own == Some(place) && other.value.to_string() == found,
        };
        if own.is_none() || call.arguments.iter().enumerate().any(is_given) {
            return operation.key(expected);
        }
        // One message is enough for two that changed places.
        if index == 0 || positional[index - 1] != found {
            self.error(at, messages::wrong_position(operation, expected, &found));
        }
        operation.key(&found)
    }
}

pub(super) fn word_of(value: &Value) -> Option<&'static str> {
    match value {
        Value::Word(call) => Some(call.word.name),
        _ => None,
    }
}
