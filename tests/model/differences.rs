//! The gradients of models against central differences of their outputs.

use super::*;
use attn::model;
use support::gradients::assert_gradients_of_parameters;

model! {
    struct Encoder<vocab = 7, d_model = 6>;

    fn forward(tokens: ids[batch, seq], lens: lens[batch], keep: bool[batch, seq]) -> [batch, 3] {
        let mut x = embedding::<vocab, d_model>(tokens) + sinusoidal_position::<d_model>(tokens);
        repeat 2 {
            x = layer_norm(x + attention::<2, mask = padding>(x, padding = lens));
            x = layer_norm(x + attention::<2, mask = causal & padding>(x, padding = keep));
            x = rms_norm(x + feed_forward::<8, activation = swiglu>(x));
        }
        linear::<3>(tanh(mean_pool(x, lens) + mean_pool(x, keep)))
    }
}

#[test]
fn gradients_of_a_whole_model_equal_central_differences() {
    let mut model = Cpu::default().build_module::<Encoder, f64>();
    scatter(&mut model);
    let inputs = || (ids((2, 4), 7).leaky_traced(), lens([4, 3]), marks((2, 4)));
    let outcome = backpropagate(model.forward(inputs())).parameters(&model);
    assert_gradients_of_parameters(&|| model.clone(), &outcome, &|moved| {
        backpropagate(moved.forward(inputs()))
            .parameters(&())
            .loss()
    });
}
