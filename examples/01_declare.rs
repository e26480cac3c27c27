//! Lesson 1: declare an attention layer, look at it, run it, train it for a step, save it.
//!
//! ```text
//! cargo run --release --example 01_declare
//! ```

use anyhow::{Result, anyhow};
use attn::attention;
use dfdx::{optim::Adam, prelude::*};

// The whole layer. What is not said has the usual default: head_dim = d_model / heads, scaled dot
// products, softmax, biases. Here two heads of keys and values serve eight heads of queries.
attention! {
    /// Each position attends to itself and to those before it.
    struct SelfAttention<heads = 8, kv_heads = 2, d_model = 64, mask = causal>;
}

// A declared layer is a dfdx module like any other, so it fits into dfdx's models.
type Block = Residual<(LayerNorm1D<64>, SelfAttention)>;

fn main() -> Result<()> {
    let device = Cpu::seed_from_u64(1);

    // 1. What was declared, known while the program is compiled.
    const { assert!(SelfAttention::<f32, Cpu>::PARAMS < 11_000) };
    type Layer = SelfAttention<f32, Cpu>;
    println!(
        "heads {}, of keys and values {}",
        Layer::HEADS,
        Layer::KV_HEADS
    );
    println!(
        "numbers per position {}, per head {}",
        Layer::D_MODEL,
        Layer::HEAD_DIM
    );
    println!("parameters {}", Layer::PARAMS);
    println!(
        "multiplications and additions for 4 × 100 positions {}",
        Layer::flops(4, 100, 100)
    );

    // 2. Run it. Batch and length may change from call to call (`usize`), or be fixed (`Const`).
    //    The width may not: put `Const::<63>` here and the compiler says what the layer takes.
    let layer = device.build_module::<SelfAttention, f32>();
    let batch = device.sample_like(&(4, 10, Const::<64>), rand_distr::StandardNormal);
    println!(
        "\na batch {:?} becomes {:?}",
        batch.shape(),
        layer.forward(batch.clone()).shape()
    );
    let single: Tensor<Rank2<7, 64>, f32, _> = device.sample_normal();
    println!(
        "one sequence {:?} becomes {:?}",
        single.shape(),
        layer.forward(single.clone()).shape()
    );
    let (_, weights) = layer.forward_with_weights(batch.clone());
    println!(
        "its weights are [batch, heads, query, key]: {:?}",
        weights.shape()
    );

    // 3. Train it for one step, as any dfdx module: here it learns to give back its input.
    let mut block = device.build_module::<Block, f32>();
    let mut optimizer = Adam::new(
        &block,
        AdamConfig {
            lr: 1e-2,
            ..Default::default()
        },
    );
    let gradients = block.alloc_grads();
    let before = mse_loss(block.forward(batch.trace(gradients)), batch.clone());
    let loss = before.array();
    let gradients = before.backward();
    optimizer.update(&mut block, &gradients)?;
    let after = mse_loss(block.forward(batch.clone()), batch.clone()).array();
    println!("\nloss before one step {loss:.4}, after it {after:.4}");

    // 4. Save it and load it. The names in the file are those of the fields.
    let file = tempfile::NamedTempFile::new()?;
    layer.save_safetensors(file.path())?;
    let mut twin = device.build_module::<SelfAttention, f32>();
    twin.load_safetensors(file.path())
        .map_err(|e| anyhow!("{e:?}"))?;
    assert_eq!(
        twin.forward(batch.clone()).as_vec(),
        layer.forward(batch).as_vec()
    );
    println!("\nsaved and loaded:");
    Layer::iter_tensors(&mut RecursiveWalker {
        m: (&layer, String::new()),
        f: &mut PrintNames,
    })?;
    Ok(())
}

/// Prints each tensor of a module with its name: a visitor, as dfdx's own saving is one.
struct PrintNames;

impl TensorVisitor<f32, Cpu> for PrintNames {
    type Viewer = (ViewTensorRef, ViewTensorName);
    type Err = CpuError;
    type E2 = f32;
    type D2 = Cpu;

    fn visit<S: Shape>(
        &mut self,
        _: TensorOptions<S, f32, Cpu>,
        (tensor, name): (&Tensor<S, f32, Cpu>, String),
    ) -> Result<Option<Tensor<S, f32, Cpu>>, CpuError> {
        println!("  {name:<14} {:?}", tensor.shape().concrete());
        Ok(None)
    }
}
