//! Models without sessions: what a token becomes depends on the tokens behind it.

use attn::{dfdx::prelude::*, model};

model! {
    struct Softmax<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        softmax::<seq>(embedding::<vocab, d>(tokens))
    }
}

model! {
    struct Centred<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        x - mean::<seq>(x)
    }
}

model! {
    struct AcrossSequences<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        softmax::<batch>(embedding::<vocab, d>(tokens))
    }
}

model! {
    struct SummedByProduct<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        x + einsum::<[batch, d]>(x, x)
    }
}

model! {
    struct AllPairs<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        let y = x as [batch, kv = seq, d];
        einsum::<[batch, seq, d]>(softmax::<kv>(einsum::<[batch, seq, kv]>(x, y)), y)
    }
}

model! {
    struct SumsSoFar<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        cumsum::<seq>(embedding::<vocab, d>(tokens))
    }
}

model! {
    struct Positions<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        param table: [100, d] = normal(1.0);
        embedding::<vocab, d>(tokens) + table[arange::<seq>()]
    }
}

model! {
    struct BestToken<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        x + x[seq = argmax::<seq>(sum::<d>(x))]
    }
}

model! {
    struct InAnotherOrder<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        x[seq = tokens]
    }
}

model! {
    struct Counts<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        x + sum::<vocab>(scatter_add::<[vocab, d]>(x, tokens))
    }
}

model! {
    struct LengthOverTokens<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<vocab, d>(tokens);
        x * l2_norm(sum::<d>(x))
    }
}

fn main() {
    let dev = Cpu::default();
    let _ = dev.build_module::<Softmax, f32>().session(10);
    let _ = dev.build_module::<Centred, f32>().session(10);
    let _ = dev.build_module::<AcrossSequences, f32>().session(10);
    let _ = dev.build_module::<SummedByProduct, f32>().session(10);
    let _ = dev.build_module::<AllPairs, f32>().session(10);
    let _ = dev.build_module::<SumsSoFar, f32>().session(10);
    let _ = dev.build_module::<Positions, f32>().session(10);
    let _ = dev.build_module::<BestToken, f32>().session(10);
    let _ = dev.build_module::<InAnotherOrder, f32>().session(10);
    let _ = dev.build_module::<Counts, f32>().session(10);
    let _ = dev.build_module::<LengthOverTokens, f32>().session(10);
}
