//! A bound on the memory of a model: whatever runs again, results and gradients are the same bits, and the bytes that are promised are taken.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use attn::{dfdx::prelude::*, memory};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::cases::{ids, scatter, tensor};
use support::compare::{Backpropagated, Outcome, backpropagate};

/// Each test waits for the one before it: all activations of a process are counted together.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of all plans with any number of last rounds, in their order from the most on, each once.
struct Bytes {
    all: [usize; 256],
    len: usize,
}

impl Bytes {
    const NONE: Self = Bytes {
        all: [0; 256],
        len: 0,
    };

    const fn insert(&mut self, bytes: usize) {
        let mut at = self.len;
        while at > 0 && self.all[at - 1] <= bytes {
            if self.all[at - 1] == bytes {
                return;
            }
            at -= 1;
        }
        let mut last = self.len;
        while last > at {
            self.all[last] = self.all[last - 1];
            last -= 1;
        }
        self.all[at] = bytes;
        self.len += 1;
    }

    /// The bound of this number among ten that go from the most to the least.
    const fn bound(&self, index: usize) -> usize {
        self.all[(self.len - 1) * index / 9]
    }
}

/// Declares a model with each of its plans, and compares them with a model that keeps all.
macro_rules! plans {
    (
        $name:ident <$($size:ident = $value:tt),* $(; lora $lora:tt)?> ($($axis:ident = $length:expr),*) { $($functions:tt)* }
        |$dev:ident| $input:expr; $([$plan:ident $index:literal])*
    ) => {
        mod $name {
            use super::*;

            macro_rules! declare {
                (keeps all) => {
                    attn::model! {
                        pub(super) struct M<$($size = $value,)* $(lora $lora)?>;
                        $($functions)*
                    }
                };
                ($amount:tt $unit:ident) => {
                    attn::model! {
                        pub(super) struct M<$($size = $value,)* $(lora $lora,)? memory = $amount $unit for ($($axis = $length),*)>;
                        $($functions)*
                    }
                };
            }

            mod kept {
                #[allow(unused_imports)]
                use super::*;

                declare!(keeps all);
            }

            mod all {
                #[allow(unused_imports)]
                use super::*;

                declare!(4 GiB);
            }

            pub(crate) const PLANS: super::Bytes = {
                let mut bytes = super::Bytes::NONE;
                let mut plan = 0;
                while all::M::__activation_bytes_of_plan(plan, 0).is_some() {
                    let mut last = 0;
                    while let Some(of_plan) = all::M::__activation_bytes_of_plan(plan, last) {
                        bytes.insert(of_plan);
                        last += 1;
                    }
                    plan += 1;
                }
                bytes
            };

            $(mod $plan {
                #[allow(unused_imports)]
                use super::*;

                pub(super) const BOUND: usize = super::PLANS.bound($index);
                declare!(BOUND B);
            })*

            macro_rules! promised {
                ($Model:ty) => {
                    <$Model>::activation_bytes($($length),*)
                };
            }

            /// The bytes of each plan with any number of last rounds.
            #[allow(dead_code, reason = "of `splits`")]
            fn plans() -> Vec<Vec<usize>> {
                let of_plan = |plan| {
                    let each = (0..).map_while(|last| all::M::__activation_bytes_of_plan(plan, last));
                    each.collect::<Vec<_>>()
                };
                (0..).map(of_plan).take_while(|bytes| !bytes.is_empty()).collect()
            }

            /// For each bound, whether only a loop in two parts has the bytes of the chosen plan.
            #[allow(dead_code, reason = "some models have no loop that is worth it")]
            pub(super) fn splits() -> Vec<bool> {
                let plans = plans();
                let is_split = |chosen: usize| {
                    let (whole, split): (Vec<_>, Vec<_>) = plans
                        .iter()
                        .partition(|bytes| bytes.iter().all(|of| *of == bytes[0]));
                    let has = |of: &[&Vec<usize>], inner: fn(&Vec<usize>) -> &[usize]| {
                        of.iter().any(|bytes| inner(bytes).contains(&chosen))
                    };
                    !has(&whole, |bytes| bytes) && has(&split, |bytes| &bytes[1..bytes.len() - 1])
                };
                vec![$(is_split(promised!($plan::M))),*]
            }

            macro_rules! run {
                ($Model:ty) => {{
                    let $dev = Cpu::seed_from_u64(7);
                    let mut model = $dev.build_module::<$Model, f32>();
                    scatter(&mut model);
                    let y = model.forward_mut($input.leaky_traced());
                    let ran: Backpropagated<f32> = backpropagate(y);
                    let outcome: Outcome = ran.parameters(&model);
                    outcome
                }};
            }

            macro_rules! taken {
                ($Model:ty) => {{
                    let $dev = Cpu::seed_from_u64(7);
                    let mut model = $dev.build_module::<$Model, f32>();
                    let x = $input.leaky_traced();
                    let before = memory::allocated();
                    memory::reset_peak();
                    let y = model.forward_mut(x);
                    let (_, tape) = attn::dfdx::tensor::SplitTape::split_tape(y);
                    let loss: Tensor<Rank0, f32, _> = $dev.zeros();
                    let gradients = attn::dfdx::tensor::PutTape::put_tape(loss, tape).backward();
                    drop(gradients);
                    assert_eq!(memory::allocated(), before, "all of it goes");
                    memory::peak() - before
                }};
            }

            #[test]
            fn the_bits_are_those_of_a_model_that_keeps_all() {
                let _alone = alone();
                let kept = run!(kept::M);
                assert!(run!(all::M) == kept);
                $(assert!(run!($plan::M) == kept, "plan {}", $index);)*
            }

            #[test]
            fn the_bytes_are_exact_and_below_the_bound() {
                let _alone = alone();
                let bytes = &PLANS.all[..PLANS.len];
                println!("{bytes:?}");
                let all = promised!(kept::M);
                assert_eq!(promised!(all::M), all);
                assert_eq!(taken!(kept::M), all);
                $({
                    let promised = promised!($plan::M);
                    assert!(bytes.contains(&promised));
                    assert!(promised <= $plan::BOUND, "{promised} of {}", $plan::BOUND);
                    assert_eq!(taken!($plan::M), promised, "plan {}", $index);
                })*
            }
        }
    };
}

