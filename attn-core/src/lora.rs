//! The low-rank adapters of a model, as constants.

/// The adapters that the header of a model declares: `lora(rank = 8, alpha = 16, on = ["q_proj", "v_proj"], save = ["head"])`.
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
    /// The names of the layers that are trained whole and saved beside the adapters, such as a new head, with a `*` for each round of a loop.
    /// PEFT: `modules_to_save`.
    #[doc(alias = "modules_to_save")]
    pub save: &'static [&'static str],
}

impl Lora {
    /// The factor of `B A x`: `alpha / rank`, or `alpha / sqrt(rank)` of rsLoRA. PEFT: `scaling`.
    #[doc(alias = "scaling")]
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    /// Whether a parameter of this name is trained: it is an adapter, or of a layer that is [trained whole](Self::save).
    pub fn trains(&self, name: &str) -> bool {
        adapted_layer(name).is_some() || is_of(self.save, name)
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

/// Whether a parameter of this name is of one of these layers.
pub(crate) fn is_of(layers: &[&str], name: &str) -> bool {
    layers.iter().any(|layer| {
        let mut parts = name.split('.');
        let mut fits = layer.split('.').zip(&mut parts);
        fits.all(|(layer, part)| layer == "*" || layer == part) && parts.next().is_some()
    })
}

/// The ends of the names of adapters.
pub(crate) const ENDS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// The name of the layer whose adapter has this name.
pub(crate) fn adapted_layer(name: &str) -> Option<&str> {
    ENDS.iter().find_map(|end| name.strip_suffix(end))
}
