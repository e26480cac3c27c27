//! Two modules against each other.

use crate::wrong::{Plain, Traced, gain};
use attn::{
    attention,
    dfdx::prelude::*,
    model, nn,
    testing::{Compare, CompareError, Comparison, Tolerance, assert_same, compare},
};

attention! {
    struct Causal<heads = 2, d_model = 6, mask = causal & padding>;
}

model! {
    struct TwoResults<width = 3>;

    fn forward(x: [batch, width]) -> { sum: [batch], wide: [batch, 4] } {
        let first = linear::<width, name = first>(x);
        { sum: sum::<width>(first), wide: linear::<4, name = second>(x) }
    }
}

fn dev() -> Cpu {
    Cpu::seed_from_u64(5)
}

fn different<Dev: std::fmt::Debug>(result: Result<Comparison, CompareError<Dev>>) -> Comparison {
    match result {
        Err(CompareError::Different(comparison)) => comparison,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_forms_of_a_layer_are_the_same() {
    let layer = dev().build_module::<Causal, f32>();
    let x: Tensor<Rank3<2, 5, 6>, f32, _> = dev().sample_normal();
    let lens: Tensor<Rank1<2>, usize, _> = dev().tensor([5, 3]);
    let report = Compare::default().functions(
        (&layer, |layer: &Causal<_, _>, input| layer.forward(input)),
        (&layer, |layer: &Causal<_, _>, input| {
            layer.composed().forward(input)
        }),
        (x, lens),
    );
    let report = report.unwrap();
    let names: Vec<_> = report.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names[..3],
        [
            "the result",
            "the gradient of input 0",
            "the gradient of q_proj.weight"
        ]
    );
    assert_eq!(names.len(), 1 + 1 + 8);
    assert!(
        report
            .to_string()
            .contains("the gradient of o_proj.bias: differences of")
    );
}

#[test]
fn parameters_are_copied_in_their_order() {
    let ours = dev().build_module::<(nn::LayerNorm<4>, nn::Linear<4, 3>), f64>();
    let theirs = Cpu::seed_from_u64(9).build_module::<(LayerNorm1D<4>, Linear<4, 3>), f64>();
    let x: Plain<Rank2<5, 4>> = dev().sample_normal();
    let report = compare(&ours, &theirs, x.clone()).unwrap();
    let names: Vec<_> = report.tensors.iter().map(|t| t.name.as_str()).collect();
    assert!(
        names.contains(&"the gradient of 0.weight (0.gamma)"),
        "{names:?}"
    );
    assert_same(&ours, &theirs, x);
}

/// The second module has its parameters in another order, with other names. Two have the same shape.
#[test]
fn parameters_are_copied_by_their_names() {
    type Layers = SplitInto<(nn::Linear<3, 3>, nn::Linear<3, 3>)>;
    let ours = dev().build_module::<Layers, f64>();
    let theirs = Cpu::seed_from_u64(9).build_module::<Layers, f64>();
    type Of<L> = <L as BuildOnDevice<Cpu, f64>>::Built;
    let x: Plain<Rank2<5, 3>> = dev().sample_normal();
    let first = |layers: &Of<Layers>, x: Traced<Rank2<5, 3>>| layers.0.0.forward(x);
    let second = |layers: &Of<Layers>, x: Traced<Rank2<5, 3>>| layers.0.1.forward(x);
    let by_order = Compare::default().functions((&ours, first), (&theirs, second), x.clone());
    let by_order = different(by_order);
    assert_eq!(by_order.first().unwrap().0.name, "the result");
    let renamed = Compare::default()
        .renamed("0.0", "0.1")
        .renamed("0.1", "0.0");
    let by_name = renamed
        .functions((&ours, first), (&theirs, second), x.clone())
        .unwrap();
    assert_eq!(
        by_name.tensors[2].name,
        "the gradient of 0.0.weight (0.1.weight)"
    );
    let doubled = Compare::default().renamed("0.0", "0.1").functions(
        (&ours, first),
        (&theirs, second),
        x.clone(),
    );
    let error = doubled.unwrap_err().to_string();
    assert!(
        error.contains("`0.0.weight`, `0.0.bias`, `0.1.weight`, `0.1.bias` of the first module"),
        "{error}"
    );
    let unknown =
        Compare::default()
            .renamed("0.0", "one")
            .functions((&ours, first), (&theirs, second), x);
    let error = unknown.unwrap_err().to_string();
    assert!(
        error.contains("`0.0.weight`, `0.0.bias` of the first module"),
        "{error}"
    );
}

#[test]
fn results_by_name_are_compared_as_a_tuple() {
    let net = dev().build_module::<TwoResults, f64>();
    let x: Plain<(usize, Const<3>)> = dev().sample_normal_like(&(4, Const));
    let run = |shift: f64| {
        let f = |net: &TwoResults<f64, Cpu>, x: Traced<(usize, Const<3>)>| {
            let y = net.forward(x);
            (y.sum, y.wide)
        };
        let g = move |net: &TwoResults<f64, Cpu>, x: Traced<(usize, Const<3>)>| {
            let y = net.composed().forward(x);
            (y.sum, y.wide + shift)
        };
        Compare::default().functions((&net, f), (&net, g), x.clone())
    };
    assert!(run(0.0).is_ok());
    let comparison = different(run(1e-3));
    let (tensor, at) = comparison.first().unwrap();
    assert_eq!(
        (tensor.name.as_str(), &at.index[..]),
        ("result 1", &[0, 0][..])
    );
    assert_eq!(tensor.differing, 16);
    assert!((at.size() - 1e-3).abs() < 1e-12);
    let text = comparison.to_string();
    assert!(text.starts_with("`result 1` at [0, 0] is "), "{text}");
    assert!(
        text.contains("result 1: 16 of 16 numbers differ, by 1.0e-3 at most"),
        "{text}"
    );
}

#[test]
fn a_wrong_derivative_is_the_first_difference_of_equal_results() {
    let norm = dev().build_module::<nn::RmsNorm<5>, f64>();
    let x: Plain<Rank2<4, 5>> = dev().sample_normal();
    type Norm = nn::RmsNorm<5, f64, Cpu>;
    let with = |factor: f64| {
        move |norm: &Norm, x: Traced<Rank2<4, 5>>| {
            gain(x, &norm.weight, move |i| if i == 3 { factor } else { 1.0 })
        }
    };
    let run =
        |factor| Compare::default().functions((&norm, with(factor)), (&norm, with(1.0)), x.clone());
    assert!(run(1.0).is_ok());
    let comparison = different(run(2.0));
    let (tensor, at) = comparison.first().unwrap();
    assert_eq!(
        (tensor.name.as_str(), &at.index[..]),
        ("the gradient of weight", &[3][..])
    );
    assert_eq!((tensor.differing, tensor.dims.as_slice()), (1, &[5][..]));
    assert!((at.found / at.expected - 2.0).abs() < 1e-12);
}

#[test]
fn modules_that_do_not_fit_are_errors() {
    let x: Plain<Rank2<5, 4>> = dev().sample_normal();
    let one = dev().build_module::<nn::Linear<4, 3>, f64>();
    let two = dev().build_module::<nn::Linear<4, 2>, f64>();
    let error = compare(&one, &two, x.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`weight` has the shape [3, 4], but `weight` of the second module [2, 4]"
    );
    let longer = dev().build_module::<(nn::Linear<4, 3>, nn::Linear<3, 3>), f64>();
    let error = compare(&one, &longer, x.clone()).unwrap_err().to_string();
    assert!(
        error.contains("`weight`, `bias` of the first module and `0.weight`"),
        "{error}"
    );
    let error = compare(&Refuses, &Refuses, x).unwrap_err().to_string();
    assert_eq!(error, "the first module returned an error: \"not today\"");
}

/// A module that returns an error.
#[derive(Clone, Debug, Default)]
struct Refuses;

impl ZeroSizedModule for Refuses {}

impl Module<Traced<Rank2<5, 4>>> for Refuses {
    type Output = Traced<Rank2<5, 4>>;
    type Error = &'static str;

    fn try_forward(&self, _: Traced<Rank2<5, 4>>) -> Result<Self::Output, &'static str> {
        Err("not today")
    }
}

#[test]
fn numbers_are_close_as_torch_has_it() {
    let tolerance = Tolerance {
        rtol: 0.5,
        atol: 1.0,
    };
    // `torch.allclose(torch.tensor([found]), torch.tensor([expected]), rtol=0.5, atol=1)`
    for (found, expected, is_close) in [
        (7.0, 4.0, true),
        (7.1, 4.0, false),
        (4.0, 7.0, true),
        (1.0, 0.0, true),
        (1.1, 0.0, false),
        (f64::INFINITY, f64::INFINITY, true),
        (f64::NEG_INFINITY, f64::INFINITY, false),
        (1.0, f64::INFINITY, false),
        (f64::NAN, f64::NAN, false),
        (f64::NAN, 1.0, false),
    ] {
        assert_eq!(
            tolerance.is_close(found, expected),
            is_close,
            "{found}, {expected}"
        );
    }
    assert_eq!(
        Tolerance::of::<f32>(),
        Tolerance {
            rtol: 1.3e-6,
            atol: 1e-5
        }
    );
    assert_eq!(
        Tolerance::of::<f64>(),
        Tolerance {
            rtol: 1e-7,
            atol: 1e-7
        }
    );
}
