//! The values and gradients of PyTorch.

use attn::{dfdx::prelude::*, ops::masked_softmax};
use std::{collections::BTreeMap, path::Path};
use support::{
    close::assert_close,
    compare::flat,
    safetensors::{self, Stored},
};

use super::{Traced, Vectors};

/// Sums of seven terms, exponentials and quotients, on about ten levels, in both libraries.
const TOLERANCE: f64 = 1e-14;

struct Case {
    name: &'static str,
    tensors: BTreeMap<String, Stored>,
}

impl Case {
    fn read(name: &'static str) -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("run_time_attention/values.safetensors");
        let tensors = safetensors::read(&path);
        Self { name, tensors }
    }

    fn get(&self, name: &str) -> &Stored {
        &self.tensors[&format!("{}/{name}", self.name)]
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.get(name).numbers()
    }

    fn tensor(&self, name: &str) -> Vectors {
        let dims = &self.get(name).dims;
        let shape = (dims[0], dims[1], dims[2], dims[3]);
        Cpu::default().tensor_from_vec(self.numbers(name), shape)
    }

    #[track_caller]
    fn assert(&self, name: &str, found: &[f64]) {
        assert_close(
            format_args!("{name} of {}", self.name),
            found,
            &self.numbers(name),
            TOLERANCE * 10.0,
        );
    }

    /// Compares the results and gradients of both forms.
    fn agrees(&self, options: impl Fn() -> Traced, other: Other) {
        for options in [&options as &dyn Fn() -> Traced, &|| options().composed()] {
            let [q, k, v] = ["q", "k", "v"].map(|name| self.tensor(name));
            let call = (q.leaky_trace(), k.clone(), v.clone());
            let (y, square) = match other {
                Other::Nothing => (options().forward(call.0, call.1, call.2), None),
                Other::Weights => {
                    let (y, weights) = options().forward_with_weights(call.0, call.1, call.2);
                    self.assert("other_0", &flat(&weights));
                    (y, Some(weights.square().sum::<Rank0, _>()))
                }
                Other::Lse => {
                    let (y, lse) = options().forward_with_lse(call.0, call.1, call.2);
                    self.assert("other_0", &flat(&lse));
                    (y, Some(lse.square().sum::<Rank0, _>()))
                }
            };
            self.assert("y", &flat(&y));
            let loss = (y * self.tensor("d")).sum::<Rank0, _>();
            let gradients = match square {
                Some(square) => (loss + square).backward(),
                None => loss.backward(),
            };
            self.assert("d_q", &flat(&gradients.get(&q)));
            self.assert("d_k", &flat(&gradients.get(&k)));
            self.assert("d_v", &flat(&gradients.get(&v)));
        }
    }
}

/// What is returned beside the output.
#[derive(Clone, Copy)]
enum Other {
    Nothing,
    Weights,
    Lse,
}

#[test]
fn scaled_dot_product_attention_is_the_same() {
    Case::read("plain").agrees(Traced::new, Other::Nothing);
    Case::read("weights").agrees(Traced::new, Other::Weights);
    Case::read("causal").agrees(|| Traced::new().causal().scale(0.3), Other::Nothing);
    Case::read("lower_right").agrees(|| Traced::new().causal_lower_right(), Other::Nothing);
}

#[test]
fn masks_of_booleans_are_the_same() {
    let case = Case::read("mask");
    let stored = case.get("mask");
    let dims = &stored.dims;
    let marks: Vec<bool> = stored.bytes.iter().map(|&byte| byte != 0).collect();
    let shape = (dims[0], dims[1], dims[2], dims[3]);
    let mask: Tensor<_, bool, _> = Cpu::default().tensor_from_vec(marks, shape);
    case.agrees(|| Traced::new().mask(&mask), Other::Nothing);
}

/// Three axes are those of heads.
#[test]
fn masks_of_three_axes_are_the_same() {
    let case = Case::read("mask_of_heads");
    let stored = case.get("mask");
    let marks: Vec<bool> = stored.bytes.iter().map(|&byte| byte != 0).collect();
    let shape = (stored.dims[0], stored.dims[1], stored.dims[2]);
    let mask: Tensor<_, bool, _> = Cpu::default().tensor_from_vec(marks, shape);
    case.agrees(|| Traced::new().mask(&mask), Other::Nothing);
}

#[test]
fn masks_of_floats_are_the_same_and_have_a_gradient() {
    let case = Case::read("bias");
    let dims = &case.get("bias").dims;
    let shape = (dims[0], dims[1], dims[2]);
    let bias: Tensor<_, f64, _> = Cpu::default().tensor_from_vec(case.numbers("bias"), shape);
    case.agrees(|| Traced::new().bias(bias.clone()), Other::Nothing);
    let [q, k, v] = ["q", "k", "v"].map(|name| case.tensor(name));
    let y = Traced::new()
        .bias(bias.clone())
        .forward(q.leaky_trace(), k, v);
    let gradients = (y * case.tensor("d")).sum::<Rank0, _>().backward();
    case.assert("d_bias", &flat(&gradients.get(&bias)));
}

#[test]
fn flex_attention_is_the_same() {
    let options = || {
        Traced::new()
            .score_by(|score, at| {
                let distance = (at.q_idx - at.kv_idx).abs();
                2.0 * (score / 2.0).tanh() - 0.25 * ((at.h + 1) * distance) as f64
            })
            .mask_by(|at| at.kv_idx <= at.q_idx + at.b && at.q_idx - at.kv_idx < 4)
    };
    Case::read("flex").agrees(options, Other::Lse);
}

/// `masked_softmax` is `softmax` of scores that are -∞ beyond the lengths.
#[test]
fn masked_softmax_is_the_same() {
    let case = Case::read("masked_softmax");
    let x = case.tensor("x");
    let (batch, _, query, _) = *x.shape();
    let lens = case.numbers("lens").into_iter().map(|len| len as usize);
    let lens: Tensor<_, usize, _> = Cpu::default().tensor_from_vec(lens.collect(), (batch, query));
    let y = masked_softmax(x.leaky_trace(), &lens);
    case.assert("y", &flat(&y));
    let gradients = (y * case.tensor("d")).sum::<Rank0, _>().backward();
    case.assert("d_x", &flat(&gradients.get(&x)));
}
