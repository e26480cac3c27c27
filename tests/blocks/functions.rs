//! Several functions of a model: all run the same layers.

use super::*;
use attn::{memory, model};

model! {
    /// Two texts, encoded by the same layers (Reimers and Gurevych 2019), and a decoder for what was encoded.
    struct Siamese<vocab = 11, d = 8, layers = 2>;

    fn forward(a: ids[batch, seq], b: ids[batch, other]) -> [batch, d] {
        encode(a) * encode(b)
    }

    /// A vector for a text.
    fn encode(tokens: ids[batch, n]) -> [batch, d] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers { x += mlp::<12>(x + attention::<2>(layer_norm(x))); }
        mean::<n>(x)
    }

    fn decode(code: [batch, d]) -> ([batch, vocab], [batch, d]) {
        let y = linear::<d>(code);
        (linear::<tied = embedding>(y), y)
    }

    block mlp(x: [.., n], hidden) -> [.., n] { linear::<n>(gelu(linear::<hidden>(x))) }
}

model! {
    /// What `encode` is.
    struct Encoder<vocab = 11, d = 8, layers = 2>;

    fn forward(tokens: ids[batch, n]) -> [batch, d] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers {
            let y = x + attention::<2>(layer_norm(x));
            x += linear::<d>(gelu(linear::<12>(y)));
        }
        mean::<n>(x)
    }
}

fn siamese() -> (Siamese<f64, Cpu>, Encoder<f64, Cpu>) {
    let dev = Cpu::default();
    let mut siamese = dev.build_module::<Siamese, f64>();
    let mut encoder = dev.build_module::<Encoder, f64>();
    scatter(&mut siamese);
    scatter(&mut encoder);
    (siamese, encoder)
}

#[test]
fn a_function_is_a_method() {
    let _alone = alone();
    let (mut siamese, encoder) = siamese();
    for (batch, seq) in [(1, 1), (2, 7)] {
        let tokens = ids((batch, seq), 11);
        let one = siamese.encode(tokens.clone().leaky_traced());
        let other = encoder.forward(tokens.clone().leaky_traced());
        let weights = tensor::<_, f64>("loss", *one.shape());
        assert_eq!(
            tensors::flat(&one.with_empty_tape()),
            tensors::flat(&other.with_empty_tape())
        );
        let one = (one * weights.clone()).sum().backward();
        let other = (other * weights).sum().backward();
        let other = gradients(&encoder, &other);
        let one = gradients(&siamese, &one);
        assert_eq!(one[..other.len()], other);
        // The layer of `decode` has no part in it.
        assert!(
            one[other.len()..]
                .iter()
                .flatten()
                .all(|number| *number == 0.0)
        );
        assert!(siamese.try_encode_mut(tokens).is_ok());
    }
}

#[test]
fn a_function_that_is_called_twice_adds_its_gradients() {
    let _alone = alone();
    let (siamese, encoder) = siamese();
    let (a, b) = (ids((2, 7), 11), ids((2, 3), 11));
    let product = siamese.forward((a.clone().leaky_traced(), b.clone()));
    let weights = tensor::<_, f64>("loss", *product.shape());
    let value = tensors::flat(&product.with_empty_tape());
    let done = gradients(&siamese, &(product * weights.clone()).sum().backward());
    // By hand: each factor with the other one as a constant.
    let [x, y] = [&a, &b].map(|tokens| encoder.forward(tokens.clone()));
    assert_eq!(value, tensors::flat(&(x.clone() * y.clone())));
    let part = |tokens: &Tensor<(usize, usize), usize, Cpu>, other: Tensor<_, f64, Cpu>| {
        let traced = encoder.forward(tokens.clone().leaky_traced());
        gradients(
            &encoder,
            &(traced * other * weights.clone()).sum().backward(),
        )
    };
    let parts = [part(&a, y), part(&b, x)];
    for (index, of_a) in parts[0].iter().enumerate() {
        for (place, of_a) in of_a.iter().enumerate() {
            let expected = of_a + parts[1][index][place];
            let found = done[index][place];
            // Sums of some hundred terms of order 1, in another order.
            assert!(
                (found - expected).abs() < 1e-12 * expected.abs().max(1.0),
                "{found} {expected}"
            );
        }
    }
    // The chain of operations gives a gradient to the layers that it calls.
    let traced = a.traced(siamese.alloc_grads());
    let composed = siamese.composed().forward((traced, b));
    let composed = gradients(&siamese, &(composed * weights).sum().backward());
    let pairs = done.iter().flatten().zip(composed.iter().flatten());
    assert!(
        pairs
            .clone()
            .all(|(a, b)| (a - b).abs() < 1e-12 * b.abs().max(1.0))
    );
}

