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
    let y = model.forward_mut((memory.clone().leaky_traced(), x.clone()));
    let numbers = y.as_vec();
    // All weights are 1 / 40, and a kept one counts twice.
    let kept = |step: usize| numbers[2 * step] * 20.0;
    let counts: Vec<f64> = (0..3).map(kept).collect();
    assert!(
        counts
            .iter()
            .all(|count| (count - count.round()).abs() < 1e-12)
    );
    assert!(counts.iter().any(|count| *count != counts[0]), "{counts:?}");
    // The derivative has the same masks: the results are linear in the memory, which is 1.
    let expected: f64 = numbers.iter().sum();
    let gradient = y.sum::<Rank0, _>().backward().get(&memory);
    let found: f64 = gradient.as_vec().iter().sum();
    assert!((found - expected).abs() < 1e-12, "{found} and {expected}");
}

#[test]
fn the_steps_of_a_scan_are_the_queries_of_one_map() {
    let mut model = Cpu::default().build_module::<Both, f64>();
    scatter(&mut model);
    let memory = tensor::<_, f64>("memory", (3, 4, Const::<3>));
    let x = tensor::<_, f64>("x", (3, 5, Const::<3>));
    let (_, _, weights) = model.forward((memory.clone(), x.clone(), lens_up_to(3, 4)));
    let maps = model.attention_maps((memory.clone(), x, lens_up_to(3, 4)));
    assert_eq!((maps.len(), maps[0].name()), (1, "attend"));
    assert_eq!(maps[0].shape(), [3, 1, 5, 4]);
    support::close::assert_close(0, maps[0].weights(), &weights.as_vec(), 1e-6);
    // A scan without steps has a map without weights.
    let none = tensor::<_, f64>("x", (3, 0, Const::<3>));
    let maps = model.attention_maps((memory, none, lens_up_to(3, 4)));
    assert!(maps[0].weights().is_empty());
}

model! {
    /// Two attentions at a step, of which one is in a loop, backwards.
    struct Several<d = 2>;
    fn forward(memory: [batch, src, d], x: [batch, tgt, d]) -> [batch, tgt, d] {
        let y = attend(x, memory, memory);
        scan tgt, reverse = true {
            state h: [batch, d] = 0;
            let mut z = attend(h + x, memory, memory);
            repeat 2 {
                z = tanh(linear::<d>(z) + attend(z, memory, memory));
            }
            h = z + y;
            yield h;
        }
    }
}

#[test]
fn every_attention_of_a_step_has_a_map_in_the_order_of_the_axis() {
    let mut model = Cpu::default().build_module::<Several, f64>();
    scatter(&mut model);
    let memory = tensor::<_, f64>("memory", (1, 3, Const::<2>));
    let x = tensor::<_, f64>("x", (1, 4, Const::<2>));
    let maps = model.attention_maps((memory.clone(), x.clone()));
    let names: Vec<&str> = maps.iter().map(|map| map.name()).collect();
    assert_eq!(
        names,
        ["attend", "attend_2", "blocks.0.attend", "blocks.1.attend"]
    );
    assert!(maps.iter().all(|map| map.shape() == [1, 1, 4, 3]));
    // The last step comes first: its state is 0, so it attends with `x` alone.
    for place in [0, 3] {
        let same = maps[0]
            .row(0, 0, place)
            .iter()
            .zip(maps[1].row(0, 0, place))
            .all(|(a, b)| (a - b).abs() < 1e-6);
        assert_eq!(same, place == 3);
    }
}

model! {
    /// Causal at the steps of a scan, and before it.
    struct Places<d = 2>;
    fn forward(x: [batch, seq, d], memory: [batch, kv, d]) -> ([batch, seq, d], [batch, seq, d]) {
        let far = expand::<[seq, kv]>(float(arange::<kv>())) - float(arange::<seq>());
        let hidden = if far > 0 { -1e9 } else { 0 * far };
        let steps = scan seq {
            state h: [batch, d] = 0;
            h = 0 * h + attend(x, memory, memory, hidden = hidden) {
                data hidden: [kv_len];
                fn score(score, kv_idx) { score + hidden[kv_idx] }
            };
            yield h;
        };
        (permute::<[batch, seq, d]>(steps), attend(x, memory, memory) { fn mask(q_idx, kv_idx) { kv_idx <= q_idx } })
    }
}

/// What the error of a mask that reads the place of a step's query says to write.
#[test]
fn numbers_of_each_step_hide_what_a_mask_of_places_does() {
    let model = Cpu::default().build_module::<Places, f64>();
    let x = tensor::<_, f64>("x", (2, 5, Const::<2>));
    let memory = tensor::<_, f64>("memory", (2, 6, Const::<2>));
    let (steps, whole) = model.forward((x, memory));
    support::close::assert_close(0, &steps.as_vec(), &whole.as_vec(), 1e-12);
}
