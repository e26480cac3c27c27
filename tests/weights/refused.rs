//! Every mismatch is listed, by its name in the file.

use super::*;
use attn::{
    attention,
    checkpoint::{
        Problem,
        layout::{Rule, torch_multihead_attention},
    },
    model,
};

attention! {
    struct Narrow<heads = 2, d_model = 8>;
    struct SelfAttention<heads = 4, d_model = 16>;
    struct NoBias<heads = 4, d_model = 16, bias = false>;
    struct Grouped<heads = 4, kv_heads = 2, d_model = 16>;
}

model! {
    struct Untied<vocab = 29, d_model = 16, max_len = 12>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        linear::<vocab, bias = false>(layer_norm(x))
    }
}

model! {
    struct Tied<vocab = 29, d_model = 16, max_len = 12>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        linear::<tied = embedding>(layer_norm(x))
    }
}

/// The message of a rejected file, after its path. The layer must not have changed.
fn refused<L: BuildModule<Cpu, f32> + TensorCollection<f32, Cpu>>(
    path: &Path,
    map: &WeightMap,
) -> String {
    let mut layer = L::build(&Cpu::seed_from_u64(3));
    let before = snapshot(&layer);
    let loaded = Archive::open(path)
        .unwrap()
        .load_mapped(&mut layer, map, LoadOptions::default());
    let error = loaded.unwrap_err();
    assert_eq!(snapshot(&layer), before, "nothing is loaded");
    assert_eq!(error.path, path);
    error.problem.to_string()
}

fn snapshot<L: TensorCollection<f32, Cpu>>(layer: &L) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer.safetensors");
    attn::checkpoint::save(layer, &path).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn wrong_shapes_are_reported_with_ours() {
    assert_eq!(
        refused::<Narrow>(&file("mha"), &torch_multihead_attention()),
        "its tensors are not those of the model\
         \n  different: in_proj_weight, F32 [48, 16] instead of F32 [24, 8], \
         for q_proj.weight F32 [8, 8] and k_proj.weight F32 [8, 8] and v_proj.weight F32 [8, 8]\
         \n  different: in_proj_bias, F32 [48] instead of F32 [24], \
         for q_proj.bias F32 [8] and k_proj.bias F32 [8] and v_proj.bias F32 [8]\
         \n  different: out_proj.weight, F32 [16, 16] instead of F32 [8, 8], for o_proj.weight F32 [8, 8]\
         \n  different: out_proj.bias, F32 [16] instead of F32 [8], for o_proj.bias F32 [8]"
    );
}

#[test]
fn rows_of_grouped_heads_must_fit() {
    let message = refused::<Grouped>(&file("mha"), &torch_multihead_attention());
    let weight = "in_proj_weight, F32 [48, 16] instead of F32 [32, 16], \
                  for q_proj.weight F32 [16, 16] and k_proj.weight F32 [8, 16] and v_proj.weight F32 [8, 16]";
    assert!(message.contains(weight), "{message}");
}

#[test]
fn missing_and_extra_tensors_are_reported_at_once() {
    assert_eq!(
        refused::<NoBias>(&file("mha"), &torch_multihead_attention()),
        "its tensors are not those of the model\
         \n  extra: in_proj_bias, F32 [48]\
         \n  extra: out_proj.bias, F32 [16]"
    );
    assert_eq!(
        refused::<SelfAttention>(&file("mha_apart"), &torch_multihead_attention()),
        "its tensors are not those of the model\
         \n  missing: in_proj_weight, F32 [48, 16], \
         for q_proj.weight F32 [16, 16] and k_proj.weight F32 [16, 16] and v_proj.weight F32 [16, 16]\
         \n  extra: k_proj_weight, F32 [16, 10]\
         \n  extra: q_proj_weight, F32 [16, 16]\
         \n  extra: v_proj_weight, F32 [16, 10]"
    );
}

#[test]
fn unknown_prefixes_are_reported_with_the_existing_ones() {
    let map = torch_multihead_attention().under("", "encoder.self_attn.");
    assert_eq!(
        refused::<SelfAttention>(&file("encoder"), &map),
        "no tensor has a name that begins with `encoder.self_attn.`; there are `layers.`, `norm.`"
    );
}

#[test]
fn overlaps_and_gaps_of_parts_are_reported_before_the_file_is_read() {
    let rules = |ranges: [std::ops::Range<usize>; 3]| {
        let names = ["q", "k", "v"].into_iter().zip(ranges);
        let rules = names.map(|(name, range)| {
            Rule::new(format!("{name}_proj.weight"), "in_proj_weight").rows(range)
        });
        WeightMap::new(rules.chain([Rule::new("o_proj.weight", "out_proj.weight")]))
    };
    let overlap = rules([0..16, 16..32, 24..40]);
    let gap = rules([0..16, 20..36, 36..52]);
    assert_eq!(
        refused::<NoBias>(&file("mha_no_bias"), &overlap),
        "the map does not fit the model\n  k_proj.weight and v_proj.weight overlap in in_proj_weight"
    );
    let message = "the map does not fit the model\n  nothing in the model is 16..20 of axis 0 of in_proj_weight";
    assert_eq!(refused::<NoBias>(&file("mha_no_bias"), &gap), message);

    // A file cannot be written either, and an existing one stays.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    fs::write(&path, "kept").unwrap();
    let error = save_mapped(&NoBias::<f32, Cpu>::build(&Cpu::default()), &gap, &path).unwrap_err();
    assert_eq!(error.problem.to_string(), message);
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    load::<NoBias>("mha_no_bias", &rules([0..16, 16..32, 32..48]));
}

#[test]
fn a_tied_head_must_be_the_embedding() {
    let mut untied = Untied::<f32, Cpu>::build(&Cpu::seed_from_u64(5));
    let map = WeightMap::new(
        ["embedding.*", "learned_position.*", "layer_norm.*"].map(|name| Rule::new(name, name)),
    );
    let head = WeightMap::new([Rule::new("linear.*", "lm_head.*").optional()]);
    let map = map.and(head.tied("lm_head.weight", "embedding.weight"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("untied.safetensors");
    save_mapped(&untied, &map, &path).unwrap();
    assert_eq!(
        refused::<Tied>(&path, &map),
        "embedding.weight and lm_head.weight are one tensor in the model, but have not the same numbers"
    );

    untied
        .linear
        .weight
        .copy_from(&untied.embedding.weight.as_vec());
    save_mapped(&untied, &map, &path).unwrap();
    let mut tied = Tied::<f32, Cpu>::build(&Cpu::seed_from_u64(6));
    let archive = Archive::open(&path).unwrap();
    archive
        .load_mapped(&mut tied, &map, LoadOptions::default())
        .unwrap();
    assert_eq!(
        tied.embedding.weight.as_vec(),
        untied.embedding.weight.as_vec()
    );

    // Without it in the file, it is not missing; without the rule in the map, it is extra.
    save_mapped(&tied, &map, &path).unwrap();
    assert!(!safetensors::read(&path).contains_key("lm_head.weight"));
    let archive = Archive::open(&path).unwrap();
    archive
        .load_mapped(&mut tied, &map, LoadOptions::default())
        .unwrap();
    let loaded =
        Archive::open(&path)
            .unwrap()
            .load_mapped(&mut untied, &map, LoadOptions::default());
    let Problem::Mismatch(mismatch) = loaded.unwrap_err().problem else {
        panic!("a head is missing");
    };
    assert_eq!(mismatch.missing[0].0, "lm_head.weight");
}
