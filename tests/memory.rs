//! The memory of a training step grows linearly with the length of a sequence: no matrix of scores is stored. A step takes the
//! stated bytes, and reuses the memory of the step before. The readers of files do not trust the sizes that a file states.

// An allocator that counts.
#![allow(unsafe_code)]

use attn::{
    __private::runtime::simd::{panel_columns, tile_columns},
    Backend, Element, attention,
    checkpoint::{
        self, Archive,
        layout::{Rule, WeightMap, save_mapped_in_shards},
    },
    dfdx::{
        optim::Adam,
        prelude::*,
        tensor::{PutTape, SplitTape},
    },
    generate::{Sessions, WeightFormat},
    memory, model, ops,
    train::{AdamW, clip_grad_norm},
};
use rayon::ThreadPoolBuilder;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs::{self, File},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

attention! {
    struct Causal<heads = 2, d_model = 128, mask = causal>;
    /// The threshold of a row requires all of its scores.
    struct Sparse<heads = 2, d_model = 128, mask = causal, normalizer = sparsemax>;
    /// A mixed score requires the scores of all heads.
    struct Talking<heads = 2, d_model = 128, mask = causal, talking_heads = both>;
    struct Additive<heads = 2, d_model = 128, score = additive(hidden = 8), mask = causal>;
    struct WithDropout<heads = 2, kv_heads = 1, d_model = 128, mask = sliding_window(500), dropout = 0.1, position = rope>;
    struct Table<heads = 2, d_model = 128, position = rel_pos_bias(32, 400), softcap = 5, normalizer = sink, mask = causal>;
    struct Padded<heads = 2, d_model = 128, mask = padding & document>;
    /// A table that is read by position.
    struct Learned<heads = 2, d_model = 128> {
        param slope: [heads] = alibi_slopes;
        param near: [heads, 65] = zeros;
        fn score(score, h, q_idx, kv_idx) {
            score - slope[h] * ((q_idx - kv_idx) as f32) + near[h, clamp(q_idx - kv_idx, 0, 64)]
        }
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx }
    }
}

model! {
    struct Gpt<vocab = 300, d_model = 128, layers = 3>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = dropout::<0.1>(embedding::<vocab, d_model>(tokens) + learned_position::<192, d_model>(tokens));
        repeat layers {
            x += attention::<heads = 4, mask = causal, dropout = 0.1>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

model! {
    struct Endless<vocab = 64, d_model = 128>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens);
        linear::<vocab>(x + attention::<heads = 4, mask = causal, position = rope>(layer_norm(x)))
    }
}

model! {
    /// All of its arrays have one size, so that free memory always fits; the statistics of norms are small.
    struct Even<vocab = 50, d_model = 256>;

    fn forward(tokens: ids[batch, seq]) -> [batch, d_model] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat 4 {
            x += gelu(linear::<d_model>(layer_norm(x))) * dropout::<0.1>(x);
        }
        mean_pool(x)
    }
}

model! {
    /// For each 512 tokens, the arrays of this and of the next model are whole [`PAGE`]s of `f64`.
    struct Decoder<vocab = 64, d_model = 64, heads = 4, layers = 3, max_len = 128>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, d_model, mask = causal>(layer_norm(x));
            x = x + feed_forward::<hidden = { 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<vocab, bias = false>(layer_norm(x))
    }
}

model! {
    struct Recurrent<vocab = 128, d = 32, hidden = 48>;

    fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
        let memory = embedding::<vocab, d>(source);
        let keys = linear::<hidden>(memory);
        let x = embedding::<vocab, d>(target);
        let y = scan t {
            state h: [batch, d] = tanh(linear::<d>(mean_pool(memory, lens)));
            let context = attend::<score = additive(hidden = hidden), mask = padding>(linear::<hidden>(h), keys, memory, padding = lens);
            h = tanh(linear::<d>(concat(x, context)) + linear::<d>(h));
            yield h;
        };
        linear::<vocab>(y)
    }
}

