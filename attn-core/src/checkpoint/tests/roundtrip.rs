//! Loading returns what was saved, in this crate, in dfdx and in the `safetensors` crate. A file that does not fit is refused.

use std::{collections::BTreeMap, fs, path::Path};

use ::safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use dfdx::{
    nn::{
        modules,
        tensor_collection::{ModuleVisitor, ScalarOptions, TensorCollection, TensorOptions},
    },
    prelude::*,
};
use half::{bf16, f16};

use super::{LoadOptions, Problem, STRICT, file_in, model, numbers, state};
use crate::{
    checkpoint::{Archive, Difference, TensorType, load, load_optimizer, save, save_optimizer},
    nn,
    train::{AdamWConfig, AdamWState, LionConfig, OptimizerState, SgdConfig},
};

const CONVERT: LoadOptions = LoadOptions {
    convert: true,
    ..STRICT
};

/// Writes a file with the `safetensors` crate.
fn write_safetensors(path: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (
            *name,
            TensorView::new(*dtype, shape.to_vec(), bytes).unwrap(),
        )
    });
    fs::write(path, serialize(views, None).unwrap()).unwrap();
}

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// The numbers of a `Linear<1, 2>`.
fn linear<E: crate::Element>(model: &modules::Linear<1, 2, E, Cpu>) -> Vec<E>
where
    Cpu: Device<E>,
{
    [model.weight.as_vec(), model.bias.as_vec()].concat()
}

#[test]
fn a_model_is_restored_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    save(&model::<f32>(7), &path).unwrap();
    let mut loaded = model::<f32>(0);
    load(&mut loaded, &path, STRICT).unwrap();
    assert_eq!(numbers(&loaded), numbers(&model::<f32>(7)));

    save(&model::<f64>(8), &path).unwrap();
    let mut loaded = model::<f64>(0);
    load(&mut loaded, &path, STRICT).unwrap();
    assert_eq!(numbers(&loaded), numbers(&model::<f64>(8)));
    assert_eq!(super::names(folder.path()), ["weights.safetensors"]);
}

#[test]
fn files_of_dfdx_and_of_this_crate_are_compatible() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    model::<f32>(7).save_safetensors(&path).unwrap();
    let mut loaded = model::<f32>(0);
    load(&mut loaded, &path, STRICT).unwrap();
    assert_eq!(numbers(&loaded), numbers(&model::<f32>(7)));

    save(&model::<f64>(8), &path).unwrap();
    let mut loaded = model::<f64>(0);
    loaded.load_safetensors(&path).unwrap();
    assert_eq!(numbers(&loaded), numbers(&model::<f64>(8)));
}

#[test]
fn saved_files_are_readable_by_the_safetensors_crate() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    save(&model::<f32>(7), &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert!(header.is_multiple_of(8));
    assert!(metadata.metadata().as_ref().unwrap().contains_key("crc32"));
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor("0.bias").unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (Dtype::F32, &[2][..]));
    assert_eq!(tensor.data(), f32s(&model::<f32>(7).0.bias.as_vec()));
    assert_eq!(
        tensors.tensor("1.epsilon").unwrap().data(),
        1_f64.to_le_bytes()
    );
    assert_eq!(tensors.len(), 5);
}

#[test]
fn numbers_beside_the_tensors_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let tensors = [
        ("0.weight", Dtype::F32, &[2, 3][..], f32s(&[1.0; 6])),
        ("0.bias", Dtype::F32, &[2], f32s(&[2.0; 2])),
        ("1.gamma", Dtype::F32, &[2], f32s(&[3.0; 2])),
        ("1.beta", Dtype::F32, &[2], f32s(&[4.0; 2])),
    ];
    write_safetensors(&path, &tensors);
    let mut loaded = model::<f32>(7);
    load(&mut loaded, &path, STRICT).unwrap();
    let expected = [1., 1., 1., 1., 1., 1., 2., 2., 3., 3., 4., 4., 1.];
    assert_eq!(numbers(&loaded), expected);
}