#[test]
fn several_results_of_a_function() {
    let _alone = alone();
    let (siamese, _) = siamese();
    let code = tensor::<_, f64>("code", (3, Const::<8>));
    let (logits, y) = siamese.decode(code.leaky_traced());
    let done = (logits.sum() + y.square().sum()).backward();
    assert!(
        tensors::flat(&done.get(&siamese.embedding.weight))
            .iter()
            .any(|number| *number != 0.0)
    );
    assert_eq!(done.get(&siamese.linear.bias).as_vec().len(), 8);
}

#[test]
fn the_memory_and_the_work_of_a_function() {
    let _alone = alone();
    assert_eq!(Siamese::encode_flops(2, 7), Encoder::flops(2, 7));
    assert_eq!(
        Siamese::encode_activation_bytes(2, 7),
        Encoder::activation_bytes(2, 7)
    );
    assert_eq!(
        Siamese::flops(2, 7, 3),
        Encoder::flops(2, 7) + Encoder::flops(2, 3)
    );
    let mut model = Cpu::default().build_module::<Siamese, f32>();
    let peak = |promised: usize, run: &mut dyn FnMut()| {
        let before = memory::allocated();
        memory::reset_peak();
        run();
        assert_eq!(memory::peak() - before, promised);
    };
    let (a, b) = (ids((2, 7), 11), ids((2, 3), 11));
    peak(Siamese::encode_activation_bytes(2, 7), &mut || {
        drop(
            model
                .encode_mut(a.clone().leaky_traced())
                .square()
                .mean()
                .backward(),
        );
    });
    peak(Siamese::activation_bytes(2, 7, 3), &mut || {
        drop(
            model
                .forward_mut((a.clone().leaky_traced(), b.clone()))
                .square()
                .mean()
                .backward(),
        );
    });
}

#[test]
fn wrong_axes_of_a_call_are_an_error_of_the_function() {
    let _alone = alone();
    let (siamese, _) = siamese();
    let error = siamese
        .try_encode(Cpu::default().tensor([[99_usize]]))
        .unwrap_err();
    assert!(error.to_string().contains("99"), "{error}");
}

model! {
    /// Functions with layers of their own, axes that operations make, and sessions.
    struct Reader<vocab = 11, d = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(x + attention::<2, mask = causal>(x))
    }

    /// The tokens behind an image, whose patches see each other.
    fn look(image: [batch, 2, patches, 4], tokens: ids[batch, n]) -> [batch, all, d] {
        let image = rearrange::<[batch, rows = (2, patches), 4]>(image);
        let image = layer_norm(linear::<d>(image));
        let image = image + attention::<2>(image);
        concat::<rows, to = all>(image, embedding::<tied = embedding>(tokens))
    }

    /// Logits of a smaller model.
    fn guess(tokens: ids[batch, t]) -> [batch, t, vocab] {
        let mut x = embedding::<tied = embedding>(tokens);
        repeat 2 { x += attention::<4, mask = causal>(x); }
        linear::<tied = embedding>(x)
    }
}

