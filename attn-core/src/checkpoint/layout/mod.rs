//! Weights from elsewhere: maps between the tensors of a model and those of a file of another library.
//!
//! A [`WeightMap`] is data: rows of our name, their name, and what has to be done to their tensor. With
//! [`Archive::load_mapped`](super::Archive::load_mapped) it brings a file into a model, and with [`save_mapped`] a model into a
//! file that the other library reads.
//!
//! ```
//! use attn::{
//!     checkpoint::{Archive, LoadOptions, layout::{Rule, WeightMap, save_mapped}},
//!     nn::Linear,
//! };
//! use attn::dfdx::prelude::{Linear as _, *};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("packed.safetensors");
//! /// Two layers whose weights are one tensor in the file, `[3, 2 + 5]`, as a `Conv1D` has them.
//! type Pair = (Linear<3, 2>, Linear<3, 5>);
//! let map = WeightMap::new([
//!     Rule::new("0.*", "c_attn.*").transposed().stacked(),
//!     Rule::new("1.*", "c_attn.*").transposed().stacked(),
//! ])
//! .ignore("masked_bias");
//!
//! let dev = Cpu::default();
//! let model = dev.build_module::<Pair, f32>();
//! save_mapped(&model, &map, &path)?;
//! let archive = Archive::open(&path)?;
//! let tensors: Vec<String> = archive.tensors().map(|(name, tensor)| format!("{name}: {tensor}")).collect();
//! assert_eq!(tensors, ["c_attn.bias: F32 [7]", "c_attn.weight: F32 [3, 7]"]);
//!
//! let mut copy = dev.build_module::<Pair, f32>();
//! archive.load_mapped(&mut copy, &map, LoadOptions::default())?;
//! assert_eq!(copy.1.weight.array(), model.1.weight.array());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked
//!
//! Model and map together say which tensors a file must have: their names, shapes and types. So a map is checked without a
//! file, and [`MapError`] lists all that is wrong with it: rules that are good for nothing, tensors of the model that no rule
//! gives or two, rows that are in two of our tensors or in none. Then the file is compared, as [`load`](super::load) does it, with
//! [`Mismatch`](super::Mismatch) in *their* names and shapes, and ours beside. What a file has beyond is an error as well, unless the map
//! says that it [does not matter](WeightMap::ignore) or is [elsewhere](WeightMap::under). All of this is before the first
//! weight is touched.
//!
//! # Fine-tuning
//!
//! A model with a new head, or with parameters that the file never had, loads all the same: [`fresh`](WeightMap::fresh) names what stays
//! as it was built, and the [`LoadReport`] lists it.
//!
//! ```
//! use attn::{
//!     checkpoint::{Archive, LoadOptions, layout::{Rule, WeightMap}, save},
//!     nn::Linear,
//! };
//! use attn::dfdx::prelude::{Linear as _, *};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("pretrained.safetensors");
//! let dev = Cpu::default();
//! save(&dev.build_module::<Linear<3, 4>, f32>(), &path)?;
//!
//! /// The pretrained layer, and a new one.
//! type Classifier = (Linear<3, 4>, Linear<4, 2>);
//! let map = WeightMap::new([Rule::new("0.*", "*")]).fresh("1.*");
//! let mut classifier = dev.build_module::<Classifier, f32>();
//! let report = Archive::open(&path)?.load_mapped(&mut classifier, &map, LoadOptions::default())?;
//! assert_eq!(report.loaded, ["0.weight", "0.bias"]);
//! assert_eq!(report.to_string(), "2 tensors loaded\n  as built: 1.weight, F32 [2, 4]\n  as built: 1.bias, F32 [2]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Known layouts
//!
//! | map | file of | PyTorch |
//! | --- | --- | --- |
//! | [`torch_multihead_attention`] | one layer | `torch.nn.MultiheadAttention(d_model, heads)` |
//! | [`torch_multihead_attention_apart`] | one layer, keys and values of another width | `torch.nn.MultiheadAttention(.., kdim=.., vdim=..)` |
//! | [`torch_transformer_encoder_layer`] | one layer | `torch.nn.TransformerEncoderLayer(..)` |
//! | [`hugging_face_bert`] | the encoder and its pooler | `transformers.BertModel` |
//! | [`hugging_face_gpt2`], [`hugging_face_gpt2_model`] | with its head, without | `transformers.GPT2LMHeadModel`, `GPT2Model` |
//! | [`hugging_face_llama`] | with its head | `transformers.LlamaForCausalLM` |
//! | [`meta_llama`] | with its head, rotary pairs interleaved | `consolidated.00.pth` |
//!
//! Each tells the declaration that it fits. One for a model that is declared in another way is a copy of it with other names,
//! or the same [under](WeightMap::under) a prefix.

mod assemble;
mod error;
mod known;
mod pattern;
mod plan;
mod report;
mod rule;
mod transfer;
mod view;

#[cfg(test)]
mod tests;