model! {
    struct EncoderDecoder<vocab = 64, d_model = 64, heads = 4, layers = 2>;

    fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
        let mut memory = embedding::<vocab, d_model>(source) * 8.0 + sinusoidal_position::<d_model>(source);
        repeat layers, name = encoder {
            memory = layer_norm(memory + attention::<heads, mask = padding>(memory, padding = lens));
            memory = layer_norm(memory + feed_forward::<{ 4 * d_model }, activation = relu>(memory));
        }
        let mut y = embedding::<tied = embedding>(target) * 8.0 + sinusoidal_position::<d_model>(target);
        repeat layers, name = decoder {
            y = layer_norm(y + attention::<heads, mask = causal>(y));
            y = layer_norm(y + attention::<heads, mask = padding, name = cross>(y, context = memory, padding = lens));
            y = layer_norm(y + feed_forward::<{ 4 * d_model }, activation = relu>(y));
        }
        linear::<tied = embedding>(y)
    }
}

type Ids = Tensor<(usize, usize), usize, Cpu>;
type Lens = Tensor<(usize,), usize, Cpu>;
type Sequences<T = NoneTape> = Tensor<(usize, usize, Const<128>), f32, Cpu, T>;
type Traced = Sequences<OwnedTape<f32, Cpu>>;

/// The system's allocator, with counters.
struct Counting;

/// The allocated bytes, their peak, and the largest request.
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The same in whole [`PAGE`]s of each allocation. They do not include the alignment of buffers to cache lines, vectors of
/// parameters, and the tape.
static PAGES: AtomicUsize = AtomicUsize::new(0);
static MOST_PAGES: AtomicUsize = AtomicUsize::new(0);
const PAGE: usize = 8 << 10;

