//! The `config.json` of a checkpoint, compared with a declaration before a weight is read.

use anyhow::{Context, Result, bail};
use attn::{Constant, Facts};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fs, path::Path};

/// The values that the `config.json` of a declared network must have.
///
/// A key is a path: `rope_parameters.factor` is `"rope_parameters": { "factor": .. }`. Files of `transformers` 4 have `rope_theta` and
/// `rope_scaling` instead, and are read as if they had `rope_parameters`.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Keys of the file, each with the name of a constant of the header.
    constants: Vec<(&'static str, &'static str)>,
    /// Keys of the file that are functions of a number in the header.
    computed: Vec<Computed>,
    /// Keys of the file with values that the declaration has everywhere.
    values: Vec<(&'static str, Value)>,
    /// Keys that the file may lack, as their default is what is declared.
    optional: Vec<&'static str>,
    /// Keys that the file may lack, with their default.
    defaults: Vec<(&'static str, Meant)>,
}

/// The value of a key that a file lacks.
#[derive(Clone, Debug)]
enum Meant {
    /// The same for all files.
    Value(Value),
    /// It follows from the rest of the file.
    Of(fn(&Value) -> Option<Value>),
}

/// A key whose value is a function of a constant.
#[derive(Clone, Copy, Debug)]
struct Computed {
    key: &'static str,
    name: &'static str,
    of: fn(f64) -> f64,
    inverse: fn(f64) -> f64,
}

impl Config {
    /// The file of a model of this type.
    pub fn new(model_type: &str) -> Self {
        Self::default().value("model_type", model_type)
    }

    /// The file of a relative of Llama, with the defaults of `LlamaConfig`: older files lack `head_dim` or `num_key_value_heads`. The header has
    /// the constants `vocab`, `d_model`, `heads`, `kv_heads`, `hidden`, `layers` and `theta`.
    pub fn llama(model_type: &str) -> Self {
        Self::new(model_type)
            .constants([
                ("vocab_size", "vocab"),
                ("hidden_size", "d_model"),
                ("num_attention_heads", "heads"),
                ("num_key_value_heads", "kv_heads"),
                ("intermediate_size", "hidden"),
                ("num_hidden_layers", "layers"),
                ("rope_parameters.rope_theta", "theta"),
            ])
            .value("hidden_act", "silu")
            .value("attention_bias", false)
            .or_else("num_key_value_heads", |file| {
                file.get("num_attention_heads").cloned()
            })
            .or_else("head_dim", |file| {
                let size = |key| file.get(key).and_then(Value::as_u64);
                let width = size("hidden_size")?.checked_div(size("num_attention_heads")?);
                width.map(Value::from)
            })
            .or("hidden_act", "silu")
            .or("attention_bias", false)
            .or("mlp_bias", false)
            .or("rms_norm_eps", 1e-6)
            .or("rope_parameters.rope_theta", 10000.0)
            .or("tie_word_embeddings", false)
            .or("use_sliding_window", false)
    }

    /// The values of these keys are those of constants in the header: `("hidden_size", "d_model")`.
    pub fn constants<const N: usize>(
        mut self,
        constants: [(&'static str, &'static str); N],
    ) -> Self {
        self.constants.extend(constants);
        self
    }

    /// The value of the key is a function of a number in the header, up to rounding errors. `inverse` computes the number from the value.
    pub fn computed(
        mut self,
        key: &'static str,
        name: &'static str,
        of: fn(f64) -> f64,
        inverse: fn(f64) -> f64,
    ) -> Self {
        self.computed.push(Computed {
            key,
            name,
            of,
            inverse,
        });
        self
    }

    /// The key has this value.
    pub fn value(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.values.push((key, value.into()));
        self
    }

    /// The file may lack these keys.
    pub fn optional<const N: usize>(mut self, keys: [&'static str; N]) -> Self {
        self.optional.extend(keys);
        self
    }

    /// A file without the key, or with `null`, means this value.
    pub fn or(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.defaults.push((key, Meant::Value(value.into())));
        self
    }

    /// A file without the key, or with `null`, means what follows from its other keys, if these are there.
    pub fn or_else(mut self, key: &'static str, of: fn(&Value) -> Option<Value>) -> Self {
        self.defaults.push((key, Meant::Of(of)));
        self
    }

    /// Compares the file in this folder with the constants of `M`.
    ///
    /// # Errors
    /// One error with all differences.
    pub fn check_file<M: Facts>(&self, folder: &Path) -> Result<()> {
        let path = folder.join("config.json");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        self.check::<M>(file)
            .with_context(|| path.display().to_string())
    }

    /// Compares a file with the constants of `M`.
    ///
    /// # Errors
    /// One error with all differences.
    pub fn check<M: Facts>(&self, file: Value) -> Result<()> {
        let constants = self.constants.iter();
        let constants = constants.map(|&(key, name)| (key, constant::<M>(name)));
        let computed = self.computed.iter().map(|computed| {
            let declared = constant::<M>(computed.name);
            let number = declared.as_f64().map(|number| json!((computed.of)(number)));
            (computed.key, number.unwrap_or(declared))
        });
        let declared = constants.chain(computed).chain(self.values());
        let differences = self.differences(declared, file);
        if !differences.is_empty() {
            bail!(
                "the network is declared otherwise:\n{}",
                differences.join("\n")
            );
        }
        Ok(())
    }

    /// The `model_type` of the file.
    pub fn model_type(&self) -> &str {
        let mut values = self.values.iter();
        let found = values.find(|(key, _)| *key == "model_type");
        found.and_then(|(_, value)| value.as_str()).unwrap_or("")
    }

    /// Values of a file that no declaration of the network can have, a line each.
    pub(crate) fn differing_values(&self, file: &Value) -> Vec<String> {
        self.differences(self.values(), file.clone())
    }

    /// The keys of the constants in the header, by name, with what this file has for them.
    pub(crate) fn constants_of(
        &self,
        file: &Value,
    ) -> BTreeMap<&'static str, (&'static str, Option<Value>)> {
        let file = with_new_names(file.clone());
        let constants = self.constants.iter();
        let value = |key| {
            stated(&file, key)
                .cloned()
                .or_else(|| self.meant(key, &file))
        };
        let constants = constants.map(|&(key, name)| (name, (key, value(key))));
        let computed = self.computed.iter().map(|computed| {
            let number = value(computed.key).as_ref().and_then(Value::as_f64);
            let number = number.map(|number| json!((computed.inverse)(number)));
            (computed.name, (computed.key, number))
        });
        constants.chain(computed).collect()
    }

    fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.values.iter().map(|(key, value)| (*key, value.clone()))
    }

    /// A line for each key whose value in the file is not the declared one.
    fn differences(
        &self,
        declared: impl Iterator<Item = (&'static str, Value)>,
        file: Value,
    ) -> Vec<String> {
        let file = with_new_names(file);
        let lines = declared.filter_map(|(key, declared)| {
            let has = match (found(&file, key), self.meant(key, &file)) {
                (Some(found), _) if is_same(found, &declared) => return None,
                (None | Some(Value::Null), Some(meant)) if is_same(&meant, &declared) => {
                    return None;
                }
                (None | Some(Value::Null), Some(meant)) => format!("none, which means {meant}"),
                (None, None) if self.optional.contains(&key) => return None,
                (None, None) => "none".into(),
                (Some(found), _) => found.to_string(),
            };
            Some(format!(
                "  {key}: declared {declared}, and the file has {has}"
            ))
        });
        lines.collect()
    }

    /// The value that a file means which lacks the key.
    fn meant(&self, key: &str, file: &Value) -> Option<Value> {
        // A family has other defaults than its relatives.
        let mut defaults = self.defaults.iter().rev();
        let (_, default) = defaults.find(|(of, _)| *of == key)?;
        match default {
            Meant::Value(value) => Some(value.clone()),
            Meant::Of(of) => of(file),
        }
    }
}

/// The value at a path, if it is not `null`.
fn stated<'f>(file: &'f Value, key: &str) -> Option<&'f Value> {
    found(file, key).filter(|value| !value.is_null())
}

