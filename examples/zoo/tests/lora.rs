//! A network of the gallery with adapters of PEFT, whose files have the names of `transformers`. `lora.py` made them.

use super::Run;
use attn::{
    checkpoint::{LoadOptions, lora},
    dfdx::prelude::*,
    generate::Sampling,
    model,
};
use std::path::Path;
use support::safetensors;

model! {
    use zoo::llama::llama;

    struct Tuned<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 40, layers = 2, theta = 100.0,
        factor = 4.0, low = 1.0, high = 4.0, original_max_len = 8, epsilon = 1e-3, tied = true,
        lora(rank = 3, alpha = 6, on = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        llama::<
            vocab, d_model, heads, kv_heads, head_dim, hidden, layers, theta, factor, low, high, original_max_len, epsilon, tied,
        >(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

model! {
    use zoo::llama::llama;

    struct Merged<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 40, layers = 2, theta = 100.0,
        factor = 4.0, low = 1.0, high = 4.0, original_max_len = 8, epsilon = 1e-3, tied = true,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        llama::<
            vocab, d_model, heads, kv_heads, head_dim, hidden, layers, theta, factor, low, high, original_max_len, epsilon, tied,
        >(tokens)
    }
}

/// The likeliest tokens behind the prompt.
macro_rules! assert_goes_on {
    ($model:expr, $run:expr) => {
        let sampling = Sampling {
            temperature: 0.0,
            ..Sampling::default()
        };
        let new = $run.list("new");
        let mut session = $model.session(32).unwrap();
        let tokens = session
            .generate(&$run.list("prompt"), sampling, &[])
            .unwrap();
        let tokens: Vec<usize> = tokens.take(new.len()).map(Result::unwrap).collect();
        assert_eq!(tokens, new);
    };
}

#[test]
fn adapters_of_llama() {
    let (config, map) = (zoo::llama::config(), zoo::llama::weights());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llama_lora");
    let (base, run) = (Run::of("llama"), Run::of("llama_lora"));
    let mut model: Tuned = base.load(&config, &map.clone().without_adapters());
    base.assert_same("logits", &model.forward(base.ids("tokens")).as_vec());

    let report = lora::load(&mut model, &map, &folder, LoadOptions::default());
    assert_eq!(report.unwrap().loaded.len(), 2 * 7 * 2);
    run.assert_same("logits", &model.forward(run.ids("tokens")).as_vec());
    let inputs = (
        run.ids("tokens").traced(model.alloc_grads()),
        run.ids("targets"),
    );
    let loss = model.loss_mut(inputs);
    run.assert_same("loss", &loss.as_vec());
    run.assert_gradients(&model, &map.clone().adapters(), &loss.backward());
    assert_goes_on!(model, run);

    let written = tempfile::tempdir().unwrap();
    lora::save(&model, &map, written.path()).unwrap();
    let [found, expected] = [written.path(), &folder]
        .map(|folder| safetensors::read(&folder.join("adapter_model.safetensors")));
    assert!(found == expected);

    let mut merged: Merged = base.load(&config, &map);
    lora::merge(&model, &mut merged).unwrap();
    run.assert_same("logits", &merged.forward(run.ids("tokens")).as_vec());
    assert_goes_on!(merged, run);
}