model! {
    /// One attention, which runs with other lengths each time.
    struct Pair<d = 8>;

    fn forward(x: [batch, seq, d], y: [batch, other, d], of_x: lens[batch], of_y: lens[batch]) -> [batch, d] {
        read(x, of_x) - read(y, of_y)
    }

    fn read(x: [batch, n, d], lens: lens[batch]) -> [batch, d] {
        mean_pool(x + attention::<2, mask = padding>(x, padding = lens), lens)
    }
}

#[test]
fn an_attention_reads_the_data_of_each_call() {
    let _alone = alone();
    let dev = Cpu::default();
    let mut pair = dev.build_module::<Pair, f64>();
    scatter(&mut pair);
    let batch = Const::<2>;
    let x = tensor::<_, f64>("x", (batch, 5, Const::<8>));
    let y = tensor::<_, f64>("y", (batch, 7, Const::<8>));
    let (of_x, of_y) = (dev.tensor([2, 5]), dev.tensor([7, 3]));
    let both = pair.forward((x.clone(), y.clone(), of_x.clone(), of_y.clone()));
    let alone = pair.read((x, of_x)) - pair.read((y, of_y));
    assert_eq!(both.as_vec(), alone.as_vec());
}

fn reader() -> Reader<f64, Cpu> {
    let mut reader = Cpu::default().build_module::<Reader, f64>();
    scatter(&mut reader);
    reader
}

#[test]
fn both_forms_of_a_function_agree() {
    let _alone = alone();
    let reader = reader();
    let image = tensor::<_, f64>("image", (2, Const::<2>, 3, Const::<4>));
    let tokens = ids((2, 5), 11);
    let fused = reader.look((image.clone().leaky_traced(), tokens.clone()));
    assert_eq!(fused.shape().concrete(), [2, 11, 8]);
    let composed = reader.look_composed((image.clone().leaky_traced(), tokens.clone()));
    let weights = tensor::<_, f64>("loss", *fused.shape());
    // Sums of up to a hundred terms, rounded in another order.
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 100.0 * f64::EPSILON * b.abs().max(1.0);
    let values = [&fused, &composed].map(|y| tensors::flat(&y.with_empty_tape()));
    assert!(values[0].iter().zip(&values[1]).all(near));
    let [fused, composed] = [fused, composed].map(|y| (y * weights.clone()).sum().backward());
    let of_image = [&fused, &composed].map(|of| tensors::flat(&of.get(&image)));
    assert!(of_image[0].iter().zip(&of_image[1]).all(near));
    // Layers that the chain of operations does not run have gradients where these were there before.
    let traced = || (image.clone().traced(reader.alloc_grads()), tokens.clone());
    let [fused, composed] = [reader.look(traced()), reader.look_composed(traced())];
    let [fused, composed] = [fused, composed].map(|y| (y * weights.clone()).sum().backward());
    let [fused, composed] = [fused, composed].map(|of| gradients(&reader, &of));
    let mut pairs = fused.iter().flatten().zip(composed.iter().flatten());
    assert!(pairs.all(near));
    let maps = reader.look_attention_maps((image.clone(), tokens.clone()));
    assert_eq!((maps.len(), maps[0].name()), (1, "attention_2"));
    assert!(reader.look_values((image, tokens)).get("image").is_some());
}

#[test]
fn a_session_of_a_function() {
    let _alone = alone();
    let reader = reader();
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    let whole: Tensor<Rank2<1, 8>, usize, _> = Cpu::default().tensor([tokens]);
    let logits = [reader.forward(whole.clone()), reader.guess(whole)];
    let logits = logits.map(|logits| tensors::flat(&logits));
    let mut sessions = [reader.session(8).unwrap(), reader.guess_session(8).unwrap()];
    for (session, logits) in sessions.iter_mut().zip(&logits) {
        for (token, row) in tokens.iter().zip(logits.chunks(11)) {
            let found = session.prefill(&[*token]).unwrap();
            // The same sums, rounded in another order.
            let mut pairs = found.iter().zip(row);
            assert!(pairs.all(|(a, b)| (a - b).abs() <= 1e-14 * b.abs().max(1.0)));
        }
    }
}
