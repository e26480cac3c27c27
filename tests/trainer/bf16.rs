//! Steps whose products multiply numbers in bf16: against steps by hand over rounded operands, and the bits of runs.

use attn::{
    checkpoint::{Checkpoints, LoadOptions},
    train::{AdamWConfig, Dtype, SgdConfig},
};
use rayon::ThreadPoolBuilder;

use super::*;

model! {
    /// The products of layers and of a loss that computes its logits.
    struct Rounded<vocab = 11, d_model = 8, hidden = 12>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens);
        let a = linear::<hidden>(x);
        let h = linear::<d_model>(pow(a, 2));
        linear::<tied = embedding>(x + h)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

type Tokens = Tensor<Rank2<2, 5>, usize, Cpu>;

fn batch(number: usize) -> (Tokens, Tokens) {
    (tokens(number, 11), tokens(number + 5, 11))
}

/// The nearest number in bf16 to one in `f32`, and the even one of two, by arithmetic: a number of 8 binary digits.
fn bf16(x: f64) -> f64 {
    let x = f64::from(x as f32);
    if x == 0.0 {
        return x;
    }
    let unit = 2_f64.powi(x.abs().log2().floor() as i32 - 7);
    (x / unit).round_ties_even() * unit
}

fn exact(x: f64) -> f64 {
    x
}

/// A matrix, row-major.
#[derive(Clone)]
struct Rows {
    numbers: Vec<f64>,
    width: usize,
}

impl Rows {
    fn new(numbers: Vec<f64>, width: usize) -> Self {
        Self { numbers, width }
    }

    fn rows(&self) -> usize {
        self.numbers.len() / self.width
    }

    fn transposed(&self) -> Self {
        let columns = 0..self.width;
        let numbers = columns.flat_map(|j| self.numbers.iter().skip(j).step_by(self.width));
        Self::new(numbers.copied().collect(), self.rows())
    }

    /// The product of both, whose operands are rounded before.
    fn times(&self, other: &Self, round: fn(f64) -> f64) -> Self {
        let right = other.transposed();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| round(*a) * round(*b)).sum();
        let rows = self.numbers.chunks(self.width);
        let numbers =
            rows.flat_map(|row| right.numbers.chunks(right.width).map(move |b| dot(row, b)));
        Self::new(numbers.collect(), other.width)
    }

    fn zip(&self, other: &[f64], f: impl Fn(f64, f64) -> f64) -> Self {
        let numbers = self.numbers.iter().zip(other.iter().cycle());
        Self::new(numbers.map(|(a, b)| f(*a, *b)).collect(), self.width)
    }

    fn column_sums(&self) -> Vec<f64> {
        let columns = self.transposed();
        columns
            .numbers
            .chunks(columns.width)
            .map(|of| of.iter().sum())
            .collect()
    }
}

/// The numbers of the parameter with this name.
fn named(all: &[Named], name: &str) -> Vec<f64> {
    let found = all.iter().find(|of| of.name == name);
    let found = found.unwrap_or_else(|| panic!("no {name}: {all:?}"));
    found.values.clone()
}

/// The mean loss, and the gradient of the logits.
fn cross_entropy_of(logits: &Rows, targets: &[usize]) -> (f64, Rows) {
    let mut loss = 0.0;
    let mut d = logits.clone();
    let count = targets.len() as f64;
    for (row, target) in d.numbers.chunks_mut(logits.width).zip(targets) {
        let sum: f64 = row.iter().map(|z| z.exp()).sum();
        loss += sum.ln() - row[*target];
        row.iter_mut().for_each(|z| *z = z.exp() / sum / count);
        row[*target] -= 1.0 / count;
    }
    (loss / count, d)
}

