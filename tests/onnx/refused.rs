//! Operations without a counterpart in ONNX are refused in words.

use attn::{dfdx::prelude::*, model};

macro_rules! refused {
    ($($name:ident { $($model:tt)* } $message:expr;)*) => {$(
        #[test]
        fn $name() {
            model! { $($model)* }

            let model = Cpu::default().build_module::<M, f32>();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let error = model.export_onnx(&path).unwrap_err();
            assert_eq!(error.to_string(), format!("M cannot be exported to ONNX: {}", $message));
            assert!(!path.exists());
        }
    )*};
}

refused! {
    a_scan {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            scan seq {
                state h: [batch, d] = 0.0;
                h = tanh(linear::<d>(h) + x);
                yield h;
            }
        }
    } "its `scan` over `seq` is a loop with a number of steps that only the call knows; export the step as a function of the model, and loop outside";

    a_sparse_normalizer {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 { x += attention::<heads = 2, normalizer = sparsemax>(x); }
            x
        }
    } "`blocks.attention`: `normalizer = sparsemax` has a threshold that needs all scores of a query in order; use `softmax`";

    another_sparse_normalizer {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<heads = 2, normalizer = entmax15>(x)
        }
    } "`attention`: `normalizer = entmax15` has a threshold that needs all scores of a query in order; use `softmax`";

    frequencies_of_the_length {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<heads = 2, position = rope(scaling = dynamic_ntk(factor = 2.0, original_max_len = 8))>(x)
        }
    } "`attention`: the frequencies of `scaling = dynamic_ntk` depend on the length of the sequence; use `ntk`, `yarn` or `llama3`";

    a_capacity {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], group: ids[batch, seq]) -> [batch, seq, d] {
            grouped_linear::<d, groups = 3, capacity_factor = 1.25>(x, group)
        }
    } "`grouped_linear`: rows beyond the `capacity_factor` of their group are dropped in the order of the call, which is no operator; export it without a capacity";

    a_loss {
        struct M<d = 4>;
        fn forward(x: [batch, d], targets: ids[batch]) -> [] {
            cross_entropy(x, targets)
        }
    } "`cross_entropy`: `cross_entropy` is a loss, and the file is for inference; export a function that returns logits";

    sums_at_indices {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], places: ids[batch, seq]) -> [batch, 6, d] {
            scatter_add::<[batch, 6, d]>(x, places)
        }
    } "`scatter_add`: sums at indices that are equal are no operator that all runtimes have; use `einsum` with the `one_hot` of the indices";
}
