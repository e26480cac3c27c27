//! Where the keys of dropouts come from.

use std::{cell::RefCell, mem, rc::Rc};

use dfdx::tensor;

thread_local! {
    /// The function that draws seeds on this thread in place of the devices, if there is one.
    static DRAW: RefCell<Option<Draw>> = const { RefCell::new(None) };
}

type Draw = Rc<dyn Fn() -> u64>;

/// A source of random numbers: the device, except in [`drawing`].
pub trait RandomU64 {
    /// The next one.
    fn random_u64(&self) -> u64;
}

impl<D: tensor::RandomU64> RandomU64 for D {
    fn random_u64(&self) -> u64 {
        let draw = DRAW.with_borrow(Clone::clone);
        match draw {
            Some(draw) => draw(),
            None => tensor::RandomU64::random_u64(self),
        }
    }
}

/// Calls `run`, where on this thread `draw` stands for the devices. So a chain of operations, each of which draws for itself, has the
/// dropouts of a pass that drew in another way.
pub(crate) fn drawing<R>(draw: impl Fn() -> u64 + 'static, run: impl FnOnce() -> R) -> R {
    let before = DRAW.replace(Some(Rc::new(draw)));
    let _restore = Restore(before);
    run()
}

/// Puts back what drew before, also when `run` panics.
struct Restore(Option<Draw>);

impl Drop for Restore {
    fn drop(&mut self) {
        DRAW.set(mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dfdx::tensor::Cpu;

    #[test]
    fn the_device_draws_unless_another_source_stands_for_it() {
        let device = Cpu::seed_from_u64(1);
        let first = tensor::RandomU64::random_u64(&Cpu::seed_from_u64(1));
        let inside = drawing(|| 7, || [(); 2].map(|()| RandomU64::random_u64(&device)));
        assert_eq!(inside, [7, 7]);
        assert_eq!(RandomU64::random_u64(&device), first);
        let panicked = std::panic::catch_unwind(|| drawing(|| 7, || panic!("in between")));
        assert!(panicked.is_err());
        assert_eq!(RandomU64::random_u64(&Cpu::seed_from_u64(1)), first);
    }
}
