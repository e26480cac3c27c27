//! The location of the numbers of a model tensor in a file tensor.

/// A model tensor as a part of a file tensor.
///
/// A rule transposes, takes a range of rows, or reorders them: each acts on one axis alone. So the offset of a number in the file
/// tensor is a sum over the axes of the model tensor.
#[derive(Debug)]
pub(super) struct View {
    /// The offset that each index along each axis contributes.
    pub(super) axes: Vec<Vec<usize>>,
}

impl View {
    /// Reads the numbers of the model tensor, `width` bytes each.
    pub(super) fn gather(&self, theirs: &[u8], width: usize) -> Vec<u8> {
        let mut ours =
            Vec::with_capacity(self.axes.iter().map(Vec::len).product::<usize>() * width);
        self.for_each(|place| ours.extend(&theirs[place * width..][..width]));
        ours
    }

    /// Writes the numbers of the model tensor to their locations.
    pub(super) fn scatter(&self, ours: &[u8], theirs: &mut [u8], width: usize) {
        let mut numbers = ours.chunks_exact(width);
        self.for_each(|place| {
            if let Some(number) = numbers.next() {
                theirs[place * width..][..width].copy_from_slice(number);
            }
        });
    }

    /// Writes numbers to their locations.
    pub(super) fn place<T: Copy>(&self, numbers: &[T], to: &mut [T]) {
        let mut numbers = numbers.iter();
        self.for_each(|place| {
            if let Some(&number) = numbers.next() {
                to[place] = number;
            }
        });
    }

    /// Calls `f` with the offset of each number of the model tensor, in row-major order.
    fn for_each(&self, mut f: impl FnMut(usize)) {
        let Some((last, first)) = self.axes.split_last() else {
            return f(0);
        };
        let mut rows = vec![0];
        for axis in first {
            let below = |row: &usize| axis.iter().map(move |step| row + step).collect::<Vec<_>>();
            rows = rows.iter().flat_map(below).collect();
        }
        for row in rows {
            last.iter().for_each(|step| f(row + step));
        }
    }
}
