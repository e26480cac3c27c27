//! The layers of papers, computed expert by expert.

use super::*;

const D: usize = 4;
const EXPERTS: usize = 5;
const TOKENS: usize = 2 * 7;

type X = Tensor<(usize, usize, Const<D>), f64, Cpu>;

fn x() -> X {
    tensor("x", (2, 7, Const))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The product with a matrix of `inputs` columns.
fn map(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len()).map(|row| dot(row, x)).collect()
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / sum).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The places of the largest numbers.
fn top(x: &[f64], k: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..x.len()).collect();
    places.sort_by(|a, b| x[*b].total_cmp(&x[*a]));
    places.truncate(k);
    places
}

/// `w2 (silu(w1 x) * w3 x)`, as each expert of Mixtral has it.
fn gated([w1, w3, w2]: [&[f64]; 3], expert: usize, x: &[f64]) -> Vec<f64> {
    let of = |w: &'_ [f64]| w[expert * w.len() / EXPERTS..][..w.len() / EXPERTS].to_vec();
    let up = map(&of(w1), x).into_iter().map(silu);
    let h: Vec<f64> = up.zip(map(&of(w3), x)).map(|(a, b)| a * b).collect();
    map(&of(w2), &h)
}

/// Sums of a few products of numbers of order 1, in another order.
#[track_caller]
fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-13, "{found}, not {expected}");
    }
}

mod softmax_first {
    use super::*;

    model! {
        pub struct Before<d = 4, experts = 5, hidden = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let (best, ids) = top_k::<k = 2>(softmax(linear::<experts, bias = false, name = gate>(x)));
            let gates = best / sum::<2>(best);
            let h = silu(grouped_linear::<hidden, experts, bias = false, name = w1>(x, ids));
            let h = h * grouped_linear::<hidden, experts, bias = false, name = w3>(x, ids);
            sum::<2>(gates * grouped_linear::<d, experts, bias = false, name = w2>(h, ids))
        }
    }

    model! {
        pub struct Behind<d = 4, experts = 5, hidden = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let (best, ids) = top_k::<k = 2>(linear::<experts, bias = false, name = gate>(x));
            let h = silu(grouped_linear::<hidden, experts, bias = false, name = w1>(x, ids));
            let h = h * grouped_linear::<hidden, experts, bias = false, name = w3>(x, ids);
            sum::<2>(softmax(best) * grouped_linear::<d, experts, bias = false, name = w2>(h, ids))
        }
    }
}

/// Jiang et al., "Mixtral of experts" (2024): the softmax of all, of which the best two are divided by their sum, is that of the best two.
#[test]
fn mixtral_has_the_best_two_of_its_experts() {
    let mut before = Cpu::default().build_module::<softmax_first::Before, f64>();
    let mut behind = Cpu::default().build_module::<softmax_first::Behind, f64>();
    scatter(&mut before);
    scatter(&mut behind);
    let weights = [
        &before.w1.weight.as_vec(),
        &before.w3.weight.as_vec(),
        &before.w2.weight.as_vec(),
    ];
    let weights = weights.map(|weights| &weights[..]);
    let mut expected = Vec::new();
    for x in x().as_vec().chunks(D) {
        let chances = softmax(&map(&before.gate.weight.as_vec(), x));
        let best = top(&chances, 2);
        let sum: f64 = best.iter().map(|expert| chances[*expert]).sum();
        let mut y = vec![0.0; D];
        for expert in best {
            for (y, of) in y.iter_mut().zip(gated(weights, expert, x)) {
                *y += chances[expert] / sum * of;
            }
        }
        expected.extend(y);
    }
    assert_near(&before.forward(x()).as_vec(), &expected);
    assert_near(&before.composed().forward(x()).as_vec(), &expected);
    assert_near(&behind.forward(x()).as_vec(), &expected);
}