/// The number of allocations.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The number of allocations of at least [`LARGE`] bytes, and the sum of their bytes.
static LARGE_COUNT: AtomicUsize = AtomicUsize::new(0);
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Smaller allocations are those of the tape and of lists of tasks.
const LARGE: usize = 64 << 10;

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        let now = NOW.fetch_add(size, Relaxed) + size;
        PEAK.fetch_max(now, Relaxed);
        let pages = PAGES.fetch_add(size / PAGE, Relaxed) + size / PAGE;
        MOST_PAGES.fetch_max(pages, Relaxed);
        LARGEST.fetch_max(size, Relaxed);
        COUNT.fetch_add(1, Relaxed);
        if size >= LARGE {
            LARGE_COUNT.fetch_add(1, Relaxed);
            LARGE_BYTES.fetch_add(size, Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        PAGES.fetch_sub(layout.size() / PAGE, Relaxed);
        // SAFETY: `pointer` came from `alloc` with this layout, and so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// All tests are counted together, so each waits for the one before it.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of a forward and a backward pass over one sequence.
#[derive(Debug)]
struct Memory {
    peak: usize,
    largest: usize,
}

fn of_one_sequence(forward: &impl Fn(Traced) -> Traced, length: usize) -> Memory {
    let x: Sequences = Cpu::default().sample_normal_like(&(1, length, Const));
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    LARGEST.store(0, Relaxed);
    let gradients = forward(x.leaky_trace()).sum().backward();
    assert_eq!(gradients.get(&x).shape().concrete(), [1, length, 128]);
    Memory {
        peak: PEAK.load(Relaxed) - before,
        largest: LARGEST.load(Relaxed),
    }
}

/// Eight times the length takes at most eight times the memory: 21 MiB and 139 MiB, where the scores of one head would be 1 GiB.
/// The slack is that the pool rounds the size of a buffer up by at most an eighth. The weights were allocated before. Their
/// gradients are counted, and do not grow.
#[test]
fn memory_is_linear_up_to_16384_tokens() {
    let _alone = alone();
    let layer = Cpu::default().build_module::<Causal, f32>();
    assert_linear(&|x| layer.forward(x), 2048);
}

/// A thread stores the scores of 48 queries: 1.5 MiB at 8,192 tokens, where those of one head would be 256 MiB.
#[test]
fn a_threshold_takes_no_more_than_a_block_of_rows() {
    let _alone = alone();
    let layer = Cpu::default().build_module::<Sparse, f32>();
    assert_linear(&|x| layer.forward(x), 1024);
}

/// A thread stores the scores and weights of all heads of some queries, about 1 MiB.
#[test]
fn heads_that_talk_take_no_more_than_a_block_of_rows() {
    let _alone = alone();
    let layer = Cpu::default().build_module::<Talking, f32>();
    assert_linear(&|x| layer.forward(x), 1024);
}

/// Scores, hidden layers of additive scores, biases and dropped weights are never stored.
#[test]
fn allocations_are_never_quadratic_in_the_length() {
    let _alone = alone();
    macro_rules! linear {
        ($($Layer:ident),*) => {$(
            let layer = Cpu::default().build_module::<$Layer, f32>();
            assert_linear(&|x| layer.forward(x), 256);
        )*};
    }
    linear!(Additive, Table, Learned);
    let mut layer = Cpu::default().build_module::<WithDropout, f32>();
    let layer = std::cell::RefCell::new(&mut layer);
    assert_linear(&|x| layer.borrow_mut().forward_mut(x), 256);
    let layer = Cpu::default().build_module::<Padded, f32>();
    let with_data = |x: Traced| {
        let (_, length, _) = *x.shape();
        let dev = Cpu::default();
        let lengths = dev.tensor_from_vec(vec![length - length / 8], (1,));
        let ids: Vec<usize> = (0..length).map(|i| i / 100).collect();
        layer.forward((x, lengths, dev.tensor_from_vec(ids, (1, length))))
    };
    assert_linear(&with_data, 256);
}

fn assert_linear(forward: &impl Fn(Traced) -> Traced, length: usize) {
    // The pool keeps no free memory, so that the bytes in use do not depend on earlier tests.
    let _nothing_kept = NothingKept::new();
    of_one_sequence(forward, 1);
    let short = of_one_sequence(forward, length);
    let long = of_one_sequence(forward, 8 * length);
    assert!(8 * long.peak <= 9 * 8 * short.peak, "{short:?}, {long:?}");
    // The largest array holds queries, keys and values: it must be smaller than the scores of one head.
    let scores = (8 * length).pow(2) * size_of::<f32>();
    assert!(
        long.largest < scores,
        "{long:?}, one matrix of scores: {scores}"
    );
}

/// The numbers and bytes of large allocations in each of some training steps on the same input.
fn large_allocations(steps: usize, x: &Sequences) -> Vec<[usize; 2]> {
    let mut layer = Cpu::default().build_module::<Causal, f32>();
    let mut optimizer = Adam::new(&layer, AdamConfig::default());
    let mut gradients = layer.alloc_grads();
    let mut counts = Vec::new();
    for _ in 0..steps {
        LARGE_COUNT.store(0, Relaxed);
        LARGE_BYTES.store(0, Relaxed);
        let y = layer.forward(x.trace(gradients));
        gradients = y.sum().backward();
        let updated = optimizer.update(&mut layer, &gradients);
        updated.expect("every parameter has a gradient");
        layer.zero_grads(&mut gradients);
        counts.push([LARGE_COUNT.load(Relaxed), LARGE_BYTES.load(Relaxed)]);
    }
    counts
}

/// A step allocates three tensors of dfdx, each of the size of the input: the output, its gradient, which the sum makes, and the
/// gradient of the input. The sum and its gradient are single numbers. The gradients of the parameters and the moments of the
/// optimizer are kept between steps, and it changes the parameters in place.
#[test]
fn steady_steps_reuse_the_memory_of_the_step_before() {
    let _alone = alone();
    // The scratch memory of several threads differs from step to step.
    let thread = ThreadPoolBuilder::new().num_threads(1).build();
    let thread = thread.expect("a thread can be started");
    let counts = thread.install(|| {
        // A weight has another size.
        let x = Cpu::default().sample_normal_like(&(2, 384, Const));
        large_allocations(8, &x)
    });
    let tensor = 2 * 384 * 128 * size_of::<f32>();
    assert_eq!(counts[3..], [[3, 3 * tensor]; 5], "{counts:?}");
}

/// Forward, loss, backward, clipping and AdamW of a declared network. Two tensors are dfdx's, the logits and their gradient. All
/// other memory was freed by the step before.
#[test]
fn steady_steps_of_a_network_allocate_its_output_and_the_gradient_of_that() {
    let _alone = alone();
    let thread = ThreadPoolBuilder::new().num_threads(1).build();
    let thread = thread.expect("a thread can be started");
    let batch = 4;
    let length = 192;
    let vocab = 300;
    let counts = thread.install(|| {
        let dev = Cpu::default();
        let mut gpt = dev.build_module::<Gpt, f32>();
        let ids: Vec<usize> = (0..batch * length).map(|i| (i * i + 7) % vocab).collect();
        let ids: Tensor<(usize, usize), usize, _> = dev.tensor_from_vec(ids, (batch, length));
        let mut optimizer = AdamW::new(Default::default());
        let mut gradients = Some(gpt.alloc_grads());
        let step = || {
            LARGE_COUNT.store(0, Relaxed);
            LARGE_BYTES.store(0, Relaxed);
            let traced = ids
                .clone()
                .traced(gradients.take().expect("those of the last step"));
            let loss = ops::cross_entropy(gpt.forward_mut(traced), &ids, Default::default());
            let mut done = loss.backward();
            clip_grad_norm(&gpt, &mut done, 1e-3).expect("every parameter has a gradient");
            let updated = optimizer.update(&mut gpt, &mut done);
            updated.expect("every parameter has a gradient");
            gpt.zero_grads(&mut done);
            gradients = Some(done);
            [LARGE_COUNT.load(Relaxed), LARGE_BYTES.load(Relaxed)]
        };
        std::iter::repeat_with(step).take(8).collect::<Vec<_>>()
    });
    let logits = batch * length * vocab * size_of::<f32>();
    assert_eq!(counts[4..], [[2, 2 * logits]; 4], "{counts:?}");
}

/// In a first step with one thread, the allocated bytes are those of `activation_bytes`, plus the copies of the parameters, and
/// less than 1.5 MiB more: scratch memory of kernels, half a MiB of it packed inputs, lists of indices, and alignment. The size classes of the pool waste nothing
/// here: every array but the small ones has 5/8 of a power of two numbers, which is a class, and reuses the memory of any earlier
/// array.
#[test]
fn first_steps_allocate_the_stated_bytes() {
    let _alone = alone();
    let thread = ThreadPoolBuilder::new().num_threads(1).build();
    let thread = thread.expect("a thread can be started");
    let batch = 16;
    let length = 160;
    let taken = thread.install(|| {
        // `gemm` keeps a block of the size of a cache for each thread.
        even_step::<f32>(batch, length);
        // No other test uses the pool of `f64`: it is empty.
        even_step::<f64>(batch, length)
    });
    let activations = 2 * Even::activation_bytes(batch, length);
    let expected = activations + Even::PARAMS * size_of::<f64>();
    let others = taken.checked_sub(expected);
    assert!(
        others.is_some_and(|others| others < 3 << 19),
        "{taken} bytes, not {expected}"
    );
}

/// The system is asked for one array after the other: whether it has the memory of a whole pass, only from 1 GiB on.
#[test]
fn passes_of_normal_size_are_not_asked_for_as_a_whole() {
    let _alone = alone();
    let _nothing_kept = NothingKept::new();
    let (batch, length) = (16, 160);
    // The pool gives back what it has of other tests.
    even_step::<f32>(1, 1);
    LARGEST.store(0, Relaxed);
    even_step::<f32>(batch, length);
    let largest = LARGEST.load(Relaxed);
    let pass = Even::activation_bytes(batch, length);
    assert!(largest < pass / 4, "{largest} of {pass} bytes");
}

/// The peak bytes of a forward and a backward pass of [`Even`], without those of its parameters and their gradients.
fn even_step<E: Element>(batch: usize, length: usize) -> usize
where
    Cpu: Backend<E>,
{
    let dev = Cpu::default();
    let mut model = dev.build_module::<Even, E>();
    let ids: Tensor<(usize, usize), usize, _> = dev.zeros_like(&(batch, length));
    let traced = ids.traced(model.alloc_grads());
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let (y, tape) = model.forward_mut(traced).split_tape();
    // A loss keeps it in the same way, because it reads it again.
    let held = y.clone();
    let gradients = y.put_tape(tape).sum().backward();
    drop((held, gradients));
    PEAK.load(Relaxed) - before
}

/// Networks with attentions allocate the stated bytes, too. In addition there are the copies of the parameters, the gathered tokens, and at
/// most 1 MiB for any batch: the part of both sides that a product packs at a time, 600 KiB of columns and 48 rows of 512 depths. With the widest vectors
/// the products at the peak pack nothing, and each page is counted. The pool keeps no free memory.
#[test]
fn steps_with_attentions_allocate_the_stated_bytes() {
    let _alone = alone();
    let thread = ThreadPoolBuilder::new().num_threads(1).build();
    let thread = thread.expect("a thread can be started");
    let _limit = NothingKept::new();
    thread.install(|| {
        let dev = Cpu::default();
        let ids = |shape: (usize, usize)| -> Tensor<_, usize, _> { dev.zeros_like(&shape) };
        let list = |tokens: usize| tokens * size_of::<usize>() / PAGE;
        let most_packed = match tile_columns::<f64>() == panel_columns::<f64>() {
            true => 0,
            false => (1 << 20) / PAGE,
        };
        let check = |taken: usize, expected: usize, sizes: String| {
            let packed = taken.checked_sub(expected);
            assert!(
                packed.is_some_and(|pages| pages <= most_packed),
                "{sizes}: {taken} pages, not {expected}"
            );
        };
        // `gemm` keeps a block of the size of a cache for each thread.
        most_pages::<Decoder, _>(|gpt, gradients| gpt.forward_mut(ids((4, 128)).traced(gradients)));
        for (batch, length) in [(4, 128), (8, 128), (16, 64), (16, 128)] {
            let taken = most_pages::<Decoder, _>(|gpt, gradients| {
                gpt.forward_mut(ids((batch, length)).traced(gradients))
            });
            let parameters = arena(Decoder::PARAMS);
            let promised = 2 * Decoder::activation_bytes(batch, length) / PAGE;
            let tokens = batch * length;
            let expected = promised + parameters + list(tokens);
            check(taken, expected, format!("[{batch}, {length}]"));
        }
        for (batch, source, target) in [(4, 128, 128), (8, 64, 128), (8, 128, 64)] {
            let taken = most_pages::<EncoderDecoder, _>(|model, gradients| {
                let lens: Tensor<_, usize, _> = dev.ones_like(&(batch,));
                let sequences = ids((batch, source)).traced(gradients);
                model.forward_mut((sequences, ids((batch, target)), lens))
            });
            let parameters = arena(EncoderDecoder::PARAMS);
            let promised = 2 * EncoderDecoder::activation_bytes(batch, source, target) / PAGE;
            let [sources, targets] = [batch * source, batch * target];
            let expected = promised + parameters + list(sources) + list(targets);
            check(taken, expected, format!("[{batch}, {source}, {target}]"));
        }
    });
}

/// Disables the free memory of the pool while it exists.
struct NothingKept;

impl NothingKept {
    fn new() -> Self {
        memory::keep_at_most(0);
        Self
    }
}

impl Drop for NothingKept {
    fn drop(&mut self) {
        memory::keep_at_most(usize::MAX);
    }
}

/// The pages of the copies of so many parameters: one buffer, with its alignment to a cache line.
fn arena(parameters: usize) -> usize {
    (parameters * size_of::<f64>() + 64) / PAGE
}

/// The peak pages of a forward and a backward pass, without those of the parameters and their gradients.
fn most_pages<M: BuildOnDevice<Cpu, f64>, S: Shape>(
    forward: impl FnOnce(&mut M::Built, Gradients<f64, Cpu>) -> Tensor<S, f64, Cpu, OwnedTape<f64, Cpu>>,
) -> usize
where
    M::Built: ZeroGrads<f64, Cpu>,
{
    let mut model = Cpu::default().build_module::<M, f64>();
    let gradients = model.alloc_grads();
    let before = PAGES.load(Relaxed);
    MOST_PAGES.store(before, Relaxed);
    let (y, tape) = forward(&mut model, gradients).split_tape();
    // A loss keeps it in the same way, because it reads it again.
    let held = y.clone();
    let gradients = y.put_tape(tape).sum().backward();
    drop((held, gradients));
    MOST_PAGES.load(Relaxed) - before
}

/// How often something allocates: the least of three times, as the harness, which reports the test before this one, may allocate in one of them.
fn fewest_allocations(mut run: impl FnMut()) -> usize {
    let counts = (0..3).map(|_| {
        let before = COUNT.load(Relaxed);
        run();
        COUNT.load(Relaxed) - before
    });
    counts.min().unwrap_or_default()
}

/// Its arrays come from the pool, and short lists of tasks are on the stack.
#[test]
fn tokens_of_a_session_allocate_nothing() {
    let _alone = alone();
    for threads in [1, 2] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.expect("threads can be started");
        pool.install(|| {
            let gpt = Cpu::default().build_module::<Gpt, f32>();
            for format in [None, Some(WeightFormat::Int8), Some(WeightFormat::Bf16)] {
                let mut session = gpt.session(192).expect("it is as long as the model");
                if let Some(format) = format {
                    session = session.weights(format).expect("it has no fork");
                }
                session.prefill(&[3; 100]).expect("there is room");
                let mut steps = |count: usize| {
                    for token in 0..count {
                        session.step(token).expect("there is room");
                    }
                };
                // Sizes that were not used before.
                steps(20);
                let asked = fewest_allocations(|| steps(20));
                assert_eq!(asked, 0, "{format:?} with {threads} threads");
            }
        });
    }
}

/// Keys and values are shared: of a session that has read many tokens a fork takes no more than of one that has read few, and its first token
/// copies a page of each cache.
#[test]
fn a_fork_of_a_session_takes_less_than_a_page_for_any_number_of_tokens() {
    let _alone = alone();
    let model = Cpu::default().build_module::<Endless, f32>();
    // The tokens of a page, and keys and values of 128 numbers.
    let page = 512 * 128 * size_of::<f32>();
    let prompt: Vec<usize> = (0..4000).map(|i| i % 64).collect();
    for len in [10, 600, 4000] {
        let mut session = model.session(5000).expect("there is memory");
        session.prefill(&prompt[..len]).expect("there is room");
        // The arrays of a step stay in the pool.
        session.fork().step(1).expect("there is room");
        let before = NOW.load(Relaxed);
        let mut fork = session.fork();
        let forked = NOW.load(Relaxed) - before;
        fork.step(1).expect("there is room");
        let written = NOW.load(Relaxed) - before;
        assert!(forked < page / 2, "{forked} bytes after {len} tokens");
        // A page of keys and one of values.
        assert!(
            (2 * page..3 * page).contains(&written),
            "{written} bytes after {len} tokens"
        );
    }
}

/// Asserts that tokens of sessions with a memory allocate nothing.
fn assert_tokens_allocate_nothing(start: impl Fn(Ids, Lens) -> Sessions<f32> + Sync) {
    let _alone = alone();
    for threads in [1, 2] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.expect("threads can be started");
        pool.install(|| {
            let dev = Cpu::default();
            let source = dev.tensor_from_vec(vec![3; 2 * 150], (2, 150));
            let mut sessions = start(source, dev.tensor_from_vec(vec![150, 90], (2,)));
            let mut steps = |count: usize| {
                for token in 0..count {
                    sessions.step(&[token, token + 1]).expect("there is room");
                }
            };
            // Sizes that were not used before.
            steps(20);
            let asked = fewest_allocations(|| steps(20));
            assert_eq!(asked, 0, "with {threads} threads");
        });
    }
}

