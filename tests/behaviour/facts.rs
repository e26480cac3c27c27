//! Facts of a layer that are known before it runs: its sizes, its number of parameters, its cost, its mask.

use attn::{Coverage, Error, MaskBlocks, attention, nn::LearnedPosition};
use dfdx::prelude::*;

const EIGHT: usize = 8;

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct Grouped<heads = 4, kv_heads = 2, d_model = 16, head_dim = 3, value_head_dim = 5, mask = causal>;
    struct Cross<heads = 4, kv_heads = 1, d_model = 16, d_context = 6, value_head_dim = 7>;
    struct Additive<heads = 4, kv_heads = 2, d_model = 16, d_context = 6, score = additive(hidden = 9)>;
    struct Bilinear<heads = 4, d_model = 16, head_dim = 6, score = bilinear, bias = false>;
    struct Everything<heads = 4, kv_heads = 2, d_model = 16, qk_norm = rms, position = rel_pos_bias(8, 20), mask = causal, softcap = 3, bias = [q, o]>;
    struct Places<heads = 4, kv_heads = 2, d_model = 16, d_context = 6, value_head_dim = 5> {
        param bias: [heads, 9] = zeros;
        fn score(h, q_idx, kv_idx) { bias[h, clamp(q_idx - kv_idx + 4, 0, 8)] }
    }
    struct OfConsts<heads = { EIGHT / 2 }, kv_heads = 2, d_model = EIGHT, score = additive(hidden = EIGHT)>;
    struct Local<heads = 2, d_model = 8, mask = sliding_window(EIGHT) & padding, ensure = { causal & padding & sliding_window(EIGHT) }>;
    struct Packed<heads = 2, d_model = 8, mask = document & !padding>;
    struct Decoder<heads = 2, d_model = 8, d_context = 8, mask = causal(lower_right), ensure = causal(lower_right)>;
    struct Bodied<heads = 4, d_model = 16, mask = causal, ensure = { sliding_window(10) & every_query_attends }> {
        fn mask(h, q_idx, kv_idx) { q_idx - kv_idx < if h < 2 { 10 } else { 3 } }
    }
    struct Related<heads = 2, d_model = 8, mask = causal, ensure = { causal & every_query_attends }> {
        data doc: ids[batch, q_len];
        data weight: [batch, kv_len];
        fn mask(b, q_idx, kv_idx) {
            !(doc[b, q_idx] < doc[b, kv_idx] || weight[b, kv_idx] > 0.5) || kv_idx == 0
        }
    }
    /// Chunks whose length grows with the sequence, until no chunk is left.
    struct Uneven<heads = 2, d_model = 8, mask = padding> {
        fn mask(q_idx, kv_idx, q_len) { q_idx / (q_len - 3) == kv_idx / (q_len - 3) }
    }
    struct OfAnother<heads = { Grouped::KV_HEADS }, d_model = { Grouped::D_MODEL }, d_context = { Grouped::VALUE_HEAD_DIM }>;
}

/// `[HEADS, KV_HEADS, D_MODEL, HEAD_DIM, VALUE_HEAD_DIM, D_CONTEXT]`
macro_rules! sizes {
    ($Layer:ident) => {
        [
            $Layer::HEADS,
            $Layer::KV_HEADS,
            $Layer::D_MODEL,
            $Layer::HEAD_DIM,
            $Layer::VALUE_HEAD_DIM,
            $Layer::D_CONTEXT,
        ]
    };
}

#[test]
fn sizes_are_resolved() {
    assert_eq!(sizes!(Plain), [2, 2, 8, 4, 4, 8]);
    assert_eq!(sizes!(Grouped), [4, 2, 16, 3, 5, 16]);
    assert_eq!(sizes!(Cross), [4, 1, 16, 4, 7, 6]);
    assert_eq!(sizes!(Bilinear), [4, 4, 16, 6, 6, 16]);
    assert_eq!(sizes!(OfAnother), [2, 2, 16, 8, 8, 5]);
    // The width of the additive score is that of queries and keys.
    assert_eq!(sizes!(Additive), [4, 2, 16, 9, 4, 6]);
    assert_eq!(sizes!(OfConsts), [4, 2, 8, 8, 2, 8]);
    // The layer has no queries and keys.
    assert_eq!(sizes!(Places), [4, 2, 16, 0, 5, 6]);
}