/// The loss of [`Rounded`] and all gradients, in `f64`, where each product rounds its operands.
fn by_formula(model: &Rounded<f32, Cpu>, round: fn(f64) -> f64) -> (f64, Vec<(String, Vec<f64>)>) {
    let all = parameters(model);
    let of = |name: &str| named(&all, name);
    let table = Rows::new(of("embedding.weight"), 8);
    let [up, up_bias] = [
        Rows::new(of("linear.weight"), 8),
        Rows::new(of("linear.bias"), 12),
    ];
    let [down, down_bias] = [
        Rows::new(of("linear_2.weight"), 12),
        Rows::new(of("linear_2.bias"), 8),
    ];
    let (ids, targets) = batch(0);
    let (ids, targets) = (ids.as_vec(), targets.as_vec());
    let x = ids.iter().flat_map(|id| &table.numbers[id * 8..][..8]);
    let x = Rows::new(x.copied().collect(), 8);
    let a = x
        .times(&up.transposed(), round)
        .zip(&up_bias.numbers, |y, b| y + b);
    let h = a.zip(&a.numbers, |a, b| a * b);
    let y = h
        .times(&down.transposed(), round)
        .zip(&down_bias.numbers, |y, b| y + b);
    let y = x.zip(&y.numbers, |x, y| x + y);
    let logits = y.times(&table.transposed(), round);
    let (loss, d) = cross_entropy_of(&logits, &targets);
    let d_y = d.times(&table, round);
    let mut d_table = d.transposed().times(&y, round);
    let d_h = d_y.times(&down, round);
    let d_down = d_y.transposed().times(&h, round);
    let d_a = d_h.zip(&a.numbers, |d, a| 2.0 * a * d);
    let d_up = d_a.transposed().times(&x, round);
    let d_x = d_a.times(&up, round).zip(&d_y.numbers, |a, b| a + b);
    for (id, d_x) in ids.iter().zip(d_x.numbers.chunks(8)) {
        let row = &mut d_table.numbers[id * 8..][..8];
        row.iter_mut().zip(d_x).for_each(|(to, d)| *to += d);
    }
    let gradients = [
        ("embedding.weight", d_table.numbers),
        ("linear.weight", d_up.numbers),
        ("linear.bias", d_a.column_sums()),
        ("linear_2.weight", d_down.numbers),
        ("linear_2.bias", d_y.column_sums()),
    ];
    let gradients = gradients.map(|(name, numbers)| (name.to_owned(), numbers));
    (loss, gradients.into())
}

fn model() -> Rounded<f32, Cpu> {
    let mut model = Cpu::default().build_module::<Rounded, f32>();
    scatter(&mut model);
    model
}

/// The loss of a step, and by how much each parameter becomes less with the rate 1: its gradient.
fn stepped<M: Trainable<Device = Cpu>>(
    model: impl Fn() -> M,
    dtype: Dtype,
) -> (f64, Vec<(String, Vec<f64>)>)
where
    Cpu: Device<M::Element>,
    (Tokens, Tokens): TrainBatch<M>,
{
    let before = parameters(&model());
    let sgd = SgdConfig {
        lr: 1.0,
        ..Default::default()
    };
    let mut trainer = Trainer::new(model(), sgd).dtype(dtype);
    let done = trainer.step(batch(0)).unwrap();
    let mut evaluated = Trainer::new(model(), sgd).dtype(dtype);
    assert_eq!(evaluated.evaluate(batch(0)).unwrap(), done.loss);
    let after = parameters(trainer.model());
    let differences = before.into_iter().zip(after).map(|(before, after)| {
        let numbers = before.values.iter().zip(&after.values);
        (
            before.name,
            numbers.map(|(before, after)| before - after).collect(),
        )
    });
    (done.loss, differences.collect())
}

/// The largest difference of two steps.
fn distance(a: &(f64, Vec<(String, Vec<f64>)>), b: &(f64, Vec<(String, Vec<f64>)>)) -> f64 {
    let numbers = a.1.iter().zip(&b.1).flat_map(|((name, a), (other, b))| {
        assert_eq!((name, a.len()), (other, b.len()));
        a.iter().zip(b)
    });
    numbers
        .map(|(a, b)| (a - b).abs())
        .fold((a.0 - b.0).abs(), f64::max)
}

