//! Networks that read images.

use crate::Run;
use attn::{dfdx::prelude::*, model};
use support::onnx::Calls;

model! {
    use zoo::vit::vit;

    struct Vit<
        channels = 3, height = 8, width = 8, patch = 4, d_model = 24, heads = 4, hidden = 40, layers = 2, classes = 5, epsilon = 1e-3,
    >;

    fn forward(image: [batch, channels, height, width]) -> [batch, classes] {
        vit::<places = { height / patch * (width / patch) + 1 }, ..>(image)
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
    let shape = (2, Const::<3>, Const::<8>, Const::<8>);
    let image = Cpu::default().tensor_from_vec(run.floats("image"), shape);
    let logits = model.forward(image.clone());
    run.assert_same("logits", &logits.as_vec());
    Calls::default()
        .call(&[&image], &logits)
        .check(|path| model.export_onnx(path));

    let targets = Cpu::default().tensor_from_vec(run.list("targets"), (2,));
    let loss = model.loss_mut((image.traced(model.alloc_grads()), targets));
    run.assert_same("loss", &loss.as_vec());
    run.assert_gradients(&model, &map, &loss.backward());
}

model! {
    use zoo::dinov2::dinov2;

    struct Dinov2<
        channels = 3, height = 8, width = 8, patch = 4, d_model = 24, heads = 4, ratio = 2, layers = 2, registers = 3, epsilon = 1e-3,
        patches = { height / patch * (width / patch) }, tokens = { patches + registers + 1 },
    >;

    fn forward(image: [batch, channels, height, width], masked: bool[batch, patches]) -> [batch, tokens, d_model] {
        dinov2::<hidden = { ratio * d_model }, ..>(image, masked)
    }

    fn loss(
        image: [batch, channels, height, width], masked: bool[batch, patches], target: [batch, tokens, d_model],
    ) -> [] {
        mean::<[batch, tokens, d_model]>(pow(forward(image, masked) - target, 2))
    }
}

#[test]
fn dinov2() {
    let (config, map) = (zoo::dinov2::config(), zoo::dinov2::weights());
    let run = Run::of("dinov2");
    let mut model: Dinov2 = run.load(&config, &map);
    let dev = Cpu::default();
    let image = dev.tensor_from_vec(run.floats("image"), (2, Const::<3>, Const::<8>, Const::<8>));
    let masked = run.list("masked").into_iter().map(|mark| mark != 0);
    let masked = dev.tensor_from_vec(masked.collect(), (2, Const::<4>));
    let features = model.forward((image.clone(), masked.clone()));
    run.assert_same("logits", &features.as_vec());
    Calls::default()
        .call(&[&image, &masked], &features)
        .check(|path| model.export_onnx(path));

    let target = dev.tensor_from_vec(run.floats("target"), (2, Const::<8>, Const::<24>));
    let loss = model.loss_mut((image.traced(model.alloc_grads()), masked, target));
    run.assert_same("loss", &loss.as_vec());
    run.assert_gradients(&model, &map, &loss.backward());
}

model! {
    use zoo::clip::clip;

    struct Clip<
        vocab = 61, d_text = 16, text_heads = 2, text_hidden = 24, text_layers = 2, max_len = 16,
        channels = 3, height = 8, width = 8, patch = 4, d_image = 24, image_heads = 4, image_hidden = 40, image_layers = 2,
        d_joint = 10, epsilon = 1e-3,
    >;

    fn forward(tokens: ids[texts, seq], image: [images, channels, height, width]) -> [texts, images] {
        clip::<places = { height / patch * (width / patch) + 1 }, ..>(tokens, image)
    }

    fn loss(tokens: ids[batch, seq], image: [batch, channels, height, width]) -> [] {
        let logits = forward(tokens, image as [others = batch, channels, height, width]);
        let own = arange::<batch>();
        0.5 * (cross_entropy::<others>(logits, own) + cross_entropy::<batch>(logits, own as [others = batch]))
    }
}

#[test]
fn clip() {
    let (config, map) = (zoo::clip::config(), zoo::clip::weights());
    let run = Run::of("clip");
    let mut model: Clip = run.load(&config, &map);
    let shape = (3, Const::<3>, Const::<8>, Const::<8>);
    let image = Cpu::default().tensor_from_vec(run.floats("image"), shape);
    let logits = model.forward((run.ids("tokens"), image.clone()));
    run.assert_same("logits", &logits.as_vec());
    Calls::default()
        .call(&[&run.ids("tokens"), &image], &logits)
        .check(|path| model.export_onnx(path));

    let tokens = run.ids("tokens").traced(model.alloc_grads());
    let loss = model.loss_mut((tokens, image));
    run.assert_same("loss", &loss.as_vec());
    run.assert_gradients(&model, &map, &loss.backward());
}
