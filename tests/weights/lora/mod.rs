//! Low-rank adapters, against those of PEFT: what they compute, their gradients, their files. `generate.py` made the files of this folder.

mod cross;
mod uses;

use std::collections::BTreeSet;

use super::*;
use attn::{
    Adapted,
    checkpoint::{Problem, load, lora, save},
    model,
    train::SgdConfig,
};

const WIDTH: usize = 8;

model! {
    /// The network of `generate.py`: adapters in attentions, in feed-forward layers and alone, in a loop and behind it.
    struct Tuned<width = WIDTH, lora(
        rank = 2,
        alpha = 6,
        on = ["q_proj", "v_proj", "o_proj", "up_proj", "feed_forward.down_proj", "blocks.*.linear", "head"],
    )>;

    fn forward(x: [batch, seq, width]) -> [batch, seq, 5] {
        let mut x = x;
        repeat 2 {
            x = x + attention::<heads = 2, mask = causal>(layer_norm(x));
            x = x + feed_forward::<12, activation = swiglu>(layer_norm(x));
            x = x + linear::<width, bias = false>(x);
        }
        linear::<5, name = head>(x)
    }

    fn loss(x: [batch, seq, width]) -> [] {
        let y = forward(x);
        mean::<[batch, seq, 5]>(y * y)
    }
}

model! {
    /// The same without adapters.
    struct Base<width = WIDTH>;

    fn forward(x: [batch, seq, width]) -> [batch, seq, 5] {
        let mut x = x;
        repeat 2 {
            x = x + attention::<heads = 2, mask = causal>(layer_norm(x));
            x = x + feed_forward::<12, activation = swiglu>(layer_norm(x));
            x = x + linear::<width, bias = false>(x);
        }
        linear::<5, name = head>(x)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("weights/lora")
}

fn run() -> Run {
    Run(safetensors::read(&folder().join("run.safetensors")))
}

/// The network with the weights of the base, and adapters as they are built.
fn built() -> Tuned {
    let mut model = Tuned::<f32, Cpu>::build(&Cpu::seed_from_u64(1));
    let archive = Archive::open(folder().join("base.safetensors")).unwrap();
    let map = WeightMap::identity().without_adapters();
    let report = archive.load_mapped(&mut model, &map, LoadOptions::default());
    let report = report.unwrap();
    assert_eq!(report.loaded.len(), 2 * (4 + 8 + 3 + 1) + 2);
    assert_eq!(report.fresh.len(), 2 * 2 * 6 + 2, "{report}");
    model
}

/// The network with the adapters that PEFT saved.
fn tuned() -> Tuned {
    let mut model = built();
    let report = lora::load(
        &mut model,
        &WeightMap::identity(),
        folder(),
        LoadOptions::default(),
    );
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.loaded.len(), report.fresh.len()), (26, 0));
    model
}

fn x() -> Tensor<(usize, usize, Const<WIDTH>), f32, Cpu> {
    Cpu::default().tensor_from_vec(run().numbers("x"), (BATCH, SEQ, Const))
}

/// The names and numbers of all parameters.
fn saved<M: TensorCollection<f32, Cpu>>(model: &M) -> BTreeMap<String, Vec<f64>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save(model, &path).unwrap();
    let tensors = safetensors::read(&path).into_iter();
    tensors
        .map(|(name, tensor)| (name, tensor.numbers()))
        .collect()
}

fn is_adapter(name: &str) -> bool {
    name.contains(".lora_")
}

#[test]
fn adapters_compute_what_those_of_peft_compute() {
    let (model, x) = (tuned(), x());
    run().assert_same("y", &model.forward(x.clone()).as_vec());
    run().assert_same("y", &model.composed().forward(x).as_vec());
}

#[test]
fn new_adapters_change_nothing() {
    let mut base = Base::<f32, Cpu>::build(&Cpu::seed_from_u64(2));
    load(
        &mut base,
        folder().join("base.safetensors"),
        LoadOptions::default(),
    )
    .unwrap();
    let (y, expected) = (built().forward(x()), base.forward(x()));
    for (y, expected) in y.as_vec().iter().zip(expected.as_vec()) {
        assert!((y - expected).abs() < TOLERANCE);
    }
    let built = saved(&built());
    let [a, b] =
        ["A", "B"].map(|of| &built[&format!("blocks.1.attention.q_proj.lora_{of}.weight")]);
    let bound = 1.0 / (WIDTH as f64).sqrt();
    assert!(a.iter().all(|a| a.abs() <= bound) && a.iter().any(|a| a.abs() > bound / 2.0));
    assert!(b.iter().all(|b| *b == 0.0));
}

