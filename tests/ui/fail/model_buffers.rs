//! Buffers that cannot be declared so.

use attn::model;

const STEP: f64 = 0.25;

model! {
    struct Declared<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        buffer scale = 1;
        buffer mut shift: [d] = 0;
        buffer mark: ids[d] = |i| i;
        buffer place: [seq, d] = |i, _| i;
        buffer table: [4, d] = |i| i;
        buffer typed: [d] = |i: usize| i;
        x * scale + shift + mark + place + table[4 = 0] + typed
    }
}

model! {
    struct Numbers<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        buffer a: [d] = |i| i * x;
        buffer b: [d] = |i| linear::<d>(i);
        buffer c: [d] = |i| sine(i);
        buffer e: [d] = |i| { 2 * i };
        buffer f: [d] = |i| i * STEP;
        buffer g: [d] = |i| j;
        x + a + b + c + e + f + g
    }
}

model! {
    struct Names<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        buffer unread: [d] = |i| 1;
        buffer gate: [d] = |i| i % 2;
        gate = 2 * gate;
        sine(gate * x) % 2
    }
}

fn main() {}
