//! Whole layers: projections, attention, output layer; 8 heads, 512 wide, causal.

use attn::{attention, dfdx::prelude::*};

use crate::timing::{Case, Map, setup};

#[path = "../../benches/attention/hand_written.rs"]
mod hand_written;
use hand_written::HandWritten;

attention! {
    struct Causal<heads = 8, d_model = 512, mask = causal>;
}

type Input = Tensor<(usize, usize, Const<512>), f32, Cpu>;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(8, 128, false, 85),
        case(8, 128, true, 85),
        case(4, 512, true, 80),
        case(1, 2048, true, 80),
    ]
}

fn case(batch: usize, len: usize, backward: bool, bar: u32) -> Case {
    let projections = (2 * batch * len * 4 * 512 * 512) as f64;
    let attention = (4 * 512 * batch * len * len) as f64 / 2.0;
    let (flops, passes) = if backward {
        (3.0 * projections + 3.5 * attention, "forward+backward")
    } else {
        (projections + attention, "forward")
    };
    Case {
        name: format!("layer, {passes}, {batch} x {len}"),
        flops,
        bar,
        maps: [3 * 512, 512]
            .map(|outputs| Map {
                rows: batch * len,
                input: 512,
                outputs,
            })
            .into(),
        backward,
        run: setup(move || {
            let x = input(batch, len);
            let layer = Cpu::default().build_module::<Causal, f32>();
            move || {
                if backward {
                    attn::backward(layer.forward(x.leaky_trace()), &x);
                } else {
                    layer.forward(x.clone());
                }
            }
        }),
        by_hand: Some(setup(move || {
            let x = input(batch, len);
            let layer = HandWritten::<512, 8>::new(&Cpu::default(), len);
            move || {
                if backward {
                    attn::backward(layer.forward(x.leaky_trace()), &x);
                } else {
                    layer.forward(x.clone());
                }
            }
        })),
    }
}

fn input(batch: usize, len: usize) -> Input {
    Cpu::default().sample_normal_like(&(batch, len, Const))
}
