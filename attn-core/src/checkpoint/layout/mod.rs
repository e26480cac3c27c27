//! Weights of other libraries: maps between the tensors of a model and those of a file.
//!
//! A [`WeightMap`] is data. Each [`Rule`] has the name of a tensor in the model (ours), its name in the file (theirs), and the
//! operations that turn their tensor into ours. [`Archive::load_mapped`](super::Archive::load_mapped) loads a file into a model;
//! [`save_mapped`] saves a model as a file that the other library reads, [`save_mapped_in_shards`] as several with an index.
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
//! # Checks
//!
//! A model and a map determine the tensors of a file: names, shapes and types. So a map is checked without a file, and [`MapError`]
//! lists all of its problems: rules that match nothing, tensors of the model that no rule or two rules match, and rows that are
//! mapped to two tensors or to none. Then the file is compared, as by [`load`](super::load). [`Mismatch`](super::Mismatch) has the
//! names and shapes of the file, beside those of the model. Additional tensors in the file are errors as well, unless the map
//! [ignores](WeightMap::ignore) them or has [another prefix](WeightMap::under). All checks precede the first change of a weight.
//!
//! # Fine-tuning
//!
//! A model may have a new head, or other parameters that the file does not have: [`fresh`](WeightMap::fresh) names the tensors that keep
//! their initial values, and the [`LoadReport`] lists them.
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
//! [`grown`](WeightMap::grown) names the tables that have more rows than in the file, and
//! [`without_adapters`](WeightMap::without_adapters) leaves out the low-rank adapters of the model.
//!
//! # Known layouts
//!
//! | map | file of | PyTorch |
//! | --- | --- | --- |
//! | [`torch_multihead_attention`] | one layer | `torch.nn.MultiheadAttention(d_model, heads)` |
//! | [`torch_multihead_attention_apart`] | one layer, keys or values of another width | `torch.nn.MultiheadAttention(.., kdim=.., vdim=..)` |
//! | [`heads_as_modules`] | one layer, with matrices for each head | `nn.ModuleList` of heads, as in tutorials |
//! | [`lecture_gpt`] | with its head | `GPTLanguageModel` of "Let's build GPT" |
//! | [`torch_transformer_encoder_layer`] | one layer | `torch.nn.TransformerEncoderLayer(..)` |
//! | [`hugging_face_bert`] | the encoder and its pooler | `transformers.BertModel` |
//! | [`hugging_face_gpt2`], [`hugging_face_gpt2_model`] | with its head, without | `transformers.GPT2LMHeadModel`, `GPT2Model` |
//! | [`hugging_face_llama`] | with its head | `transformers.LlamaForCausalLM` |
//! | [`meta_llama`] | with its head, rotary pairs interleaved | `consolidated.00.pth`, converted to safetensors |
//!
//! The documentation of each map has the declaration of a model that it fits. For another declaration, copy the map with other names,
//! or put it [under](WeightMap::under) a prefix.

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
    heads_as_modules, hugging_face_bert, hugging_face_gpt2, hugging_face_gpt2_model,
    hugging_face_llama, lecture_gpt, meta_llama, torch_multihead_attention,
    torch_multihead_attention_apart, torch_transformer_encoder_layer,
};
pub use report::LoadReport;
pub use rule::Rule;
pub use transfer::{save_mapped, save_mapped_in_shards};

use super::write::Metadata;
use crate::lora::{adapted_layer, is_of};
use plan::Plan;

/// The prefix of the names of a network in files of PEFT.
pub(super) const PEFT_PREFIX: &str = "base_model.model.";

/// A map between the tensors of a model and those of a file of another library, for both directions.
///
/// It is data: two maps with the same rules are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightMap {
    rules: Vec<Rule>,
    /// Names in the file that are ignored.
    ignored: Vec<String>,
    /// Names in the model that are not loaded.
    fresh: Vec<String>,
    /// Tied tensors of the file: the second name and the first.
    tied: Vec<[String; 2]>,
    /// Prefixes of the map: in the model and in the file.
    scopes: Vec<[String; 2]>,
    /// The metadata of a written file.
    metadata: Metadata,
    /// Whether the rules also apply to the numbers that dfdx stores beside the tensors.
    scalars: bool,
    /// The tensors of the model that are mapped.
    scope_of_adapters: AdapterScope,
    /// Names in the model of tables that the file may have fewer rows of.
    grown: Vec<String>,
}

