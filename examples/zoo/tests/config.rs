//! All differences of a `config.json` are one error, and no weight has changed.

use serde_json::{Value, json};
use std::fs;
use zoo::{
    families,
    llama::{self, Llama},
};

/// The file of `meta-llama/Llama-3.2-1B`, as `transformers` 4 wrote it.
fn file() -> Value {
    json!({
        "attention_bias": false, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
        "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3"
        }
    })
}

#[test]
fn the_file_of_an_older_library_is_read() {
    llama::config().check::<Llama>(file()).unwrap();
}

/// `transformers` has defaults for what files lack that older versions wrote.
#[test]
fn what_a_file_lacks_is_the_default_of_the_family() {
    let mut older = file();
    let keys = older.as_object_mut().unwrap();
    for key in ["head_dim", "attention_bias", "hidden_act"] {
        keys.remove(key);
    }
    keys["mlp_bias"] = Value::Null;
    llama::config().check::<Llama>(older.clone()).unwrap();
    let declaration = |file: &Value| {
        let family = families::of_config(file).unwrap();
        family.declaration(file).unwrap()
    };
    assert_eq!(declaration(&older), declaration(&file()));
    older["head_dim"] = json!(32);
    assert!(declaration(&older).contains(" head_dim = 32,"));
    // Mistral's default is another one than that of Llama.
    let mut other = json!({
        "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "model_type": "mistral", "num_attention_heads": 32,
        "num_hidden_layers": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 32000
    });
    let found = declaration(&other);
    assert!(found.contains("kv_heads = 8, head_dim = 128,"), "{found}");
    other["num_key_value_heads"] = json!(4);
    assert!(declaration(&other).contains("kv_heads = 4, head_dim = 128,"));
}

#[test]
fn all_differences_are_in_one_error() {
    let mut file = file();
    file["vocab_size"] = json!(32000);
    file["rope_scaling"]["factor"] = json!(8);
    file["tie_word_embeddings"] = json!(false);
    file["hidden_act"] = json!("gelu");
    file.as_object_mut().unwrap().remove("num_key_value_heads");
    file.as_object_mut().unwrap().remove("mlp_bias");
    file.as_object_mut().unwrap().remove("intermediate_size");
    let error = llama::config().check::<Llama>(file).unwrap_err();
    let lines = [
        "the network is declared otherwise:",
        "  vocab_size: declared 128256, and the file has 32000",
        "  num_key_value_heads: declared 8, and the file has none, which means 32",
        "  intermediate_size: declared 8192, and the file has none",
        "  tie_word_embeddings: declared true, and the file has false",
        "  rope_parameters.factor: declared 32.0, and the file has 8",
        "  hidden_act: declared \"silu\", and the file has \"gelu\"",
    ];
    assert_eq!(error.to_string(), lines.join("\n"));
}

/// `decoders.rs` compiles these declarations, and compares their networks with `transformers`.
#[test]
fn a_config_of_other_sizes_gives_the_declaration_with_them() {
    // Lines are broken elsewhere.
    let dense = |text: &str| {
        text.split_whitespace()
            .collect::<String>()
            .replace(",>", ">")
    };
    let compiled = dense(include_str!("decoders.rs"));
    for family in families::FAMILIES {
        let path = format!("{}/tests/{}.json", env!("CARGO_MANIFEST_DIR"), family.name);
        let config: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(families::of_config(&config).unwrap().name, family.name);
        // The names of the tensors of GPT-2 depend on the file.
        let weights = family.weights("".as_ref(), &config);
        assert!(weights.is_ok() || family.name == "gpt2", "{weights:?}");
        let declaration = family.declaration(&config).unwrap();
        let declaration = dense(declaration.trim_end().trim_end_matches('}'));
        assert!(compiled.contains(&declaration), "{declaration}");
    }
}

#[test]
fn a_network_that_the_gallery_has_not_is_refused_with_the_reasons() {
    let refused = |config: &Value| families::of_config(config).unwrap_err().to_string();
    assert_eq!(
        refused(&json!({ "model_type": "mamba" })),
        "config.json has the `model_type` \"mamba\": the gallery has gemma2, gemma3_text, gpt2, gpt_neox, llama, mistral, mixtral, opt, \
         phi3, qwen2, qwen3, qwen3_moe"
    );
    let mut other = file();
    other["rope_scaling"]["rope_type"] = json!("yarn");
    other["mlp_bias"] = json!(true);
    let message = refused(&other);
    assert!(
        message.starts_with("the network `zoo::llama` has no declaration"),
        "{message}"
    );
    assert!(
        message.contains(
            "\n  rope_parameters.rope_type: declared \"llama3\", and the file has \"yarn\""
        ),
        "{message}"
    );
    assert!(
        message.contains("\n  mlp_bias: declared false, and the file has true"),
        "{message}"
    );

    let mut partial = file();
    partial.as_object_mut().unwrap().remove("hidden_size");
    partial.as_object_mut().unwrap().remove("head_dim");
    let family = families::of_config(&partial).unwrap();
    assert_eq!(
        family.declaration(&partial).unwrap_err().to_string(),
        "config.json has no hidden_size, head_dim, which zoo::llama is declared with"
    );
}