/// The keys and values of a memory are there when a session starts.
#[test]
fn tokens_of_a_decoder_with_a_memory_allocate_nothing() {
    assert_tokens_allocate_nothing(|source, lens| {
        let model = Cpu::default().build_module::<EncoderDecoder, f32>();
        let sessions = model.sessions(source, lens, 100);
        sessions.expect("there is memory")
    });
}

/// A step of a scan is a sequence of one token to the attention in it.
#[test]
fn tokens_of_a_scan_that_attends_to_a_memory_allocate_nothing() {
    assert_tokens_allocate_nothing(|source, lens| {
        let model = Cpu::default().build_module::<Recurrent, f32>();
        let sessions = model.sessions(source, lens, 100);
        sessions.expect("there is memory")
    });
}

/// The system gives the pages of a block when they are written, so sequences that are not there yet take no time.
#[test]
fn the_memory_of_many_sequences_is_asked_for_as_often_as_that_of_few() {
    let _alone = alone();
    let gpt = Cpu::default().build_module::<Gpt, f32>();
    let asked = |sequences| {
        fewest_allocations(|| drop(gpt.sessions(sequences, 192).expect("there is memory")))
    };
    // Sizes that were not asked for before.
    asked(1);
    assert_eq!(asked(2), asked(500));
}

