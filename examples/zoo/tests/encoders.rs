//! Networks that predict masked tokens.

use crate::Run;
use attn::{dfdx::prelude::*, model};
use support::onnx::{Calls, Numbers};

/// The logits of the tokens, and 0 for padding.
fn assert_logits(run: &Run, logits: &Tensor<(usize, usize, Const<61>), f32, Cpu>) {
    let mut logits = logits.as_vec();
    for (row, keep) in logits.chunks_mut(61).zip(run.list("keep")) {
        row.iter_mut().for_each(|x| *x *= keep as f32);
    }
    run.assert_same("logits", &logits);
}

model! {
    use zoo::bert::bert;

    struct Bert<vocab = 61, d_model = 24, heads = 4, hidden = 40, layers = 2, max_len = 16, types = 2, epsilon = 1e-3>;

    fn forward(tokens: ids[batch, seq], segments: ids[batch, seq], keep: bool[batch, seq])
        -> { logits: [batch, seq, vocab], follows: [batch, 2] }
    {
        let { logits, follows } = bert::<..>(tokens, segments, keep);
        { logits, follows }
    }

    fn loss(
        tokens: ids[batch, seq], segments: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq], next: ids[batch],
    ) -> [] {
        let { logits, follows } = forward(tokens, segments, keep);
        cross_entropy::<ignore_index = vocab>(logits, labels) + cross_entropy(follows, next)
    }
}

#[test]
fn bert() {
    let (config, map) = (zoo::bert::config(), zoo::bert::weights());
    let run = Run::of("bert");
    let mut model: Bert = run.load(&config, &map);
    let BertOutput { logits, follows } =
        model.forward((run.ids("tokens"), run.ids("segments"), run.marks("keep")));
    assert_logits(&run, &logits);
    let inputs: [&dyn Numbers; 3] = [&run.ids("tokens"), &run.ids("segments"), &run.marks("keep")];
    let results = (logits, follows.clone());
    Calls::default()
        .call(&inputs, &results)
        .check(|path| model.export_onnx(path));
    run.assert_same("follows", &follows.as_vec());

    let tokens = run.ids("tokens").traced(model.alloc_grads());
    let next = run.list("next");
    let next = Cpu::default().tensor_from_vec(next.clone(), (next.len(),));
    let inputs = (
        tokens,
        run.ids("segments"),
        run.marks("keep"),
        run.ids("labels"),
        next,
    );
    let loss = model.loss_mut(inputs);
    run.assert_same("loss", &loss.as_vec());
    run.assert_gradients(&model, &map, &loss.backward());
}

/// A test of the model with this name.
macro_rules! compare {
    ($family:ident: $model:ty $(, $argument:expr)?) => {
        #[test]
        fn $family() {
            let (config, map) = (zoo::$family::config(), zoo::$family::weights($($argument)?));
            let run = Run::of(stringify!($family));
            let mut model: $model = run.load(&config, &map);
            let logits = model.forward((run.ids("tokens"), run.marks("keep")));
            assert_logits(&run, &logits);
            let inputs: [&dyn Numbers; 2] = [&run.ids("tokens"), &run.marks("keep")];
            Calls::default().call(&inputs, &logits).check(|path| model.export_onnx(path));

            let tokens = run.ids("tokens").traced(model.alloc_grads());
            let loss = model.loss_mut((tokens, run.marks("keep"), run.ids("labels")));
            run.assert_same("loss", &loss.as_vec());
            run.assert_gradients(&model, &map, &loss.backward());
        }
    };
}

model! {
    use zoo::roberta::roberta;

    struct Roberta<vocab = 61, d_model = 24, heads = 4, hidden = 40, layers = 2, max_len = 16, types = 1, epsilon = 1e-3>;

    fn forward(tokens: ids[batch, seq], keep: bool[batch, seq]) -> [batch, seq, vocab] {
        roberta::<..>(tokens, keep)
    }

    fn loss(tokens: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = vocab>(forward(tokens, keep), labels)
    }
}

compare!(roberta: Roberta);

model! {
    use zoo::distilbert::distilbert;

    struct DistilBert<vocab = 61, d_model = 24, heads = 4, hidden = 40, layers = 2, max_len = 16>;

    fn forward(tokens: ids[batch, seq], keep: bool[batch, seq]) -> [batch, seq, vocab] {
        distilbert::<..>(tokens, keep)
    }

    fn loss(tokens: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = vocab>(forward(tokens, keep), labels)
    }
}

compare!(distilbert: DistilBert);

model! {
    use zoo::modernbert::modernbert;

    struct ModernBert<
        vocab = 61, d_model = 24, heads = 4, hidden = 20, layers = 4, window = 4, theta = 1000.0, local_theta = 100.0, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[batch, seq], keep: bool[batch, seq]) -> [batch, seq, vocab] {
        modernbert::<..>(tokens, keep)
    }

    fn loss(tokens: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = vocab>(forward(tokens, keep), labels)
    }
}

compare!(modernbert: ModernBert, 4);
