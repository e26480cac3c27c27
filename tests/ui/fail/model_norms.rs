//! What norms and feed-forward layers learn, and positions.

use attn::model;

const FIVE: usize = 5;

model! {
    struct Norms;

    fn forward(x: [batch, seq, 8]) -> [batch, seq, 8] {
        let a = layer_norm::<gain = none>(x);
        let b = rms_norm::<bias = false>(x);
        let c = group_norm::<3>(x);
        let d = group_norm(x);
        let e = group_norm::<2, axis = seq>(x);
        let f = feed_forward::<4, dropout = 1.0>(x);
        let g = feed_forward::<4, activation = geglu_tan>(x);
        a + b + c + d + e + f + g
    }
}

model! {
    struct Groups;

    fn forward(x: [batch, seq, 8]) -> [batch, seq, 8] {
        group_norm::<FIVE>(x)
    }
}

model! {
    struct Positions;

    fn forward(x: [batch, seq, 8], ids: ids[batch, seq], others: ids[batch]) -> [batch, seq, 8] {
        let a = attention::<2>(x, position_ids = ids);
        let b = attention::<2, position = alibi>(x, position_ids = ids);
        let c = attention::<2, position = rope>(x, position_ids = others);
        let d = learned_position::<64, 8>(x, position_ids = others);
        let e = embedding::<64, 8>(ids, position_ids = ids);
        let f = learned_position::<64, 8, offset = 2>(x, position_ids = ids);
        let g = learned_position::<64, 8, offset = 65>(x);
        a + b + c + d + e + f + g
    }
}

fn main() {}
