//! The attention core: from queries, keys and values of 8 heads of 64 to attended values.

use std::ops::Range;

use attn::dfdx::prelude::*;
use attn_core::kernel::Dtype;
use attn_core::kernel::attention::{
    Attention, Coverage, Gradients, HeadTransform, Mask, Normalizer, Similarity, Sizes,
    TalkingHeads,
};
use attn_core::simd::{Matrix, MatrixMut};

use crate::by_hand;
use crate::timing::{Case, setup};

const HEADS: usize = 8;
const WIDTH: usize = 64;

pub(crate) fn cases() -> Vec<Case> {
    let causal = usize::MAX;
    vec![
        case(1024, causal, false, 72, true),
        case(4096, causal, false, 80, true),
        case(1024, causal, true, 65, true),
        case(4096, causal, true, 75, true),
        case(4096, 256, true, 60, true),
        case(8192, 256, true, 60, false),
    ]
}

/// Keys at or before the query, and less than `window` before it.
struct Window(usize);

impl Mask for Window {
    #[inline(always)]
    fn attends(&self, _: usize, _: usize, q: usize, k: usize) -> bool {
        // The code has no branch, so it is vectorised over keys.
        (k <= q) & (q.wrapping_sub(k) < self.0)
    }

    fn coverage(&self, _: usize, _: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        let first = q.start;
        let last = q.end - 1;
        if k.start > last || first.saturating_sub(k.end - 1) >= self.0 {
            Coverage::Empty
        } else if k.end - 1 <= first && last - k.start < self.0 {
            Coverage::Full
        } else {
            Coverage::Partial
        }
    }
}

fn case(len: usize, window: usize, backward: bool, bar: u32, by_hand: bool) -> Case {
    let pairs: f64 = if window >= len {
        (len * len) as f64 / 2.0
    } else {
        (window * len) as f64
    };
    let forward = 4.0 * (HEADS * WIDTH) as f64 * pairs;
    let passes = if backward {
        "forward+backward"
    } else {
        "forward"
    };
    let mask = match window {
        usize::MAX => "causal".to_owned(),
        window => format!("window of {window}"),
    };
    Case {
        name: format!("core, {passes}, S = {len}, {mask}"),
        flops: forward * if backward { 3.5 } else { 1.0 },
        bar,
        maps: Vec::new(),
        backward,
        run: setup(move || on_slices(len, window, backward)),
        by_hand: by_hand.then(|| setup(move || in_dfdx(len, window, backward))),
    }
}

fn numbers(len: usize, seed: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
    (0..len * HEADS * WIDTH).map(number).collect()
}

pub(crate) fn on_slices(len: usize, window: usize, backward: bool) -> impl FnMut() {
    let [q, k, v, d_out] = [1, 2, 3, 4].map(|seed| numbers(len, seed));
    let [mut out, mut d_q, mut d_k, mut d_v] = [(); 4].map(|()| numbers(len, 5));
    let mut lse = vec![0.0; HEADS * len];
    move || {
        let attention = Attention {
            sizes: Sizes {
                batch: 1,
                heads: HEADS,
                kv_heads: HEADS,
                query: len,
                key: len,
                width: WIDTH,
                value_width: WIDTH,
            },
            query: HeadTransform::default(),
            key: HeadTransform::default(),
            value: HeadTransform::default(),
            similarity: Similarity::Dot { scale: 0.125 },
            score: None,
            mask: &Window(window),
            normalizer: Normalizer::Softmax,
            dropout: None,
            talking: TalkingHeads::default(),
            dtype: Dtype::Model,
        };
        let read = |numbers| Matrix::new(numbers, len, HEADS * WIDTH);
        let q = read(&q);
        let k = read(&k);
        let v = read(&v);
        attention.forward(q, k, v, write(&mut out, len), &mut lse);
        if backward {
            let gradients = Gradients {
                q: write(&mut d_q, len),
                k: write(&mut d_k, len),
                v: write(&mut d_v, len),
                score: None,
                sink: None,
                query_gain: None,
                key_gain: None,
                w: None,
                mix_scores: None,
                mix_weights: None,
            };
            attention.backward(q, k, v, read(&out), &lse, read(&d_out), gradients);
        }
    }
}

fn write(numbers: &mut [f32], len: usize) -> MatrixMut<'_, f32> {
    MatrixMut::new(numbers, len, HEADS * WIDTH)
}

fn in_dfdx(len: usize, window: usize, backward: bool) -> impl FnMut() {
    let dev = Cpu::default();
    let mask = by_hand::mask(len, window);
    let [q, k, v] =
        [(); 3].map(|()| -> by_hand::Heads { dev.sample_normal_like(&(1, HEADS, len, WIDTH)) });
    move || {
        let k = k.clone();
        let v = v.clone();
        if backward {
            let q = q.leaky_trace();
            let out = by_hand::attention(q, k.retaped(), v.retaped(), &mask);
            out.sum().backward();
        } else {
            by_hand::attention(q.clone(), k, v, &mask);
        }
    }
}
