//! Models of Hugging Face, and of Meta.

use super::*;
use attn::{checkpoint::layout::*, model};

model! {
    struct Bert<vocab = 29, d_model = 16, heads = 4, layers = 2, hidden = 24, max_len = 12>;

    fn forward(tokens: ids[batch, seq], segments: ids[batch, seq], lens: lens[batch], first: lens[batch])
        -> ([batch, seq, d_model], [batch, d_model])
    {
        let x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        let mut x = layer_norm(x + embedding::<2, d_model, name = token_types>(segments));
        repeat layers {
            x = layer_norm(x + attention::<heads, mask = padding>(x, padding = lens));
            x = layer_norm(x + feed_forward::<hidden, activation = gelu>(x));
        }
        let pooled = tanh(linear::<d_model, name = pooler>(mean_pool(x, first)));
        (x, pooled)
    }
}

model! {
    struct Gpt2<vocab = 29, d_model = 16, heads = 4, layers = 2, max_len = 12>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
            x = x + feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }
}

model! {
    struct Llama<vocab = 29, d_model = 16, heads = 4, kv_heads = 2, layers = 2, hidden = 24>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, kv_heads = kv_heads, mask = causal, position = rope, bias = false>(rms_norm(x));
            x = x + feed_forward::<hidden, activation = swiglu>(rms_norm(x));
        }
        linear::<vocab, bias = false>(rms_norm(x))
    }
}

/// The value in its config.
const RMS_NORM_EPS: f64 = 1e-2;

model! {
    struct TiedLlama<vocab = 29, d_model = 16, heads = 4, kv_heads = 2, layers = 2, hidden = 24>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat layers {
            let normal = rms_norm::<epsilon = RMS_NORM_EPS>(x);
            x = x + attention::<heads, kv_heads = kv_heads, mask = causal, position = rope, bias = false>(normal);
            x = x + feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = 1e-2>(x));
        }
        linear::<tied = embedding>(rms_norm::<epsilon = { 0.1 * 0.1 }>(x))
    }
}

fn assert_bert(run: &Run, bert: &Bert) {
    let first = Cpu::default().tensor_from_vec(vec![1; BATCH], (BATCH,));
    let input = (run.ids("tokens"), run.ids("types"), lens(), first);
    let (hidden, pooled) = bert.forward(input);
    run.assert_same("hidden", &hidden.as_vec());
    run.assert_same("pooled", &pooled.as_vec());
}

#[test]
fn bert_computes_the_same() {
    assert_bert(
        &Run::of("bert"),
        &round_trip("bert", &hugging_face_bert(), &[]),
    );
}

#[test]
fn bert_loads_from_a_classifier_under_its_prefix() {
    let map = hugging_face_bert().under("", "bert.");
    let bert = round_trip(
        "bert_classifier",
        &map,
        &["classifier.weight", "classifier.bias"],
    );
    assert_bert(&Run::of("bert_classifier"), &bert);
}

#[test]
fn gpt2_computes_the_same_with_and_without_a_prefix() {
    let run = Run::of("gpt2");
    let gpt: Gpt2 = round_trip("gpt2", &hugging_face_gpt2(), &[]);
    run.assert_same("logits", &gpt.forward(run.ids("tokens")).as_vec());
    let gpt: Gpt2 = round_trip("gpt2_bare", &hugging_face_gpt2_model(), &[".attn.bias"]);
    run.assert_same("logits", &gpt.forward(run.ids("tokens")).as_vec());
}

#[test]
fn llama_computes_the_same() {
    let run = Run::of("llama");
    let llama: Llama = round_trip("llama", &hugging_face_llama(), &[]);
    run.assert_same("logits", &llama.forward(run.ids("tokens")).as_vec());
}

#[test]
fn llama_with_a_tied_head_and_another_epsilon_computes_the_same() {
    let run = Run::of("llama_tied");
    let llama: TiedLlama = round_trip("llama_tied", &hugging_face_llama(), &[]);
    run.assert_same("logits", &llama.forward(run.ids("tokens")).as_vec());
}

#[test]
fn rotary_pairs_of_meta_become_halves_and_pairs_again() {
    let run = Run::of("meta_llama");
    let llama: Llama = round_trip("meta_llama", &meta_llama(4, 2), &["rope.freqs"]);
    run.assert_same("logits", &llama.forward(run.ids("tokens")).as_vec());
}

#[test]
fn a_file_of_one_layout_becomes_one_of_another() {
    let llama: Llama = load("meta_llama", &meta_llama(4, 2));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_mapped(&llama, &hugging_face_llama(), &path).unwrap();
    let found: Vec<String> = safetensors::read(&path).into_keys().collect();
    let expected: Vec<String> = safetensors::read(&file("llama")).into_keys().collect();
    assert_eq!(found, expected);
}