#[test]
fn all_differences_are_listed_and_nothing_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let tensors = [
        ("0.weight", Dtype::F32, &[3, 2][..], f32s(&[1.0; 6])),
        ("0.bias", Dtype::I32, &[2], vec![0; 8]),
        ("1.beta", Dtype::F32, &[2], f32s(&[4.0; 2])),
        ("1.epsilon", Dtype::F32, &[], f32s(&[4.0])),
        ("2.bias", Dtype::BOOL, &[1], vec![0]),
        ("3.bias", Dtype::U8, &[0], vec![]),
    ];
    write_safetensors(&path, &tensors);
    let mut loaded = model::<f32>(7);
    let described = |dtype, shape: &[usize]| TensorType {
        dtype,
        shape: shape.to_vec(),
    };
    let error = load(&mut loaded, &path, STRICT).unwrap_err();
    assert_eq!(error.path, path);
    let Problem::Mismatch(mismatch) = error.problem else {
        panic!("{error}");
    };
    let missing = ("1.gamma".to_string(), described(Dtype::F32, &[2]));
    assert_eq!(mismatch.missing, [missing]);
    let extra = [
        ("2.bias".to_string(), described(Dtype::BOOL, &[1])),
        ("3.bias".to_string(), described(Dtype::U8, &[0])),
    ];
    assert_eq!(mismatch.extra, extra);
    let different = |tensor: &str, expected, found| Difference {
        tensor: tensor.into(),
        expected,
        found,
    };
    let weight = [&[2, 3][..], &[3, 2]].map(|shape| described(Dtype::F32, shape));
    let bias = [Dtype::F32, Dtype::I32].map(|dtype| described(dtype, &[2]));
    let epsilon = [Dtype::F64, Dtype::F32].map(|dtype| described(dtype, &[]));
    let pairs = [
        ("0.weight", weight),
        ("0.bias", bias),
        ("1.epsilon", epsilon),
    ];
    let differences = pairs.map(|(name, [expected, found])| different(name, expected, found));
    assert_eq!(mismatch.different, differences);
    assert_eq!(numbers(&loaded), numbers(&model::<f32>(7)));
}

#[test]
fn other_float_types_are_converted_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    // Exact in each of these types, except the last number, which `f32` rounds to even.
    let numbers = [0.5, -1.5, 3.0, f64::from(f32::MAX)];
    let [a, b, c, max] = numbers;
    let halves = [a, b, c, 65504.0];
    let cases = [
        (
            Dtype::F16,
            halves.map(|x| f16::from_f64(x).to_le_bytes().to_vec()),
            65504.0,
        ),
        (
            Dtype::BF16,
            [a, b, c, 65536.0].map(|x| bf16::from_f64(x).to_le_bytes().to_vec()),
            65536.0,
        ),
        (
            Dtype::F64,
            [a, b, c, max + 1.0].map(|x| x.to_le_bytes().to_vec()),
            max,
        ),
        (
            Dtype::F64,
            [a, b, c, 1e300].map(|x| x.to_le_bytes().to_vec()),
            f64::INFINITY,
        ),
    ];
    for (dtype, [x, y, z, last], expected) in cases {
        let tensors = [
            ("weight", dtype, &[2, 1][..], [x, y].concat()),
            ("bias", dtype, &[2], [z, last].concat()),
        ];
        write_safetensors(&path, &tensors);
        let mut loaded = modules::Linear::<1, 2, f32, Cpu>::build(&Cpu::default());
        let before = linear(&loaded);
        let error = load(&mut loaded, &path, STRICT).unwrap_err().to_string();
        assert!(
            error.contains(&format!("weight, {dtype} [2, 1] instead of F32 [2, 1]")),
            "{error}"
        );
        assert_eq!(linear(&loaded), before);
        load(&mut loaded, &path, CONVERT).unwrap();
        assert_eq!(linear(&loaded), [a, b, c, expected].map(|x| x as f32));
    }
}

