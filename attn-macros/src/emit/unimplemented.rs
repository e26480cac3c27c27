//! Messages of rustc for a missing trait: `#[diagnostic::on_unimplemented(..)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;

/// The attribute of a trait. `parameters` are the names whose types rustc puts into the texts: `Self`, and the type variables of the trait.
///
/// `{Self}` in a text is a placeholder. All other braces stand for themselves: they are those of sizes and types as the user writes them.
pub(crate) fn on_unimplemented(
    at: Span,
    parameters: &[&str],
    message: &str,
    label: &str,
    notes: &[&str],
) -> TokenStream {
    let [message, label] = [message, label].map(|text| format_string(text, parameters));
    let notes = notes.iter().map(|text| format_string(text, parameters));
    quote_spanned! {at=>
        #[diagnostic::on_unimplemented(message = #message, label = #label #(, note = #notes)*)]
    }
}

/// `text` as a format string in which these names alone are placeholders.
///
/// Tokens of the user are no placeholders: they are written as `{ N }`, with blanks.
fn format_string(text: &str, parameters: &[&str]) -> String {
    let literal = text.replace('{', "{{").replace('}', "}}");
    parameters.iter().fold(literal, |text, name| {
        text.replace(&format!("{{{{{name}}}}}"), &format!("{{{name}}}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_are_placeholders() {
        for (text, expected) in [
            ("takes [8], not `{Self}`", "takes [8], not `{Self}`"),
            ("`{E}`, `{D}`", "`{E}`, `{{D}}`"),
            ("Linear<{ 4 * WIDTH }, 3>", "Linear<{{ 4 * WIDTH }}, 3>"),
            ("Linear<{ E }, 3>", "Linear<{{ E }}, 3>"),
        ] {
            assert_eq!(format_string(text, &["Self", "E"]), expected);
        }
    }
}
