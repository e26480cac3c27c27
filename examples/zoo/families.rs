//! The networks of the gallery that continue a text, by the `model_type` of their `config.json`, and their declarations with other sizes.

use crate::Config;
use anyhow::{Context, Result, bail};
use attn::checkpoint::{Archive, layout::WeightMap};
use serde_json::Value;
use std::path::Path;

/// A network that continues a text.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The module of the gallery.
    pub name: &'static str,
    /// The network of the module.
    pub network: &'static str,
    /// The comparison of its `config.json`.
    pub config: fn() -> Config,
    /// The tensors of the checkpoint in this folder.
    weights: fn(&Checkpoint<'_>) -> Result<WeightMap>,
    /// The file of the gallery.
    source: &'static str,
}

/// The folder of a checkpoint, and its `config.json`.
struct Checkpoint<'a> {
    folder: &'a Path,
    config: &'a Value,
}

macro_rules! family {
    ($name:ident, $network:ident, $weights:expr) => {
        Family {
            name: stringify!($name),
            network: stringify!($network),
            config: crate::$name::config,
            weights: $weights,
            source: include_str!(concat!(stringify!($name), ".rs")),
        }
    };
}

/// All of them. Where several have one `model_type`, the rest of the file decides.
pub const FAMILIES: [Family; 14] = [
    family!(gemma2, Gemma2, |_| Ok(crate::gemma2::weights())),
    family!(gemma3, Gemma3, |_| Ok(crate::gemma3::weights())),
    family!(gpt2, Gpt2, |it| Ok(crate::gpt2::weights(
        it.prefix_of_gpt2()?
    ))),
    family!(gpt_neox, GptNeoX, |it| Ok(crate::gpt_neox::weights(
        it.size("num_attention_heads")?
    ))),
    family!(llama, Llama, |_| Ok(crate::llama::weights())),
    family!(mistral, Mistral, |_| Ok(crate::mistral::weights())),
    family!(mixtral, Mixtral, |it| Ok(crate::mixtral::weights(
        it.experts()?
    ))),
    family!(opt, Opt, |_| Ok(crate::opt::weights())),
    family!(phi3, Phi3, |_| Ok(crate::phi3::weights())),
    family!(phi3_long, Phi3Long, |_| Ok(crate::phi3_long::weights())),
    family!(qwen2, Qwen2, |_| Ok(crate::qwen2::weights())),
    family!(qwen3, Qwen3, |_| Ok(crate::qwen3::weights())),
    family!(qwen3_moe, Qwen3Moe, |it| Ok(crate::qwen3_moe::weights(
        it.experts()?
    ))),
    family!(smollm, SmolLm, |_| Ok(crate::smollm::weights())),
];

impl Checkpoint<'_> {
    fn size(&self, key: &str) -> Result<usize> {
        let size = self.config.get(key).and_then(Value::as_u64);
        let size = size.with_context(|| format!("config.json has no number `{key}`"))?;
        Ok(usize::try_from(size)?)
    }

    /// Older files of Qwen 3 have the other name.
    fn experts(&self) -> Result<usize> {
        self.size("num_local_experts")
            .or_else(|_| self.size("num_experts"))
    }

    /// `openai-community/gpt2` has no prefix, and what `GPT2LMHeadModel` saves has one.
    fn prefix_of_gpt2(&self) -> Result<&'static str> {
        let archive = Archive::open(self.folder)?;
        let mut names = archive.tensors().map(|(name, _)| name);
        let has_prefix = names.any(|name| name.starts_with("transformer."));
        Ok(if has_prefix { "transformer." } else { "" })
    }
}

/// The network of the gallery for this `config.json`, of any sizes.
///
/// # Errors
/// One that lists the known types, or what the gallery's network of this type does not have.
pub fn of_config(config: &Value) -> Result<Family> {
    let found = config.get("model_type").and_then(Value::as_str);
    let of_type = FAMILIES.iter();
    let of_type = of_type.filter(|family| Some((family.config)().model_type()) == found);
    let differences = of_type.map(|family| (family, (family.config)().differing_values(config)));
    let Some((family, differences)) = differences.min_by_key(|(_, lines)| lines.len()) else {
        let mut known: Vec<_> = FAMILIES
            .iter()
            .map(|family| (family.config)().model_type().to_owned())
            .collect();
        known.sort();
        known.dedup();
        bail!(
            "config.json has the `model_type` {}: the gallery has {}",
            config.get("model_type").unwrap_or(&Value::Null),
            known.join(", ")
        );
    };
    if !differences.is_empty() {
        bail!(
            "the network `zoo::{}` has no declaration for this config.json:\n{}",
            family.name,
            differences.join("\n")
        );
    }
    Ok(*family)
}

impl Family {
    /// The map of the files in this folder.
    ///
    /// # Errors
    /// If the config has no number that the map needs, or the header of a file cannot be read.
    pub fn weights(&self, folder: &Path, config: &Value) -> Result<WeightMap> {
        (self.weights)(&Checkpoint { folder, config })
    }

    /// The declaration of the network with the sizes of this `config.json`: that of the gallery, with other numbers in its header.
    ///
    /// # Errors
    /// All keys of constants that the file lacks.
    pub fn declaration(&self, config: &Value) -> Result<String> {
        let Some((header, forward)) = self.parts() else {
            bail!("zoo::{} has no declaration that can be read", self.name);
        };
        let values = (self.config)().constants_of(config);
        let mut lacking = Vec::new();
        let constants = header.split(',').map(|constant| {
            let Some((name, declared)) = constant.split_once(" = ") else {
                return constant.to_owned();
            };
            match values.get(name.trim()) {
                Some((_, Some(value))) => format!("{name} = {}", literal(value, declared)),
                Some((key, None)) => {
                    lacking.push(*key);
                    constant.to_owned()
                }
                None => constant.to_owned(),
            }
        });
        let header = constants.collect::<Vec<_>>().join(",");
        if !lacking.is_empty() {
            bail!(
                "config.json has no {}, which zoo::{} is declared with",
                lacking.join(", "),
                self.name
            );
        }
        let Self {
            name: module,
            network,
            ..
        } = self;
        Ok(format!(
            "model! {{\n    use zoo::{module}::{module};\n\n    struct {network}<{header}>;\n\n{forward}}}\n"
        ))
    }

    /// The header of the network in the source, and its function.
    fn parts(&self) -> Option<(&str, &str)> {
        let start = format!("    pub struct {}<", self.network);
        let (_, rest) = self.source.split_once(&start)?;
        let (header, rest) = rest.split_once(">;")?;
        let start = rest.find("    fn forward(")?;
        let end = start + rest[start..].find("\n    }\n")? + "\n    }\n".len();
        Some((header, &rest[start..end]))
    }
}

/// A number as a literal of the type that is declared: `500000` of JSON is a float if the declared one is. A list is one of floats.
fn literal(value: &Value, declared: &str) -> String {
    if let Value::Array(list) = value {
        let list: Vec<String> = list.iter().map(|number| literal(number, "[..]")).collect();
        return format!("[{}]", list.join(", "));
    }
    let is_float = declared.parse::<u64>().is_err();
    match value.as_f64().filter(|_| is_float) {
        Some(number) if number != 0.0 && number.abs() < 0.01 => format!("{number:e}"),
        Some(number) => format!("{number:?}"),
        None => value.to_string(),
    }
}
