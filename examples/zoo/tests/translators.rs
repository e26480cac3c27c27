//! Networks with an encoder and a decoder.

use crate::Run;
use attn::{dfdx::prelude::*, generate::Sampling, model};
use support::onnx::{Calls, Numbers};

/// A test of the model with this name.
macro_rules! compare {
    ($family:ident: $model:ty) => {
        #[test]
        fn $family() {
            let (config, map) = (zoo::$family::config(), zoo::$family::weights());
            let run = Run::of(stringify!($family));
            let mut model: $model = run.load(&config, &map);
            let logits = model.forward((run.ids("source"), run.marks("keep"), run.ids("tokens")));
            run.assert_same("logits", &logits.as_vec());
            let inputs: [&dyn Numbers; 3] =
                [&run.ids("source"), &run.marks("keep"), &run.ids("tokens")];
            Calls::default()
                .call(&inputs, &logits)
                .check(|path| model.export_onnx(path));

            let source = run.ids("source").traced(model.alloc_grads());
            let loss = model.loss_mut((
                source,
                run.marks("keep"),
                run.ids("tokens"),
                run.ids("targets"),
            ));
            run.assert_same("loss", &loss.as_vec());
            run.assert_gradients(&model, &map, &loss.backward());

            // The second text, which is the shorter one.
            let dev = Cpu::default();
            let len = run.list("source").len() / 2;
            let source = dev.tensor_from_vec(run.list("source")[len..].to_vec(), (1, len));
            let keep: Vec<_> = run.list("keep").iter().map(|&mark| mark != 0).collect();
            let keep = dev.tensor_from_vec(keep[len..].to_vec(), (1, len));
            let new = run.list("new");
            let sampling = Sampling {
                temperature: 0.0,
                ..Sampling::default()
            };
            let mut session = model.session(source, keep, 32).unwrap();
            let tokens = session
                .generate(&run.list("prompt"), sampling, &[])
                .unwrap();
            let tokens: Vec<usize> = tokens.take(new.len()).map(Result::unwrap).collect();
            assert_eq!(tokens, new);
        }
    };
}

model! {
    use zoo::t5::t5;

    struct T5<
        vocab = 61, d_model = 24, heads = 4, head_dim = 8, hidden = 40, layers = 2, buckets = 8, max_distance = 6, epsilon = 1e-3,
    >;

    fn forward(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        t5::<..>(source, keep, tokens)
    }

    fn loss(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(source, keep, tokens), targets)
    }
}

compare!(t5: T5);

model! {
    use zoo::bart::bart;

    struct Bart<vocab = 61, d_model = 24, heads = 4, hidden = 40, layers = 2, max_len = 32>;

    fn forward(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        bart::<..>(source, keep, tokens)
    }

    fn loss(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(source, keep, tokens), targets)
    }
}

compare!(bart: Bart);

model! {
    use zoo::whisper::whisper;

    struct Whisper<
        vocab = 61, mels = 6, frames = 18, places = 9, d_model = 24, heads = 4, hidden = 40, layers = 2, max_len = 32,
    >;

    fn forward(mel: [batch, mels, frames], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        whisper::<..>(mel, tokens)
    }

    fn loss(mel: [batch, mels, frames], tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(mel, tokens), targets)
    }
}

#[test]
fn whisper() {
    let (config, map) = (zoo::whisper::config(), zoo::whisper::weights());
    let run = Run::of("whisper");
    let mut model: Whisper = run.load(&config, &map);
    let dev = Cpu::default();
    let mel = dev.tensor_from_vec(run.floats("mel"), (2, Const::<6>, Const::<18>));
    let logits = model.forward((mel.clone(), run.ids("tokens")));
    run.assert_same("logits", &logits.as_vec());
    Calls::default()
        .call(&[&mel, &run.ids("tokens")], &logits)
        .check(|path| model.export_onnx(path));

    let mel = mel.traced(model.alloc_grads());
    let loss = model.loss_mut((mel, run.ids("tokens"), run.ids("targets")));
    run.assert_same("loss", &loss.as_vec());
    run.assert_gradients(&model, &map, &loss.backward());

    let second = run.floats("mel").split_off(6 * 18);
    let second = dev.tensor_from_vec(second, (1, Const::<6>, Const::<18>));
    let new = run.list("new");
    let sampling = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let mut session = model.session(second, 32).unwrap();
    let tokens = session
        .generate(&run.list("prompt"), sampling, &[])
        .unwrap();
    let tokens: Vec<usize> = tokens.take(new.len()).map(Result::unwrap).collect();
    assert_eq!(tokens, new);
}