#[test]
fn sizes_are_constants_of_other_layers() {
    type Model = (
        Grouped,
        Linear<{ Grouped::D_MODEL }, { Plain::D_MODEL }>,
        Plain,
    );
    const FLOPS: u64 = Plain::flops(1, 2, 3);
    static TABLE: [u8; Plain::PARAMS] = [0; Plain::PARAMS];
    assert_eq!(TABLE.len(), 4 * (8 * 8 + 8));
    assert_eq!(FLOPS, Plain::flops(1, 2, 3));

    let dev = Cpu::default();
    let model = dev.build_module::<Model, f32>();
    let x: Tensor<(usize, Const<{ Grouped::D_MODEL }>), f32, _> = dev.ones_like(&(3, Const));
    let y: Tensor<(usize, Const<{ Plain::D_MODEL }>), f32, _> = model.forward(x);
    assert_eq!(y.shape().concrete(), [3, 8]);
}

#[test]
fn params_is_the_number_that_is_trained() {
    macro_rules! assert_params {
        ($Layer:ident, $by_hand:expr) => {
            let layer = Cpu::default().build_module::<$Layer, f32>();
            assert_eq!($Layer::PARAMS, layer.num_trainable_params());
            assert_eq!($Layer::PARAMS, $by_hand);
        };
    }
    assert_params!(Plain, 4 * (8 * 8 + 8));
    // q, k, v, o: weight and bias of each
    assert_params!(
        Grouped,
        (16 * 12 + 12) + (16 * 6 + 6) + (16 * 10 + 10) + (20 * 16 + 16)
    );
    assert_params!(
        Cross,
        (16 * 16 + 16) + (6 * 4 + 4) + (6 * 7 + 7) + (28 * 16 + 16)
    );
    // and the vectors w_v
    assert_params!(
        Additive,
        (16 * 36 + 36) + (6 * 18 + 18) + (6 * 8 + 8) + 4 * 9 + (16 * 16 + 16)
    );
    // and the matrices between queries and keys, but no biases
    assert_params!(Bilinear, 3 * 16 * 24 + 4 * 6 * 6 + 24 * 16);
    // and two gains and the table of biases
    assert_params!(
        Everything,
        (16 * 16 + 16) + 4 + 16 * 8 + 4 + 16 * 8 + 8 * 4 + (16 * 16 + 16)
    );
    assert_params!(
        OfConsts,
        (8 * 32 + 32) + (8 * 16 + 16) + (8 * 4 + 4) + 4 * 8 + (8 * 8 + 8)
    );
    // values, the table and the output projection
    assert_params!(Places, (6 * 10 + 10) + 4 * 9 + (20 * 16 + 16));
    assert_params!(OfAnother, 2 * (16 * 16 + 16) + 2 * (5 * 16 + 16));

    type Positions = LearnedPosition<5, 8>;
    let positions = Cpu::default().build_module::<Positions, f32>();
    assert_eq!(Positions::PARAMS, 5 * 8);
    assert_eq!(Positions::PARAMS, positions.num_trainable_params());
}

/// The flops of `count` products of a `[m, k]` and a `[k, n]` matrix: a multiplication and an addition for each term of each
/// element.
fn products(count: u64, [m, k, n]: [u64; 3]) -> u64 {
    2 * count * m * k * n
}

