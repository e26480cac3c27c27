//! Slices of one length, side by side: some are read, some are written, and the first of these may be read as well.

use std::marker::PhantomData;
use std::slice;

use super::slice::{load_any, store_any};
use super::{Vector, WriteMode};

/// `N` slices to read and `M` slices to write, from element `start` on.
///
/// In place, one slice is read and written. References cannot say that, and a check of every slice at every vector would cost more than the
/// arithmetic of a sum. So the lengths are compared once.
pub struct Zipped<'a, E, const N: usize, const M: usize> {
    /// Each with the bits of the index that count: all of them, or none of a constant.
    read: [(*const E, usize); N],
    write: [(*mut E, WriteMode); M],
    start: usize,
    len: usize,
    slices: PhantomData<([&'a [E]; N], [&'a mut [E]; M])>,
}

/// What is read.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a, E> {
    /// So many elements.
    Slice(&'a [E]),
    /// The first slice that is written.
    First,
    /// A vector of one number, which is every element.
    Constant(&'a Constant<E>),
}

/// One number, in as many lanes as a vector may have.
pub type Constant<E> = [E; 16];

impl<'a, E, const N: usize, const M: usize> Zipped<'a, E, N, M> {
    /// From the start of slices.
    ///
    /// # Panics
    /// If the lengths differ, or if the first slice to write is read and there is none.
    #[inline(always)]
    #[track_caller]
    pub fn new(read: [Source<'a, E>; N], write: [(&'a mut [E], WriteMode); M]) -> Self {
        let lens = read.iter().filter_map(|x| match x {
            Source::Slice(x) => Some(x.len()),
            Source::First | Source::Constant(_) => None,
        });
        let mut lens = lens.chain(write.iter().map(|(to, _)| to.len()));
        let len = lens.next().unwrap_or(0);
        assert!(
            lens.all(|other| other == len),
            "slices of one length are read and written"
        );
        let write = write.map(|(to, mode)| (to.as_mut_ptr(), mode));
        let first = write.first().map(|(to, _)| to.cast_const());
        let read = read.map(|x| match (x, first) {
            (Source::Slice(x), _) => (x.as_ptr(), usize::MAX),
            (Source::Constant(x), _) => (x.as_ptr(), 0),
            (Source::First, Some(first)) => (first, usize::MAX),
            (Source::First, None) => panic!("the first slice to write is read, and there is none"),
        });
        Self {
            read,
            write,
            start: 0,
            len,
            slices: PhantomData,
        }
    }

    /// How many elements are left.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.len - self.start
    }

    /// So many elements of the slices that are read, at most those of a vector. They are to be [stored](Self::store) before the next ones are
    /// loaded.
    ///
    /// # Panics
    /// If there are fewer left.
    #[inline(always)]
    pub fn load<V: Vector<Element = E>>(&self, len: usize) -> [V; N] {
        assert!(len <= self.left(), "there are fewer elements left");
        const { assert!(V::LANES <= size_of::<Constant<u8>>()) };
        let len = len.min(V::LANES);
        let mut loaded = [V::zero(); N];
        // A closure would not always be inlined into the code with the instructions.
        for (to, (from, mask)) in loaded.iter_mut().zip(self.read) {
            // SAFETY: all slices have `self.len` elements, of which `start..start + len` are some. A constant has as many elements as
            // `len` may be, and is read from the first one on. They are borrowed for `'a`. The slices to write are borrowed by this struct
            // alone, and no reference to them is alive here.
            *to = load_any(unsafe { slice::from_raw_parts(from.add(self.start & mask), len) });
        }
        loaded
    }

    /// Writes so many elements, or adds to them, and goes to the next ones.
    ///
    /// # Panics
    /// If there are fewer left.
    #[inline(always)]
    pub fn store<V: Vector<Element = E>>(&mut self, values: [V; M], len: usize) {
        assert!(len <= self.left(), "there are fewer elements left");
        for ((to, mode), value) in self.write.into_iter().zip(values) {
            // SAFETY: as in `load`; `&mut` slices do not overlap, and no other reference to this one is alive here.
            let to = unsafe { slice::from_raw_parts_mut(to.add(self.start), len) };
            match mode {
                WriteMode::Overwrite => store_any(value, to),
                WriteMode::Add => store_any(load_any::<V>(to) + value, to),
            }
        }
        self.start += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, Kernel};

    /// `z = x + y` and `y += x - y`, where the first operand is `z` itself.
    struct Both<'a>(Zipped<'a, f32, 2, 2>);

    impl Kernel for Both<'_> {
        type Element = f32;
        type Output = ();

        #[inline(always)]
        fn run<V: Vector<Element = f32>>(mut self) {
            while self.0.left() > 0 {
                let len = V::LANES.min(self.0.left());
                let [x, y] = self.0.load::<V>(len);
                self.0.store([x + y, x - y], len);
            }
        }
    }

    #[test]
    fn slices_are_read_before_they_are_written() {
        for isa in Isa::available() {
            for len in 0..70 {
                let y: Vec<f32> = (0..len).map(|i| i as f32).collect();
                let mut z = vec![1.0; len];
                let mut sums = vec![10.0; len];
                isa.run(Both(Zipped::new(
                    [Source::First, Source::Slice(&y)],
                    [
                        (&mut z[..], WriteMode::Overwrite),
                        (&mut sums[..], WriteMode::Add),
                    ],
                )));
                for i in 0..len {
                    assert_eq!(z[i], 1.0 + y[i], "{i} of {len} on {isa}");
                    assert_eq!(sums[i], 11.0 - y[i], "{i} of {len} on {isa}");
                }
            }
        }
    }

    #[test]
    fn a_constant_is_every_element() {
        for isa in Isa::available() {
            for len in 0..70 {
                let mut z = vec![1.0; len];
                let mut sums = vec![10.0; len];
                isa.run(Both(Zipped::new(
                    [Source::First, Source::Constant(&[2.0; 16])],
                    [
                        (&mut z[..], WriteMode::Overwrite),
                        (&mut sums[..], WriteMode::Add),
                    ],
                )));
                assert_eq!(z, vec![3.0; len], "{len} on {isa}");
                assert_eq!(sums, vec![9.0; len], "{len} on {isa}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "slices of one length")]
    fn slices_of_different_lengths_are_refused() {
        let mut to = [0.0; 3];
        let _ = Zipped::new([Source::Slice(&[0.0; 2])], [(&mut to[..], WriteMode::Add)]);
    }

    #[test]
    #[should_panic(expected = "there is none")]
    fn a_missing_output_slice_is_refused() {
        let _ = Zipped::<f32, 1, 0>::new([Source::First], []);
    }
}
