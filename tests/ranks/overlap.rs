//! Gradients are exchanged while others are computed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use attn::{
    dfdx::prelude::*,
    model,
    train::{
        AdamWConfig, Call, Collective, CollectiveError, Message, Outgoing, Pending, Threads,
        TrainBatch, Trainer,
    },
};

use super::training::*;

model! {
    /// Loops that are tied, to one in a scan too, share one set of parameters, or stand in another one, and layers around them.
    pub struct Loops<vocab = 11, d_model = 4>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = linear::<d_model>(embedding::<vocab, 8>(tokens));
        x = scan seq {
            state h: [batch, d_model] = 0.0;
            let mut z = x + h;
            repeat 2, name = cell { z = tanh(linear::<d_model>(z)); }
            h = z;
            yield h;
        };
        repeat 2, tied = cell { x = tanh(linear::<d_model>(x)); }
        repeat 3, name = first { x = x + gelu(linear::<d_model>(x)); }
        repeat 2, share = true { x = x + feed_forward::<hidden = 6>(layer_norm(x)); }
        repeat 2 {
            let mut h = x;
            repeat 2 { h = rms_norm(h + silu(linear::<d_model>(h))); }
            x = x + linear::<d_model>(h);
        }
        repeat 3, tied = first { x = x + gelu(linear::<d_model>(x)); }
        linear::<vocab>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

impl Model<f64> for Loops<f64, Cpu> {
    fn with_seed(seed: u64) -> Self {
        Cpu::seed_from_u64(seed).build_module::<Loops, f64>()
    }
}

/// A rank that counts how many operations are under way at once.
struct Counting {
    ranks: Threads,
    under_way: usize,
    most: Arc<AtomicUsize>,
}

impl Collective for Counting {
    fn rank(&self) -> usize {
        self.ranks.rank()
    }

    fn ranks(&self) -> usize {
        self.ranks.ranks()
    }

    fn begin(&mut self, call: Call, send: Outgoing) -> Result<Pending, CollectiveError> {
        self.under_way += 1;
        self.most.fetch_max(self.under_way, Ordering::Relaxed);
        self.ranks.begin(call, send)
    }

    fn wait(&mut self, pending: Pending) -> Result<Vec<Message>, CollectiveError> {
        self.under_way -= 1;
        self.ranks.wait(pending)
    }

    fn fail(&mut self, reason: &str) {
        self.ranks.fail(reason);
    }

    fn bytes_sent(&self) -> u64 {
        self.ranks.bytes_sent()
    }

    fn waited(&self) -> Duration {
        self.ranks.waited()
    }
}

/// Some steps of as many batches on each rank, with the parameters behind each.
fn run<M: Model<f64> + Send>(
    ranks: usize,
    batches: usize,
    how: How,
    make: impl Fn(M) -> Trainer<M, AdamWConfig> + Sync,
    parameters: impl Fn(&M) -> Vec<f64> + Sync,
) -> Vec<Steps>
where
    Batch: TrainBatch<M>,
{
    let all = Threads::run(ranks, |rank| {
        let mut trainer = make(M::with_seed(1)).across(rank);
        steps_in_a_way(&mut trainer, batches, how, &parameters).unwrap()
    });
    all.into_iter().map(Result::unwrap).collect()
}

/// Every parameter is a bucket of its own, so every order of them shows.
fn check<M: Model<f64> + Send>(
    make: impl Fn(M) -> Trainer<M, AdamWConfig> + Sync,
    parameters: impl Fn(&M) -> Vec<f64> + Sync,
) where
    Batch: TrainBatch<M>,
{
    let in_many = |model| make(model).bucket_bytes(1);
    for ranks in [2, 3] {
        for batches in [1, 3] {
            let expected = run(ranks, batches, How::Late, &make, &parameters);
            let found = run(ranks, batches, How::Early, in_many, &parameters);
            assert!(expected[0][0] != expected[0][5]);
            assert_eq!(found, expected, "{ranks} ranks, {batches} batches");
        }
    }
}

fn gpt(model: Gpt<f64, Cpu>) -> Trainer<Gpt<f64, Cpu>, AdamWConfig> {
    model.trainer(AdamWConfig::default())
}

#[test]
fn with_tied_tables() {
    check(gpt, of_gpt);
}

#[test]
fn with_frozen_blocks() {
    for pattern in ["blocks.0.*", "blocks.1.*", "embedding.*"] {
        check(|model| gpt(model).freeze(pattern), of_gpt);
    }
    check(
        |model| gpt(model).freeze("*").unfreeze("blocks.1.*"),
        of_gpt,
    );
}

#[test]
fn with_clones() {
    let clone = |mut model: Gpt<f64, Cpu>| {
        let [first, second] = &mut model.blocks.modules[..] else {
            panic!("two blocks")
        };
        second.layer_norm.weight = first.layer_norm.weight.clone();
        first.layer_norm_2.bias = second.layer_norm.bias.clone();
        gpt(model)
    };
    check(clone, of_gpt);
}

#[test]
fn with_loops_of_all_kinds() {
    let of_loops = |model: &Loops<f64, Cpu>| {
        let rounds = model.first.modules.iter().map(|round| &round.linear);
        let cells = model.cell.modules.iter().map(|round| &round.linear);
        let rounds = rounds.chain(cells).flat_map(|of| of.weight.as_vec());
        model
            .embedding
            .weight
            .as_vec()
            .into_iter()
            .chain(rounds)
            .collect()
    };
    check(
        |model: Loops<f64, Cpu>| model.trainer(AdamWConfig::default()),
        of_loops,
    );
}

#[test]
fn gradients_are_on_their_way_before_the_backward_pass_ends() {
    let most = |how: How, bucket: usize| {
        let most = Threads::run(2, |ranks| {
            let most = Arc::new(AtomicUsize::new(0));
            let ranks = Counting {
                ranks,
                under_way: 0,
                most: Arc::clone(&most),
            };
            let model = Loops::<f64, Cpu>::with_seed(1);
            let trainer = model.trainer(AdamWConfig::default()).across(ranks);
            let mut trainer = trainer.bucket_bytes(bucket);
            match how {
                How::Early => trainer.step(batch(0, 0..2)).map(drop).unwrap(),
                How::Late => {
                    trainer.accumulate(batch(0, 0..2)).unwrap();
                    trainer.apply().map(drop).unwrap();
                }
            }
            most.load(Ordering::Relaxed)
        });
        most.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(most(How::Late, 1), [2, 2]);
    assert_eq!(most(How::Early, 1 << 20), [1, 1]);
    // All parameters but those of the first layers, which the loops before them are tied to.
    let early = most(How::Early, 1);
    assert!(early.iter().all(|most| *most > 10), "{early:?}");
}
