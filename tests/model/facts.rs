//! Facts of a model that are known without running it.

use super::*;
use attn::model;

const WIDTH: usize = 8;

model! {
    struct Tagger<vocab = 11, d_model = WIDTH, tags = { WIDTH / 2 }>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, tags] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat 3, name = rounds {
            x = rms_norm(x + attention::<2, bias = false>(x));
            x = x + feed_forward::<20, activation = swiglu>(x);
        }
        repeat 5, share = true, name = again {
            x = x + feed_forward::<16>(x);
        }
        linear::<tags>(x)
    }
}

#[test]
fn params_is_the_number_of_parameters() {
    let model = Cpu::default().build_module::<Tagger, f32>();
    assert_eq!(Tagger::PARAMS, model.num_trainable_params());
    let round = 8 + 4 * 8 * 8 + 3 * 8 * 20;
    let again = 8 * 16 + 16 + 16 * 8 + 8;
    assert_eq!(Tagger::PARAMS, 11 * 8 + 3 * round + again + 8 * 4 + 4);
}

#[test]
fn flops_is_the_number_of_operations() {
    let tokens = 2 * 5;
    let attention = 2 * tokens * 4 * 8 * 8 + 2 * 2 * 2 * 2 * 5 * 5 * 4;
    let round = attention + 2 * tokens * 3 * 8 * 20;
    let again = 2 * tokens * 2 * 8 * 16;
    let expected = 3 * round + 5 * again + 2 * tokens * 8 * 4;
    assert_eq!(Tagger::flops(2, 5), expected as u64);
    assert_eq!(Tagger::flops(usize::MAX, 2), u64::MAX);
}

#[test]
fn summary_is_a_table_of_layers() {
    let table = Tagger::summary();
    let lines: Vec<_> = table.lines().collect();
    let has = |words: &[&str]| {
        let found = lines
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{words:?} in\n{table}");
    };
    has(&["embedding", "11 -> WIDTH", "[batch, seq, WIDTH]", "88"]);
    has(&["rounds.*.attention", "[batch, seq, WIDTH]", "256"]);
    has(&["again.feed_forward", "280"]);
    has(&["total", &Tagger::PARAMS.to_string()]);
}

#[test]
fn summary_of_has_shapes_and_bytes_of_a_batch() {
    let table = Tagger::summary_of(20, 500);
    let [top, below] = [Tagger::summary(), table.clone()].map(|table| table.lines().count());
    assert_eq!(below, top + 5);
    let products = Tagger::flops(20, 500) / 2;
    let activations = Tagger::activation_bytes(20, 500) as f64 / f64::from(1 << 20);
    let mut lines = table.lines().skip(top);
    assert!(lines.next().unwrap().chars().all(|c| c == '-'));
    assert_eq!(lines.next(), Some("batch = 20, seq = 500"));
    for (what, number) in [
        ("multiply-adds of a forward pass", products.to_string()),
        ("parameters", "0.01 MiB".to_owned()),
        (
            "activations, forward and backward",
            format!("{activations:.2} MiB"),
        ),
    ] {
        let line = lines.next().unwrap();
        let found = line.strip_prefix(what).map(str::trim_start);
        assert_eq!(found, Some(number.as_str()), "{line}");
    }
    // An overflow does not panic.
    assert!(Tagger::summary_of(usize::MAX, 2).contains(&(u64::MAX / 2).to_string()));
}

#[test]
fn graph_dot_is_a_graph_for_graphviz() {
    let dot = Tagger::graph_dot();
    assert!(dot.starts_with("digraph Tagger {") && dot.ends_with("}\n"));
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
    for part in ["label=\"repeat 3\"", "linear", "ids[batch, seq]"] {
        assert!(dot.contains(part), "{part} in {dot}");
    }
}

#[test]
fn graph_svg_is_a_drawing() {
    const SVG: &str = Tagger::graph_svg();
    assert!(SVG.starts_with("<svg xmlns=") && SVG.ends_with("</svg>\n"));
    for part in [
        "The graph of Tagger",
        ">rounds: repeat 3<",
        ">again: repeat 5, one set of parameters<",
        ">linear WIDTH -&gt; WIDTH / 2<",
        ">ids[batch, seq]<",
    ] {
        assert!(SVG.contains(part), "{part} in {SVG}");
    }
}
