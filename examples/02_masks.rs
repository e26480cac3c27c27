//! Lesson 2: masks. In each picture a row is a query, a column is a key, and a filled square says that the query attends to the
//! key.
//!
//! ```text
//! cargo run --release --example 02_masks
//! ```

use attn::attention;
use attn::dfdx::prelude::*;

/// The length of each sequence.
const LEN: usize = 12;

// A mask may depend on the positions of query and key ...
attention! { struct Causal<heads = 1, d_model = 8, mask = causal>; }
attention! { struct Window<heads = 1, d_model = 8, mask = sliding_window(4)>; }
attention! { struct Around<heads = 1, d_model = 8, mask = sliding_window(3, symmetric)>; }
attention! { struct Dilated<heads = 1, d_model = 8, mask = dilated_sliding_window(3, 3)>; }
attention! { struct Prefix<heads = 1, d_model = 8, mask = prefix_lm(5)>; }
attention! { struct Chunked<heads = 1, d_model = 8, mask = chunked(4)>; }

// ... and masks combine: & is "both", | is "either", ! is "not".
attention! { struct Local<heads = 1, d_model = 8, mask = causal & chunked(4)>; }
attention! { struct Strided<heads = 1, d_model = 8, mask = sliding_window(3) | dilated_sliding_window(4, 3)>; }
attention! { struct Distant<heads = 1, d_model = 8, mask = causal & !sliding_window(3)>; }

// Some masks need data, so these layers take one more input. Lengths: keys beyond them are padding. Documents: several are packed
// into one sequence, and tokens attend only to their own document.
attention! { struct Padded<heads = 1, d_model = 8, mask = causal & padding>; }
attention! { struct Packed<heads = 1, d_model = 8, mask = causal & document>; }

/// Attention weights, [batch, heads, query, key].
type Weights = Tensor<(usize, Const<1>, usize, usize), f32, Cpu>;

fn main() {
    let device = Cpu::seed_from_u64(2);
    let x = device.sample_like(&(1, LEN, Const::<8>), rand_distr::StandardNormal);
    // The pictures show the weights that the layers computed, not the masks.
    macro_rules! weights {
        ($layer:ty, $input:expr) => {
            device
                .build_module::<$layer, f32>()
                .forward_with_weights($input)
                .1
        };
    }

    println!("masks of positions\n");
    draw([
        ("causal", weights!(Causal, x.clone())),
        ("sliding_window(4)", weights!(Window, x.clone())),
        ("… (3, symmetric)", weights!(Around, x.clone())),
    ]);
    draw([
        ("dilated_…(3, 3)", weights!(Dilated, x.clone())),
        ("prefix_lm(5)", weights!(Prefix, x.clone())),
        ("chunked(4)", weights!(Chunked, x.clone())),
    ]);

    println!("combined: both, either, not\n");
    draw([
        ("causal & chunked", weights!(Local, x.clone())),
        ("sliding | dilated", weights!(Strided, x.clone())),
        ("causal & !sliding", weights!(Distant, x.clone())),
    ]);
    println!("The last one leaves nothing to the first three positions. Their weights are 0 and");
    println!("their output is the bias of o_proj: no NaN, here or in a gradient.\n");
    let distant = device.build_module::<Distant, f32>();
    let output = distant.forward(x.clone()).as_vec();
    assert_eq!(output[..8], distant.o_proj.bias.as_vec());

    println!("with data: lengths 12 and 7, or the documents 000001112222\n");
    let two = device.sample_like(&(2, LEN, Const::<8>), rand_distr::StandardNormal);
    let lengths = device.tensor_from_vec(vec![12, 7], (2,));
    let both = weights!(Padded, (two, lengths)).as_vec();
    let [long, short] = [0, 1].map(|b| {
        let one = both[b * LEN * LEN..][..LEN * LEN].to_vec();
        device.tensor_from_vec(one, (1, Const::<1>, LEN, LEN))
    });
    let ids = device.tensor_from_vec(vec![0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2], (1, LEN));
    draw([
        ("padding, 12", long),
        ("padding, 7", short),
        ("causal & document", weights!(Packed, (x, ids))),
    ]);
}

/// Draws three pictures side by side.
fn draw(pictures: [(&str, Weights); 3]) {
    for (title, _) in &pictures {
        print!("  {title:<24}");
    }
    println!();
    let weights = pictures.map(|(_, weights)| weights.as_vec());
    for q in 0..LEN {
        for weights in &weights {
            let row = &weights[q * LEN..][..LEN];
            let squares: String = row
                .iter()
                .map(|&w| if w > 0.0 { "■ " } else { "· " })
                .collect();
            print!("  {squares}");
        }
        println!();
    }
    println!();
}