#[test]
fn integers_are_never_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let tensors = [
        ("weight", Dtype::I32, &[2, 1][..], vec![0; 8]),
        ("bias", Dtype::F8_E4M3, &[2], vec![0; 2]),
    ];
    write_safetensors(&path, &tensors);
    let mut loaded = modules::Linear::<1, 2, f32, Cpu>::build(&Cpu::default());
    let error = load(&mut loaded, &path, CONVERT).unwrap_err();
    let Problem::Mismatch(mismatch) = error.problem else {
        panic!("{error}");
    };
    assert_eq!(mismatch.different.len(), 2);
}

#[test]
fn nan_is_refused_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let mut broken = model::<f32>(7);
    broken.0.weight = Cpu::default().tensor([[1.0, f32::NAN, 2.0], [f32::INFINITY, f32::NAN, 3.0]]);
    broken.1.beta = Cpu::default().tensor([1.0, -f32::NAN]);
    save(&broken, &path).unwrap();
    let mut loaded = model::<f32>(8);
    let error = load(&mut loaded, &path, STRICT).unwrap_err();
    let Problem::Nan(nans) = error.problem else {
        panic!("{error}");
    };
    assert_eq!(
        nans,
        [("0.weight".to_string(), 2), ("1.beta".to_string(), 1)]
    );
    assert_eq!(numbers(&loaded), numbers(&model::<f32>(8)));
    let options = LoadOptions {
        allow_nan: true,
        ..STRICT
    };
    load(&mut loaded, &path, options).unwrap();
    let is_nan = |numbers: Vec<f64>| numbers.iter().map(|x| x.is_nan()).collect::<Vec<_>>();
    assert_eq!(is_nan(numbers(&loaded)), is_nan(numbers(&broken)));
}

#[test]
fn empty_tensors_and_models_without_tensors_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let mut empty: Tensor<Rank2<0, 2>, f32, Cpu> = Cpu::default().zeros();
    save(&empty, &path).unwrap();
    load(&mut empty, &path, STRICT).unwrap();
    save::<_, f32, Cpu>(&ReLU, &path).unwrap();
    load::<_, f32, Cpu>(&mut ReLU, &path, STRICT).unwrap();
    assert!(load(&mut empty, &path, STRICT).is_err());
}

/// The running statistics of a norm are not parameters, but are saved.
#[test]
fn buffers_are_saved_and_have_no_moments() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let mut norm = modules::BatchNorm2D::<2, f32, Cpu>::build(&Cpu::default());
    norm.running_mean = Cpu::default().tensor([3.0, 4.0]);
    save(&norm, &path).unwrap();
    let mut loaded = modules::BatchNorm2D::<2, f32, Cpu>::build(&Cpu::default());
    load(&mut loaded, &path, STRICT).unwrap();
    assert_eq!(loaded.running_mean.array(), [3.0, 4.0]);

    let mut state = AdamWState {
        step: 1,
        ..Default::default()
    };
    let names = ["scale.mean", "scale.square", "bias.mean", "bias.square"];
    state.lists = names.map(|name| (name.to_string(), vec![1_f32; 2])).into();
    save_optimizer(&state, &path).unwrap();
    assert_eq!(load_optimizer(&norm, &path, STRICT).unwrap(), state);
}

#[test]
fn a_state_is_restored_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let model = model::<f32>(7);
    let new = AdamWState::<f32>::default();
    for state in [
        new,
        state(7),
        AdamWState {
            step: u64::MAX,
            ..state(8)
        },
    ] {
        save_optimizer(&state, &path).unwrap();
        assert_eq!(load_optimizer(&model, &path, STRICT).unwrap(), state);
    }
}

#[test]
fn a_state_of_another_algorithm_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let sgd = OptimizerState::<f32, SgdConfig>::default();
    save_optimizer(&sgd, &path).unwrap();
    let error = load_optimizer::<_, f32, Cpu, LionConfig>(&model::<f32>(7), &path, STRICT);
    let error = error.unwrap_err();
    assert_eq!(
        error.problem.to_string(),
        "it is the state of `Sgd`, but the optimizer is `Lion`: load it with `Sgd`, or load the model alone to begin with `Lion`"
    );
    // Earlier versions did not write which algorithm it is. A file without a checksum is not compared with one.
    let bytes = fs::read(&path).unwrap();
    let text = String::from_utf8(bytes[8..].to_vec()).unwrap();
    let text = text
        .replace("algorithm", "unrelated")
        .replace("crc32", "other");
    fs::write(&path, [&bytes[..8], text.as_bytes()].concat()).unwrap();
    load_optimizer::<_, f32, Cpu, LionConfig>(&model::<f32>(7), &path, STRICT).unwrap();
}

