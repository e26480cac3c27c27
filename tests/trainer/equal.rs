//! Twenty steps are those of dfdx's tape, `clip_grad_norm` and the optimizer.

use attn::train::{
    AdafactorConfig, AdamWConfig, LionConfig, MuonConfig, ScheduleFreeConfig, SgdConfig,
};

use super::*;

/// Sums of gradients may be in another order: of a tied table, and of packed projections.
const SUMS: f64 = 1e-12;

fn same_steps<M: Model, A: Algorithm + Clone>(algorithm: A, clip: Option<f64>) {
    let (expected, model) = by_hand(M::scattered(), algorithm.clone(), clip, 20);
    let mut trainer = M::scattered().trainer_of(algorithm);
    if let Some(clip) = clip {
        trainer = trainer.clip(clip);
    }
    let found = trained(&mut trainer, 0..20);
    assert_close(
        "losses and norms",
        &found.concat(),
        &expected.concat(),
        SUMS,
    );
    let begin = parameters(&M::scattered());
    assert!(parameters(trainer.model()) != begin, "the model learns");
    assert_same(&parameters(trainer.model()), &parameters(&model), SUMS);
    assert_same(
        &parameters(&trainer.into_model()),
        &parameters(&model),
        SUMS,
    );
}

/// The method is emitted for each model, so it has no trait.
trait OfModel: Model {
    fn trainer_of<A: Algorithm>(self, algorithm: A) -> Trainer<Self, A> {
        Trainer::new(self, algorithm)
    }
}

impl<M: Model> OfModel for M {}

fn adamw() -> AdamWConfig {
    AdamWConfig {
        lr: 0.01,
        weight_decay: 0.1,
        ..Default::default()
    }
}

#[test]
fn a_language_model() {
    same_steps::<Gpt<f64, Cpu>, _>(adamw(), Some(0.5));
}

model! {
    /// A convolution, norms, learned positions and a scan.
    struct Layers<d = 6>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, 3] {
        let x = rms_norm(x) + learned_position::<8, d>(x);
        let x = gelu(conv1d::<seq, d, kernel = 3, padding = same>(x));
        let y = scan seq {
            state h: [batch, d] = 0.0;
            h = tanh(linear::<d>(x) + linear::<d, bias = false>(h));
            yield h;
        };
        linear::<3>(layer_norm(y))
    }

    fn loss(x: [batch, seq, d], target: [batch, seq, 3]) -> [] {
        mean::<[batch, seq, 3]>(pow(forward(x) - target, 2))
    }
}

model_of_test!(
    Layers,
    |number| (numbers("x", number), numbers("target", number))
        as (
            Tensor<Rank3<2, 5, 6>, f64, Cpu>,
            Tensor<Rank3<2, 5, 3>, f64, Cpu>
        )
);

#[test]
fn convolutions_norms_positions_and_scans() {
    same_steps::<Layers<f64, Cpu>, _>(adamw(), None);
}

model! {
    /// Maps by group, and parameters by name, in rounds with their own and with shared ones.
    struct Experts<d = 4>;

    fn forward(x: [batch, d], group: ids[batch]) -> [batch, d] {
        param scale: [d] = ones;
        let mut x = x;
        repeat 2 {
            x = x + tanh(grouped_linear::<d, groups = 3>(x, group));
        }
        repeat 2, share = true, name = shared {
            x = x + linear::<d>(l2_norm(x));
        }
        x * scale
    }

    fn loss(x: [batch, d], group: ids[batch]) -> [] {
        mean::<[batch, d]>(pow(forward(x, group) - 1, 2))
    }
}

model_of_test!(Experts, |number| (
    numbers("x", number),
    support::cases::ids(Default::default(), 3)
)
    as (Tensor<Rank2<5, 4>, f64, Cpu>, Tensor<Rank1<5>, usize, Cpu>));

#[test]
fn maps_by_group_in_repeats() {
    same_steps::<Experts<f64, Cpu>, _>(adamw(), Some(0.1));
}

model! {
    /// Attention as an operation, with its weights in the loss, and a mixture of the two best of three experts, with its balance.
    struct Mixture<d = 4, experts = 3>;

    block mixture(x: [.., n]) -> { y: [.., n], balance: [] } {
        let chances = softmax(linear::<experts, bias = false, name = router>(x));
        let (chance, ids) = top_k::<experts, k = 2>(chances);
        let y = sum::<2>(chance * grouped_linear::<n, groups = experts, name = expert>(x, ids));
        let chosen = sum::<2>(one_hot::<experts>(ids));
        { y, balance: sum::<experts>(mean::<..>(chosen) * mean::<..>(chances)) }
    }

    fn forward(x: [batch, seq, d]) -> { y: [batch, seq, d], balance: [], spread: [] } {
        let (q, k, v) = split(linear::<{ 3 * d }>(x));
        let (attended, weights) = attend::<mask = causal>(q, k, v);
        let { y, balance } = mixture(rms_norm(x + attended));
        { y, balance, spread: mean::<[batch, seq, kv]>(weights * weights) }
    }

    fn loss(x: [batch, seq, d], target: [batch, seq, d]) -> [] {
        let { y, balance, spread } = forward(x);
        mean::<[batch, seq, d]>(pow(y - target, 2)) + 0.3 * balance + 0.5 * spread
    }
}

model_of_test!(
    Mixture,
    |number| (numbers("x", number), numbers("target", number))
        as (
            Tensor<Rank3<2, 5, 4>, f64, Cpu>,
            Tensor<Rank3<2, 5, 4>, f64, Cpu>
        )
);

#[test]
fn attention_as_an_operation_experts_and_auxiliary_losses() {
    same_steps::<Mixture<f64, Cpu>, _>(adamw(), Some(0.5));
}

#[test]
fn elementwise_algorithms() {
    same_steps::<Experts<f64, Cpu>, _>(
        SgdConfig {
            lr: 0.05,
            momentum: 0.9,
            ..Default::default()
        },
        Some(0.1),
    );
    same_steps::<Experts<f64, Cpu>, _>(LionConfig::default(), Some(0.1));
    same_steps::<Experts<f64, Cpu>, _>(ScheduleFreeConfig::default(), Some(0.1));
}

#[test]
fn algorithms_of_matrices() {
    same_steps::<Experts<f64, Cpu>, _>(AdafactorConfig::default(), Some(0.1));
    same_steps::<Experts<f64, Cpu>, _>(MuonConfig::default(), Some(0.1));
}

/// No sum of this model has another order, so elementwise algorithms have the same bits.
#[test]
fn elementwise_steps_have_the_bits_of_the_optimizer() {
    let (expected, model) = by_hand(Experts::scattered(), adamw(), None, 5);
    let mut trainer = Experts::scattered().trainer(adamw());
    assert_eq!(trained(&mut trainer, 0..5), expected);
    assert_eq!(parameters(trainer.model()), parameters(&model));
}
