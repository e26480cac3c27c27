//! Expressions of Rust that a body does not have.

use quote::ToTokens;

use super::lower::Lower;
use super::names::is_not_finite;
use super::operand::Operand;
use crate::messages::body as messages;

impl Lower<'_, '_> {
    /// Reports an expression that the language does not have, at its characteristic token.
    pub(super) fn unsupported(&mut self, expr: &syn::Expr) -> Operand {
        use syn::Expr as E;
        let (at, what, help) = match expr {
            E::MethodCall(call) => {
                return self.error(&call.method, messages::method(call));
            }
            E::ForLoop(it) => (it.for_token.to_token_stream(), "loops", None),
            E::While(it) => (it.while_token.to_token_stream(), "loops", None),
            E::Loop(it) => (it.loop_token.to_token_stream(), "loops", None),
            E::Closure(it) => (it.to_token_stream(), "closures", None),
            E::Match(it) => (
                it.match_token.to_token_stream(),
                "`match`",
                Some(messages::IF),
            ),
            E::Let(it) => (
                it.let_token.to_token_stream(),
                "`if let`",
                Some(messages::IF),
            ),
            E::Return(it) => (
                it.return_token.to_token_stream(),
                "`return`",
                Some(messages::LAST),
            ),
            E::Assign(it) => (
                it.eq_token.to_token_stream(),
                "assignments",
                Some(messages::LET),
            ),
            E::Macro(it) => (it.mac.path.to_token_stream(), "macros", None),
            E::Reference(it) => (it.and_token.to_token_stream(), "references", None),
            // `math.inf`
            E::Field(it) if matches!(&it.member, syn::Member::Named(name) if is_not_finite(name)) =>
            {
                return self.error(it, messages::NOT_FINITE);
            }
            E::Field(it) => (it.dot_token.to_token_stream(), "fields", None),
            E::Range(it) => (it.limits.to_token_stream(), "ranges", None),
            E::Tuple(it) => (it.to_token_stream(), "tuples", None),
            E::Array(it) => (it.to_token_stream(), "arrays", None),
            other => {
                let text = format!("`{}`", messages::shown(other));
                return self.error(other, messages::unsupported(&text, None));
            }
        };
        self.error(at, messages::unsupported(what, help))
    }
}