/// A step of plain gradient descent with the rate 1 takes away the gradient. The step of a trainer, which computes no gradients of what is frozen.
#[test]
fn gradients_are_those_of_peft_and_the_rest_stays() {
    let before = saved(&tuned());
    let config = SgdConfig {
        lr: 1.0,
        ..SgdConfig::default()
    };
    let mut trainer = tuned().trainer(config).only_adapters();
    trainer.step(x()).unwrap();
    let trained = trainer.parameters().into_iter();
    let trained = trained.filter(|parameter| !parameter.frozen);
    assert!(
        trained
            .map(|parameter| is_adapter(&parameter.name))
            .eq([true; 26])
    );
    let after = saved(&trainer.into_model());
    for (name, before) in &before {
        let pairs = before.iter().zip(&after[name]);
        let gradient: Vec<f32> = pairs
            .map(|(before, after)| (before - after) as f32)
            .collect();
        match is_adapter(name) {
            true => run().assert_same(&format!("d_{name}"), &gradient),
            false => assert!(gradient.iter().all(|number| *number == 0.0), "{name}"),
        }
    }
}

#[test]
fn gradients_of_inputs_are_those_of_peft() {
    let (model, x) = (tuned(), x());
    for composed in [false, true] {
        let traced = x.leaky_trace();
        let y = match composed {
            true => model.composed().forward(traced),
            false => model.forward(traced),
        };
        let gradients = y.square().mean().backward();
        run().assert_same("d_x", &gradients.get(&x).as_vec());
    }
}

#[test]
fn merged_weights_are_those_of_peft() {
    let mut merged = Base::<f32, Cpu>::build(&Cpu::seed_from_u64(2));
    lora::merge(&tuned(), &mut merged).unwrap();
    run().assert_same("y", &merged.forward(x()).as_vec());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("merged.safetensors");
    save(&merged, &path).unwrap();
    for (name, tensor) in safetensors::read(&path) {
        let numbers: Vec<f32> = tensor
            .numbers()
            .iter()
            .map(|number| *number as f32)
            .collect();
        run().assert_same(&format!("merged.{name}"), &numbers);
    }
}

#[test]
fn a_model_of_other_layers_is_not_merged_into() {
    let mut other = Cpu::default().build_module::<attn::nn::Linear<WIDTH, 5>, f32>();
    let before = other.weight.array();
    let error = lora::merge(&tuned(), &mut other).unwrap_err();
    assert!(matches!(error.problem, Problem::Mismatch(_)));
    assert_eq!(other.weight.array(), before);
}

