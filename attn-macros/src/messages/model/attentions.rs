//! Messages about the operands of attentions, and the data that they read.

use proc_macro2::Ident;

use super::super::listed;
use crate::model::types::Type;
use crate::spec::elsewhere::{NamePosition, instead_of};
use crate::spec::{Size, Spec};

pub(crate) fn attention_operands(found: usize) -> String {
    let others = match found {
        3 => "`attention::<..>(query, context = key, values = value)`",
        _ => "`attention::<..>(x, context = y)`",
    };
    format!(
        "`attention` takes one operand by its position, found {found}\nhelp: `attention::<..>(x)`, or {others}; what a mask reads stands by its name, `padding = lens`"
    )
}

/// The width of an input that the call does not have.
pub(crate) fn source_missing(key: &str) -> String {
    match key {
        "d_context" => "`d_context` is the width of a second input, and there is none\nhelp: `attention::<..>(x, context = y)`",
        _ => "`d_values` is the width of a third input, and there is none\nhelp: `attention::<..>(query, context = key, values = value)`",
    }
    .to_owned()
}

pub(crate) fn one_value(name: &Ident, found: usize) -> String {
    format!("`{name}` is one value, found {found}")
}

/// A width as written, and the operand that has another one.
pub(crate) fn attention_width(key: &str, written: &Size, found: &Type) -> String {
    let operand = match key {
        "d_context" => "context",
        "d_values" => "values",
        _ => {
            return format!(
                "`attention` of d_model {written} takes [.., {written}], found {found}"
            );
        }
    };
    format!(
        "`attention`: `{key}` is {written}, and `{operand}` is {found}\nhelp: leave out `{key}`: it is the width of `{operand}`"
    )
}

pub(crate) fn context_differs(x: &Type, context: &Type) -> String {
    let expand = match (&*x.axes, &*context.axes) {
        ([n, width], [batch, _, _]) => {
            format!(", `expand::<[{batch}, {n}, {width}]>(x)` repeats x for each sequence")
        }
        _ => String::new(),
    };
    format!("`attention`: x is {x}, context is {context}\nhelp: both have the same batch{expand}")
}

pub(crate) fn values_differ(context: &Type, values: &Type) -> String {
    format!(
        "`attention`: context is {context}, values is {values}\nhelp: there is a value for every key: both have the same axes but for the last one"
    )
}

pub(crate) fn data_missing(operation: &Ident, name: &str, expected: &str) -> String {
    format!(
        "this `{operation}` reads `{name}`, and is not given it\nhelp: add the operand `{name} = ..`, {expected}"
    )
}

pub(crate) fn data_differs(operation: &Ident, name: &str, expected: &str, found: &str) -> String {
    format!("`{name}` of this `{operation}` is {expected}, found {found}")
}

pub(crate) fn computed_data(operation: &Ident, name: &str, expected: &str) -> String {
    format!(
        "`{name}` of this `{operation}` is data, an input of the model, and this value is computed\n\
        help: add an input to `forward`, `{name}: {expected}`, and pass the value at the call: of data, only floats are computed"
    )
}

pub(crate) fn unknown_data(
    operation: &Ident,
    found: &Ident,
    known: &[String],
    spec: &Spec,
) -> String {
    if found == "padding" || found == "document" {
        let written = spec.written.iter().find(|(key, _)| *key == "mask");
        let mask = match written.map(|(_, mask)| mask.as_str()) {
            None | Some("none") => found.to_string(),
            Some(mask) if mask.contains('|') => format!("({mask}) & {found}"),
            Some(mask) => format!("{mask} & {found}"),
        };
        return format!(
            "the mask of this `{operation}` does not read `{found}`\nhelp: add it: `mask = {mask}`"
        );
    }
    if found == "position_ids" {
        return format!(
            "this `{operation}` has no positions that `position_ids` could be\nhelp: they are those of the rotary embedding: `position = rope`"
        );
    }
    let mut tables = spec.body.data.iter().filter_map(|data| data.rows.as_ref());
    let is_table = tables.any(|rows| found == &rows.table);
    let help = match instead_of(&found.to_string(), NamePosition::Operand) {
        Some(form) => form.to_owned(),
        None if is_table => format!(
            "no operand is needed: `dot(.., {found}[..])` reads the value `{found}` of the model, by its name"
        ),
        None => {
            let names = known.iter().map(String::as_str);
            let inputs: &[&str] = match operation == "attention" {
                true => &["context", "values"],
                false => &[],
            };
            match names.len() + inputs.len() {
                0 => "it reads no operand by name".to_owned(),
                _ => format!(
                    "its operands by name are {}",
                    listed(names.chain(inputs.iter().copied()))
                ),
            }
        }
    };
    format!("this `{operation}` does not read `{found}`\nhelp: {help}")
}