#[test]
fn a_state_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    save_optimizer(&state(7), &path).unwrap();
    let other = modules::Linear::<1, 2, f32, Cpu>::build(&Cpu::default());
    let error = load_optimizer::<_, _, _, AdamWConfig>(&other, &path, STRICT).unwrap_err();
    let Problem::Mismatch(mismatch) = error.problem else {
        panic!("{error}");
    };
    assert_eq!((mismatch.missing.len(), mismatch.extra.len()), (4, 8));

    // Weights are not a state.
    save(&model::<f32>(7), &path).unwrap();
    let error =
        load_optimizer::<_, _, _, AdamWConfig>(&model::<f32>(7), &path, STRICT).unwrap_err();
    assert!(
        matches!(error.problem, Problem::Step { found: None }),
        "{error}"
    );
}

#[test]
fn layers_of_this_crate_are_restored() {
    type Layers<E> = (nn::Linear<3, 2, E, Cpu>, nn::LayerNorm<2, E, Cpu>);
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let dev = Cpu::default();
    let build = || <(nn::Linear<3, 2>, nn::LayerNorm<2>)>::build_on_device(&dev);
    let saved: Layers<f32> = build();
    save(&saved, &path).unwrap();
    let mut loaded: Layers<f32> = build();
    load(&mut loaded, &path, STRICT).unwrap();
    assert_eq!(loaded.0.weight.as_vec(), saved.0.weight.as_vec());
}

#[test]
fn an_archive_lists_its_contents() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    save_optimizer(&state(7), &path).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.metadata()["step"], "7");
    let tensors: BTreeMap<_, _> = archive.tensors().collect();
    assert_eq!(tensors.len(), 8);
    assert_eq!(tensors["0.weight.mean"].to_string(), "F32 [6]");
}

#[test]
fn unreadable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = model::<f32>(7);
    let none = folder.path().join("none");
    // A folder has the weights in a file of its own.
    let whole = folder.path().join("model.safetensors");
    for (path, expected) in [(&*none, &none), (folder.path(), &whole)] {
        let error = load(&mut model, path, STRICT).unwrap_err();
        assert_eq!(error.path, *expected);
    }
}

/// A model with a number beside its tensors that cannot be negative.
struct Counted {
    count: usize,
    weight: Tensor<Rank1<2>, f32, Cpu>,
}

impl TensorCollection<f32, Cpu> for Counted {
    type To<E: dfdx::dtypes::Dtype, D: Device<E>> = ();

    fn iter_tensors<V: ModuleVisitor<Self, f32, Cpu>>(
        visitor: &mut V,
    ) -> Result<Option<()>, V::Err> {
        let count = ScalarOptions::from_default(0);
        visitor.visit_fields(
            (
                Self::tensor(
                    "weight",
                    |s| &s.weight,
                    |s| &mut s.weight,
                    TensorOptions::reset_to_zeros(),
                ),
                Self::scalar("count", |s| &s.count, |s| &mut s.count, count),
            ),
            |_| (),
        )
    }
}

#[test]
fn a_number_that_its_type_cannot_represent_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let weight = Cpu::default().tensor([1.0, 2.0]);
    let mut counted = Counted { count: 3, weight };
    save(&counted, &path).unwrap();
    load(&mut counted, &path, STRICT).unwrap();
    assert_eq!(counted.count, 3);

    let count = (-1_f64).to_le_bytes().to_vec();
    let tensors = [
        ("weight", Dtype::F32, &[2][..], f32s(&[3.0, 4.0])),
        ("count", Dtype::F64, &[], count),
    ];
    write_safetensors(&path, &tensors);
    let error = load(&mut counted, &path, STRICT).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("`count` is -1, which is no usize"),
        "{error}"
    );
    assert_eq!((counted.count, counted.weight.array()), (3, [1.0, 2.0]));
}
