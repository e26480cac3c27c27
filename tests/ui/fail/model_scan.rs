//! Mistakes with `scan`: its header, its states, what a step yields, and what a step sees.

use attn::model;

model! {
    struct Headers<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let a = scan time { state h: [batch, d] = 0; h = h + 1; yield h; };
        let b = scan 5 { state h: [batch, d] = 0; h = h + x; yield h; };
        let c = scan { state h: [batch, d] = 0; h = h + x; yield h; };
        let e = scan seq, reversed = true { state h: [batch, d] = 0; h = h + x; yield h; };
        let f = scan seq, reverse { state h: [batch, d] = 0; h = h + x; yield h; };
        let g = scan seq, reverse = 1 { state h: [batch, d] = 0; h = h + x; yield h; };
        let i = scan seq, -1 { state h: [batch, d] = 0; h = h + x; yield h; };
        let j = scan x { state h: [batch, d] = 0; h = h + x; yield h; };
        a + b + c + e + f + g + i + j
    }
}

model! {
    struct Calls<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let y = scan(seq) { state h: [batch, d] = 0; h = h + x; yield h; };
        y
    }
}

model! {
    struct Fors<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        for t in seq { h = h + x; }
        x
    }
}

model! {
    struct States<d = 8>;
    fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, seq, d] {
        let a = scan seq { state h: [batch, d]; h = h + x; yield h; };
        let b = scan seq { state h = 0.0; h = h + x; yield h; };
        let c = scan seq { state h: ids[batch] = 0; h = h; yield x; };
        let e = scan seq { state h: [batch, d] = 0; yield x + h; };
        let f = scan seq { state h: [batch, d] = 0; h = linear::<9>(h); yield x; };
        let g = scan seq { state h: [batch, d] = x; h = h + x; yield h; };
        let i = scan seq { let z = 2 * x; state h: [batch, d] = 0; h = h + z; yield h; };
        let k = scan seq { let h = 0; h = h + x; yield h; };
        let n = scan seq { state h: [batch, d] = 0; h = h + embedding::<9, d>(tokens); yield h; };
        a + b + c + e + f + g + i + k + n
    }
}

model! {
    struct Outside<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        state s: [batch, d] = 0;
        let mut total = gelu(x);
        let y = scan seq { state h: [batch, d] = 0; h = h + x; total = total + x; yield h; };
        let z = h + y;
        yield z;
        y + total
    }
}

model! {
    struct Yields<d = 8>;
    fn forward(x: [batch, seq, d], keep: bool[batch, seq]) -> [batch, seq, d] {
        let b = scan seq { state h: [batch, d] = 0; h = h + x; yield h; yield x; };
        let (e, f) = scan seq { state h: [batch, d] = 0; h = h + x; yield h; };
        let g = scan seq { state h: [batch, d] = 0; h = h + x; yield (h, x); };
        let i = scan seq { state h: [batch, d] = 0; repeat 2 { h = h + x; yield h; } };
        let j = scan seq { state h: [batch, d] = 0; h = h + x; yield keep; };
        let k = scan seq { state h: [batch, d] = 0; h = h + x; return h; };
        let l = 2 * scan seq { state h: [batch, d] = 0; h = h + x; yield h; };
        scan seq { state h: [batch, d] = 0; h = h + x; yield h; };
        b + e + f + g + i + j + k + l
    }
}

model! {
    struct NothingYielded<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let y = scan seq { state h: [batch, d] = 0; h = h + x; };
        y
    }
}

model! {
    struct LastLines<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let y = scan seq { state h: [batch, d] = 0; h = h + x; yield h; 2 * h };
        y
    }
}

model! {
    struct Hidden<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let a = scan seq { state h: [batch, d] = 0; state h: [batch, d] = 1; h = h + x; yield h; };
        let b = scan seq { state h: [batch, d] = 0; let h = h + x; yield h; };
        a + b
    }
}

model! {
    struct Unfinished<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let y = scan seq { state h: [batch, d] = 0; h = h + x; yield h };
        y
    }
}

model! {
    struct Sees<d = 8>;
    fn forward(x: [batch, seq, d], memory: [batch, src, d], lens: lens[batch]) -> [batch, seq, d] {
        let a = scan seq { state h: [batch, d] = 0; h = h + mean::<seq>(x); yield h; };
        let b = scan seq { state h: [batch, d] = 0; h = h + x[seq = 0]; yield h; };
        let c = scan seq { state h: [batch, d] = 0; h = h + attention::<2>(x); yield h; };
        let e = scan seq { state h: [batch, d] = 0; h = h + attention::<2>(h, context = memory); yield h; };
        let f = scan seq { state h: [batch, d] = 0; h = h + attend(h, x, x); yield h; };
        let g = scan seq { state h: [batch, d] = 0; h = h + attend::<mask = padding>(h, memory, memory, padding = x); yield h; };
        let i = scan seq {
            state h: [batch, d] = 0;
            let y = scan d { state s: [batch] = 0; s = s + x; yield s; };
            h = h + y;
            yield h;
        };
        let j = scan seq { state h: [batch, d] = 0; h = h + cumsum::<seq>(x); yield h; };
        let k = scan seq { state h: [batch, d] = 0; h = h + shift::<seq>(x); yield h; };
        a + b + c + e + f + g + i + j + k
    }
}

fn main() {}
