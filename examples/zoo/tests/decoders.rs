//! Networks that continue a text.

use crate::Run;
use attn::{
    checkpoint::{Archive, LoadOptions},
    dfdx::prelude::*,
    generate::Sampling,
    model,
};
use support::onnx::Calls;

/// A test of the model with this name.
macro_rules! compare {
    ($name:ident: $model:ty, $family:ident $(, $argument:expr)*) => {
        compare!($name: $model, $family $(, $argument)*; session);
    };
    ($name:ident: $model:ty, $family:ident $(, $argument:expr)*; $session:ident) => {
        #[test]
        fn $name() {
            let (config, map) = (zoo::$family::config(), zoo::$family::weights($($argument),*));
            let run = Run::of(stringify!($name));
            let mut model: $model = run.load(&config, &map);
            let logits = model.forward(run.ids("tokens"));
            run.assert_same("logits", &logits.as_vec());
            Calls::default().call(&[&run.ids("tokens")], &logits).check(|path| model.export_onnx(path));

            let inputs = (run.ids("tokens").traced(model.alloc_grads()), run.ids("targets"));
            let loss = model.loss_mut(inputs);
            run.assert_same("loss", &loss.as_vec());
            run.assert_gradients(&model, &map, &loss.backward());

            let new = run.list("new");
            let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
            let mut session = model.$session(32).unwrap();
            let tokens = session.generate(&run.list("prompt"), sampling, &[]).unwrap();
            let tokens: Vec<usize> = tokens.take(new.len()).map(Result::unwrap).collect();
            assert_eq!(tokens, new);
        }
    };
}

