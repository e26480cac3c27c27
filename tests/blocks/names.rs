//! The names of what a block has: fields, saved parameters, rows of the summary, maps.

use super::*;
use attn::model;

model! {
    pub struct Named<d = 8>;

    /// A layer of the encoder.
    block layer(x: [batch, seq, d]) -> [batch, seq, d] {
        x + inner(attention::<2>(x))
    }

    block inner(x: [.., n]) -> [.., n] { linear::<n>(x) }

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let mut y = layer(layer::<name = first>(x));
        repeat 2 { y = layer(y); }
        y
    }
}

#[test]
fn parameters_are_saved_under_the_names_of_the_calls() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Named, f64>();
    let mut names = Vec::new();
    tensors::fill(&mut model, |name, values| {
        names.push(name.to_owned());
        vec![0.5; values.len()]
    });
    let weights: Vec<_> = names
        .iter()
        .filter(|name| name.ends_with("linear.weight"))
        .collect();
    assert_eq!(
        weights,
        [
            "first.inner.linear.weight",
            "layer.inner.linear.weight",
            "blocks.0.layer.inner.linear.weight",
            "blocks.1.layer.inner.linear.weight",
        ]
    );
    assert!(names.contains(&"blocks.1.layer.attention.q_proj.weight".to_owned()));
    assert_eq!(
        model.blocks[1].layer.inner.linear.weight.array(),
        [[0.5; 8]; 8]
    );
    // The structs of blocks are types of their own.
    let first: &NamedFirst<f64, Cpu> = &model.first;
    assert_eq!(first.inner.linear.bias.array(), [0.5; 8]);
}

#[test]
fn maps_have_the_names_of_the_calls() {
    let _alone = alone();
    let model = Cpu::default().build_module::<Named, f64>();
    let maps = model.attention_maps(tensor::<_, f64>("x", (1, 3, Const::<8>)));
    let names: Vec<_> = maps.iter().map(|map| map.name().to_owned()).collect();
    assert_eq!(
        names,
        [
            "first.attention",
            "layer.attention",
            "blocks.0.layer.attention",
            "blocks.1.layer.attention"
        ]
    );
}

#[test]
fn the_summary_lists_a_block_and_what_is_in_it() {
    let summary = Named::summary();
    for row in [
        "block layer",
        "first.inner",
        "first.inner.linear",
        "blocks.*.layer.attention",
    ] {
        assert!(summary.contains(row), "{row} in\n{summary}");
    }
    assert_eq!(Named::PARAMS, 4 * (4 * 72 + 72));
    assert!(Named::graph_dot().contains("linear 8"));
    assert!(Named::graph_svg().starts_with("<svg"));
}

#[test]
fn a_model_is_saved_and_loaded_with_its_blocks() {
    let _alone = alone();
    let dev = Cpu::default();
    let path = tempfile::tempdir().unwrap();
    let path = path.path().join("model.safetensors");
    let mut model = dev.build_module::<Named, f64>();
    scatter(&mut model);
    model.save_safetensors(&path).unwrap();
    let mut other = dev.build_module::<Named, f64>();
    other.load_safetensors(&path).unwrap();
    let x = tensor::<_, f64>("x", (2, 3, Const::<8>));
    assert_eq!(model.forward(x.clone()).as_vec(), other.forward(x).as_vec());
}
