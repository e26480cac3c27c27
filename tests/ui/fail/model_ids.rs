//! Mistakes with ids, with what counts, and with results of which there are several.

use attn::model;

model! {
    struct Indexed<vocab = 5, d = 8>;
    fn forward(x: [batch, seq, d], tokens: ids[batch, seq], lens: lens[batch]) -> [batch, d] {
        let a = x[seq = lens];
        let b = x[tokens = 0];
        let c = x[0];
        let e = x[d = [0, 8]];
        let f = x[seq = []];
        a + b + c + e + f
    }
}

model! {
    struct Computed<vocab = 5, d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, d] {
        param table: [vocab, d] = normal(1.0);
        let a = table[argmax::<d>(x)];
        let b = argmax(x);
        let (c, _e) = top_k::<k = 9>(x);
        let f = top_k::<k = 2>(x);
        x[seq = 0] + a + b + c + f
    }
}

model! {
    struct Counted<d = 8>;
    fn forward(x: [batch, seq, d], keep: bool[batch, seq], lens: lens[batch]) -> [batch, d] {
        let a = sum::<d>(x, keep);
        let b = mean::<[seq, d]>(x, keep);
        let c = softmax::<batch>(x, lens);
        let e = scatter_add::<[batch, d]>(x, lens);
        a + b + c + e
    }
}

model! {
    struct Elsewhere<d = 8>;
    fn forward(x: [batch, seq, d], ids: ids[batch]) -> [batch, d] {
        let a = gather::<seq>(x, ids);
        let b = stop_gradient(x);
        let c = topk::<k = 2>(x);
        a + b + c + argsort(x)
    }
}

fn main() {}