/// The value at a path.
fn found<'f>(file: &'f Value, key: &str) -> Option<&'f Value> {
    key.split('.').try_fold(file, |at, key| at.get(key))
}

/// The constant of this name, or words that say that there is none.
fn constant<M: Facts>(name: &str) -> Value {
    let mut known = M::CONSTANTS.iter();
    match known.find(|(known, _)| *known == name) {
        Some((_, Constant::Size(size))) => json!(size),
        Some((_, Constant::Number(number))) => json!(number),
        Some((_, Constant::Switch(value))) => json!(value),
        Some((_, Constant::Numbers(list))) => json!(list),
        None => json!(format!("no constant `{name}`")),
    }
}

/// Whether two values are equal, where 1 is 1.0, up to the error of a computed number.
fn is_same(a: &Value, b: &Value) -> bool {
    if let (Value::Array(a), Value::Array(b)) = (a, b) {
        return a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b));
    }
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs(),
        _ => a == b,
    }
}

/// The file with the names of `transformers` 5.
fn with_new_names(mut file: Value) -> Value {
    let Some(entries) = file.as_object_mut() else {
        return file;
    };
    // A T5 whose head is tied scales what the head reads.
    if let Some(tied) = entries.get("tie_word_embeddings").cloned() {
        entries.entry("scale_decoder_outputs").or_insert(tied);
    }
    if let Some(experts) = entries.get("num_experts").cloned() {
        entries.entry("num_local_experts").or_insert(experts);
    }
    if entries.contains_key("rope_parameters") {
        return file;
    }
    let mut rope = match entries.get("rope_scaling") {
        Some(Value::Object(scaling)) => scaling.clone(),
        _ => Map::new(),
    };
    let kind = rope.remove("type").unwrap_or_else(|| json!("default"));
    // The first files of Phi-3 have this name.
    let kind = if kind == "su" {
        json!("longrope")
    } else {
        kind
    };
    rope.entry("rope_type").or_insert(kind);
    let older = [
        ("rope_theta", "rope_theta"),
        ("rotary_emb_base", "rope_theta"),
        ("partial_rotary_factor", "partial_rotary_factor"),
        ("rotary_pct", "partial_rotary_factor"),
    ];
    for (older, key) in older {
        if let Some(value) = entries.get(older) {
            rope.insert(key.into(), value.clone());
        }
    }
    if let Some(theta) = entries.get("rope_local_base_freq") {
        let local = json!({ "rope_type": "default", "rope_theta": theta });
        rope = Map::from_iter([
            ("full_attention".into(), rope.into()),
            ("sliding_attention".into(), local),
        ]);
    }
    entries.insert("rope_parameters".into(), rope.into());
    file
}