#[test]
fn flops_are_those_of_the_matrix_products() {
    for (b, q, k) in [(1, 1, 1), (2, 7, 7), (3, 4, 9), (1, 1, 100)] {
        let flops = |sizes: fn(usize, usize, usize) -> u64| sizes(b, q, k);
        let b = b as u64;
        let q = q as u64;
        let k = k as u64;

        let plain = products(b, [q, 8, 8])
            + 2 * products(b, [k, 8, 8])
            + products(2 * b, [q, 4, k])
            + products(2 * b, [q, k, 4])
            + products(b, [q, 8, 8]);
        assert_eq!(flops(Plain::flops), plain);

        // Fewer key heads make the projections cheaper, but not the scores.
        let grouped = products(b, [q, 16, 12])
            + products(b, [k, 16, 6])
            + products(b, [k, 16, 10])
            + products(4 * b, [q, 3, k])
            + products(4 * b, [q, k, 5])
            + products(b, [q, 20, 16]);
        assert_eq!(flops(Grouped::flops), grouped);

        let cross = products(b, [q, 16, 16])
            + products(b, [k, 6, 4])
            + products(b, [k, 6, 7])
            + products(4 * b, [q, 4, k])
            + products(4 * b, [q, k, 7])
            + products(b, [q, 28, 16]);
        assert_eq!(flops(Cross::flops), cross);

        // A pair of query and key costs one product with w_v, over the hidden layer.
        let additive = products(b, [q, 16, 36])
            + products(b, [k, 6, 18])
            + products(b, [k, 6, 8])
            + products(4 * b * q * k, [1, 9, 1])
            + products(4 * b, [q, k, 4])
            + products(b, [q, 16, 16]);
        assert_eq!(flops(Additive::flops), additive);

        let bilinear = products(b, [q, 16, 24])
            + products(4 * b, [q, 6, 6])
            + 2 * products(b, [k, 16, 24])
            + products(4 * b, [q, 6, k])
            + products(4 * b, [q, k, 6])
            + products(b, [q, 24, 16]);
        assert_eq!(flops(Bilinear::flops), bilinear);

        let places =
            products(b, [k, 6, 10]) + products(4 * b, [q, k, 5]) + products(b, [q, 20, 16]);
        assert_eq!(flops(Places::flops), places);
    }
}

#[test]
fn flops_stop_at_the_largest_number() {
    const MOST: u64 = Plain::flops(usize::MAX, usize::MAX, usize::MAX);
    assert_eq!(MOST, u64::MAX);
    // Each product fits, the sum does not.
    let q = u64::MAX / (2 * 8 * 8);
    assert_eq!(Plain::flops(1, q as usize, 0), u64::MAX);
    assert_eq!(Plain::flops(0, usize::MAX, usize::MAX), 0);
    assert_eq!(Plain::flops(2, 0, 3), 2 * products(2, [3, 8, 8]));
}

#[test]
fn proofs_about_a_mask_are_constants() {
    const { assert!(Grouped::IS_CAUSAL && Grouped::EVERY_QUERY_ATTENDS) }
    assert_eq!(
        [Plain::IS_CAUSAL, Plain::EVERY_QUERY_ATTENDS],
        [false, true]
    );
    // Padding may leave a query without a key, and so may a smaller number of keys than of queries.
    assert_eq!(
        [Local::IS_CAUSAL, Local::EVERY_QUERY_ATTENDS],
        [true, false]
    );
    assert_eq!(
        [Decoder::IS_CAUSAL, Decoder::EVERY_QUERY_ATTENDS],
        [true, false]
    );
}

#[test]
fn lengths_at_which_a_mask_divides_by_0_are_an_error_of_the_call_and_of_what_is_counted() {
    assert_eq!(Uneven::try_mask_density(4, 4).ok(), Some(0.25));
    assert_eq!(Uneven::mask_density(5, 5), 9.0 / 25.0);
    assert_eq!(
        Uneven::try_mask_blocks(4, 4).ok(),
        Some(Uneven::mask_blocks(4, 4))
    );
    let expected = "Uneven: at b = 0, h = 0, q_idx = 0, kv_idx = 0 an integer is divided by `q_len - 3`, which is 0";
    let layer = Cpu::default().build_module::<Uneven, f32>();
    let x: Tensor<(usize, usize, Const<8>), f32, Cpu> = Cpu::default().zeros_like(&(1, 3, Const));
    let lengths: Tensor<(usize,), usize, Cpu> = Cpu::default().tensor_from_vec(vec![3], (1,));
    for error in [
        layer.try_forward((x, lengths)).err(),
        Uneven::try_mask_density(3, 3).err(),
        Uneven::try_mask_blocks(3, 3).err(),
    ] {
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some(expected)
        );
    }
    let counted = std::panic::catch_unwind(|| Uneven::mask_density(3, 3));
    let message = counted.expect_err("there is no number");
    assert_eq!(
        message.downcast_ref::<String>().map(String::as_str),
        Some(expected)
    );
}

