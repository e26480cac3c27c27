//! Networks that classify images.

use crate::Run;
use attn::{dfdx::prelude::*, model};

model! {
    use zoo::vit::vit;

    struct Vit<
        channels = 3, height = 8, width = 8, patch = 4, d_model = 24, heads = 4, hidden = 40, layers = 2, classes = 5, epsilon = 1e-3,
    >;

    fn forward(image: [batch, channels, height, width]) -> [batch, classes] {
        vit::<patch, { height / patch * (width / patch) + 1 }, d_model, heads, hidden, layers, classes, epsilon>(image)
    }

    fn loss(image: [batch, channels, height, width], targets: ids[batch]) -> [] {
        cross_entropy(forward(image), targets)
    }
}

#[test]
fn vit() {
    let (config, map) = (zoo::vit::config(), zoo::vit::weights());
    let run = Run::of("vit");
    let mut model: Vit = run.load(&config, &map);
    let image = run.numbers("image").into_iter().map(|x| x as f32);
    let shape = (2, Const::<3>, Const::<8>, Const::<8>);
    let image = Cpu::default().tensor_from_vec(image.collect(), shape);
    run.assert_same("logits", &model.forward(image.clone()).as_vec());

    let targets = Cpu::default().tensor_from_vec(run.list("targets"), (2,));
    let loss = model.loss_mut((image.traced(model.alloc_grads()), targets));
    run.assert_same("loss", &loss.as_vec());
    run.assert_gradients(&model, &map, &loss.backward());
}
