//! Lengths that are not those of a grid.

use attn::{Error, attention, dfdx::prelude::*, model};

attention! {
    struct Vit<heads = 2, d_model = 8, grid = [3, 4], prefix_tokens = 1, mask = neighborhood(3)>;
    struct Cross<heads = 2, d_model = 8, d_context = 6, grid = [3, 4], kv_grid = [2, 5], mask = same_row>;
}

const MESSAGE: &str =
    "Vit: the query axis has length 12, but the grid has 3 * 4 = 12 places behind 1 token";

#[test]
fn a_sequence_of_another_length_is_an_error_of_both_forms() {
    let dev = Cpu::default();
    let layer = dev.build_module::<Vit, f32>();
    let x = || dev.zeros_like::<(usize, usize, Const<8>)>(&(2, 12, Const)) as Tensor<_, f32, _>;
    for error in [
        layer.try_forward(x()).unwrap_err(),
        layer.composed().try_forward(x()).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), MESSAGE);
        let Error::GridMismatch {
            length,
            grid,
            prefix,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((length, grid, prefix), (12, vec![3, 4], 1));
    }
    let density = Vit::try_mask_density(12, 12).unwrap_err();
    assert_eq!(density.to_string(), MESSAGE);
}

#[test]
fn keys_have_a_grid_of_their_own() {
    let dev = Cpu::default();
    let layer = dev.build_module::<Cross, f32>();
    let x = || dev.zeros_like::<(usize, usize, Const<8>)>(&(1, 12, Const)) as Tensor<_, f32, _>;
    let context =
        |len| dev.zeros_like::<(usize, usize, Const<6>)>(&(1, len, Const)) as Tensor<_, f32, _>;
    assert!(layer.try_forward((x(), context(10))).is_ok());
    let error = layer.try_forward((x(), context(12))).unwrap_err();
    let message = "Cross: the key axis has length 12, but the grid has 2 * 5 = 10 places";
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_model_checks_its_grids_before_it_computes() {
    model! {
        struct Net<rows = 3, cols = 4, d_model = 8>;
        fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
            x + attention::<heads = 2, grid = [rows, { cols }], mask = window(2, shift = 1)>(x)
        }
    }
    let dev = Cpu::default();
    let net = dev.build_module::<Net, f32>();
    let x = |len| dev.zeros_like::<(usize, usize, Const<8>)>(&(2, len, Const)) as Tensor<_, f32, _>;
    assert!(net.try_forward(x(12)).is_ok());
    for error in [
        net.try_forward(x(11)).unwrap_err(),
        net.composed().try_forward(x(11)).unwrap_err(),
    ] {
        let message = "the query axis has length 11, but the grid has 3 * 4 = 12 places";
        assert!(error.to_string().ends_with(message), "{error}");
    }
}
