//! Lesson 5: custom scores. The body of a layer modifies each score and declares learned parameters. The macro differentiates it
//! at compile time. In the end `attn::testing` checks that derivative, and compares the layer with the same one by hand.
//!
//! ```text
//! cargo run --release --example 05_custom_score
//! ```

use attn::attention;
use attn::dfdx::{optim::Adam, prelude::*};
use attn::testing::{Compare, assert_gradients};
use rand::{Rng, SeedableRng, rngs::StdRng};

attention! {
    /// Every position becomes a weighted mean of its neighbours. Near ones have larger weights (Nadaraya 1964, Watson 1964), and
    /// so have similar ones: a score starts as the product of query and key.
    struct Smoother<heads = 1, d_model = 1, bias = false> {
        /// The width of the kernel.
        param width: [heads] = 1.0;
        fn score(score, h, q_idx, kv_idx) {
            let distance = (q_idx - kv_idx) as f32 / width[h];
            score - 0.5 * distance * distance
        }
    }

    /// Every head has its own decay: ALiBi (Press et al. 2022), with learned slopes.
    struct Forgetful<heads = 2, d_model = 16, mask = causal> {
        /// The penalty per step back.
        param slope: [heads] = alibi_slopes;
        fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
    }
}

/// A tensor of sequences, [batch, length, width].
type Sequences<const WIDTH: usize> = Tensor<(usize, usize, Const<WIDTH>), f32, Cpu>;

fn main() {
    let device = Cpu::seed_from_u64(5);
    learn_a_width(&device);
    learn_slopes(&device);
    check(&device);
}

/// Learns the width of the kernel that removes the most noise from a wave.
fn learn_a_width(device: &Cpu) {
    let (clean, noisy) = waves(device);
    let mut smoother = device.build_module::<Smoother, f32>();
    // Queries and keys of 0 leave only the kernel, and the values are the neighbours themselves.
    smoother.q_proj.weight = device.zeros();
    smoother.k_proj.weight = device.zeros();
    smoother.v_proj.weight = device.ones();
    smoother.o_proj.weight = device.ones();
    let mut optimizer = Adam::new(
        &smoother,
        AdamConfig {
            lr: 3e-2,
            ..Default::default()
        },
    );
    let mut gradients = smoother.alloc_grads();
    println!("a width is learned\n");
    for step in 0..=300 {
        let smooth = smoother.forward(noisy.clone().traced(gradients));
        let loss = mse_loss(smooth, clean.clone());
        if step % 60 == 0 {
            let width = smoother.width.weight.as_vec()[0];
            let off = loss.array().sqrt();
            println!("  step {step:>3}  width {width:.2}  off by about {off:.3}");
        }
        gradients = loss.backward();
        optimizer
            .update(&mut smoother, &gradients)
            .expect("every parameter has a gradient");
        smoother.zero_grads(&mut gradients);
    }
    println!("\n  · measurements    ○ the wave    ● the output of the layer\n");
    let smooth = smoother.forward(noisy.clone());
    plot(&noisy.as_vec(), &clean.as_vec(), &smooth.as_vec());
}

/// Sines of random phases, and the same with noise.
fn waves(device: &Cpu) -> (Sequences<1>, Sequences<1>) {
    const COUNT: usize = 16;
    const LEN: usize = 96;
    let mut rng = StdRng::seed_from_u64(5);
    let mut clean = vec![];
    let mut noisy = vec![];
    for _ in 0..COUNT {
        let phase = rng.gen_range(0.0..6.0);
        for at in 0..LEN {
            let wave = (at as f32 / 8.0 + phase).sin();
            clean.push(wave);
            noisy.push(wave + rng.gen_range(-0.8..0.8));
        }
    }
    let shape = (COUNT, LEN, Const::<1>);
    (
        device.tensor_from_vec(clean, shape),
        device.tensor_from_vec(noisy, shape),
    )
}

/// Plots every second position of the first wave, with time downwards.
fn plot(noisy: &[f32], clean: &[f32], smooth: &[f32]) {
    let column = |y: f32| ((y + 2.0) * 15.0).round().clamp(0.0, 60.0) as usize;
    for at in (0..64).step_by(2) {
        let mut line = [' '; 61];
        for (values, sign) in [(noisy, '·'), (clean, '○'), (smooth, '●')] {
            line[column(values[at])] = sign;
        }
        let line: String = line.iter().collect();
        println!("  {}", line.trim_end());
    }
}

