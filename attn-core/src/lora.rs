//! What is known of the low-rank adapters of a model without running it.

/// The adapters that the header of a model declares: `lora(rank = 8, alpha = 16, on = ["q_proj", "v_proj"])`.
///
/// Each chosen linear layer computes `W x + b + scale · B A dropout(x)` (Hu et al. 2021, [LoRA](https://arxiv.org/abs/2106.09685), section
/// 4.1), with `A` of `[rank, in]` and `B` of `[out, rank]`.
///
/// PEFT: `LoraConfig`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(alias("LoraConfig", "peft"))]
pub struct Lora {
    /// The rows of `A`, which are the columns of `B`. PEFT: `r`.
    #[doc(alias = "r")]
    pub rank: usize,
    /// The numerator of the scale. PEFT: `lora_alpha`.
    #[doc(alias = "lora_alpha")]
    pub alpha: f64,
    /// The probability of the dropout in front of `A`. PEFT: `lora_dropout`.
    #[doc(alias = "lora_dropout")]
    pub dropout: f64,
    /// Whether the scale is `alpha / sqrt(rank)` (Kalajdzievski 2023, [rsLoRA](https://arxiv.org/abs/2312.03732)). PEFT: `use_rslora`.
    #[doc(alias = "use_rslora")]
    pub rslora: bool,
}

impl Lora {
    /// The factor of `B A x`: `alpha / rank`, or `alpha / sqrt(rank)` of rsLoRA. PEFT: `scaling`.
    #[doc(alias = "scaling")]
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }
}

/// A model whose header declares [adapters](Lora).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no adapters",
    note = "a model has them whose header declares them: `struct Net<width = 64, lora(rank = 8, on = [\"q_proj\"])>;`"
)]
pub trait Adapted {
    /// The adapters, as declared.
    const LORA: Lora;
}

/// The ends of the names of adapters.
pub(crate) const ENDS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// The name of the layer whose adapter has this name.
pub(crate) fn adapted_layer(name: &str) -> Option<&str> {
    ENDS.iter().find_map(|end| name.strip_suffix(end))
}
