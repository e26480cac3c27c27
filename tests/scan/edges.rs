//! Axes of size 0 and 1, dropout, and what a scan is inside of a model.

use super::*;
use attn::model;

model! {
    struct Lstm<d = 3, hidden = 4>;
    fn forward(x: [batch, seq, d]) -> ([batch, seq, hidden], [batch, hidden]) {
        scan seq {
            state h: [batch, hidden] = 0.5;
            state c: [batch, hidden] = 0.0;
            let (i, f, g, o) = split(linear::<{ 4 * hidden }>(x) + linear::<{ 4 * hidden }>(h));
            c = sigmoid(f) * c + sigmoid(i) * tanh(g);
            h = sigmoid(o) * tanh(c);
            yield h;
            h
        }
    }
}

#[test]
fn the_last_state_of_no_steps_is_the_initial_one() {
    let lstm = Cpu::default().build_module::<Lstm, f64>();
    let x = tensor::<_, f64>("x", (2, 0, Const::<3>));
    let (y, last) = lstm.forward(x.clone());
    assert_eq!(y.shape().concrete(), [2, 0, 4]);
    assert_eq!(last.as_vec(), [0.5; 8]);
    let (_, composed) = lstm.composed().forward(x);
    assert_eq!(composed.as_vec(), [0.5; 8]);
}

#[test]
fn sizes_of_the_call_may_be_constants() {
    let mut lstm = Cpu::default().build_module::<Lstm, f64>();
    scatter(&mut lstm);
    let x = tensor::<_, f64>("x", (Const::<2>, Const::<5>, Const::<3>));
    let (y, last): (
        Tensor<Rank3<2, 5, 4>, f64, Cpu>,
        Tensor<Rank2<2, 4>, f64, Cpu>,
    ) = lstm.forward(x.clone());
    let at_end = y.clone().slice((.., 4.., ..));
    assert_eq!(at_end.as_vec(), last.as_vec());
    let (empty, _) = lstm.forward(tensor::<_, f64>("x", (0, 3, Const::<3>)));
    assert_eq!(empty.shape().concrete(), [0, 3, 4]);
    // The composed form has constants as well.
    let (composed, _): (Tensor<Rank3<2, 5, 4>, f64, Cpu>, _) = lstm.composed().forward(x);
    assert!(
        composed
            .as_vec()
            .iter()
            .zip(y.as_vec())
            .all(|(a, b)| (a - b).abs() < 1e-14)
    );
}

model! {
    struct Dropped<d = 64>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        scan seq {
            state h: [batch, d] = 0.0;
            h = dropout::<0.5>(x) + 0 * h;
            yield h;
        }
    }
}

#[test]
fn a_dropout_draws_anew_at_each_step() {
    let mut model = Cpu::default().build_module::<Dropped, f64>();
    let x = Cpu::default().ones::<Rank3<1, 2, 64>>();
    let y = model.forward_mut(x.clone().leaky_traced());
    let numbers = y.as_vec();
    assert!(numbers.iter().all(|y| [0.0, 2.0].contains(y)));
    assert_ne!(numbers[..64], numbers[64..]);
    // The derivative has the same mask.
    assert_eq!(y.sum().backward().get(&x).as_vec(), numbers);
}

#[test]
fn the_results_of_a_scan_are_among_the_values() {
    let lstm = Cpu::default().build_module::<Lstm, f64>();
    let values = lstm.values(tensor::<_, f64>("x", (2, 3, Const::<3>)));
    let steps = values.get("h_steps").unwrap();
    assert_eq!(
        (steps.operation(), steps.shape()),
        ("scan", [3, 2, 4].as_slice())
    );
    assert!(Lstm::graph_dot().contains("label=\"scan seq\""));
}

#[test]
fn the_flops_of_a_scan_are_those_of_its_steps() {
    // Two for each multiplication and addition, of 4 gates.
    assert_eq!(Lstm::flops(2, 5), 5 * 2 * 2 * (3 + 4) * 16);
}
