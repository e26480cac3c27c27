//! `module::<Type, out = [batch, seq, d_model]>(x)`: a module of which only its type is known, and what it is to return.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;

use super::arguments::Arguments;
use super::{Frame, Lowering};
use crate::messages::model as messages;
use crate::model::graph::{Op, Opaque, Submodule, ValueId};
use crate::model::signature::parse_type;
use crate::model::sizes;
use crate::model::syntax::{Call, first};
use crate::model::types::{Kind, Type};
use crate::spec::text;

impl Lowering<'_> {
    pub(super) fn opaque(
        &mut self,
        call: &Call,
        arguments: &Arguments,
        operands: &[ValueId],
        name: &str,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let module_type = self.module_type(&call.name, arguments);
        let result = self.declared_output(&call.name, arguments);
        let (module_type, result) = (module_type?, result?);
        let asked = ("module", arguments.name.as_ref());
        let text = text::of_type(&module_type);
        let layer = Submodule::Opaque {
            index: self.opaques.len(),
            ty: text.clone(),
        };
        let place = self.field(frame.module, asked, layer, result.to_string());
        let name_of_type = self.type_name(place.module, &place.field, call.name.span());
        let module = place.module;
        let result = self.node(frame, Op::Opaque(place), operands.to_vec(), (name, result));
        self.opaques.push(Opaque {
            ty: self.constants.with_names(&module_type),
            text,
            name: name_of_type,
            module,
            operands: operands.to_vec(),
            result,
        });
        Some(result)
    }

    /// The type as written: rustc finds out what it means.
    fn module_type(&self, operation: &Ident, arguments: &Arguments) -> Option<TokenStream> {
        let Some(tokens) = arguments.tokens("type") else {
            if !arguments.is_given("type") && arguments.complete {
                self.cx.error(operation, messages::MODULE_WITHOUT_TYPE);
            }
            return None;
        };
        if syn::parse2::<syn::Type>(tokens.clone()).is_err() {
            self.cx.error(tokens, messages::expected_module(tokens));
            return None;
        }
        let model = &self.item.name;
        if let Some(itself) = sizes::names(tokens).iter().find(|name| *name == model) {
            self.cx.error(itself, messages::contains_itself(model));
            return None;
        }
        Some(tokens.clone())
    }

    /// The shape that the module is to return.
    fn declared_output(&mut self, operation: &Ident, arguments: &Arguments) -> Option<Type> {
        let Some(tokens) = arguments.tokens("out") else {
            if !arguments.is_given("out") && arguments.complete {
                self.cx.error(operation, messages::MODULE_WITHOUT_OUT);
            }
            return None;
        };
        let Ok(draft) = parse_type.parse2(tokens.clone()) else {
            self.cx.error(tokens, messages::expected_output(tokens));
            return None;
        };
        let ty = self.declared_type(&draft)?;
        if ty.kind != Kind::Floats {
            self.error(first(tokens), messages::output_of_indices(&ty));
            return None;
        }
        Some(ty)
    }
}
