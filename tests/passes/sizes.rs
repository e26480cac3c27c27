//! Several strips and tasks, rows that are longer than a piece of a loop, and empty axes.

use super::*;
use rayon::ThreadPoolBuilder;

/// A model of every kind of operand, with rows of a width.
macro_rules! of_width {
    ($($name:ident: $width:literal, $sizes:expr;)*) => {$(
        #[test]
        fn $name() {
            model! {
                struct M<d = $width>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param gain: [d] = normal(1.0);
                    param bias: [d] = normal(1.0);
                    let c = 2 * x;
                    let h = (c - mean::<d>(c)) / sqrt(variance::<d>(c) + 1e-2) * gain + bias;
                    let powers = exp(h - max::<d>(h));
                    h * (powers / sum::<d>(powers))
                }
            }
            let mut model = Cpu::default().build_module::<M, f64>();
            scatter(&mut model);
            for (batch, seq) in $sizes {
                let x = tensor::<_, f64>("x", (batch, seq, Const::<$width>));
                if batch * seq == 0 {
                    // dfdx cannot sum an empty tensor.
                    assert_eq!(model.forward(x).shape().concrete(), [batch, seq, $width]);
                    continue;
                }
                let outcome = |y| -> Outcome {
                    let ran: Backpropagated<f64> = backpropagate(y);
                    ran.input("x", &x).parameters(&model)
                };
                let in_threads = |threads: usize| {
                    let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    pool.install(|| tensors::flat(&model.forward(x.clone())))
                };
                assert_eq!(in_threads(1), in_threads(3), "{batch} x {seq}");
                let fused = outcome(model.forward(x.clone().leaky_traced()));
                let composed = outcome(model.composed().forward(x.clone().leaky_traced()));
                // Gradients of parameters are sums over thousands of rows, which are added in another order.
                let terms = (batch * seq) as f64;
                let bound = tolerance::<f64>() * terms.sqrt().max(1.0);
                assert_same(&format!("{batch} x {seq}"), &fused, &composed, bound);
            }
        }
    )*};
}

of_width! {
    rows_of_one_number: 1, [(1, 1), (3, 5), (2, 3000)];
    short_rows: 7, [(0, 3), (2, 0), (1, 1), (2, 1), (3, 1000)];
    rows_of_a_vector: 64, [(1, 1), (3, 100)];
    long_rows: 1100, [(1, 1), (2, 9)];
    rows_of_a_strip: 4097, [(1, 3)];
}