plans! {
    gpt <vocab = 11, d = 12, layers = 3> (batch = 2, seq = 9) {
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = dropout::<0.1>(embedding::<vocab, d>(tokens) + learned_position::<20, d>(tokens));
            repeat layers {
                x += dropout::<0.2>(attention::<heads = 3, mask = causal, dropout = 0.1>(layer_norm(x)));
                x += feed_forward::<{ 4 * d }, dropout = 0.1>(layer_norm(x));
            }
            linear::<vocab>(layer_norm(x))
        }
    }
    |dev| ids((2, 9), 11);
    [p1 1] [p2 2] [p3 3] [p4 4] [p5 5] [p6 6] [p7 7] [p8 8] [p9 9]
}

pub(crate) const LAYERS: usize = 2;
pub(crate) const BATCH: usize = 2;

plans! {
    decomposed_gpt <d = 8, layers = LAYERS> (batch = BATCH, seq = 6) {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = linear::<d>(x);
            repeat layers {
                let y = rms_norm(x);
                let (q, k, v) = split(linear::<{ 3 * d }, name = qkv>(y));
                x += dropout::<0.2>(linear::<d>(attend::<mask = causal>(q, k, v)));
                let z = x / sqrt(mean::<d>(x * x) + 1e-6);
                x += linear::<d>(dropout::<0.1>(silu(linear::<12>(z)) * linear::<12>(z)));
            }
            softmax(x)
        }
    }
    |dev| tensor::<_, f32>("x", (2, 6, Const::<8>));
    [p1 1] [p3 3] [p5 5] [p7 7] [p9 9]
}

plans! {
    adapted <d = 8; lora(rank = 2, dropout = 0.25, on = ["q_proj", "v_proj", "up_proj", "down_proj"])> (batch = 2, seq = 7) {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 3 {
                x += attention::<heads = 2, mask = causal>(layer_norm(x));
                x += feed_forward::<20, activation = swiglu>(layer_norm(x));
            }
            x
        }
    }
    |dev| tensor::<_, f32>("x", (2, 7, Const::<8>));
    [p1 1] [p4 4] [p9 9]
}

plans! {
    convolutions <d = 6> (batch = 2, seq = 7) {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let y = gelu(conv1d::<seq, 8, 3, padding = same>(layer_norm(x)));
                x += dropout::<0.1>(conv1d::<seq, d, 3, padding = same>(y));
            }
            x
        }
    }
    |dev| tensor::<_, f32>("x", (2, 7, Const::<6>));
    [p1 1] [p2 2] [p4 4] [p6 6] [p9 9]
}

plans! {
    scans <d = 6> (batch = 2, seq = 7) {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let y = gelu(linear::<d>(layer_norm(x)));
                let z = scan seq {
                    state h: [batch, d] = 0.25;
                    h = tanh(linear::<d>(h)) * 0.5 + dropout::<0.1>(y);
                    yield h;
                };
                x += z;
            }
            x
        }
    }
    |dev| tensor::<_, f32>("x", (2, 7, Const::<6>));
    [p1 1] [p2 2] [p4 4] [p9 9]
}

plans! {
    experts <d = 4> (batch = 2, seq = 5) {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let y = layer_norm(x);
                let (best, ids) = top_k::<k = 2>(softmax(linear::<3>(y)));
                let h = silu(grouped_linear::<6, 3, bias = false>(y, ids));
                x += sum::<2>(best * grouped_linear::<d, 3, bias = false>(h, ids));
            }
            x
        }
    }
    |dev| tensor::<_, f32>("x", (2, 5, Const::<4>));
    [p1 1] [p2 2] [p4 4] [p6 6] [p9 9]
}

