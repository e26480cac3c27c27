//! Lesson 9: kernel regression, an ancestor of attention. The regression of Nadaraya and Watson (1964) predicts a number as a
//! weighted mean of measurements, in which near ones have larger weights. A kernel defines the weights: here a Gaussian of a
//! fixed width, and one whose width is learned by gradient descent.
//!
//! ```text
//! cargo run --release --example 09_kernel_regression
//! ```

use attn::{
    attention,
    dfdx::{optim::Adam, prelude::*},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

attention! {
    /// The score is the logarithm of a Gaussian, a function of positions only. So there are no queries and keys: the score
    /// depends on the place of the prediction and the place of the measurement.
    struct Regression<heads = 1, d_model = 1, d_context = 1, bias = false> {
        /// The inverse of the width.
        param sharpness: [heads] = ones;
        data asked: [q_len];
        data place: [kv_len];
        /// Whether a measurement is the one to predict.
        data is_itself: ids[q_len, kv_len];
        fn score(h, q_idx, kv_idx) {
            let distance = sharpness[h] * (asked[q_idx] - place[kv_idx]);
            -0.5 * distance * distance
        }
        fn mask(q_idx, kv_idx) { is_itself[q_idx, kv_idx] == 0 }
    }
}

const COUNT: usize = 50;

type Places = Tensor<(usize,), f32, Cpu>;
type Column<T = NoneTape> = Tensor<(usize, Const<1>), f32, Cpu, T>;

fn main() {
    let device = Cpu::seed_from_u64(9);
    let mut rng = StdRng::seed_from_u64(9);
    let mut places: Vec<f32> = (0..COUNT).map(|_| rng.gen_range(0.0..5.0)).collect();
    places.sort_by(f32::total_cmp);
    let noise = |_: &f32, rng: &mut StdRng| rng.gen_range(-0.8..0.8);
    let measured: Vec<f32> = places
        .iter()
        .map(|x| truth(*x) + noise(x, &mut rng))
        .collect();
    let data = Data {
        places: device.tensor_from_vec(places, (COUNT,)),
        measured: device.tensor_from_vec(measured, (COUNT, Const)),
    };
    let mut layer = device.build_module::<Regression, f32>();
    pass_numbers_through(&mut layer);
    println!("kernel                 width   error");
    println!(
        "the mean of all            ∞   {:.3}",
        data.error(&widened(&layer, 0.0))
    );
    println!(
        "a bell               {:>7.3}   {:.3}",
        width(&layer),
        data.error(&layer)
    );
    println!("a bell, learned");
    learn(&mut layer, &data);
    data.draw(&layer);
}

/// The function without noise.
fn truth(x: f32) -> f32 {
    2.0 * x.sin() + x.powf(0.8)
}

fn width(layer: &Regression<f32, Cpu>) -> f32 {
    1.0 / layer.sharpness.weight.as_vec()[0]
}

fn widened(layer: &Regression<f32, Cpu>, sharpness: f32) -> Regression<f32, Cpu> {
    let mut other = layer.clone();
    other.sharpness.weight = Cpu::default().tensor([sharpness]);
    other
}

/// Each measurement is predicted from all others. If it were predicted from itself too, the narrowest kernel would be the best.
fn learn(layer: &mut Regression<f32, Cpu>, data: &Data) {
    let config = AdamConfig {
        lr: 0.1,
        ..Default::default()
    };
    let mut optimizer = Adam::new(&*layer, config);
    let mut gradients = layer.alloc_grads();
    let others: Vec<usize> = (0..COUNT * COUNT)
        .map(|i| usize::from(i / COUNT == i % COUNT))
        .collect();
    for step in 0..=60 {
        let predicted = data.predict(layer, &data.places, others.clone(), gradients);
        let loss = mse_loss(predicted, data.measured.clone());
        if step % 20 == 0 {
            println!(
                "  step {step:>3}           {:>7.3}   {:.3}",
                width(layer),
                data.error(layer)
            );
        }
        gradients = loss.backward();
        optimizer
            .update(layer, &gradients)
            .expect("every parameter has a gradient");
        layer.zero_grads(&mut gradients);
        pass_numbers_through(layer);
    }
}

/// Values and outputs are the numbers themselves, so that only the width is learned.
fn pass_numbers_through(layer: &mut Regression<f32, Cpu>) {
    for projection in [&mut layer.v_proj, &mut layer.o_proj] {
        projection.weight.copy_from(&[1.0]);
    }
}

/// Places, and the measurements there.
struct Data {
    places: Places,
    measured: Column,
}

impl Data {
    fn predict(
        &self,
        layer: &Regression<f32, Cpu>,
        asked: &Places,
        is_itself: Vec<usize>,
        gradients: Gradients<f32, Cpu>,
    ) -> Column<OwnedTape<f32, Cpu>> {
        let device = Cpu::default();
        let count = asked.shape().0;
        // Only the length of this input matters, as there are no queries.
        let x: Column = device.zeros_like(&(count, Const));
        let is_itself = device.tensor_from_vec(is_itself, (count, COUNT));
        let measured = self.measured.clone();
        layer.forward((
            x.traced(gradients),
            measured,
            asked.clone(),
            self.places.clone(),
            is_itself,
        ))
    }

    /// Predictions at new places.
    fn curve(&self, layer: &Regression<f32, Cpu>, asked: &Places) -> Vec<f32> {
        let nowhere = vec![0; asked.shape().0 * COUNT];
        self.predict(layer, asked, nowhere, Gradients::leaky())
            .as_vec()
    }

    /// The root mean square difference of predictions and truth.
    fn error(&self, layer: &Regression<f32, Cpu>) -> f32 {
        let asked: Vec<f32> = (0..100).map(|i| i as f32 / 20.0).collect();
        let predicted = self.curve(
            layer,
            &Cpu::default().tensor_from_vec(asked.clone(), (100,)),
        );
        let squares = asked
            .iter()
            .zip(predicted)
            .map(|(x, y)| (y - truth(*x)).powi(2));
        (squares.sum::<f32>() / 100.0).sqrt()
    }

    /// Plots the measurements, the truth, and the learned curve.
    fn draw(&self, layer: &Regression<f32, Cpu>) {
        const COLUMNS: usize = 72;
        const ROWS: usize = 18;
        let row = |y: f32| (((4.5 - y) / 6.0 * ROWS as f32).max(0.0) as usize).min(ROWS - 1);
        let column = |x: f32| ((x / 5.0 * COLUMNS as f32) as usize).min(COLUMNS - 1);
        let mut picture = vec![vec![' '; COLUMNS]; ROWS];
        for (x, y) in self.places.as_vec().iter().zip(self.measured.as_vec()) {
            picture[row(y)][column(*x)] = '·';
        }
        let asked: Vec<f32> = (0..COLUMNS)
            .map(|i| (i as f32 + 0.5) * 5.0 / COLUMNS as f32)
            .collect();
        let curve = self.curve(
            layer,
            &Cpu::default().tensor_from_vec(asked.clone(), (COLUMNS,)),
        );
        for (index, (x, y)) in asked.iter().zip(curve).enumerate() {
            picture[row(truth(*x))][index] = '○';
            picture[row(y)][index] = '●';
        }
        println!("\n  · measurements    ○ the truth    ● the learned kernel\n");
        for line in picture {
            println!("  {}", line.into_iter().collect::<String>());
        }
    }
}
