#[path = "../benches/language_model/sizes.rs"]
#[allow(dead_code)]
mod sizes;
use attn::{dfdx::prelude::*, train::{AdamWConfig, Dtype}};
use sizes::{MEDIUM, Medium, SMALL, Small};
use std::{sync::atomic::Ordering, time::Instant};

macro_rules! go { ($M:ident, $size:ident, $dtype:expr, $values:expr, $n:expr) => {{
    let (inputs, targets) = ($size.tokens(), $size.tokens());
    let dev = Cpu::default();
    let model = dev.build_module::<$M, f32>();
    let mut trainer = model.trainer(AdamWConfig::default());
    if $dtype { trainer = trainer.dtype(Dtype::Bf16); }
    let mut times = vec![vec![]; $values.len()]; let mut acc = times.clone(); let mut out = times.clone();
    let _ = trainer.step((inputs.clone(), targets.clone())).expect("finite");
    for round in 0..$n {
        for i in 0..$values.len() {
            let i = (i + round) % $values.len();
            attn_core::TRIAL.store($values[i], Ordering::Relaxed);
            let start = Instant::now();
            let _ = trainer.accumulate((inputs.clone(), targets.clone())).expect("finite");
            let mid = Instant::now(); let s1 = attn_core::SPENT.swap(0, Ordering::Relaxed) as f64 * 1e-6; acc[i].push((mid - start).as_secs_f64() * 1e3 - s1);
            let _ = trainer.apply().expect("finite");
            
            let spent = attn_core::SPENT.swap(0, Ordering::Relaxed) as f64 * 1e-6;
            out[i].push(mid.elapsed().as_secs_f64() * 1e3 - spent);
            times[i].push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let base = { let mut t = times[0].clone(); t.sort_by(f64::total_cmp); (t[0], t[t.len() / 2]) };
    for (i, (v, t)) in $values.iter().zip(&mut times).enumerate() { acc[i].sort_by(f64::total_cmp); out[i].sort_by(f64::total_cmp);
        t.sort_by(f64::total_cmp);
        println!("accumulate {:.3} outside {:.3} {:.3}", acc[i][0], out[i][0], out[i][out[i].len()/2]); println!("{v:3}: least {:.2} {:.4}  median {:.2} {:.4}", t[0], t[0] / base.0, t[t.len() / 2], t[t.len()/2] / base.1);
    }
}}}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: usize = a[3].parse().unwrap();
    let values: Vec<usize> = a[4..].iter().map(|x| x.parse().unwrap()).collect();
    let bf16 = a[2] == "bf16";
    match &a[1][..] { "small" => go!(Small, SMALL, bf16, values, n), _ => go!(Medium, MEDIUM, bf16, values, n) }
}