#[test]
fn a_step_rounds_the_operands_of_products_and_nothing_else() {
    let [rounded, whole] = [Dtype::Bf16, Dtype::Model].map(|dtype| stepped(model, dtype));
    let [by_rounded, by_whole] = [bf16, exact].map(|round| by_formula(&model(), round));
    // Gradients up to 1, as differences of numbers of about 1 with an error of 6e-8, and sums of up to 12 products.
    let tolerance = 1e-6;
    assert!(
        distance(&whole, &by_whole) < tolerance,
        "{}",
        distance(&whole, &by_whole)
    );
    assert!(
        distance(&rounded, &by_rounded) < tolerance,
        "{}",
        distance(&rounded, &by_rounded)
    );
    // Without the rounding, or with more of it, it would be another step.
    assert!(distance(&by_rounded, &by_whole) > 100.0 * tolerance);
}

model! {
    /// Hidden layers, gated and not. Their inputs are rounded before they are kept.
    struct Hidden<d_model = 8>;

    fn forward(x: [batch, d_model]) -> [batch, d_model] {
        feed_forward::<6, activation = swiglu, bias = true>(feed_forward::<12, activation = relu_squared>(x))
    }

    fn loss(x: [batch, d_model]) -> [] {
        mean::<[batch, d_model]>(pow(forward(x), 2))
    }
}

const ROWS: usize = 5;

fn inputs() -> Vec<f32> {
    (0..ROWS * 8).map(|i| (i as f32 * 1.7).sin()).collect()
}

/// The loss of [`Hidden`] and all gradients, in `f64`.
fn hidden_by_formula(
    model: &Hidden<f32, Cpu>,
    round: fn(f64) -> f64,
) -> (f64, Vec<(String, Vec<f64>)>) {
    let all = parameters(model);
    let of = |name: &str| {
        let found = all.iter().find(|of| of.name == name);
        let found = found.unwrap_or_else(|| panic!("no {name}: {all:?}"));
        found.values.clone()
    };
    let weight = |name: &str, width: usize| Rows::new(of(&format!("{name}.weight")), width);
    // The product, rounded as it is kept, and then the bias.
    let input = |x: &Rows, name: &str| {
        let product = x.times(&weight(name, x.width).transposed(), round);
        product.zip(&of(&format!("{name}.bias")), |y, bias| round(y) + bias)
    };
    let output = |x: &Rows, name: &str| {
        let product = x.times(&weight(name, x.width).transposed(), round);
        product.zip(&of(&format!("{name}.bias")), |y, bias| y + bias)
    };
    let x = Rows::new(inputs().iter().map(|x| f64::from(*x)).collect(), 8);
    let a = input(&x, "feed_forward.up_proj");
    let h = a.zip(&a.numbers, |a, _| a.max(0.0).powi(2));
    let x_2 = output(&h, "feed_forward.down_proj");
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let gate = input(&x_2, "feed_forward_2.gate_proj");
    let value = input(&x_2, "feed_forward_2.up_proj");
    let h_2 = gate.zip(&value.numbers, |gate, value| gate * sigmoid(gate) * value);
    let y = output(&h_2, "feed_forward_2.down_proj");
    let count = y.numbers.len() as f64;
    let loss = y.numbers.iter().map(|y| y * y).sum::<f64>() / count;

    let mut gradients = Vec::new();
    let mut done = |name: &str, d_y: &Rows, x: &Rows| {
        let d_weight = d_y.transposed().times(x, round);
        gradients.push((format!("{name}.weight"), d_weight.numbers));
        gradients.push((format!("{name}.bias"), d_y.column_sums()));
    };
    let d_y = y.zip(&y.numbers, |y, _| 2.0 * y / count);
    done("feed_forward_2.down_proj", &d_y, &h_2);
    let d_h = d_y.times(&weight("feed_forward_2.down_proj", 6), round);
    let slope = gate.zip(&gate.numbers, |x, _| {
        let share = sigmoid(x);
        share + x * share * (1.0 - share)
    });
    let d_gate = d_h
        .zip(&value.numbers, |d, value| d * value)
        .zip(&slope.numbers, |d, slope| d * slope);
    let d_value = d_h.zip(&gate.numbers, |d, gate| d * gate * sigmoid(gate));
    done("feed_forward_2.gate_proj", &d_gate, &x_2);
    done("feed_forward_2.up_proj", &d_value, &x_2);
    let d_x_2 = d_gate
        .times(&weight("feed_forward_2.gate_proj", 8), round)
        .zip(
            &d_value
                .times(&weight("feed_forward_2.up_proj", 8), round)
                .numbers,
            |a, b| a + b,
        );
    done("feed_forward.down_proj", &d_x_2, &h);
    let d_a = d_x_2
        .times(&weight("feed_forward.down_proj", 12), round)
        .zip(&a.numbers, |d, a| 2.0 * a.max(0.0) * d);
    done("feed_forward.up_proj", &d_a, &x);
    gradients.sort_by(|a, b| a.0.cmp(&b.0));
    (loss, gradients)
}

