//! Attention to a memory, `alpha / sqrt(rank)`, and layers that are trained whole: `modules_to_save` of PEFT.

use super::*;

model! {
    /// `Reader` of `generate.py`.
    struct Reader<width = WIDTH, lora(
        rank = 3,
        alpha = 5,
        rslora = true,
        on = ["q_proj", "k_proj", "v_proj", "o_proj"],
        save = ["head", "layer_norm"],
    )>;

    fn forward(x: [batch, seq, width], memory: [batch, s, 6]) -> [batch, seq, 5] {
        let mut x = x;
        repeat 2 { x = x + attention::<heads = 2, kv_heads = 1>(layer_norm(x), context = memory); }
        linear::<5, name = head>(x)
    }

    fn loss(x: [batch, seq, width], memory: [batch, s, 6]) -> [] {
        let y = forward(x, memory);
        mean::<[batch, seq, 5]>(y * y)
    }
}

model! {
    struct Plain<width = WIDTH>;

    fn forward(x: [batch, seq, width], memory: [batch, s, 6]) -> [batch, seq, 5] {
        let mut x = x;
        repeat 2 { x = x + attention::<heads = 2, kv_heads = 1>(layer_norm(x), context = memory); }
        linear::<5, name = head>(x)
    }
}

fn of_cross() -> PathBuf {
    folder().join("cross")
}

fn run() -> Run {
    Run(safetensors::read(&of_cross().join("run.safetensors")))
}

fn built() -> Reader {
    let mut model = Reader::<f32, Cpu>::build(&Cpu::seed_from_u64(1));
    let archive = Archive::open(of_cross().join("base.safetensors")).unwrap();
    // The head of the file is of another task.
    let map = WeightMap::identity().without_adapters().fresh("head.*");
    let report = archive.load_mapped(&mut model, &map, LoadOptions::default());
    assert_eq!(report.unwrap().loaded.len(), 2 * (8 + 2));
    model
}

fn tuned() -> Reader {
    let mut model = built();
    // The map of the network, with what it has to say of the head: of the adapters' file it holds no longer.
    let map = WeightMap::identity().fresh("head.*");
    let report = lora::load(&mut model, &map, of_cross(), LoadOptions::default());
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (report.loaded.len(), report.fresh.len()),
        (2 * (8 + 2) + 2, 0)
    );
    model
}

type Inputs = (
    Tensor<(usize, usize, Const<WIDTH>), f32, Cpu>,
    Tensor<(usize, usize, Const<6>), f32, Cpu>,
);

fn inputs() -> Inputs {
    let dev = Cpu::default();
    (
        dev.tensor_from_vec(run().numbers("x"), (BATCH, SEQ, Const)),
        dev.tensor_from_vec(run().numbers("memory"), (BATCH, SEQ - 2, Const)),
    )
}

#[test]
fn values_and_gradients_of_inputs_are_those_of_peft() {
    let (model, (x, memory)) = (tuned(), inputs());
    for composed in [false, true] {
        let traced = (x.leaky_trace(), memory.clone());
        let y = match composed {
            true => model.composed().forward(traced),
            false => model.forward(traced),
        };
        run().assert_same("y", &y.as_vec());
        let gradients = y.square().mean().backward();
        run().assert_same("d_x", &gradients.get(&x).as_vec());
        run().assert_same("d_memory", &gradients.get(&memory).as_vec());
    }
}

/// A step of plain gradient descent, as for the other network.
#[test]
fn adapters_and_whole_layers_are_trained_and_nothing_else() {
    let before = saved(&tuned());
    let config = SgdConfig {
        lr: 1.0,
        ..SgdConfig::default()
    };
    let mut trainer = tuned().trainer(config).only_adapters();
    trainer.step(inputs()).unwrap();
    let after = saved(&trainer.into_model());
    let lora = <Reader as Adapted>::LORA;
    let mut trained = 0;
    for (name, before) in &before {
        let pairs = before.iter().zip(&after[name]);
        let gradient: Vec<f32> = pairs
            .map(|(before, after)| (before - after) as f32)
            .collect();
        match lora.trains(name) {
            true => run().assert_same(&format!("d_{name}"), &gradient),
            false => assert!(gradient.iter().all(|number| *number == 0.0), "{name}"),
        }
        trained += usize::from(lora.trains(name));
    }
    assert_eq!(trained, 2 * (8 + 2) + 2);
    assert_eq!(lora.save, ["head", "blocks.*.layer_norm"]);
    assert_eq!(lora.scale(), 5.0 / f64::sqrt(3.0));
}

#[test]
fn merged_weights_are_those_of_peft() {
    let mut merged = Plain::<f32, Cpu>::build(&Cpu::seed_from_u64(2));
    lora::merge(&tuned(), &mut merged).unwrap();
    run().assert_same("y", &merged.forward(inputs()).as_vec());
    for (name, numbers) in saved(&merged) {
        let numbers: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
        run().assert_same(&format!("merged.{name}"), &numbers);
    }
}

#[test]
fn whole_layers_are_written_beside_the_adapters_as_peft_writes_them() {
    let to = tempfile::tempdir().unwrap();
    lora::save(&tuned(), &WeightMap::identity(), to.path()).unwrap();
    let [found, expected] = [to.path(), &of_cross()]
        .map(|folder| safetensors::read(&folder.join("adapter_model.safetensors")));
    assert!(found == expected);
    let text = fs::read(to.path().join("adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let whole = ["blocks.0.layer_norm", "blocks.1.layer_norm", "head"];
    assert_eq!(config["modules_to_save"], serde_json::json!(whole));
    assert_eq!(config["use_rslora"], true);
    let mut again = built();
    let map = WeightMap::identity();
    lora::load(&mut again, &map, to.path(), LoadOptions::default()).unwrap();
    assert_eq!(saved(&again), saved(&tuned()));
}

/// A folder of other adapters: all that differs is in one error, the config and the tensors, before a weight changes.
#[test]
fn adapters_of_another_network_are_refused_with_all_that_differs() {
    let mut model = built();
    let before = saved(&model);
    let map = WeightMap::identity();
    let error = lora::load(&mut model, &map, folder(), LoadOptions::default()).unwrap_err();
    let message = error.problem.to_string();
    for part in [
        "`r` is 2, and the model declares `rank = 3`",
        "`lora_alpha` is 6, and the model declares `alpha = 5`",
        "`use_rslora` is false, and the model declares `rslora = true`",
        "missing: base_model.model.head.weight, F32 [5, 8]",
        "missing: base_model.model.blocks.1.attention.k_proj.lora_A.weight, F32 [3, 6]",
        "extra: base_model.model.blocks.0.feed_forward.up_proj.lora_A.weight, F32 [2, 8]",
        "different: base_model.model.blocks.0.attention.q_proj.lora_B.weight, F32 [8, 2] instead of F32 [8, 3]",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(saved(&model), before);
}
