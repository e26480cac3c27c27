//! Products of models against loops.

use super::*;
use attn::model;
use support::close::assert_close;

/// The sum of `term` over all indices below `len`.
fn sum(len: usize, term: impl Fn(usize) -> f64) -> f64 {
    (0..len).map(term).sum()
}

model! {
    /// Axes of one size are told apart by their names.
    struct Square<rows = 3, cols = 3, depth = 3>;
    fn forward(a: [batch, rows, depth], b: [depth, cols]) -> ([cols, batch, rows], [batch, rows], [depth]) {
        let products = einsum::<[cols, batch, rows]>(a, b);
        (products, einsum::<[batch, rows]>(a, b), einsum::<[depth]>(a, b))
    }
}

#[test]
fn axes_are_matched_by_name() {
    let model = Cpu::default().build_module::<Square, f64>();
    for batch in [0, 1, 2, 5] {
        let a: Tensor<(usize, Const<3>, Const<3>), f64, _> = tensor("a", (batch, Const, Const));
        let b: Tensor<Rank2<3, 3>, f64, _> = tensor("b", Default::default());
        let (of_a, of_b) = (support::tensors::flat(&a), b.as_vec());
        let (of_a, of_b) = (&of_a, &of_b);
        let at_a = |i: usize, j: usize, k: usize| of_a[(i * 3 + j) * 3 + k];
        let at_b = |k: usize, l: usize| of_b[k * 3 + l];
        let products: Vec<f64> = (0..3)
            .flat_map(|l| (0..batch).flat_map(move |i| (0..3).map(move |j| (l, i, j))))
            .map(|(l, i, j)| sum(3, |k| at_a(i, j, k) * at_b(k, l)))
            .collect();
        let of_rows: Vec<f64> = (0..batch)
            .flat_map(|i| (0..3).map(move |j| (i, j)))
            .map(|(i, j)| sum(3, |k| at_a(i, j, k) * sum(3, |l| at_b(k, l))))
            .collect();
        let of_depth: Vec<f64> = (0..3)
            .map(|k| sum(batch, |i| sum(3, |j| at_a(i, j, k))) * sum(3, |l| at_b(k, l)))
            .collect();
        let check = |(x, y, z): (Vec<f64>, Vec<f64>, Vec<f64>)| {
            assert_close("products", &x, &products, 1e-12);
            assert_close("rows", &y, &of_rows, 1e-12);
            assert_close("depth", &z, &of_depth, 1e-12);
        };
        let (x, y, z) = model.forward((a.clone(), b.clone()));
        check((
            support::tensors::flat(&x),
            support::tensors::flat(&y),
            z.as_vec(),
        ));
        let (x, y, z) = model.composed().forward((a.clone(), b.clone()));
        check((
            support::tensors::flat(&x),
            support::tensors::flat(&y),
            z.as_vec(),
        ));
    }
}

const WIDTH: usize = 3;

model! {
    /// Sizes that only rustc knows, and axes without names.
    struct Constants<d = WIDTH>;
    fn forward(x: [2, WIDTH], y: [d, 4]) -> [4, 2] { einsum::<[4, 2]>(x, y) }
}

#[test]
fn axes_without_names_are_matched_by_their_sizes() {
    let model = Cpu::default().build_module::<Constants, f64>();
    let x: Tensor<Rank2<2, 3>, f64, _> = tensor("x", Default::default());
    let y: Tensor<Rank2<3, 4>, f64, _> = tensor("y", Default::default());
    let (of_x, of_y) = (x.array(), y.array());
    let z = model.forward((x, y)).array();
    for (i, z) in z.iter().enumerate() {
        for (j, z) in z.iter().enumerate() {
            assert!((z - sum(3, |k| of_x[j][k] * of_y[k][i])).abs() < 1e-14);
        }
    }
}

model! {
    /// Equal sizes, as rustc finds: an axis has its name in one operand, and a constant of the user in the other.
    struct Equal<d = 3>;
    fn forward(x: [batch, WIDTH], y: [d], z: [4, d]) -> ([d, batch], [4, batch], [batch, d]) {
        let named = x as [batch, d = WIDTH];
        let scaled = einsum::<[d, batch]>(named, y);
        (scaled, einsum::<[4, batch]>(z, named), x + y)
    }
}

#[test]
fn sizes_that_rustc_finds_to_be_equal_are_one_axis() {
    let model = Cpu::default().build_module::<Equal, f64>();
    let x: Tensor<Rank2<2, 3>, f64, _> = tensor("x", Default::default());
    let y: Tensor<Rank1<3>, f64, _> = tensor("y", Default::default());
    let z: Tensor<Rank2<4, 3>, f64, _> = tensor("z", Default::default());
    let (of_x, of_y, of_z) = (x.array(), y.array(), z.array());
    let check = |scaled: Vec<f64>, products: Vec<f64>| {
        for i in 0..2 {
            for k in 0..3 {
                assert_eq!(scaled[k * 2 + i], of_x[i][k] * of_y[k]);
            }
            for j in 0..4 {
                let product = sum(3, |k| of_x[i][k] * of_z[j][k]);
                assert!((products[j * 2 + i] - product).abs() < 1e-14);
            }
        }
    };
    let (scaled, products, _) = model.forward((x.clone(), y.clone(), z.clone()));
    check(scaled.as_vec(), products.as_vec());
    let (scaled, products, _) = model.composed().forward((x, y, z));
    check(scaled.as_vec(), products.as_vec());
}

model! {
    struct Map<d = 6, e = 4>;
    fn forward(x: [batch, seq, d], w: [d, e]) -> [batch, seq, e] { einsum::<[batch, seq, e]>(x, w) }
}

model! {
    struct Linear<d = 6, e = 4>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, e] { linear::<e, bias = false>(x) }
}

#[test]
fn axes_may_be_constants_at_the_call() {
    let model = Cpu::default().build_module::<Map, f32>();
    let x: Tensor<Rank3<2, 5, 6>, f32, _> = tensor("x", Default::default());
    let w: Tensor<Rank2<6, 4>, f32, _> = tensor("w", Default::default());
    let y: Tensor<Rank3<2, 5, 4>, f32, _> = model.forward((x.clone(), w.clone()));
    let z: Tensor<(usize, usize, Const<4>), f32, _> =
        model.forward((x.reshape_like(&(2, 5, Const::<6>)), w));
    assert_eq!(support::tensors::flat(&y), support::tensors::flat(&z));
}

#[test]
fn flops_are_those_of_the_matrix_product() {
    assert_eq!(Map::flops(2, 5), 2 * 2 * 5 * 6 * 4);
    assert_eq!(Map::flops(2, 5), Linear::flops(2, 5));
}
