//! Models without sessions.

use attn::{dfdx::prelude::*, model};

model! {
    struct LooksAhead<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            x = x + attention::<heads = 2>(x);
        }
        linear::<vocab>(x)
    }
}

model! {
    struct Prefix<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        attention::<heads = 2, mask = prefix_lm(3), name = look>(embedding::<vocab, d>(tokens))
    }
}

model! {
    struct Undecided<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        attention::<heads = 2>(embedding::<vocab, d>(tokens)) {
            fn mask(q_idx, kv_idx) { kv_idx * kv_idx <= q_idx * q_idx }
        }
    }
}

model! {
    struct KnowsTheEnd<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        attention::<heads = 2, mask = causal>(embedding::<vocab, d>(tokens)) {
            fn score(score, kv_idx, kv_len) { score * (kv_len - kv_idx) as f32 }
        }
    }
}

model! {
    struct Pools<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, d] {
        mean_pool(embedding::<vocab, d>(tokens))
    }
}

model! {
    struct Translates<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq], source: ids[batch, source_len]) -> [batch, seq, d] {
        let context = embedding::<vocab, d>(source);
        mean_pool(context) + embedding::<vocab, d, name = target>(tokens)
    }
}

model! {
    struct InALoop<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq], memory: [batch, src, d]) -> [batch, seq, d] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            x += attention::<heads = 2>(x, context = layer_norm(memory));
        }
        x
    }
}

model! {
    struct OneMemory<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq], memory: [src, d]) -> [batch, seq, d] {
        let memory = expand::<[batch, src, d]>(memory);
        attention::<heads = 2>(embedding::<vocab, d>(tokens), context = memory)
    }
}

model! {
    struct Positions<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq], positions: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        attention::<heads = 2, mask = causal, position = rope>(x, position_ids = positions)
    }
}

model! {
    struct Packs<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq], memory: [batch, src, d], lens: lens[batch]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        x + attention::<heads = 2, mask = causal & padding>(x, padding = lens) + attention::<heads = 2>(x, context = memory)
    }
}

model! {
    struct OfVectors<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        attention::<heads = 2, mask = causal>(x)
    }
}

model! {
    struct Opaque<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        module::<Linear<8, 8>, out = [batch, seq, d]>(embedding::<vocab, d>(tokens))
    }
}

model! {
    struct OwnContext<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        attention::<heads = 2>(x, context = 2 * x)
    }
}

model! {
    struct Packed<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        attention::<heads = 2, mask = document & causal>(embedding::<vocab, d>(tokens), document = tokens)
    }
}

model! {
    struct Two<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> ([batch, seq, d], [batch, seq, d]) {
        let x = embedding::<vocab, d>(tokens);
        (x, relu(x))
    }
}

fn main() {
    let dev = Cpu::default();
    let _ = dev.build_module::<LooksAhead, f32>().session(10);
    let _ = dev.build_module::<Prefix, f32>().session(10);
    let _ = dev.build_module::<Undecided, f32>().session(10);
    let _ = dev.build_module::<KnowsTheEnd, f32>().sessions(2, 10);
    let _ = dev.build_module::<Pools, f32>().session(10);
    let source: Tensor<Rank2<1, 4>, usize, _> = dev.zeros();
    let memory: Tensor<Rank3<1, 4, 8>, f32, _> = dev.zeros();
    let _ = dev.build_module::<Translates, f32>().session(source.clone(), 10);
    let _ = dev.build_module::<InALoop, f32>().session(memory.clone(), 10);
    let _ = dev.build_module::<OneMemory, f32>().session(memory.clone(), 10);
    let _ = dev.build_module::<Positions, f32>().session(source, 10);
    let _ = dev.build_module::<Packs, f32>().session(memory, dev.tensor([4]), 10);
    let _ = dev.build_module::<OfVectors, f32>().session(10);
    let _ = dev.build_module::<Opaque, f32>().session(10);
    let _ = dev.build_module::<OwnContext, f32>().session(10);
    let _ = dev.build_module::<Packed, f32>().session(10);
    let _ = dev.build_module::<Two, f32>().session(10);
}