/// The tensors that a map is for, in a model with [adapters](crate::Adapted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AdapterScope {
    /// All tensors.
    #[default]
    All,
    /// All but the adapters.
    Base,
    /// The adapters alone, with the layers of these names that are [trained whole](crate::Lora::save).
    Adapters(&'static [&'static str]),
}

impl AdapterScope {
    fn has(self, ours: &str) -> bool {
        match self {
            Self::All => true,
            Self::Base => adapted_layer(ours).is_none(),
            Self::Adapters(whole) => adapted_layer(ours).is_some() || is_of(whole, ours),
        }
    }
}

impl WeightMap {
    /// A map with these rules.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self {
            rules: rules.into_iter().collect(),
            ignored: Vec::new(),
            fresh: Vec::new(),
            tied: Vec::new(),
            scopes: vec![Default::default()],
            metadata: Metadata::new(),
            scalars: false,
            scope_of_adapters: AdapterScope::All,
            grown: Vec::new(),
        }
    }

    /// Maps every tensor to itself: [`load`](super::load) and [`save`](super::save) in the form of a map.
    ///
    /// It also maps the numbers that dfdx stores beside the tensors, such as the `epsilon` of its norms. Other maps do not.
    pub fn identity() -> Self {
        Self {
            scalars: true,
            ..Self::new([Rule::new("*", "*").optional()])
        }
    }

    /// Ignores a tensor of the file, for example a causal mask that is saved as a buffer. `{}` and `*` are as in a [`Rule`]. The tensor
    /// may be missing, and is not written. A tensor that a rule matches is not ignored.
    pub fn ignore(mut self, theirs: impl Into<String>) -> Self {
        self.ignored.push(theirs.into());
        self
    }

    /// Keeps the initial values of a tensor of the model: the head of a new task, or a parameter that the file does not have. `{}` and `*`
    /// are as in a [`Rule`].
    ///
    /// This takes precedence over the rules: the tensor that a rule would load, such as the old head of another size, is ignored. The
    /// [`LoadReport`] lists the tensor. [`save_mapped`] does not write it.
    ///
    /// ```
    /// use attn::checkpoint::layout::hugging_face_bert;
    ///
    /// let new_head = hugging_face_bert().under("", "bert.").fresh("classifier.*");
    /// let learned_slopes = hugging_face_bert().fresh("blocks.{}.attention.slope.*");
    /// ```
    ///
    /// PyTorch: `BertForSequenceClassification.from_pretrained(..)` with `ignore_mismatched_sizes=True`, which reports that "some weights
    /// were newly initialized".
    pub fn fresh(mut self, ours: impl Into<String>) -> Self {
        self.fresh.push(ours.into());
        self
    }

    /// Lets the file have fewer rows of a tensor of the model: of an embedding whose vocabulary has grown. The rows that the file has are
    /// loaded, and those behind them keep their initial values, as the [`LoadReport`] says. Without this, other sizes are an error. `{}` and
    /// `*` are as in a [`Rule`].
    ///
    /// ```
    /// use attn::{
    ///     checkpoint::{Archive, LoadOptions, layout::WeightMap, save},
    ///     nn::Embedding,
    /// };
    /// use attn::dfdx::prelude::{Embedding as _, *};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("embedding.safetensors");
    /// let dev = Cpu::default();
    /// let old = dev.build_module::<Embedding<10, 4>, f32>();
    /// save(&old, &path)?;
    ///
    /// let mut new = dev.build_module::<Embedding<12, 4>, f32>();
    /// let map = WeightMap::identity().grown("weight");
    /// let report = Archive::open(&path)?.load_mapped(&mut new, &map, LoadOptions::default())?;
    /// assert_eq!(new.weight.array()[..10], old.weight.array());
    /// assert_eq!(report.to_string(), "1 tensors loaded\n  as built: rows 10..12 of weight, F32 [12, 4]");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// PyTorch: `model.resize_token_embeddings(vocab)` of `transformers`, behind `from_pretrained(..)`.
    #[doc(alias("resize_token_embeddings", "ignore_mismatched_sizes"))]
    pub fn grown(mut self, ours: impl Into<String>) -> Self {
        self.grown.push(ours.into());
        self
    }

    /// The same map for a model with [adapters](crate::Adapted) and a file without: the adapters keep their initial values, with which the
    /// model computes what it does without them, and [`save_mapped`] leaves them out.
    ///
    /// ```
    /// use attn::{checkpoint::{Archive, LoadOptions, layout::WeightMap, save}, prelude::*};
    ///
    /// model! {
    ///     struct Base<d = 4>;
    ///     fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }
    /// }
    /// model! {
    ///     struct Tuned<d = 4, lora(rank = 2, on = ["linear"])>;
    ///     fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }
    /// }
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("base.safetensors");
    /// let dev = Cpu::default();
    /// save(&dev.build_module::<Base, f32>(), &path)?;
    /// let mut tuned = dev.build_module::<Tuned, f32>();
    /// let map = WeightMap::identity().without_adapters();
    /// let report = Archive::open(&path)?.load_mapped(&mut tuned, &map, LoadOptions::default())?;
    /// assert_eq!(report.loaded, ["linear.weight", "linear.bias"]);
    /// assert_eq!(report.fresh.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// PEFT: `get_peft_model(Model.from_pretrained(..), config)`.
    #[doc(alias("get_peft_model", "peft", "lora"))]
    pub fn without_adapters(self) -> Self {
        Self {
            scope_of_adapters: AdapterScope::Base,
            ..self
        }
    }

    /// The map of the adapters alone, with the names that PEFT gives them: `base_model.model.` in front of those of this map. The other
    /// tensors of the model are neither loaded nor written. [`lora`](crate::checkpoint::lora) saves and loads whole folders with it.
    ///
    /// A rule that ends with `*` gives the adapters of a layer the name of the layer. Rules that transpose or split weights have none in
    /// PEFT's layout, and are errors for layers with adapters.
    #[doc(alias("get_peft_model_state_dict", "peft", "lora"))]
    pub fn adapters(self) -> Self {
        self.adapters_and(&[])
    }

    /// The same with the layers of these names, which are trained whole. They are in the file, also if the network without adapters has them
    /// fresh.
    pub(super) fn adapters_and(self, whole: &'static [&'static str]) -> Self {
        let map = self.under("", PEFT_PREFIX).metadata("format", "pt");
        Self {
            scope_of_adapters: AdapterScope::Adapters(whole),
            fresh: Vec::new(),
            grown: Vec::new(),
            scalars: false,
            ..map
        }
    }

    /// Declares `copy` as a second name of the tensor `theirs`, for example of an `lm_head.weight` that is tied to the embedding.
    ///
    /// The file may omit it. If it has it, the numbers must be equal: a head that was trained separately is an
    /// [error](super::Problem::NotTied). It is not written, as in `save_pretrained` of Hugging Face. If a rule maps `copy` to a tensor of
    /// the model, this has no effect.
    pub fn tied(mut self, copy: impl Into<String>, theirs: impl Into<String>) -> Self {
        self.tied.push([copy.into(), theirs.into()]);
        self
    }

    /// Adds metadata to a written file. `from_pretrained` of Hugging Face requires `format`, `pt`, which the known layouts have.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The same map for a part of the model and a part of the file: adds a prefix to all names.
    ///
    /// Tensors of the file with another prefix are ignored. Tensors of the model with another prefix are neither loaded nor written. An
    /// index is a number, or `{}` on both sides: `.under("blocks.{}.", "encoder.layer.{}.")` turns the map of a layer into that of all
    /// layers.
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
        let names = self.fresh.iter_mut().chain(&mut self.grown);
        names.for_each(|name| before(ours, name));
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
        self.grown.extend(other.grown);
        self.tied.extend(other.tied);
        let new = other.scopes.into_iter();
        let new: Vec<_> = new.filter(|scope| !self.scopes.contains(scope)).collect();
        self.scopes.extend(new);
        self.metadata.extend(other.metadata);
        self.scalars |= other.scalars;
        self
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