pub use error::{MapError, MapProblem};
pub use known::{
    hugging_face_bert, hugging_face_gpt2, hugging_face_gpt2_model, hugging_face_llama, meta_llama,
    torch_multihead_attention, torch_multihead_attention_apart, torch_transformer_encoder_layer,
};
pub use report::LoadReport;
pub use rule::Rule;
pub use transfer::save_mapped;

use super::write::Metadata;
use plan::Plan;

/// How the tensors of a file of another library become those of a model, and the other way round.
///
/// It is data: two of the same rules are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightMap {
    rules: Vec<Rule>,
    /// Their names that do not matter.
    ignored: Vec<String>,
    /// Our names that no file gives.
    fresh: Vec<String>,
    /// Their second names of tensors, and the first.
    tied: Vec<[String; 2]>,
    /// How our and their names begin of what the map is about.
    scopes: Vec<[String; 2]>,
    /// The metadata of a file.
    metadata: Metadata,
    /// Whether rules are good for the numbers that dfdx has beside tensors.
    scalars: bool,
}

impl WeightMap {
    /// A map of these rules.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self {
            rules: rules.into_iter().collect(),
            ignored: Vec::new(),
            fresh: Vec::new(),
            tied: Vec::new(),
            scopes: vec![Default::default()],
            metadata: Metadata::new(),
            scalars: false,
        }
    }

    /// Every tensor as it is, under its name: [`load`](super::load) and [`save`](super::save) in the form of a map.
    ///
    /// It has the numbers that dfdx keeps beside the tensors, too, the `epsilon` of its norms. Other maps leave them alone.
    pub fn identity() -> Self {
        Self {
            scalars: true,
            ..Self::new([Rule::new("*", "*").optional()])
        }
    }

    /// A tensor of theirs that a file may have and that is nothing in the model: a causal mask that is saved as a buffer. `{}` and
    /// `*` are as in a [`Rule`]. It is not written. What a rule is for is not ignored.
    pub fn ignore(mut self, theirs: impl Into<String>) -> Self {
        self.ignored.push(theirs.into());
        self
    }

    /// A tensor of the model that stays as it was built: the head of a new task, a parameter that the file never had. `{}` and `*` are
    /// as in a [`Rule`].
    ///
    /// It comes before the rules: a tensor that a rule would give to it does not matter in the file, as the old head of another size. The
    /// [`LoadReport`] lists it. It is not written by [`save_mapped`].
    ///
    /// ```
    /// use attn::checkpoint::layout::hugging_face_bert;
    ///
    /// let new_head = hugging_face_bert().under("", "bert.").fresh("classifier.*");
    /// let learned_slopes = hugging_face_bert().fresh("blocks.{}.attention.slope.*");
    /// ```
    ///
    /// PyTorch: `BertForSequenceClassification.from_pretrained(..)`, which says "some weights were newly initialized", with
    /// `ignore_mismatched_sizes=True`.
    pub fn fresh(mut self, ours: impl Into<String>) -> Self {
        self.fresh.push(ours.into());
        self
    }

    /// A second name, `copy`, of the tensor `theirs`, as `lm_head.weight` where it is tied to the embedding.
    ///
    /// A file need not have it. If it has, the numbers must be the very same: a head that was trained apart is an
    /// [error](super::Problem::NotTied), not lost. It is not written, as `save_pretrained` of Hugging Face does not. Where a rule
    /// gives `copy` to a tensor of the model, it is a tensor like others, and this means nothing.
    pub fn tied(mut self, copy: impl Into<String>, theirs: impl Into<String>) -> Self {
        self.tied.push([copy.into(), theirs.into()]);
        self
    }

    /// The metadata of a written file. `from_pretrained` of Hugging Face asks for `format`, `pt`, which the known layouts
    /// have.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The same map for a part of a model, or of a file: all names begin with these.
    ///
    /// Other tensors of the file do not count; other tensors of the model stay as they are and are not written. An
    /// index is a number, or `{}` on both sides: a layer becomes all layers by `.under("blocks.{}.", "encoder.layer.{}.")`.
    pub fn under(mut self, ours: &str, theirs: &str) -> Self {
        let before = |prefix: &str, name: &mut String| name.insert_str(0, prefix);
        for rule in &mut self.rules {
            before(ours, &mut rule.ours);
            before(theirs, &mut rule.theirs);
        }
        let names = self
            .ignored
            .iter_mut()
            .chain(self.tied.iter_mut().flatten());
        names.for_each(|name| before(theirs, name));
        self.fresh.iter_mut().for_each(|name| before(ours, name));
        for [our_scope, their_scope] in &mut self.scopes {
            before(ours, our_scope);
            before(theirs, their_scope);
        }
        self
    }

    /// The rules of both maps.
    pub fn and(mut self, other: Self) -> Self {
        self.rules.extend(other.rules);
        self.ignored.extend(other.ignored);
        self.fresh.extend(other.fresh);
        self.tied.extend(other.tied);
        let new = other.scopes.into_iter();
        let new: Vec<_> = new.filter(|scope| !self.scopes.contains(scope)).collect();
        self.scopes.extend(new);
        self.metadata.extend(other.metadata);
        self.scalars |= other.scalars;
        self
    }

    /// The rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
