//! Lesson 1: declare an attention layer, inspect it, run it, train it for a step, save it.
//!
//! ```text
//! cargo run --release --example 01_declare
//! ```

use anyhow::Result;
use attn::attention;
use attn::checkpoint::{self, LoadOptions};
use attn::dfdx::{optim::Adam, prelude::*};

// The whole layer. Other keys have the usual defaults: head_dim = d_model / heads, scaled dot products, softmax, biases. Two
// heads of keys and values serve eight heads of queries.
attention! {
    /// Each position attends to itself and to those before it.
    struct SelfAttention<heads = 8, kv_heads = 2, d_model = 64, mask = causal>;
}

// A declared layer is a dfdx module like any other, so it fits into dfdx's models.
type Block = Residual<(LayerNorm1D<64>, SelfAttention)>;

fn main() -> Result<()> {
    // 1. Facts of the declaration are constants.
    type Layer = SelfAttention<f32, Cpu>;
    const { assert!(Layer::PARAMS < 11_000) };
    let heads = Layer::HEADS;
    let kv_heads = Layer::KV_HEADS;
    let head_dim = Layer::HEAD_DIM;
    println!("{heads} heads of {head_dim} numbers, {kv_heads} of keys and values");
    println!("{} parameters", Layer::PARAMS);
    let operations = Layer::flops(4, 100, 100);
    println!("{operations} operations for 4 sequences of 100 positions");

    // 2. Run it. Batch and length may change from call to call (`usize`) or be fixed (`Const`). The width may not: write
    //    `Const::<63>`, and the compiler names the shapes that the layer takes.
    let device = Cpu::seed_from_u64(1);
    let layer = device.build_module::<SelfAttention, f32>();
    let x = device.sample_like(&(4, 10, Const::<64>), rand_distr::StandardNormal);
    let (y, weights) = layer.forward_with_weights(x.clone());
    println!("\nbatch of sequences   {:?}", x.shape().concrete());
    println!("output               {:?}", y.shape().concrete());
    println!("attention weights    {:?}", weights.shape().concrete());
    let one: Tensor<Rank2<7, 64>, f32, _> = device.sample_normal();
    let one = layer.forward(one);
    println!("output, unbatched    {:?}", one.shape().concrete());

    // 3. Train it for one step, like any dfdx module, to reproduce its input.
    let mut block = device.build_module::<Block, f32>();
    let mut optimizer = Adam::new(&block, AdamConfig::default());
    let traced = x.trace(block.alloc_grads());
    let loss = mse_loss(block.forward(traced), x.clone());
    println!("\nloss before one step {:.4}", loss.array());
    optimizer.update(&mut block, &loss.backward())?;
    let loss = mse_loss(block.forward(x.clone()), x.clone());
    println!("loss after it        {:.4}", loss.array());

    // 4. Save it and load it. The file has the names of the fields.
    let file = tempfile::NamedTempFile::new()?;
    checkpoint::save(&layer, file.path())?;
    let mut twin = device.build_module::<SelfAttention, f32>();
    checkpoint::load(&mut twin, file.path(), LoadOptions::default())?;
    assert_eq!(twin.forward(x.clone()).as_vec(), layer.forward(x).as_vec());
    println!("\nsaved and loaded:");
    let m = (&layer, String::new());
    let f = &mut PrintNames;
    Layer::iter_tensors(&mut RecursiveWalker { m, f })?;
    Ok(())
}

/// Prints the tensors of a module with the names under which dfdx saves them.
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