/// A student learns the slopes of a teacher from the teacher's output.
fn learn_slopes(device: &Cpu) {
    let mut teacher = device.build_module::<Forgetful, f32>();
    let mut student = teacher.clone();
    teacher.slope.weight = device.tensor_from_vec(vec![1.0, 0.05], (Const::<2>,));
    let x = device.sample_like(&(8, 12, Const::<16>), rand_distr::StandardNormal);
    let y = teacher.forward(x.clone());

    println!("\n\nslopes are learned: the teacher has 1.00 and 0.05\n");
    let before = student.forward_with_weights(x.clone()).1;
    for step in 0..=100 {
        let loss = mse_loss(student.forward(x.leaky_trace()), y.clone());
        if step % 20 == 0 {
            let slopes = student.slope.weight.as_vec();
            let loss = loss.array();
            println!(
                "  step {step:>3}  slopes {:.3} {:.3}  loss {loss:.1e}",
                slopes[0], slopes[1]
            );
        }
        let gradients = loss.backward();
        // All other parameters are the same already: only the slopes take a step.
        let slope = student.slope.weight.clone();
        let gradient = gradients.get(&slope);
        student.slope.weight = slope - gradient * 20.0;
    }
    println!("\nthe weights of both heads\n");
    draw([
        ("student, before", before.as_vec()),
        (
            "student, after",
            student.forward_with_weights(x.clone()).1.as_vec(),
        ),
        ("teacher", teacher.forward_with_weights(x).1.as_vec()),
    ]);
}

/// Sequences for the check, in double precision.
type Checked = Tensor<Rank3<2, 6, 16>, f64, Cpu, OwnedTape<f64, Cpu>>;

/// Checks the derivative of the layer: the gradients of its parameters and of its input are the slopes of the loss. Then compares its
/// results and gradients with those of the layer by hand.
fn check(device: &Cpu) {
    let layer = device.build_module::<Forgetful, f64>();
    let x: Tensor<Rank3<2, 6, 16>, f64, _> = device.sample_normal();
    assert_gradients(&layer, x.clone(), |layer, x| {
        layer.forward(x.leaky_traced()).square().mean()
    });
    let declared = |layer: &Forgetful<f64, Cpu>, x: Checked| layer.forward(x);
    let compared = Compare::default().functions((&layer, declared), (&layer, by_hand), x);
    let report = compared.unwrap_or_else(|error| panic!("{error}"));
    println!("\nthe declared layer and the one by hand\n\n{report}");
}

/// The layer out of dfdx's operations, on the parameters of the declared one.
fn by_hand(layer: &Forgetful<f64, Cpu>, x: Checked) -> Checked {
    type Scores = Rank4<2, 2, 6, 6>;
    let device = x.device().clone();
    // [batch, len, heads * head_dim] to [batch, heads, len, head_dim]
    let heads = |y: Checked| {
        y.reshape::<Rank4<2, 6, 2, 8>>()
            .permute::<Rank4<2, 2, 6, 8>, Axes4<0, 2, 1, 3>>()
    };
    let q = heads(layer.q_proj.forward(x.with_empty_tape()));
    let k = heads(layer.k_proj.forward(x.with_empty_tape()));
    let v = heads(layer.v_proj.forward(x));
    let steps = |f: fn(usize, usize) -> f64| {
        let pairs = (0..36).map(|pair| f(pair / 6, pair % 6)).collect();
        device.tensor_from_vec(pairs, (Const::<6>, Const::<6>))
    };
    let back =
        steps(|q_idx, kv_idx| q_idx as f64 - kv_idx as f64).broadcast::<Scores, Axes2<0, 1>>();
    let later = steps(|q_idx, kv_idx| {
        if kv_idx > q_idx {
            f64::NEG_INFINITY
        } else {
            0.0
        }
    });
    let slope = layer.slope.weight.retaped::<OwnedTape<f64, Cpu>>();
    let penalty = slope.broadcast::<Scores, Axes3<0, 2, 3>>() * back;
    let scores = q.matmul(k.permute::<Rank4<2, 2, 8, 6>, Axes4<0, 1, 3, 2>>()) / 8f64.sqrt();
    let weights =
        (scores - penalty + later.broadcast::<Scores, Axes2<0, 1>>()).softmax::<Axis<3>>();
    let y = weights
        .matmul(v)
        .permute::<Rank4<2, 6, 2, 8>, Axes4<0, 2, 1, 3>>();
    layer.o_proj.forward(y.reshape::<Rank3<2, 6, 16>>())
}

/// Draws the weights of the first sequence, head by head, as shades.
fn draw(pictures: [(&str, Vec<f32>); 3]) {
    const LEN: usize = 12;
    for (title, _) in &pictures {
        print!("  {title:<24}");
    }
    println!();
    for head in 0..2 {
        for q in 0..LEN {
            for (_, weights) in &pictures {
                let row = &weights[(head * LEN + q) * LEN..][..LEN];
                let shades: String = row.iter().map(|&weight| shade(weight)).collect();
                print!("  {shades}");
            }
            println!();
        }
        println!();
    }
}

fn shade(weight: f32) -> &'static str {
    match weight {
        w if w > 0.5 => "██",
        w if w > 0.2 => "▓▓",
        w if w > 0.1 => "▒▒",
        w if w > 0.02 => "░░",
        _ => "· ",
    }
}
