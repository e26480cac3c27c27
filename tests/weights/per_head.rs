//! Attentions whose heads are modules with matrices of their own.

use super::*;
use attn::{attention, checkpoint::layout::*, model};

attention! {
    struct SelfAttention<heads = 4, d_model = 16, mask = causal>;
}

model! {
    struct Gpt<vocab = 29, d_model = 16, heads = 4, layers = 2, hidden = 24, max_len = 12>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal, bias = [o]>(layer_norm(x));
            x = x + feed_forward::<hidden, activation = relu>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

#[test]
fn heads_with_matrices_of_their_own_compute_the_same() {
    let run = Run::of("heads_as_modules");
    let layer: SelfAttention = round_trip("heads_as_modules", &heads_as_modules(4), &["tril"]);
    let y = layer.forward(run.floats::<SEQ, 16>("x"));
    run.assert_same("y", &y.as_vec());
}

#[test]
fn the_model_of_the_lecture_computes_the_same() {
    let run = Run::of("lecture_gpt");
    let gpt: Gpt = round_trip("lecture_gpt", &lecture_gpt(4), &["tril"]);
    run.assert_same("logits", &gpt.forward(run.ids("tokens")).as_vec());
}

/// What was loaded head by head is saved as one matrix, and the other way round.
#[test]
fn a_layer_goes_from_one_layout_to_the_other() {
    let layer: SelfAttention = load("heads_as_modules", &heads_as_modules(4));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("joined.safetensors");
    save_mapped(&layer, &torch_multihead_attention(), &path).unwrap();
    let joined = &safetensors::read(&path)["in_proj_weight"];
    let heads = safetensors::read(&file("heads_as_modules"));
    let heads = ["query", "key", "value"].into_iter().flat_map(|name| {
        let heads = &heads;
        (0..4).flat_map(move |head| heads[&format!("heads.{head}.{name}.weight")].bytes.clone())
    });
    assert!(joined.bytes == heads.collect::<Vec<u8>>());
    let mut again = Cpu::seed_from_u64(3).build_module::<SelfAttention, f32>();
    let archive = Archive::open(&path).unwrap();
    archive
        .load_mapped(
            &mut again,
            &torch_multihead_attention(),
            LoadOptions::default(),
        )
        .unwrap();
    assert_eq!(again.q_proj.weight.array(), layer.q_proj.weight.array());
}

#[test]
fn another_number_of_heads_is_refused() {
    let mut layer = Cpu::seed_from_u64(1).build_module::<SelfAttention, f32>();
    let mut error = |heads| {
        let archive = Archive::open(file("heads_as_modules")).unwrap();
        let loaded =
            archive.load_mapped(&mut layer, &heads_as_modules(heads), LoadOptions::default());
        loaded.unwrap_err().to_string()
    };
    let message = error(2);
    assert!(message.contains("heads.0.query.weight"), "{message}");
    assert!(message.contains("heads.2.query.weight"), "{message}");
    let message = error(3);
    assert!(
        message.contains("its 16 rows are not those of 3 heads"),
        "{message}"
    );
}