/// Fedus et al., "Switch transformers" (2022), equations 1 to 6: one expert, a capacity, and the loss that balances the load.
#[test]
fn switch_drops_the_tokens_that_an_expert_has_no_space_for() {
    model! {
        struct Switch<d = 4, experts = 5, hidden = 6>;
        fn forward(x: [batch, seq, d]) -> { y: [batch, seq, d], balance: [] } {
            let chances = softmax(linear::<experts, name = gate>(x));
            let (best, ids) = top_k::<k = 1>(chances);
            let h = relu(grouped_linear::<hidden, experts, capacity_factor = 1.25, name = up>(x, ids));
            let y = sum::<1>(best * grouped_linear::<d, experts, capacity_factor = 1.25, name = down>(h, ids));
            let share = mean::<[batch, seq]>(sum::<1>(one_hot::<experts>(ids)));
            { y, balance: experts * sum::<experts>(share * mean::<[batch, seq]>(chances)) }
        }
    }
    let mut model = Cpu::default().build_module::<Switch, f64>();
    scatter(&mut model);
    let [up, up_bias, down, down_bias] = [
        model.up.weight.as_vec(),
        model.up.bias.as_vec(),
        model.down.weight.as_vec(),
        model.down.bias.as_vec(),
    ];
    let of = |all: &[f64], expert: usize| {
        all[expert * all.len() / EXPERTS..][..all.len() / EXPERTS].to_vec()
    };
    // 14 tokens, 5 experts.
    let capacity = (1.25_f64 * 14.0 / 5.0).ceil() as usize;
    let mut taken = [0; EXPERTS];
    let mut mean = [0.0; EXPERTS];
    let mut expected = Vec::new();
    for x in x().as_vec().chunks(D) {
        let logits = map(&model.gate.weight.as_vec(), x);
        let bias = model.gate.bias.as_vec();
        let logits: Vec<f64> = logits.iter().zip(&bias).map(|(a, b)| a + b).collect();
        let chances = softmax(&logits);
        let expert = top(&chances, 1)[0];
        mean.iter_mut()
            .zip(&chances)
            .for_each(|(mean, chance)| *mean += chance / TOKENS as f64);
        taken[expert] += 1;
        if taken[expert] > capacity {
            expected.extend([0.0; D]);
            continue;
        }
        let h = map(&of(&up, expert), x);
        let h: Vec<f64> = h
            .iter()
            .zip(of(&up_bias, expert))
            .map(|(h, b)| (h + b).max(0.0))
            .collect();
        let y = map(&of(&down, expert), &h);
        expected.extend(
            y.iter()
                .zip(of(&down_bias, expert))
                .map(|(y, b)| chances[expert] * (y + b)),
        );
    }
    assert!(
        taken.iter().any(|taken| *taken > capacity),
        "{taken:?}: none is dropped"
    );
    let SwitchOutput { y, balance } = model.forward(x());
    assert_near(&y.as_vec(), &expected);
    let pairs = taken.iter().zip(&mean);
    let of_all: f64 = pairs
        .map(|(taken, mean)| *taken as f64 / TOKENS as f64 * mean)
        .sum();
    assert_near(&[balance.array()], &[EXPERTS as f64 * of_all]);
    assert_near(&model.composed().forward(x()).y.as_vec(), &expected);
}

/// DeepSeek-V3 (2024), equations 12 to 16: a shared expert, and a bias that changes the choice alone.
#[test]
fn deepseek_chooses_by_a_bias_and_gates_without_it() {
    model! {
        struct DeepSeek<d = 4, experts = 5, hidden = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param bias: [experts] = 0;
            let scores = sigmoid(linear::<experts, bias = false, name = gate>(x));
            let (_best, ids) = top_k::<k = 3>(scores + bias);
            let chosen = scores[experts = ids];
            let h = silu(grouped_linear::<hidden, experts, bias = false, name = w1>(x, ids));
            let h = h * grouped_linear::<hidden, experts, bias = false, name = w3>(x, ids);
            let gates = 2.5 * chosen / sum::<3>(chosen);
            let routed = sum::<3>(gates * grouped_linear::<d, experts, bias = false, name = w2>(h, ids));
            routed + feed_forward::<hidden, activation = swiglu, name = shared>(x)
        }
    }
    let mut model = Cpu::default().build_module::<DeepSeek, f64>();
    scatter(&mut model);
    let weights = [
        &model.w1.weight.as_vec(),
        &model.w3.weight.as_vec(),
        &model.w2.weight.as_vec(),
    ];
    let weights = weights.map(|weights| &weights[..]);
    let bias = model.bias.weight.as_vec();
    let mut expected = Vec::new();
    let mut changed = 0;
    for x in x().as_vec().chunks(D) {
        let scores = map(&model.gate.weight.as_vec(), x);
        let scores: Vec<f64> = scores.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
        let biased: Vec<f64> = scores.iter().zip(&bias).map(|(a, b)| a + b).collect();
        let best = top(&biased, 3);
        changed += usize::from(best != top(&scores, 3));
        let sum: f64 = best.iter().map(|expert| scores[*expert]).sum();
        let shared = [&model.shared.gate_proj.weight, &model.shared.up_proj.weight];
        let [gate, up] = shared.map(|weight| map(&weight.as_vec(), x));
        let h: Vec<f64> = gate
            .iter()
            .zip(up)
            .map(|(gate, up)| silu(*gate) * up)
            .collect();
        let mut y = map(&model.shared.down_proj.weight.as_vec(), &h);
        for expert in best {
            for (y, of) in y.iter_mut().zip(gated(weights, expert, x)) {
                *y += 2.5 * scores[expert] / sum * of;
            }
        }
        expected.extend(y);
    }
    assert!(changed > 0, "the bias changes no choice");
    assert_near(&model.forward(x()).as_vec(), &expected);
    let y = model.forward_mut(x().leaky_traced());
    let gradients = y.sum().backward();
    assert_eq!(gradients.get(&model.bias.weight).as_vec(), [0.0; EXPERTS]);
    assert!(
        gradients
            .get(&model.gate.weight)
            .as_vec()
            .iter()
            .any(|d| *d != 0.0)
    );
}
