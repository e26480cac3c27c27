//! Tokens that a mask hides may be NaN: nothing of them reaches a result, or a gradient of what is not hidden.

use super::*;

/// `[batch, heads, seq, width]`
type Vectors = Tensor<(usize, Const<2>, usize, Const<3>), f64, Cpu>;

/// `[batch, seq, width]`
type Tokens = Tensor<(usize, usize, Const<4>), f64, Cpu>;

/// How many tokens each of two sequences of `KEYS` has.
const LENS: [usize; 2] = [4, 2];
const KEYS: usize = 6;

fn lens() -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(LENS.to_vec(), (2,))
}

/// The same with NaN in the tokens that are hidden. Rows are those of the sequences, or of the heads of each.
fn poisoned<S: Shape>(x: &Tensor<S, f64, Cpu>, width: usize) -> Tensor<S, f64, Cpu> {
    let mut numbers = x.as_vec();
    let heads = numbers.len() / (width * KEYS * LENS.len());
    for (row, numbers) in numbers.chunks_mut(width).enumerate() {
        if row % KEYS >= LENS[row / (KEYS * heads)] {
            numbers.fill(f64::NAN);
        }
    }
    Cpu::default().tensor_from_vec(numbers, *x.shape())
}

/// The first results are those of clean tokens, the others those of poisoned ones.
fn assert_clean([clean, found]: [Vec<Vec<f64>>; 2]) {
    for (i, (clean, found)) in clean.iter().zip(&found).enumerate() {
        assert!(clean.iter().all(|x| x.is_finite()), "result {i}");
        assert_eq!(clean, found, "result {i}");
    }
}

model! {
    struct Attend<heads = 2, d = 3>;
    fn forward(
        q: [batch, heads, seq, d],
        k: [batch, heads, kv, d],
        v: [batch, heads, kv, d],
        lens: lens[batch],
    ) -> ([batch, heads, seq, d], [batch, heads, seq, kv], [batch, heads, seq]) {
        let (y, weights, lse) = attend::<mask = padding, softcap = 2.0>(q, k, v, padding = lens);
        (y, weights, lse)
    }
}

/// With losses of all three results.
#[test]
fn of_given_keys_and_values() {
    let model = Cpu::default().build_module::<Attend, f64>();
    let q: Vectors = tensor("q", (2, Const, 5, Const));
    let [k, v]: [Vectors; 2] = ["k", "v"].map(|name| tensor(name, (2, Const, KEYS, Const)));
    let run = |k: Vectors, v: Vectors| {
        let input = (q.clone().leaky_traced(), k.clone(), v.clone(), lens());
        let (y, weights, lse) = model.forward(input);
        let mut found = vec![flat(&y), flat(&weights), flat(&lse)];
        let loss = weighted_sum(y) + weighted_sum(weights) + weighted_sum(lse);
        let gradients = loss.backward();
        found.extend([
            flat(&gradients.get(&q)),
            flat(&gradients.get(&k)),
            flat(&gradients.get(&v)),
        ]);
        found
    };
    assert_clean([
        run(k.clone(), v.clone()),
        run(poisoned(&k, 3), poisoned(&v, 3)),
    ]);
}

model! {
    struct InScan<d = 4>;
    fn forward(x: [batch, tgt, d], memory: [batch, src, d], lens: lens[batch]) -> ([batch, tgt, d], [batch, tgt, src]) {
        scan tgt {
            state h: [batch, d] = 0.0;
            let (read, weights) = attend::<score = additive(hidden = 4), mask = padding>(linear::<d>(h + x), memory, memory, padding = lens);
            h = tanh(h + read);
            yield (h, weights);
        }
    }
}