/// To count the pairs that a mask lets through of longer sequences would take minutes, and more memory than there is.
#[test]
fn lengths_that_nobody_could_wait_for_are_an_error() {
    const MOST: usize = 1 << 19;
    for lengths in [(MOST + 1, 1), (1, MOST + 1), (usize::MAX, usize::MAX)] {
        let density = Grouped::try_mask_density(lengths.0, lengths.1).err();
        let blocks = Grouped::try_mask_blocks(lengths.0, lengths.1).err();
        for error in [density, blocks] {
            let length = lengths.0.max(lengths.1);
            assert!(
                matches!(error, Some(Error::TooLong { layer: "Grouped", length: l, max: MOST }) if l == length),
                "{error:?}"
            );
        }
    }
    assert!(Grouped::try_mask_density(1, MOST).is_ok());
}

#[test]
fn masks_of_a_body_are_proved_too() {
    const { assert!(Bodied::IS_CAUSAL && Bodied::EVERY_QUERY_ATTENDS) }
    const { assert!(Related::IS_CAUSAL && Related::EVERY_QUERY_ATTENDS) }
    for len in [0, 1, 9, 100] {
        let seen = |window: usize| (0..len).map(|q| (q + 1).min(window)).sum::<usize>();
        let pairs = (4 * len * len).max(1) as f64;
        let expected = (2 * seen(10) + 2 * seen(3)) as f64 / pairs;
        assert_eq!(Bodied::mask_density(len, len), expected);
        // The data hide nothing here.
        let causal = Grouped::mask_density(len, len);
        assert_eq!(Related::mask_density(len, len), causal);
        let blocks = [
            Related::mask_blocks(len, len),
            Grouped::mask_blocks(len, len),
        ];
        assert_eq!(blocks[0], blocks[1]);
    }
    let heads = Bodied::mask_blocks(100, 100);
    assert_eq!(heads.heads(), 4);
    assert_eq!(heads.at(0, 2, 5), Coverage::Partial);
    assert_eq!(heads.at(3, 2, 5), Coverage::Partial);
    assert_eq!(heads.at(3, 2, 4), Coverage::Empty);
}

#[test]
fn density_is_the_share_of_pairs_that_attend() {
    for len in [0, 1, 2, 7, 8, 9, 100] {
        let pairs = (len * len).max(1) as f64;
        let full = if len == 0 { 0.0 } else { 1.0 };
        assert_eq!(Plain::mask_density(len, len), full);
        let back = (0..len).map(|q| q + 1).sum::<usize>();
        assert_eq!(Grouped::mask_density(len, len), back as f64 / pairs);
        let local = (0..len).map(|q| (q + 1).min(EIGHT)).sum::<usize>();
        assert_eq!(Local::mask_density(len, len), local as f64 / pairs);
        // As if no key were padded.
        assert_eq!(Packed::mask_density(len, len), 0.0);
    }
    // The first of three queries attends to two keys fewer than the last.
    assert_eq!(Decoder::mask_density(3, 5), 12.0 / 15.0);
    assert_eq!(Decoder::mask_density(5, 3), 6.0 / 15.0);
}

/// The number of empty, partial and full blocks.
fn counts(blocks: &MaskBlocks) -> [usize; 3] {
    [Coverage::Empty, Coverage::Partial, Coverage::Full].map(|coverage| blocks.count(coverage))
}

#[test]
fn blocks_are_those_that_the_kernels_meet() {
    let causal = Grouped::mask_blocks(100, 100);
    assert_eq!(counts(&causal), counts_of_causal(100));
    assert_eq!(counts(&causal), [5, 7, 9]);
    assert_eq!([causal.heads(), causal.rows(), causal.columns()], [1, 3, 7]);
    assert_eq!(causal.to_string(), "▒▒▒····\n███▒▒▒·\n██████▒\n");
    assert_eq!(counts(&Plain::mask_blocks(49, 17)), [0, 0, 4]);
    assert_eq!(counts(&Plain::mask_blocks(0, 17)), [0; 3]);
}

/// Blocks of 48 queries and 16 keys of a causal head.
fn counts_of_causal(len: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for first_query in (0..len).step_by(MaskBlocks::QUERIES) {
        let last_query = len.min(first_query + 48) - 1;
        for first_key in (0..len).step_by(MaskBlocks::KEYS) {
            let last_key = len.min(first_key + 16) - 1;
            counts[if last_key <= first_query {
                2
            } else if first_key <= last_query {
                1
            } else {
                0
            }] += 1;
        }
    }
    counts
}