model! {
    use zoo::gpt2::gpt2;

    struct Gpt2<vocab = 61, d_model = 24, heads = 4, layers = 2, max_len = 32, epsilon = 1e-3>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gpt2::<hidden = { 4 * d_model }, ..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(gpt2: Gpt2, gpt2, "transformer.");

/// The reference in f64 is met as exactly as f64 is.
#[test]
fn gpt2_in_f64_has_the_logits_of_f64() {
    let run = Run::of("gpt2");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpt2.safetensors");
    let options = LoadOptions {
        convert: true,
        ..LoadOptions::default()
    };
    let mut model = Cpu::default().build_module::<Gpt2, f64>();
    let map = zoo::gpt2::weights("transformer.");
    let archive = Archive::open(path).unwrap();
    archive.load_mapped(&mut model, &map, options).unwrap();
    let expected = run.numbers("exact_logits");
    let largest = expected.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    let logits = model.forward(run.ids("tokens")).as_vec();
    assert_eq!(logits.len(), expected.len());
    for (found, expected) in logits.iter().zip(&expected) {
        assert!(
            (found - expected).abs() < 1e-12 * largest,
            "{found} {expected}"
        );
    }
}

model! {
    use zoo::llama::llama;

    struct Llama<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 40, layers = 2, theta = 100.0,
        factor = 4.0, low = 1.0, high = 4.0, original_max_len = 8, epsilon = 1e-3, tied = true,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        llama::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(llama: Llama, llama);

model! {
    use zoo::llama::llama;

    struct Untied<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 40, layers = 2, theta = 100.0,
        factor = 4.0, low = 1.0, high = 4.0, original_max_len = 8, epsilon = 1e-3, tied = false,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        llama::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(llama_untied: Untied, llama);

model! {
    use zoo::smollm::smollm;

    struct SmolLm<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, hidden = 40, layers = 2, theta = 1000.0, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        smollm::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(smollm: SmolLm, smollm);

model! {
    use zoo::mistral::mistral;

    struct Mistral<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 40, layers = 2, window = 5, theta = 1000.0, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        mistral::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(mistral: Mistral, mistral);

model! {
    use zoo::qwen2::qwen2;

    struct Qwen2<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, hidden = 40, layers = 2, theta = 1000.0, epsilon = 1e-3, tied = true,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        qwen2::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(qwen2: Qwen2, qwen2);

model! {
    use zoo::qwen3::qwen3;

    struct Qwen3<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 40, layers = 2, theta = 1000.0, tied = false, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        qwen3::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(qwen3: Qwen3, qwen3);

model! {
    use zoo::gemma2::gemma2;

    struct Gemma2<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 40, layers = 4, window = 5, scalar = 16, cap = 2.0,
        final_cap = 3.0, theta = 1000.0, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gemma2::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(gemma2: Gemma2, gemma2);

model! {
    use zoo::gemma3::gemma3;

    struct Gemma3<
        vocab = 61, d_model = 16, heads = 4, kv_heads = 2, head_dim = 8, hidden = 24, layers = 8, window = 5, scalar = 16,
        theta = 10000.0, local_theta = 100.0, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gemma3::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(gemma3: Gemma3, gemma3);

model! {
    use zoo::phi3::phi3;

    struct Phi3<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, hidden = 40, layers = 2, window = 5, theta = 1000.0, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        phi3::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(phi3: Phi3, phi3);

model! {
    use zoo::phi3_long::phi3_long;

    struct Phi3Long<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, hidden = 40, layers = 2, window = 5, theta = 1000.0,
        short_factor = [1.0, 1.25, 2.0], long_factor = [1.5, 3.0, 7.5], original_max_len = 6, max_len = 64, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        phi3_long::<.., name = phi3>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(phi3_long: Phi3Long, phi3_long);

/// Texts of at most six tokens have other frequencies, also in a session that ends there.
#[test]
fn phi3_long_has_the_frequencies_of_short_texts() {
    let (config, map) = (zoo::phi3_long::config(), zoo::phi3_long::weights());
    let run = Run::of("phi3_long");
    let model: Phi3Long = run.load(&config, &map);
    let tokens = run.ids("short");
    let logits = model.forward(tokens.clone());
    run.assert_same("short_logits", &logits.as_vec());
    Calls::default()
        .call(&[&tokens], &logits)
        .check(|path| model.export_onnx(path));

    let (_, len) = *tokens.shape();
    let tokens = tokens.as_vec();
    let mut sessions = model.sessions(2, len).unwrap();
    let texts: Vec<&[usize]> = tokens.chunks(len).collect();
    let last = sessions.prefill(&texts).unwrap();
    let logits = logits.as_vec();
    let expected = |text: usize| &logits[((text + 1) * len - 1) * 61..(text + 1) * len * 61];
    for text in 0..2 {
        let worst = last.row(text).iter().zip(expected(text));
        let worst = worst.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-4, "{worst}");
    }
}

model! {
    use zoo::gpt_neox::gpt_neox;

    struct GptNeoX<vocab = 61, d_model = 32, heads = 4, hidden = 40, layers = 2, rotary_pct = 0.5, theta = 1000.0, epsilon = 1e-3>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gpt_neox::<rotary = { (rotary_pct * (d_model / heads) as f64) as usize }, ..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(gpt_neox: GptNeoX, gpt_neox, 4);

model! {
    use zoo::opt::opt;

    struct Opt<vocab = 61, d_model = 24, heads = 4, hidden = 40, layers = 2, max_len = 32>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        opt::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(opt: Opt, opt);

model! {
    use zoo::mixtral::mixtral;

    struct Mixtral<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, hidden = 16, layers = 2, experts = 4, chosen = 2, theta = 1000.0,
        epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        mixtral::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(mixtral: Mixtral, mixtral, 4);

model! {
    use zoo::qwen3_moe::qwen3_moe;

    struct Qwen3Moe<
        vocab = 61, d_model = 24, heads = 4, kv_heads = 2, head_dim = 8, hidden = 12, layers = 2, experts = 5, chosen = 2,
        theta = 1000.0, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        qwen3_moe::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(qwen3_moe: Qwen3Moe, qwen3_moe, 5);

model! {
    use zoo::gpt_oss::gpt_oss;

    struct GptOss<
        vocab = 61, d_model = 16, heads = 4, kv_heads = 2, head_dim = 8, hidden = 12, layers = 4, experts = 4, chosen = 2,
        window = 5, limit = 1.5, theta = 1000.0, factor = 4.0, original_max_len = 8, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gpt_oss::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(gpt_oss: GptOss, gpt_oss, 12);

model! {
    use zoo::deepseek_v2::deepseek_v2;

    struct DeepseekV2<
        vocab = 61, d_model = 20, heads = 4, q_rank = 12, rank = 10, rot = 4, nope = 6, value = 5, dense = 1, layers = 3,
        hidden = 40, experts = 6, groups = 3, best_groups = 2, chosen = 2, expert_hidden = 8, shared = 2, routed_scale = 1.5,
        theta = 1000.0, factor = 4.0, original_max_len = 8, mscale = 0.7,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        deepseek_v2::<..>(tokens)
    }

    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        deepseek_v2::<absorbed = true, .., tied = deepseek_v2>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

compare!(deepseek_v2: DeepseekV2, deepseek_v2, 4, 1, 3, 6; decode_session);

#[test]
fn deepseek_v2_has_the_same_logits_in_both_forms() {
    let (config, map) = (
        zoo::deepseek_v2::config(),
        zoo::deepseek_v2::weights(4, 1, 3, 6),
    );
    let run = Run::of("deepseek_v2");
    let model: DeepseekV2 = run.load(&config, &map);
    run.assert_same("logits", &model.decode(run.ids("tokens")).as_vec());
}

/// Each of the three layers remembers a latent of 10 numbers and a key of 4.
const _: () = assert!(DeepseekV2::decode_cache_bytes_per_token() == 3 * (10 + 4) * 4);

/// A config of another family and of other sizes, of a file in two parts of which one is not there.
#[test]
fn all_that_is_wrong_with_a_folder_is_in_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let json = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/qwen3.json");
    let json = std::fs::read_to_string(json).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["num_hidden_layers"] = 3.into();
    std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    let of = |part: usize| format!("model-0000{part}-of-00003.safetensors");
    let map = serde_json::json!({ "weight_map": { "a": of(1), "b": of(2), "c": of(3) } });
    std::fs::write(index, map.to_string()).unwrap();
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/smollm.safetensors");
    std::fs::copy(whole, folder.path().join(of(2))).unwrap();

    let mut model = Cpu::default().build_module::<SmolLm, f32>();
    let tokens = Run::of("smollm").ids("tokens");
    let before = model.forward(tokens.clone()).as_vec();
    let (config, map) = (zoo::smollm::config(), zoo::smollm::weights());
    let error = zoo::load(&mut model, folder.path(), &config, &map).unwrap_err();
    let error = error.to_string();
    for part in [
        "model_type: declared \"llama\", and the file has \"qwen3\"",
        "num_hidden_layers: declared 2, and the file has 3",
        "tie_word_embeddings: declared true, and the file has false",
        &of(1),
        &of(3),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains(&of(2)), "{error}");
    assert_eq!(model.forward(tokens).as_vec(), before);
}