#[test]
fn adapters_are_written_as_peft_writes_them() {
    let to = tempfile::tempdir().unwrap();
    lora::save(&tuned(), &WeightMap::identity(), to.path()).unwrap();
    let [found, expected] = [to.path(), &folder()]
        .map(|folder| safetensors::read(&folder.join("adapter_model.safetensors")));
    assert!(found == expected);
    let [found, expected] = [to.path(), &folder()].map(|folder| {
        let text = fs::read(folder.join("adapter_config.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()
    });
    for key in [
        "peft_type",
        "r",
        "lora_dropout",
        "use_rslora",
        "bias",
        "fan_in_fan_out",
    ] {
        assert_eq!(found[key], expected[key], "{key}");
    }
    assert_eq!(
        found["lora_alpha"].as_f64(),
        expected["lora_alpha"].as_f64()
    );
    let targets = found["target_modules"].as_array().unwrap().iter();
    let targets: BTreeSet<_> = targets.map(|name| name.as_str().unwrap()).collect();
    assert_eq!(targets.len(), 13);
    assert!(targets.contains("blocks.0.feed_forward.down_proj"));
    let mut again = built();
    lora::load(
        &mut again,
        &WeightMap::identity(),
        to.path(),
        LoadOptions::default(),
    )
    .unwrap();
    assert_eq!(saved(&again), saved(&tuned()));
}

#[test]
fn names_of_other_libraries_are_those_of_their_adapters() {
    use attn::checkpoint::layout::Rule;

    let map = WeightMap::new([
        Rule::new("blocks.{}.attention.*", "model.layers.{}.self_attn.*"),
        Rule::new("blocks.{}.feed_forward.*", "model.layers.{}.mlp.*"),
        Rule::new("blocks.{}.*", "model.layers.{}.*"),
        Rule::new("head.*", "lm_head.*"),
    ]);
    let to = tempfile::tempdir().unwrap();
    lora::save(&tuned(), &map, to.path()).unwrap();
    let tensors = safetensors::read(&to.path().join("adapter_model.safetensors"));
    for name in [
        "model.layers.1.self_attn.q_proj.lora_A.weight",
        "model.layers.0.mlp.up_proj.lora_B.weight",
        "lm_head.lora_A.weight",
    ] {
        assert!(
            tensors.contains_key(&format!("base_model.model.{name}")),
            "{name}"
        );
    }
    assert_eq!(tensors.len(), 26);
}

#[test]
fn a_config_of_other_adapters_is_refused_with_all_differences() {
    let to = tempfile::tempdir().unwrap();
    let (model, identity) = (tuned(), WeightMap::identity());
    lora::save(&model, &identity, to.path()).unwrap();
    let path = to.path().join("adapter_config.json");
    let config = r#"{ "peft_type": "LORA", "r": 4, "lora_alpha": 6, "use_rslora": true, "use_dora": true, "bias": "all" }"#;
    fs::write(&path, config).unwrap();
    let mut other = built();
    let before = saved(&other);
    let error = lora::load(&mut other, &identity, to.path(), LoadOptions::default()).unwrap_err();
    assert_eq!(
        error.problem.to_string(),
        "its adapters are not those of the model: `r` is 4, and the model declares `rank = 2`; `use_rslora` is true, and the model declares \
         `rslora = false`; `use_dora` is true, which is not supported; `bias` is \"all\", and must be \"none\""
    );
    assert_eq!(saved(&other), before);
}

#[test]
fn what_is_declared_is_known_without_running() {
    let lora = <Tuned as Adapted>::LORA;
    assert_eq!((lora.rank, lora.alpha, lora.dropout), (2, 6.0, 0.0));
    assert_eq!(lora.scale(), 3.0);
    let adapters = saved(&built()).into_iter();
    let adapters = adapters.filter(|(name, _)| is_adapter(name));
    let numbers: usize = adapters.map(|(_, numbers)| numbers.len()).sum();
    assert_eq!(numbers, 2 * (2 * (4 * 16 + 2 * 20) + 13));
    assert_eq!(Tuned::PARAMS, Base::PARAMS + numbers);
    let tokens = BATCH * SEQ;
    let more = Tuned::flops(BATCH, SEQ) - Base::flops(BATCH, SEQ);
    assert_eq!(more, (2 * tokens * numbers) as u64);
}

#[test]
fn rows_that_the_file_does_not_have_stay_as_built() {
    use attn::nn::Embedding;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("embedding.safetensors");
    let old = Embedding::<10, 4, f32, Cpu>::build(&Cpu::seed_from_u64(1));
    save(&old, &path).unwrap();
    let load = |map: &WeightMap| {
        let mut new = Embedding::<12, 4, f32, Cpu>::build(&Cpu::seed_from_u64(2));
        let before = new.weight.array();
        let archive = Archive::open(&path).unwrap();
        let report = archive.load_mapped(&mut new, map, LoadOptions::default());
        (report, before, new.weight.array())
    };
    let (report, before, after) = load(&WeightMap::identity().grown("weight"));
    let report = report.unwrap();
    assert_eq!(after[..10], old.weight.array());
    assert_eq!(after[10..], before[10..]);
    assert_eq!(report.grown[0].1, 10..12);
    let (refused, before, after) = load(&WeightMap::identity());
    assert!(matches!(refused.unwrap_err().problem, Problem::Mismatch(_)));
    assert_eq!(before, after);
    // The file has more rows.
    let mut less = Embedding::<9, 4, f32, Cpu>::build(&Cpu::seed_from_u64(2));
    let archive = Archive::open(&path).unwrap();
    let map = WeightMap::identity().grown("weight");
    let refused = archive.load_mapped(&mut less, &map, LoadOptions::default());
    assert!(matches!(refused.unwrap_err().problem, Problem::Mismatch(_)));
}