// Loops with one set of parameters, with a loop in it, and without parameters.
plans! {
    loops <d = 6> (batch = 3) {
        fn forward(x: [batch, d]) -> [batch, d] {
            let mut x = x;
            repeat 3, share = true { x += dropout::<0.1>(linear::<d>(gelu(linear::<12>(x)))); }
            let mut y = linear::<d>(layer_norm(x));
            repeat 2 {
                let mut z = layer_norm(y);
                repeat 2 { z = tanh(linear::<d>(z)) * z; }
                y += z * x;
            }
            repeat 2 { y = tanh(y) * 2.0 + sigmoid(y); }
            y
        }
    }
    |dev| tensor::<_, f32>("x", (3, Const::<6>));
    [p1 1] [p3 3] [p5 5] [p7 7] [p9 9]
}

// Loops directly behind one another, of which the last one reads what the first one makes.
plans! {
    in_a_row <d = 6> (batch = 3) {
        fn forward(x: [batch, d]) -> [batch, d] {
            let mut x = x;
            repeat 2 { x += linear::<d>(gelu(linear::<12>(layer_norm(x)))); }
            repeat 3 { x += dropout::<0.1>(linear::<d>(tanh(linear::<12>(layer_norm(x))))); }
            let mut y = x;
            repeat 4 { y += linear::<d>(gelu(linear::<24>(layer_norm(y)))) * x; }
            y
        }
    }
    |dev| tensor::<_, f32>("x", (3, Const::<6>));
    [p1 1] [p2 2] [p3 3] [p4 4] [p5 5] [p6 6] [p7 7] [p8 8] [p9 9]
}

#[test]
fn bounds_split_loops() {
    for (name, splits) in [
        ("gpt", gpt::splits()),
        ("loops", loops::splits()),
        ("in_a_row", in_a_row::splits()),
    ] {
        assert!(splits.contains(&true), "{name}: {splits:?}");
    }
}

mod functions {
    use super::*;
    use attn::train::AdamWConfig;
    use support::tensors::parameters;

    macro_rules! declare {
        ($Name:ident $(, $amount:tt $unit:ident)?) => {
            attn::model! {
                struct $Name<vocab = 7, d = 8 $(, memory = $amount $unit for (batch = 2, seq = 6))?>;
                fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
                    let mut x = embedding::<vocab, d>(tokens);
                    repeat 3 {
                        x += attention::<heads = 2, mask = causal>(layer_norm(x));
                        x += feed_forward::<{ 4 * d }, dropout = 0.1>(layer_norm(x));
                    }
                    linear::<vocab>(layer_norm(x))
                }
                fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
                    cross_entropy(forward(tokens), targets)
                }
                fn score(x: [batch, others, d]) -> [] { mean::<[batch, others, d]>(x) }
            }
        };
    }

    declare!(Kept);
    const HALF: usize = Kept::loss_activation_bytes(2, 6) / 2;
    declare!(Half, HALF B);

    /// The losses of some steps, the parameters behind them, and the most bytes of activations in one.
    macro_rules! trained {
        ($Model:ident, $E:ty) => {{
            let model = Cpu::seed_from_u64(3).build_module::<$Model, $E>();
            let mut trainer = model.trainer(AdamWConfig::default());
            let batch = || (ids((2, 6), 7), ids((2, 6), 7));
            let before = memory::allocated();
            memory::reset_peak();
            let losses = (0..3).map(|_| format!("{:?}", trainer.step(batch()).unwrap()));
            let losses: Vec<_> = losses.collect();
            let taken = memory::peak() - before;
            let parameters = parameters::<_, $E>(trainer.model());
            (losses, format!("{parameters:?}"), taken)
        }};
    }

    /// The bound holds for each function by itself, and for a trainer, which takes the same steps.
    #[test]
    fn a_trainer_stays_below_the_bound() {
        let _alone = alone();
        assert!(Half::activation_bytes(2, 6) <= HALF);
        let promised = Half::loss_activation_bytes(2, 6);
        assert!(promised <= HALF);
        let (losses, parameters, taken) = trained!(Kept, f32);
        assert!(taken > HALF, "{taken} of {HALF}");
        let (losses_of_half, parameters_of_half, taken) = trained!(Half, f32);
        assert!(taken <= promised, "{taken} of {promised}");
        assert_eq!(losses_of_half, losses);
        assert_eq!(parameters_of_half, parameters);
    }

    /// In `f64` it is the same plan, and twice as many bytes.
    #[test]
    fn a_trainer_in_f64_stays_below_twice_the_bound() {
        let _alone = alone();
        let (losses, parameters, _) = trained!(Kept, f64);
        let (losses_of_half, parameters_of_half, taken) = trained!(Half, f64);
        assert!(taken <= 2 * HALF, "{taken} of {HALF}");
        assert_eq!(losses_of_half, losses);
        assert_eq!(parameters_of_half, parameters);
    }
}
