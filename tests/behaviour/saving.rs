//! Layers are saved under fixed names, and loaded ones compute the same, bit for bit.

use attn::{
    Element, attention,
    checkpoint::{self, LoadOptions},
    nn::LearnedPosition,
};
use dfdx::prelude::*;
use std::{fs, path::Path};
use support::tensors::parameters;

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct Normed<heads = 4, kv_heads = 2, d_model = 8, mask = causal, qk_norm = rms, position = rel_pos_bias(4, 6)>;
    struct Additive<heads = 2, d_model = 8, d_context = 6, score = additive(hidden = 3), bias = [q, o]>;
    struct Bilinear<heads = 2, d_model = 8, value_head_dim = 3, score = bilinear, bias = false>;
    struct Body<heads = 2, d_model = 8, bias = false> {
        param near: [heads, 3] = normal(std = 0.5);
        param shared: [1] = uniform(bound = 0.5);
        fn score(score, h, q_idx, kv_idx) { score * shared[0] + near[h, min(abs(q_idx - kv_idx), 2)] }
    }
    struct Places<heads = 2, d_model = 8, d_context = 6, bias = [v]> {
        param near: [heads, 3] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { near[h, min(abs(q_idx - kv_idx), 2)] }
    }
}

/// Name and dimensions of a tensor in a file.
type Entry = (&'static str, &'static [usize]);

const PLAIN: &[Entry] = &[
    ("q_proj.weight", &[8, 8]),
    ("q_proj.bias", &[8]),
    ("k_proj.weight", &[8, 8]),
    ("k_proj.bias", &[8]),
    ("v_proj.weight", &[8, 8]),
    ("v_proj.bias", &[8]),
    ("o_proj.weight", &[8, 8]),
    ("o_proj.bias", &[8]),
];

const NORMED: &[Entry] = &[
    ("q_proj.weight", &[8, 8]),
    ("q_proj.bias", &[8]),
    ("q_norm.weight", &[2]),
    ("k_proj.weight", &[4, 8]),
    ("k_proj.bias", &[4]),
    ("k_norm.weight", &[2]),
    ("v_proj.weight", &[4, 8]),
    ("v_proj.bias", &[4]),
    ("rel_pos_bias.weight", &[4, 4]),
    ("o_proj.weight", &[8, 8]),
    ("o_proj.bias", &[8]),
];

const ADDITIVE: &[Entry] = &[
    ("q_proj.weight", &[6, 8]),
    ("q_proj.bias", &[6]),
    ("k_proj.weight", &[6, 6]),
    ("v_proj.weight", &[8, 6]),
    ("score_proj.weight", &[2, 3]),
    ("o_proj.weight", &[8, 8]),
    ("o_proj.bias", &[8]),
];

const BILINEAR: &[Entry] = &[
    ("q_proj.weight", &[8, 8]),
    ("score_proj.weight", &[2, 4, 4]),
    ("k_proj.weight", &[8, 8]),
    ("v_proj.weight", &[6, 8]),
    ("o_proj.weight", &[8, 6]),
];

const BODY: &[Entry] = &[
    ("q_proj.weight", &[8, 8]),
    ("k_proj.weight", &[8, 8]),
    ("v_proj.weight", &[8, 8]),
    ("near.weight", &[2, 3]),
    ("shared.weight", &[1]),
    ("o_proj.weight", &[8, 8]),
];

const PLACES: &[Entry] = &[
    ("v_proj.weight", &[8, 6]),
    ("v_proj.bias", &[8]),
    ("near.weight", &[2, 3]),
    ("o_proj.weight", &[8, 8]),
];

