//! A bound on the memory of a model: whatever runs again, results and gradients are the same bits, and the bytes that are promised are taken.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use attn::{dfdx::prelude::*, memory};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::cases::{ids, scatter};
use support::compare::{Backpropagated, Outcome, backpropagate};

/// Each test waits for the one before it: all activations of a process are counted together.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bound that takes the plan of this index.
const fn bound(plans: &[usize], plan: usize) -> usize {
    match plan < plans.len() {
        true => plans[plan],
        false => plans[plans.len() - 1],
    }
}

/// Declares a model with each of its plans, and compares them with a model that keeps all.
macro_rules! plans {
    (
        $name:ident <$($size:ident = $value:tt),*> ($($axis:ident = $length:expr),*) { $($functions:tt)* }
        |$dev:ident| $input:expr; $([$plan:ident $index:literal])*
    ) => {
        mod $name {
            use super::*;

            macro_rules! declare {
                (keeps all) => {
                    attn::model! {
                        pub(super) struct M<$($size = $value,)*>;
                        $($functions)*
                    }
                };
                ($amount:tt $unit:ident) => {
                    attn::model! {
                        pub(super) struct M<$($size = $value,)* memory = $amount $unit for ($($axis = $length),*)>;
                        $($functions)*
                    }
                };
            }

            mod kept {
                declare!(keeps all);
            }

            mod all {
                declare!(4 GiB);
            }

            pub const PLANS: &[usize] = all::M::__activation_bytes_of_plans();

            $(mod $plan {
                const BOUND: usize = super::super::bound(super::PLANS, $index);
                declare!(BOUND B);
            })*

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

            macro_rules! promised {
                ($Model:ty) => {
                    <$Model>::activation_bytes($($length),*)
                };
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
                println!("{PLANS:?}");
                assert_eq!(PLANS[0], promised!(kept::M));
                assert_eq!(taken!(kept::M), PLANS[0]);
                $({
                    let promised = promised!($plan::M);
                    assert_eq!(promised, bound(PLANS, $index).min(promised));
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
