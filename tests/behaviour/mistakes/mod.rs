//! Mistakes that only the running program can find are typed errors, which name the layer and both values. The panicking twins
//! point at the caller.

use attn::{Backend, Element, Error, attention};
use dfdx::prelude::*;
use panics::panic_of;
use std::fmt::Debug;

attention! {
    struct Cross<heads = 2, d_model = 8, d_context = 6>;
    struct Padded<heads = 2, d_model = 8, mask = padding>;
}

type Batched<const M: usize, E = f32> = Tensor<(usize, usize, Const<M>), E, Cpu>;
type Unbatched<const M: usize> = Tensor<(usize, Const<M>), f32, Cpu>;

/// A view of one vector as many: a safe way to sizes that no memory holds.
fn batched_of<const M: usize, E: Element>(batch: usize, len: usize) -> Batched<M, E>
where
    Cpu: Backend<E>,
{
    let one: Tensor<Rank1<M>, E, _> = Cpu::default().ones();
    one.broadcast_like::<_, Axes2<0, 1>>(&(batch, len, Const))
}

fn batched<const M: usize>(batch: usize, len: usize) -> Batched<M> {
    batched_of(batch, len)
}

fn unbatched<const M: usize>(len: usize) -> Unbatched<M> {
    let one: Tensor<Rank1<M>, f32, _> = Cpu::default().ones();
    one.broadcast_like::<_, Axis<0>>(&(len, Const))
}

/// The error, after asserting that there is one.
#[track_caller]
fn error_of<R: Debug>(result: Result<R, Error<CpuError>>) -> Error<CpuError> {
    result.expect_err("the mistake is found")
}

/// Asserts that every way to run a layer on this input finds the same mistake: the `try_` methods return it, and the others,
/// including dfdx's, panic with its message.
macro_rules! assert_mistake {
    ($Layer:ident, $input:expr, $variant:pat, $message:expr $(,)?) => {{
        let mut layer = Cpu::default().build_module::<$Layer, f32>();
        let errors = [
            error_of(layer.try_forward($input)),
            error_of(layer.try_forward_mut($input)),
            error_of(layer.try_forward_with_weights($input)),
        ];
        for error in errors {
            assert!(matches!(&error, $variant), "{error:?}");
            assert_eq!(error.to_string(), $message);
        }
        let panics = [
            panic_of(|| layer.forward($input)),
            panic_of(|| layer.forward_mut($input)),
            panic_of(|| layer.forward_with_weights($input)),
            panic_of(|| Module::forward(&layer, $input)),
            panic_of(|| Module::try_forward(&layer, $input)),
            panic_of(|| ModuleMut::forward_mut(&mut layer, $input)),
        ];
        for panic in panics {
            assert_eq!(panic.message, $message);
        }
    }};
}

mod data;
mod inputs;
mod panics;
mod sizes;
