//! The default rule for weight decay.

use std::any::type_name;

use dfdx::{nn::modules, tensor::Cpu};

use crate::nn;

/// The properties of a parameter that decide whether it decays.
///
/// ```
/// use attn::train::{AdamW, ParameterInfo};
///
/// // A table that stands in a module of its own, beside those that are known.
/// fn decays(parameter: &ParameterInfo<'_>) -> bool {
///     parameter.decays_by_default() && parameter.name != "memory.weight"
/// }
/// let optimizer = AdamW::<f32>::new(Default::default()).decaying(decays);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParameterInfo<'a> {
    /// The name under which dfdx saves it, such as `0.weight` or `blocks.3.attention.q_proj.bias`.
    pub name: &'a str,
    /// Its sizes.
    pub dims: &'a [usize],
    /// The type of the module that has it as a field, in the form of [`type_name`].
    pub module: &'a str,
}

impl ParameterInfo<'_> {
    /// Whether it is the matrix of a linear map: a tensor of at least two axes that is neither a bias nor a table of vectors.
    ///
    /// - A bias is named `bias` or `.._bias`. The rule is for biases with an axis for the heads, such as `rel_pos_bias.weight` of
    ///   an attention layer.
    /// - A table is the weight of an [`nn::Embedding`], of an [`nn::LearnedPosition`] or of dfdx's
    ///   [`Embedding`](modules::Embedding), under any name.
    ///
    /// A tensor that the body of an attention declares (`param table: [heads, 64]`) follows the same rule.
    pub fn decays_by_default(&self) -> bool {
        self.dims.len() >= 2 && !self.is_bias() && !self.is_table()
    }

    fn is_bias(&self) -> bool {
        let name = self.name.strip_suffix(".weight").unwrap_or(self.name);
        let field = name.rsplit('.').next().unwrap_or(name);
        field == "bias" || field.ends_with("_bias")
    }

    fn is_table(&self) -> bool {
        let tables = [
            type_name::<nn::Embedding<0, 0, f32, Cpu>>(),
            type_name::<nn::LearnedPosition<0, 0, f32, Cpu>>(),
            type_name::<modules::Embedding<0, 0, f32, Cpu>>(),
        ];
        tables
            .map(without_generics)
            .contains(&without_generics(self.module))
    }
}

/// `attn_core::nn::embedding::Embedding` of `attn_core::nn::embedding::Embedding<65, 8, f32, Cpu>`
fn without_generics(type_name: &str) -> &str {
    type_name.split('<').next().unwrap_or(type_name)
}