#[test]
fn of_the_memory_of_a_scan() {
    let mut model = Cpu::default().build_module::<InScan, f64>();
    scatter(&mut model);
    let x: Tokens = tensor("x", (2, 3, Const));
    let memory: Tokens = tensor("memory", (2, KEYS, Const));
    let run = |memory: Tokens| {
        let (y, weights) = model.forward((x.clone().leaky_traced(), memory.clone(), lens()));
        let mut found = vec![flat(&y), flat(&weights)];
        let gradients = (weighted_sum(y) + weighted_sum(weights)).backward();
        found.push(flat(&gradients.get(&x)));
        found.push(flat(&gradients.get(&memory)));
        found.push(flat(&gradients.get(&model.linear.weight)));
        found
    };
    assert_clean([run(memory.clone()), run(poisoned(&memory, 4))]);
}

/// `Model: keys, results;`: an attention to a context.
macro_rules! layers {
    ($($name:ident $Model:ident <$($key:ident = $value:tt),*>;)*) => {$(
        model! {
            struct $Model<d = 4, heads = 2>;
            fn forward(x: [batch, seq, d], memory: [batch, kv, d], lens: lens[batch]) -> ([batch, seq, d], [batch, heads, seq, kv], [batch, heads, seq]) {
                let (y, weights, lse) = attention::<heads, mask = padding, $($key = $value),*>(x, context = memory, padding = lens);
                (y, weights, lse)
            }
        }

        #[test]
        fn $name() {
            let mut model = Cpu::default().build_module::<$Model, f64>();
            scatter(&mut model);
            let x: Tokens = tensor("x", (2, 5, Const));
            let memory: Tokens = tensor("memory", (2, KEYS, Const));
            let run = |memory: Tokens| {
                let input = (x.clone().leaky_traced(), memory.clone(), lens());
                let (y, weights, lse) = model.forward(input);
                let mut found = vec![flat(&y), flat(&weights), flat(&lse)];
                let loss = weighted_sum(y) + weighted_sum(weights) + weighted_sum(lse);
                let gradients = loss.backward();
                // The projections of keys and values have gradients that are sums over all tokens.
                found.extend([
                    flat(&gradients.get(&x)),
                    flat(&gradients.get(&memory)),
                    flat(&gradients.get(&model.attention.q_proj.weight)),
                    flat(&gradients.get(&model.attention.o_proj.weight)),
                ]);
                found
            };
            assert_clean([run(memory.clone()), run(poisoned(&memory, 4))]);
        }
    )*};
}

layers! {
    of_a_context Context<softcap = 2.0>;
    of_heads_that_talk_before TalkingBefore<talking_heads = before>;
    of_heads_that_talk TalkingHeads<talking_heads = both>;
    of_normed_keys Normed<qk_norm = rms>;
    of_rotated_keys Rotated<qk_norm = l2, normalizer = softmax1>;
}

model! {
    struct Grid<d = 4>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        attention::<heads = 2, grid = [3, 9], mask = neighborhood(3)>(x)
    }
}

/// NaN in a token of the last column reaches the queries of the last two, and their keys.
#[test]
fn of_a_neighborhood() {
    let mut model = Cpu::default().build_module::<Grid, f64>();
    scatter(&mut model);
    let x: Tokens = tensor("x", (1, 27, Const));
    let column = |at: usize| at / 4 % 9;
    let run = |x: Tokens| {
        let y = model.forward(x.clone().leaky_traced());
        let values = flat(&y);
        // A loss of the columns that do not read it.
        let numbers = support::numbers::scattered("upstream", values.len()).into_iter();
        let numbers = numbers.enumerate();
        let upstream = numbers.map(|(at, d)| if column(at) < 7 { d } else { 0.0 });
        let upstream = Cpu::default().tensor_from_vec(upstream.collect(), *y.shape());
        let gradients = attn::backward(y, &upstream);
        let of = |numbers: Vec<f64>, columns: usize| {
            let numbers = numbers.into_iter().enumerate();
            let numbers = numbers.filter(|(at, _)| column(*at) < columns);
            numbers.map(|(_, number)| number).collect()
        };
        vec![of(values, 7), of(flat(&gradients.get(&x)), 6)]
    };
    let mut numbers = x.as_vec();
    numbers[4 * (9 + 8)..][..4].fill(f64::NAN);
    let poisoned = Cpu::default().tensor_from_vec(numbers, *x.shape());
    assert_clean([run(x), run(poisoned)]);
}