#[test]
fn hidden_layers_read_what_is_kept_of_them() {
    let model = || {
        let mut model = Cpu::default().build_module::<Hidden, f32>();
        scatter(&mut model);
        model
    };
    let sgd = SgdConfig {
        lr: 1.0,
        ..Default::default()
    };
    let stepped = |dtype| {
        let mut trainer = model().trainer(sgd).dtype(dtype);
        let x = Cpu::default().tensor_from_vec(inputs(), (ROWS, Const::<8>));
        let loss = trainer.step(x).unwrap().loss;
        let after = parameters(trainer.model());
        let differences = parameters(&model()).into_iter().zip(after);
        let differences = differences.map(|(before, after)| {
            let numbers = before.values.iter().zip(&after.values);
            (before.name, numbers.map(|(a, b)| a - b).collect::<Vec<_>>())
        });
        let mut differences: Vec<_> = differences.collect();
        differences.sort_by(|a, b| a.0.cmp(&b.0));
        (loss, differences)
    };
    let [rounded, whole] = [Dtype::Bf16, Dtype::Model].map(stepped);
    let [by_rounded, by_whole] = [bf16, exact].map(|round| hidden_by_formula(&model(), round));
    // Differences of parameters of about 1, each with an error of 6e-8, and sums of tens of products, four maps behind one another.
    let tolerance = 4e-6;
    let [of_whole, of_rounded] =
        [(&whole, &by_whole), (&rounded, &by_rounded)].map(|(a, b)| distance(a, b));
    assert!(of_whole < tolerance, "{of_whole}");
    assert!(of_rounded < tolerance, "{of_rounded}");
    assert!(distance(&by_rounded, &by_whole) > 100.0 * tolerance);
}

model! {
    /// The products of attention, with two query heads for a head of keys.
    struct Attending<vocab = 11, d_model = 12>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens);
        let y = attention::<heads = 2, kv_heads = 1, mask = causal, bias = false>(x);
        linear::<tied = embedding>(x + y)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

fn attending() -> Attending<f64, Cpu> {
    let mut model = Cpu::default().build_module::<Attending, f64>();
    scatter(&mut model);
    model
}

/// A head, `[5, 6]`, of a sequence of 5 rows.
fn head(x: &Rows, sequence: usize, head: usize) -> Rows {
    let rows = x.numbers.chunks(x.width).skip(5 * sequence).take(5);
    Rows::new(
        rows.flat_map(|row| row[6 * head..][..6].to_vec()).collect(),
        6,
    )
}

