//! Axes that a reduction or a softmax does not have.

use attn::model;

model! {
    struct Axes<d = 8, unused = 3>;
    fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, d] {
        let a = sum(x) + max(x);
        let b = mean::<rows>(x) + mean::<unused>(x);
        let c = max::<[seq, seq]>(x) + variance::<[]>(x);
        let e = min::<seq>(mean::<seq>(x));
        let f = softmax::<[seq, d]>(x) + softmax(sum::<[batch, seq, d]>(x));
        let g = logsumexp::<seq>(tokens) + sum::<seq>(x, x) + sum::<seq, d>(x);
        let h = sum(x, 1) + max::<seq>(x, 0) + x.mean();
        a + b + c + e + f + g + h
    }
}

model! {
    struct Elsewhere<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let a = amax(x) + std(x) + log_softmax(x);
        let b = mean::<dim = seq>(x);
        a + b
    }
}

model! {
    struct Ambiguous;
    fn forward(x: [batch, 4, 4]) -> [batch, 4] {
        sum::<4>(x)
    }
}

fn main() {}
