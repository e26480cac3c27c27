//! A pretrained encoder in a larger model: new parameters keep their initial values.

use super::*;
use attn::{
    checkpoint::layout::{LoadReport, hugging_face_bert},
    model,
};

model! {
    /// The network of the page of `hugging_face_bert`, with a head, and a slope in each attention.
    struct Classifier<vocab = 29, d_model = 16, heads = 4, layers = 2, hidden = 24, max_len = 12, labels = 3>;

    fn forward(tokens: ids[batch, seq], segments: ids[batch, seq], lens: lens[batch], first: lens[batch]) -> [batch, labels] {
        let x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        let mut x = layer_norm::<epsilon = 1e-12>(x + embedding::<2, d_model, name = token_types>(segments));
        repeat layers {
            let attended = attention::<heads, mask = padding>(x, padding = lens) {
                param slope: [heads] = 0.25;
                fn score(score, h, q_idx, kv_idx) { score - slope[h] * abs(q_idx - kv_idx) as f32 }
            };
            x = layer_norm::<epsilon = 1e-12>(x + attended);
            x = layer_norm::<epsilon = 1e-12>(x + feed_forward::<hidden, activation = gelu>(x));
        }
        let pooled = tanh(linear::<d_model, name = pooler>(mean_pool(x, first)));
        linear::<labels, name = classifier>(pooled)
    }
}

fn tuned(name: &str, map: &WeightMap) -> Result<(Classifier, LoadReport), String> {
    let mut model = Classifier::<f32, Cpu>::build(&Cpu::seed_from_u64(1));
    let archive = Archive::open(file(name)).unwrap();
    let report = archive.load_mapped(&mut model, map, LoadOptions::default());
    report
        .map(|report| (model, report))
        .map_err(|error| error.problem.to_string())
}

#[test]
fn a_pretrained_encoder_loads_into_a_model_with_a_new_head_and_a_param() {
    let new = |map: WeightMap| {
        map.fresh("classifier.*")
            .fresh("blocks.{}.attention.slope.*")
    };
    for (name, map) in [
        ("bert", new(hugging_face_bert())),
        (
            "bert_classifier",
            new(hugging_face_bert().under("", "bert.")),
        ),
    ] {
        let (model, report) = tuned(name, &map).unwrap();
        let mut fresh: Vec<&str> = report.fresh.iter().map(|(name, _)| &**name).collect();
        fresh.sort();
        assert_eq!(
            fresh,
            [
                "blocks.0.attention.slope.weight",
                "blocks.1.attention.slope.weight",
                "classifier.bias",
                "classifier.weight",
            ]
        );
        let built = Classifier::<f32, Cpu>::build(&Cpu::seed_from_u64(1));
        assert_eq!(
            model.classifier.weight.as_vec(),
            built.classifier.weight.as_vec()
        );
        assert_eq!(model.blocks[1].attention.slope.weight.as_vec(), [0.25; 4]);
        let mut theirs = safetensors::read(&file(name));
        theirs.retain(|name, _| !name.starts_with("classifier."));
        let prefix = ["", "bert."][usize::from(name == "bert_classifier")];
        let query = format!("{prefix}encoder.layer.1.attention.self.query.weight");
        let weight = model.blocks[1].attention.q_proj.weight.as_vec();
        let bytes: Vec<u8> = weight.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(bytes, theirs[&query].bytes);
        assert_eq!(report.loaded.len(), theirs.len(), "all of the encoder");
    }
}

#[test]
fn errors_without_fresh_name_the_remedy() {
    let message = tuned("bert", &hugging_face_bert()).err().unwrap();
    for line in [
        "no rule gives classifier.weight, F32 [3, 16]; `.fresh(\"classifier.weight\")` leaves it as it was built",
        "no rule gives blocks.0.attention.slope.weight, F32 [4]; `.fresh(\"blocks.0.attention.slope.weight\")` leaves it as it was built",
    ] {
        assert!(message.contains(line), "{message}");
    }
}
