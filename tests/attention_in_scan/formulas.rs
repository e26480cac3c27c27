//! What a step attends to, against the same by hand.

use super::*;

model! {
    /// The attention of Bahdanau et al. (2015), as an operation and by its formula, with the same tensors.
    struct Both<d = 3>;
    fn forward(memory: [batch, src, d], x: [batch, tgt, d], lens: lens[batch]) -> ([batch, tgt, d], [batch, tgt, d], [batch, tgt, src]) {
        let keys = linear::<d, name = keys>(memory);
        let (y, z, weights) = scan tgt {
            state h: [batch, d] = 1;
            let q = linear::<d, name = to_query>(h + x);
            let y = attend::<score = scaled_dot, mask = padding>(q, keys, memory, padding = lens);
            let weights = softmax::<src>(einsum::<[batch, src]>(q, keys) / sqrt(d), lens);
            let z = einsum::<[batch, d]>(weights, memory);
            h = tanh(h + y);
            yield (y, z, weights);
        };
        (y, z, weights)
    }
}

#[test]
fn a_step_attends_with_the_weights_of_the_formula() {
    let mut model = Cpu::default().build_module::<Both, f64>();
    scatter(&mut model);
    let memory = tensor::<_, f64>("memory", (3, 4, Const::<3>));
    let x = tensor::<_, f64>("x", (3, 5, Const::<3>));
    let (y, z, weights) = model.forward((memory, x, lens_up_to(3, 4)));
    support::close::assert_close(0, &y.as_vec(), &z.as_vec(), 1e-14);
    let rows = weights.as_vec();
    let sums = rows.chunks(4).map(|row| row.iter().sum::<f64>());
    // The third sequence has no tokens.
    let sums: Vec<f64> = sums.collect();
    assert!(sums[..10].iter().all(|sum| (sum - 1.0).abs() < 1e-14));
    assert!(sums[10..].iter().all(|sum| *sum == 0.0));
}

model! {
    struct Dropped<d = 2>;
    fn forward(memory: [batch, src, d], x: [batch, tgt, d]) -> [batch, tgt, d] {
        scan tgt {
            state h: [batch, d] = 0;
            h = attend::<dropout = 0.5>(x, memory, memory) + 0 * h;
            yield h;
        }
    }
}

#[test]
fn weights_are_dropped_anew_at_each_step() {
    let mut model = Cpu::default().build_module::<Dropped, f64>();
    let memory = Cpu::default().ones::<Rank3<1, 40, 2>>();
    let x = Cpu::default().ones::<Rank3<1, 3, 2>>();
    let y = model.forward_mut((memory.leaky_traced(), x.clone()));
    let numbers = y.as_vec();
    // All weights are 1 / 40, and a kept one counts twice.
    let kept = |step: usize| numbers[2 * step] * 20.0;
    let counts: Vec<f64> = (0..3).map(kept).collect();
    assert!(counts.iter().all(|count| (count - count.round()).abs() < 1e-12));
    assert!(counts.iter().any(|count| *count != counts[0]), "{counts:?}");
    // The derivative of a value is twice the weight of it, for each of those that are kept.
    let sum: f64 = numbers.iter().sum();
    let d_memory = y.sum::<Rank0, _>();
    assert_eq!(d_memory.array(), sum);
}
