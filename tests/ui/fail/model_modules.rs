//! `module`: its keys, its type and its shape.

use attn::model;

model! {
    struct Missing<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let a = module(x);
        let b = module::<Linear<d_model, 3>>(x);
        let c = module::<out = [batch, seq, d_model]>(x);
        let d = module::<ReLU, out = [batch, seq, d_model]>();
        a + b + c + d
    }
}

model! {
    struct Shapes<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let a = module::<ReLU, out = 8>(x);
        let b = module::<ReLU, out = ids[batch, seq]>(x);
        let c = module::<ReLU, out = [batch, sec, d_model]>(x);
        let d = module::<ReLU, out = [batch, seq, 9]>(x);
        a + b + c + d + x
    }
}

model! {
    struct Keys<d_model = 8>;
    fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> [batch, seq, d_model] {
        let a = module::<8, out = [batch, seq, d_model]>(x);
        let b = module::<ReLU, Tanh, out = [batch, seq, d_model]>(x);
        let c = module::<ReLU, out = [batch, seq, d_model], width = 8>(x);
        let d = module::<ReLU, out = [batch, seq, d_model]>(x, padding = lens);
        let e = module::<ReLU, out = [batch, seq, d_model], name = a>(x);
        let f = module::<ReLU, out = [batch, seq, d_model], name = a>(x);
        a + b + c + d + e + f
    }
}

fn main() {}
