//! Where the numbers of our tensor are in theirs.

/// One of our tensors as a part of one of theirs.
///
/// A rule transposes, takes a range of rows, or changes their order: each acts on one axis by itself. So the place of a
/// number in their tensor is a sum over our axes.
#[derive(Debug)]
pub(super) struct View {
    /// For each of our axes: what each of its indices adds to the place.
    pub(super) axes: Vec<Vec<usize>>,
}

impl View {
    /// Our numbers out of theirs, each of `width` bytes.
    pub(super) fn gather(&self, theirs: &[u8], width: usize) -> Vec<u8> {
        let mut ours =
            Vec::with_capacity(self.axes.iter().map(Vec::len).product::<usize>() * width);
        self.for_each(|place| ours.extend(&theirs[place * width..][..width]));
        ours
    }

    /// Puts our numbers where they are in theirs.
    pub(super) fn scatter(&self, ours: &[u8], theirs: &mut [u8], width: usize) {
        let mut numbers = ours.chunks_exact(width);
        self.for_each(|place| {
            if let Some(number) = numbers.next() {
                theirs[place * width..][..width].copy_from_slice(number);
            }
        });
    }

    /// The places of our numbers, in our order.
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