/// Headers that claim more than there is, and a file of 1 GiB that is what its header says but not the model: what that takes
/// in memory are a few names, and the text of an error.
#[test]
fn files_with_false_sizes_are_rejected_in_little_memory() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a place for files");
    let path = folder.path().join("model.safetensors");
    let tensor = |bytes: u64| {
        format!("{{\"w\":{{\"dtype\":\"U8\",\"shape\":[{bytes}],\"data_offsets\":[0,{bytes}]}}}}")
    };
    let small = tensor(8);
    let large = tensor(1 << 30);
    let files = [
        (90_000_000, small.as_str(), 8),
        (large.len(), &large, 8),
        (large.len(), &large, 1 << 30),
    ];
    let mut model = Cpu::default().build_module::<Linear<2, 2>, f32>();
    for (length, header, data) in files {
        let start = [&length.to_le_bytes()[..], header.as_bytes()].concat();
        fs::write(&path, &start).expect("a file is written");
        let file = File::options().write(true).open(&path);
        // The bytes after the start are a hole, which takes no space on the disk.
        file.and_then(|file| file.set_len(start.len() as u64 + data))
            .expect("a file can have holes");
        let before = NOW.load(Relaxed);
        PEAK.store(before, Relaxed);
        checkpoint::load(&mut model, &path, Default::default()).expect_err("it is not the model");
        let peak = PEAK.load(Relaxed) - before;
        assert!(peak < 16 << 10, "{peak} bytes for {header}");
    }
}

/// A model of 6 MiB is loaded with the numbers of one matrix beside it, of 1 MiB, and as many bytes that were read.
#[test]
fn files_are_loaded_a_tensor_at_a_time() {
    type Layers = Repeated<Linear<512, 512>, 6>;
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a place for files");
    let mut model = Cpu::default().build_module::<Layers, f32>();
    let map = WeightMap::new([Rule::new("*", "layers.*")]);
    for most in [u64::MAX, 2 << 20] {
        let folder = folder.path().join(most.to_string());
        save_mapped_in_shards(&model, &map, &folder, most).expect("it is saved");
        let archive = Archive::open(&folder).expect("files");
        let before = NOW.load(Relaxed);
        PEAK.store(before, Relaxed);
        let loaded = archive.load_mapped(&mut model, &map, Default::default());
        loaded.expect("it loads");
        let peak = PEAK.load(Relaxed) - before;
        assert!(peak < 5 << 19, "{peak} bytes");
    }
}
