//! A session whose steps attend to a memory.

use super::*;
use support::close::assert_close;

model! {
    struct Translator<vocab = 7, d = 4, hidden = 6>;

    fn decode(tokens: ids[batch, tgt], memory: [batch, src, d], lens: lens[batch]) -> [batch, tgt, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let keys = linear::<hidden, bias = false, name = to_keys>(memory);
        let start = tanh(linear::<d, name = start>(mean_pool(memory, lens)));
        let y = scan tgt {
            state h: [batch, d] = start;
            let query = linear::<hidden, name = to_query>(h);
            let context = attend::<score = additive(hidden = hidden), mask = padding>(query, keys, memory, padding = lens);
            let (xr, xz, xn) = split(linear::<{ 3 * d }, name = ih>(concat(x, context)));
            let (hr, hz, hn) = split(linear::<{ 3 * d }, name = hh>(h));
            let z = sigmoid(xz + hz);
            h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
            yield h + context;
        };
        linear::<vocab, name = out>(y)
    }

    fn forward(tokens: ids[batch, tgt], source: ids[batch, src], lens: lens[batch]) -> [batch, tgt, vocab] {
        let memory = embedding::<vocab, d, name = source>(source);
        let memory = scan src {
            state h: [batch, d] = 0;
            h = tanh(linear::<d, name = encoder>(h) + memory);
            yield h;
        };
        decode(tokens, memory, lens)
    }
}

model! {
    /// Several heads, a sink, and two scans in a loop, of which each attends.
    struct Loops<vocab = 7, heads = 2, width = 4>;

    fn forward(tokens: ids[batch, tgt], memory: [batch, src, width]) -> [batch, tgt, vocab] {
        let mut x = embedding::<vocab, 8>(tokens);
        repeat 2 {
            let y = scan tgt {
                state h: [batch, 8] = 0;
                let q = rearrange::<[batch, (heads, width)] -> [batch, heads, width]>(x + h);
                let y = attend::<normalizer = sink>(q, memory, memory);
                h = tanh(rearrange::<[batch, (heads, width)]>(y) + h);
                yield h;
            };
            x += y;
        }
        linear::<vocab>(x)
    }
}

const TOKENS: [[usize; 4]; 2] = [[3, 1, 6, 2], [0, 6, 5, 4]];

fn tokens() -> Tensor<Rank2<2, 4>, usize, Cpu> {
    Cpu::default().tensor(TOKENS)
}

#[test]
fn a_session_reads_the_memory_that_it_is_given() {
    let mut model = Cpu::default().build_module::<Translator, f64>();
    scatter(&mut model);
    let memory = tensor::<_, f64>("memory", (Const::<2>, Const::<5>, Const::<4>));
    let lens = Cpu::default().tensor([5, 3]);
    let whole: Tensor<Rank3<2, 4, 7>, f64, Cpu> =
        model.decode((tokens(), memory.clone(), lens.clone()));
    let whole = whole.array();
    let mut sessions = model.decode_sessions(memory, lens, 10).unwrap();
    for _ in 0..2 {
        for place in 0..4 {
            let results = sessions.step(&TOKENS.map(|tokens| tokens[place])).unwrap();
            for (sequence, whole) in whole.iter().enumerate() {
                assert_close(place, results.row(sequence), &whole[place], 1e-13);
            }
        }
        // Sequences begin again with their own memories and first states.
        (0..2).for_each(|sequence| sessions.reset(sequence));
    }
}

#[test]
fn a_session_of_the_whole_model_encodes_the_source_once() {
    let mut model = Cpu::default().build_module::<Translator, f64>();
    scatter(&mut model);
    let source = Cpu::default().tensor([[1, 2, 3, 4, 5, 6]]);
    let lens = Cpu::default().tensor([4]);
    let tokens = Cpu::default().tensor([TOKENS[0]]);
    let whole: Tensor<Rank3<1, 4, 7>, f64, Cpu> =
        model.forward((tokens, source.clone(), lens.clone()));
    let whole = whole.array();
    let mut session = model.session(source, lens, 10).unwrap();
    // Some tokens at once, and then one by one.
    assert_close(
        "prefill",
        session.prefill(&TOKENS[0][..2]).unwrap(),
        &whole[0][1],
        1e-13,
    );
    for place in 2..4 {
        assert_close(
            place,
            session.step(TOKENS[0][place]).unwrap(),
            &whole[0][place],
            1e-13,
        );
    }
}

#[test]
fn scans_in_a_loop_attend_in_a_session() {
    let mut model = Cpu::default().build_module::<Loops, f64>();
    scatter(&mut model);
    let memory = tensor::<_, f64>("memory", (Const::<2>, Const::<3>, Const::<4>));
    let whole: Tensor<Rank3<2, 4, 7>, f64, Cpu> = model.forward((tokens(), memory.clone()));
    let whole = whole.array();
    let mut sessions = model.sessions(memory, 4).unwrap();
    for place in 0..4 {
        let results = sessions.step(&TOKENS.map(|tokens| tokens[place])).unwrap();
        for (sequence, whole) in whole.iter().enumerate() {
            assert_close(place, results.row(sequence), &whole[place], 1e-13);
        }
    }
}
