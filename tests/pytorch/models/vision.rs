//! Models of images.

cases! {
    // Dosovitskiy et al. 2021, with the registers of Darcet et al. 2024.
    vision_transformer {
        struct M<patches = 4, placed = 5, tokens = 7, d = 4, classes = 3>;
        fn forward(image: [batch, patches, 6]) -> [batch, classes] {
            param class: [1, d] = normal(0.02);
            param positions: [placed, d] = normal(0.02);
            param registers: [2, d] = normal(0.02);
            let x = linear::<d, name = patch_embedding>(image);
            let x = concat::<placed>(class, x) + positions;
            let mut x = concat::<tokens>(x, registers);
            repeat 2 {
                x += attention::<heads = 2>(layer_norm(x));
                x += feed_forward::<8, activation = gelu>(layer_norm(x));
            }
            let x = layer_norm(x);
            linear::<classes, name = head>(x[tokens = 0])
        }
    } (image: floats[_, 4, 6]);

    // Jaegle et al. 2021: learned vectors read the input, then one another.
    perceiver {
        struct M<latents = 3, d = 4, classes = 2>;
        fn forward(x: [batch, n, d]) -> [batch, classes] {
            param latents: [latents, d] = normal(0.02);
            let mut z = expand::<[batch, latents, d]>(latents);
            repeat 2, share = true {
                z += attention::<heads = 1, name = read>(layer_norm::<name = of_latents>(z), context = layer_norm::<name = of_input>(x));
                z += feed_forward::<8>(layer_norm(z));
                z += attention::<heads = 2>(layer_norm(z));
                z += feed_forward::<8>(layer_norm(z));
            }
            linear::<classes>(mean::<3>(z))
        }
    } (x: floats[_, _, 4]);

    // adaLN-Zero, Peebles and Xie 2023: norms without parameters of their own, which the condition shifts, scales and gates.
    diffusion_transformer {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], condition: [batch, d]) -> [batch, seq, d] {
            let modulation = linear::<{ 6 * d }, init = zeros>(silu(condition));
            let (shift, scale, gate, shift_2, scale_2, gate_2) = split(modulation);
            let y = (x - mean::<d>(x)) / sqrt(variance::<d>(x) + 1e-6);
            let x = x + gate * attention::<heads = 2>(y * (1 + scale) + shift);
            let y = (x - mean::<d>(x)) / sqrt(variance::<d>(x) + 1e-6);
            x + gate_2 * feed_forward::<8, activation = gelu_tanh>(y * (1 + scale_2) + shift_2)
        }
    } (x: floats[_, _, 4], condition: floats[_, 4]);

    // Mildenhall et al. 2020: a point of space as sines and cosines, which give a density and, with the direction, a colour.
    radiance_field {
        struct M<axes = 3, bands = 2, d = 4>;
        fn forward(point: [batch, axes], direction: [batch, axes]) -> ([batch, 3], [batch]) {
            let frequencies = exp(ln(2) * float(arange::<bands>()));
            let angles = rearrange::<[batch, (axes, bands)]>(einsum::<[batch, axes, bands]>(point, frequencies));
            let features = concat(point, sin(angles), cos(angles));
            let h = relu(linear::<d>(features));
            let h = relu(linear::<d>(concat(h, features)));
            let density = linear::<1, name = density>(h)[1 = 0];
            let colour = sigmoid(linear::<3, name = colour>(concat(h, direction)));
            (colour, max(density, 0) + ln(1 + exp(-abs(density))))
        }
    } (point: floats[_, 3], direction: floats[_, 3]);

    // Radford et al. 2021: the vectors of images and of texts, whose products are the logits, and the loss of both directions.
    contrastive_towers {
        struct M<patches = 3, tokens = 4, vocab = 7, d = 4, shared = 5>;
        block mlp(x: [.., d]) -> [.., d] {
            let hidden = linear::<8>(x);
            linear::<d>(hidden * sigmoid(1.702 * hidden))
        }
        fn image(image: [batch, patches, 6]) -> [batch, shared] {
            param class: [1, d] = normal(0.02);
            param positions: [tokens, d] = normal(0.02);
            let mut x = concat::<tokens>(class, linear::<d, bias = false>(image)) + positions;
            x = layer_norm::<name = before>(x);
            repeat 1, name = vision {
                x += attention::<heads = 2>(layer_norm(x));
                x += mlp(layer_norm(x));
            }
            l2_norm(linear::<shared, bias = false, name = of_image>(layer_norm::<name = after>(x[tokens = 0])))
        }
        fn text(text: ids[batch, seq]) -> [batch, shared] {
            let mut y = embedding::<vocab, d>(text) + learned_position::<5, d>(text);
            repeat 1, name = language {
                y += attention::<heads = 2, mask = causal>(layer_norm(y));
                y += mlp(layer_norm(y));
            }
            let y = layer_norm::<name = last>(y);
            l2_norm(linear::<shared, bias = false, name = of_text>(y[seq = -1]))
        }
        fn forward(image: [batch, patches, 6], text: ids[batch, seq]) -> [] {
            param temperature: [] = 2.6592;
            let x = exp(temperature) * image(image);
            let y = text(text);
            let logits = einsum::<[batch, other]>(x, y as [other = batch, shared]);
            let of_images = mean::<batch>(logsumexp::<other>(logits));
            let of_texts = mean::<other>(logsumexp::<batch>(logits));
            (of_images + of_texts) / 2 - mean::<batch>(sum::<shared>(x * y))
        }
    } (image: floats[_, 3, 6], text: ids[_, _]);
}