/// Adds to a head.
fn add_to_head(x: &mut Rows, sequence: usize, head: usize, of_head: &Rows) {
    let rows = x.numbers.chunks_mut(x.width).skip(5 * sequence);
    for (row, of_head) in rows.zip(of_head.numbers.chunks(6)) {
        let row = &mut row[6 * head..][..6];
        row.iter_mut().zip(of_head).for_each(|(to, x)| *to += x);
    }
}

/// The loss of [`Attending`] and all gradients, where each product rounds its operands; those of attention by `round`, those of layers always.
fn attending_by_formula(round: fn(f64) -> f64) -> (f64, Vec<(String, Vec<f64>)>) {
    let all = parameters(&attending());
    let weight = |name: &str| Rows::new(named(&all, &format!("{name}.weight")), 12);
    let table = weight("embedding");
    let [w_q, w_k, w_v, w_o] =
        ["q", "k", "v", "o"].map(|of| weight(&format!("attention.{of}_proj")));
    let (ids, targets) = batch(0);
    let (ids, targets) = (ids.as_vec(), targets.as_vec());
    let x = ids.iter().flat_map(|id| &table.numbers[id * 12..][..12]);
    let x = Rows::new(x.copied().collect(), 12);
    let [q, k, v] = [&w_q, &w_k, &w_v].map(|w| x.times(&w.transposed(), bf16));
    // Queries are multiplied by the scale before they are rounded.
    let scale = 1.0 / 6_f64.sqrt();
    let scaled = |x: &Rows| x.zip(&[scale], |x, scale| x * scale);
    let is_hidden = |at: usize| at % 5 > at / 5;
    let mut attended = Rows::new(vec![0.0; 10 * 12], 12);
    let mut weights = Vec::new();
    for (sequence, h) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let [q, k, v] = [
            scaled(&head(&q, sequence, h)),
            head(&k, sequence, 0),
            head(&v, sequence, 0),
        ];
        let mut s = q.times(&k.transposed(), round);
        let hidden = |(at, s): (usize, &mut f64)| {
            if is_hidden(at) {
                *s = f64::NEG_INFINITY
            }
        };
        s.numbers.iter_mut().enumerate().for_each(hidden);
        // All keys are in one tile, so weights are those of the largest score of their row.
        let mut sums = Vec::new();
        for row in s.numbers.chunks_mut(5) {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter_mut().for_each(|s| *s = (*s - max).exp());
            sums.push(row.iter().sum::<f64>());
        }
        let mut out = s.times(&v, round);
        for (row, sum) in out.numbers.chunks_mut(6).zip(&sums) {
            row.iter_mut().for_each(|x| *x /= sum);
        }
        for (row, sum) in s.numbers.chunks_mut(5).zip(&sums) {
            row.iter_mut().for_each(|p| *p /= sum);
        }
        add_to_head(&mut attended, sequence, h, &out);
        weights.push((sequence, h, s, out));
    }
    let y = attended
        .times(&w_o.transposed(), bf16)
        .zip(&x.numbers, |y, x| y + x);
    let logits = y.times(&table.transposed(), bf16);
    let (loss, d) = cross_entropy_of(&logits, &targets);
    let d_y = d.times(&table, bf16);
    let mut d_table = d.transposed().times(&y, bf16);
    let d_attended = d_y.times(&w_o, bf16);
    let d_o = d_y.transposed().times(&attended, bf16);
    let mut d_q = Rows::new(vec![0.0; 10 * 12], 12);
    let [mut d_k, mut d_v] = [(); 2].map(|()| Rows::new(vec![0.0; 10 * 6], 6));
    for (sequence, h, p, out) in weights {
        let [q, k, v] = [
            scaled(&head(&q, sequence, h)),
            head(&k, sequence, 0),
            head(&v, sequence, 0),
        ];
        let d_out = head(&d_attended, sequence, h);
        let d_p = d_out.times(&v.transposed(), round);
        let products = out.zip(&d_out.numbers, |out, d| out * d);
        let deltas: Vec<f64> = products
            .numbers
            .chunks(6)
            .map(|row| row.iter().sum())
            .collect();
        let deltas: Vec<f64> = deltas.iter().flat_map(|delta| [*delta; 5]).collect();
        let d_s = d_p
            .zip(&deltas, |d_p, delta| d_p - delta)
            .zip(&p.numbers, |d, p| d * p);
        add_to_head(&mut d_v, sequence, 0, &p.transposed().times(&d_out, round));
        add_to_head(&mut d_k, sequence, 0, &d_s.transposed().times(&q, round));
        add_to_head(&mut d_q, sequence, h, &scaled(&d_s.times(&k, round)));
    }
    let mut d_x = d_y;
    for (d, w) in [(&d_q, &w_q), (&d_k, &w_k), (&d_v, &w_v)] {
        d_x = d_x.zip(&d.times(w, bf16).numbers, |a, b| a + b);
    }
    for (id, d_x) in ids.iter().zip(d_x.numbers.chunks(12)) {
        let row = &mut d_table.numbers[id * 12..][..12];
        row.iter_mut().zip(d_x).for_each(|(to, d)| *to += d);
    }
    let of = |d: &Rows| d.transposed().times(&x, bf16).numbers;
    let gradients = [
        ("embedding.weight", d_table.numbers),
        ("attention.q_proj.weight", of(&d_q)),
        ("attention.k_proj.weight", of(&d_k)),
        ("attention.v_proj.weight", of(&d_v)),
        ("attention.o_proj.weight", d_o.numbers),
    ];
    let gradients = gradients.map(|(name, numbers)| (name.to_owned(), numbers));
    (loss, gradients.into())
}

