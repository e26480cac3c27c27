//! Adapters of a declaration that are wrong.

use attn::model;

model! {
    struct Keys<d = 8, lora(r = 2, lora_alpha = 4, bias = "none", target_modules = ["q_proj"], modules_to_save = ["head"])>;
    fn forward(x: [batch, d]) -> [batch, d] { linear::<d, name = head>(x) }
}

model! {
    struct Missing<d = 8, lora(alpha = 4)>;
    fn forward(x: [batch, d]) -> [batch, d] { linear::<d, name = head>(x) }
}

model! {
    struct Twice<d = 8, lora(rank = 2, rank = 3, on = ["head"]), lora(rank = 2, on = ["head"])>;
    fn forward(x: [batch, d]) -> [batch, d] { linear::<d, name = head>(x) }
}

model! {
    struct Values<d = 8, lora(rank = 0, alpha = -1, dropout = 1.5, on = ["head"])>;
    fn forward(x: [batch, d]) -> [batch, d] { linear::<d, name = head>(x) }
}

model! {
    struct Words<d = 8, lora(rank = 2, rslora = 1, on = [head], save = "head")>;
    fn forward(x: [batch, d]) -> [batch, d] { linear::<d, name = head>(x) }
}

model! {
    struct Names<d = 8, lora(rank = 2, on = ["query", "k_proj"], save = ["haed"])>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        linear::<d, name = head>(x + attention::<2>(x))
    }
}

model! {
    struct Both<d = 8, lora(rank = 2, on = ["head", "q_proj"], save = ["head", "attention"])>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        linear::<d, name = head>(x + attention::<2>(x))
    }
}

model! {
    struct Rank<d = 8, lora(rank = 8, on = ["head"])>;
    fn forward(x: [batch, d]) -> [batch, 3] { linear::<3, name = head>(x) }
}

const RANK: usize = 4;

model! {
    struct Constant<d = 8, lora(rank = RANK, on = ["head"])>;
    fn forward(x: [batch, d]) -> [batch, 3] { linear::<3, name = head>(x) }
}

model! {
    struct OfPlaces<d = 8, lora(rank = 2, on = ["v_proj"])>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        attention::<2>(x) { fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 } }
    }
}

model! {
    struct Plain<d = 8>;
    fn forward(x: [batch, d]) -> [batch, 3] { linear::<3, name = head>(x) }
    fn loss(x: [batch, d]) -> [] { mean::<[batch, 3]>(forward(x)) }
}

fn main() {
    use attn::{prelude::*, train::AdamWConfig};

    let model = Cpu::default().build_module::<Plain, f32>();
    let trainer = model.trainer(AdamWConfig::default()).only_adapters();
    let _ = trainer;
}