/// The names in the directory of a zip file, which is what an npz file is.
fn names_in_zip(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).expect("the file was written");
    let entries = bytes.windows(4).enumerate();
    let entries = entries.filter(|(_, signature)| signature == b"PK\x01\x02");
    let names = entries.map(|(at, _)| {
        let len = usize::from(u16::from_le_bytes([bytes[at + 28], bytes[at + 29]]));
        String::from_utf8_lossy(&bytes[at + 46..at + 46 + len]).into_owned()
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The header of a safetensors file: eight bytes with its length, then names, dtypes and shapes as JSON.
fn header_of_safetensors(path: &Path) -> String {
    let bytes = fs::read(path).expect("the file was written");
    let (len, rest) = bytes.split_at(8);
    let len = u64::from_le_bytes(len.try_into().expect("eight bytes"));
    String::from_utf8_lossy(&rest[..len as usize]).into_owned()
}

/// Saves a model in dfdx's two formats and as a checkpoint, checks the names in the files, loads them into models with other
/// parameters, and asserts that they compute exactly the same.
fn assert_saves<L, E>(expected: &[(String, &[usize])], run: impl Fn(&L) -> Vec<E>)
where
    L: BuildModule<Cpu, E>,
    E: Element + NumpyDtype + safetensors::SafeDtype,
    Cpu: Device<E>,
{
    let found = parameters(&L::build(&Cpu::default()));
    let found: Vec<_> = found
        .iter()
        .map(|p| (p.name.clone(), &p.dims[..]))
        .collect();
    assert_eq!(found, expected, "what dfdx visits");

    let dir = tempfile::tempdir().expect("a place for files");
    let npz = dir.path().join("layer.npz");
    let safetensors = dir.path().join("layer.safetensors");
    let saved = L::build(&Cpu::seed_from_u64(1));
    saved.save(&npz).expect("an npz file is written");
    saved
        .save_safetensors(&safetensors)
        .expect("a safetensors file is written");

    let mut names: Vec<_> = expected
        .iter()
        .map(|(name, _)| format!("{name}.npy"))
        .collect();
    names.sort();
    assert_eq!(names_in_zip(&npz), names);
    let header = header_of_safetensors(&safetensors);
    assert_eq!(
        header.matches("\"dtype\"").count(),
        expected.len(),
        "{header}"
    );
    let dtype = if size_of::<E>() == 4 { "F32" } else { "F64" };
    for (name, dims) in expected {
        let dims = format!("{dims:?}").replace(' ', "");
        let entry = format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{dims},");
        assert!(header.contains(&entry), "{entry} in {header}");
    }

    let mut from_npz = L::build(&Cpu::seed_from_u64(2));
    let mut from_safetensors = L::build(&Cpu::seed_from_u64(3));
    assert_ne!(run(&from_npz), run(&saved));
    assert_ne!(run(&from_safetensors), run(&saved));
    from_npz.load(&npz).expect("the npz file is read");
    from_safetensors
        .load_safetensors(&safetensors)
        .expect("the safetensors file is read");
    assert_eq!(run(&from_npz), run(&saved));
    assert_eq!(run(&from_safetensors), run(&saved));
    assert_eq!(parameters(&from_npz), parameters(&saved));
    assert_eq!(parameters(&from_safetensors), parameters(&saved));

    let mut from_checkpoint = L::build(&Cpu::seed_from_u64(4));
    // The file of dfdx, and then ours.
    checkpoint::load(&mut from_checkpoint, &safetensors, LoadOptions::default())
        .expect("dfdx's file is read");
    assert_eq!(parameters(&from_checkpoint), parameters(&saved));
    checkpoint::save(&saved, &safetensors).expect("a file is written");
    let mut from_checkpoint = L::build(&Cpu::seed_from_u64(4));
    checkpoint::load(&mut from_checkpoint, &safetensors, LoadOptions::default())
        .expect("the file is read");
    assert_eq!(run(&from_checkpoint), run(&saved));
    from_safetensors
        .load_safetensors(&safetensors)
        .expect("dfdx reads the file");
}

fn within<'a>(prefix: &str, entries: &[(&str, &'a [usize])]) -> Vec<(String, &'a [usize])> {
    let entries = entries.iter();
    entries
        .map(|(name, dims)| (format!("{prefix}{name}"), *dims))
        .collect()
}

fn normal<const M: usize, E: Dtype>() -> Tensor<Rank3<2, 5, M>, E, Cpu>
where
    Cpu: Device<E> + SampleTensor<E>,
    rand_distr::StandardNormal: rand_distr::Distribution<E>,
{
    Cpu::seed_from_u64(7).sample_normal()
}

#[test]
fn parameters_of_every_kind_have_their_names() {
    assert_saves::<Plain, f32>(&within("", PLAIN), |l| l.forward(normal()).as_vec());
    assert_saves::<Normed, f32>(&within("", NORMED), |l| l.forward(normal()).as_vec());
    assert_saves::<Additive, f32>(&within("", ADDITIVE), |l| {
        l.forward((normal::<8, _>(), normal::<6, _>())).as_vec()
    });
    assert_saves::<Bilinear, f32>(&within("", BILINEAR), |l| l.forward(normal()).as_vec());
    assert_saves::<Body, f32>(&within("", BODY), |l| l.forward(normal()).as_vec());
    assert_saves::<Places, f32>(&within("", PLACES), |l| {
        l.forward((normal::<8, _>(), normal::<6, _>())).as_vec()
    });
}

#[test]
fn double_precision_is_kept() {
    assert_saves::<Plain<f64>, f64>(&within("", PLAIN), |l| l.forward(normal()).as_vec());
    assert_saves::<Normed<f64>, f64>(&within("", NORMED), |l| l.forward(normal()).as_vec());
}

#[test]
fn learned_positions_have_one_weight() {
    let expected: &[(&str, &[usize])] = &[("weight", &[6, 8])];
    assert_saves::<LearnedPosition<6, 8>, f32>(&within("", expected), |l| {
        l.forward(normal::<8, _>()).as_vec()
    });
}

#[test]
fn names_in_a_model_have_the_path_of_the_layer() {
    type Model = (
        LearnedPosition<6, 8, f32, Cpu>,
        Residual<Normed>,
        Repeated<Plain, 2>,
    );
    let expected: Vec<_> = [
        within("0.", &[("weight", &[6, 8])]),
        within("1.0.", NORMED),
        within("2.0.", PLAIN),
        within("2.1.", PLAIN),
    ]
    .concat();
    assert_saves::<Model, f32>(&expected, |model| model.forward(normal::<8, _>()).as_vec());
}

#[test]
fn a_file_of_another_layer_is_an_error() {
    let dev = Cpu::default();
    let dir = tempfile::tempdir().expect("a place for files");
    let npz = dir.path().join("layer.npz");
    let safetensors = dir.path().join("layer.safetensors");
    let plain = dev.build_module::<Plain, f32>();
    plain.save(&npz).expect("an npz file is written");
    plain
        .save_safetensors(&safetensors)
        .expect("a safetensors file is written");
    let mut normed = dev.build_module::<Normed, f32>();
    assert!(normed.load(&npz).is_err());
    assert!(normed.load_safetensors(&safetensors).is_err());
}