/// In `f64`, in which sums and the softmax have no error that changes how a number is rounded.
#[test]
fn attention_rounds_the_operands_of_its_products() {
    let rounded = stepped(attending, Dtype::Bf16);
    let [by_rounded, of_layers] = [bf16, exact].map(attending_by_formula);
    let tolerance = 1e-12;
    let distance_of = |by: &(f64, Vec<(String, Vec<f64>)>)| distance(&rounded, by);
    assert!(
        distance_of(&by_rounded) < tolerance,
        "{}",
        distance_of(&by_rounded)
    );
    // With whole numbers in the products of attention, it would be another step.
    assert!(distance_of(&of_layers) > 1e-5);
}

type Small = Gpt<f32, Cpu>;

fn small() -> Trainer<Small, AdamWConfig> {
    let mut model = Cpu::default().build_module::<Gpt, f32>();
    scatter(&mut model);
    model.trainer(AdamWConfig::default()).dtype(Dtype::Bf16)
}

fn losses(trainer: &mut Trainer<Small, AdamWConfig>, steps: std::ops::Range<usize>) -> Vec<f64> {
    let losses = steps.map(|step| trainer.step(batch(step)).unwrap().loss);
    losses.collect()
}

#[test]
fn a_resumed_run_has_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut whole = small();
    let expected = losses(&mut whole, 0..6);
    let mut first = small();
    let mut found = losses(&mut first, 0..3);
    checkpoints.save(3, &first.contents(), None).unwrap();
    let mut second = small();
    let checkpoint = checkpoints.latest().unwrap().unwrap();
    second.load(&checkpoint, LoadOptions::default()).unwrap();
    found.extend(losses(&mut second, 3..6));
    assert_eq!(found, expected);
    assert_eq!(parameters(second.model()), parameters(whole.model()));
    // The rounding is a setting of the run.
    let mut other = small().dtype(Dtype::Model);
    assert_ne!(losses(&mut other, 0..6), expected);
}

#[test]
fn steps_have_the_same_bits_for_any_number_of_threads() {
    let run = |threads: usize| {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let mut trainer = small();
            (losses(&mut trainer, 0..3), parameters(trainer.model()))
        })
    };
    let one = run(1);
    assert!([2, 3].into_iter().all(|threads| run(threads) == one));
}
