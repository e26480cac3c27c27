//! The `data` of a body: ids, floats and marks that its functions read by index.

use std::sync::Arc;

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{HasErr, Storage, Tensor},
};

use super::values;
use crate::{
    Element, Error,
    fused::{Affine, Interval, Truth, Zone, unflatten},
    sizes::index_of,
};

/// A tensor for a `data` of a body. Ids are `Tensor<Shape, usize, D>`, conditions `Tensor<Shape, bool, D>`, floats
/// `Tensor<Shape, E, D>` with the layer's element type, all without a tape. No gradient flows into data.
///
/// `Shape` has the declared axes: `batch`, `q_len` and `kv_len` as in the input, the others as constants. For unbatched input
/// `batch` is left out, and a single id is a `usize`. A `&tensor` is accepted as well, so that it can be used for the next call.
///
/// ```
/// use attn::{attention, dfdx::prelude::*};
///
/// attention! {
///     struct Prefixed<heads = 1, d_model = 4> {
///         data prefix: ids[batch];
///         fn mask(b, q_idx, kv_idx) { kv_idx < prefix[b] || kv_idx <= q_idx }
///     }
/// }
///
/// let dev = Cpu::default();
/// let layer = dev.build_module::<Prefixed, f32>();
/// let x: Tensor<(usize, usize, Const<4>), f32, _> = dev.sample_normal_like(&(2, 5, Const));
/// let prefix: Tensor<(usize,), usize, _> = dev.tensor_from_vec(vec![3, 1], (2,));
/// assert!(layer.try_forward((x.clone(), &prefix)).is_ok());
///
/// let one: Tensor<(usize,), usize, _> = dev.tensor_from_vec(vec![3], (1,));
/// let error = layer.try_forward((x, one)).unwrap_err();
/// assert_eq!(error.to_string(), "Prefixed: axis 0 of `prefix` has size 1, but `batch` is 2");
/// ```
pub trait Data<Shape, V, D: HasErr>: Sized {
    /// Reads the values and checks the size of every axis.
    ///
    /// # Errors
    /// [`Error::DataMismatch`]; [`Error::OutOfRange`] if an id is above 2³¹: such ids are not used in indices.
    fn read<const N: usize>(self, declared: Declared<N>) -> Result<Table<V, N>, Error<D::Err>>;
}

/// The declaration of data: its name, and its sizes in a call.
#[derive(Clone, Copy, Debug)]
pub struct Declared<const N: usize> {
    /// The layer's name.
    pub layer: &'static str,
    /// The name of the data.
    pub data: &'static str,
    /// The name of every axis, and its size.
    pub axes: [(&'static str, usize); N],
    /// Whether there is an axis `batch`: unbatched input has none.
    pub batched: bool,
}

/// The values of a `data`, for reads by index. A clone shares them.
#[derive(Clone, Debug)]
pub struct Table<V, const N: usize> {
    values: Arc<Vec<V>>,
    shape: [usize; N],
    /// The least and the greatest id. For marks, `false` is 0 and `true` is 1.
    ids: Interval,
}

impl<V, const N: usize> Table<V, N> {
    /// # Panics
    /// If there is no such element.
    #[inline(always)]
    fn at(&self, index: [i64; N]) -> &V {
        let axes = index.into_iter().zip(self.shape);
        let place = axes.fold(0, |place, (index, size)| place * size + index as usize);
        &self.values[place]
    }
}

impl<const N: usize> Table<usize, N> {
    /// An id.
    ///
    /// # Panics
    /// If the index is out of bounds. A layer checks its indices before.
    #[inline(always)]
    pub fn id(&self, index: [i64; N]) -> i64 {
        *self.at(index) as i64
    }

    /// The ids of a zone.
    pub fn ids<'z>(&self, at: &'z Zone, index: [Affine<'z>; N]) -> Affine<'z> {
        self.over(at, index)
    }
}

impl<const N: usize> Table<bool, N> {
    /// A mark.
    ///
    /// # Panics
    /// If the index is out of bounds. A layer checks its indices before.
    #[inline(always)]
    pub fn mark(&self, index: [i64; N]) -> bool {
        *self.at(index)
    }

    /// The marks of a zone.
    pub fn marks<'z>(&self, at: &'z Zone, index: [Affine<'z>; N]) -> Truth {
        self.over(at, index).equals(at.number(1))
    }
}

impl<V: DataElement, const N: usize> Table<V, N> {
    fn over<'z>(&self, at: &'z Zone, index: [Affine<'z>; N]) -> Affine<'z> {
        Affine::looked_up(at, self.span(index.map(Affine::bounds)), index)
    }

    /// The bounds of the ids in a rectangle. A small one is searched.
    fn span(&self, index: [Interval; N]) -> Interval {
        const MAX_SCANNED: usize = 1 << 14;
        let mut axes = [(0, 0); N];
        for ((axis, range), size) in axes.iter_mut().zip(index).zip(self.shape) {
            // An interval may be wider than the set of values, but no index is out of bounds.
            let (least, greatest) = range.ends();
            *axis = (least.max(0), greatest.min(size as i64 - 1));
        }
        let counts = axes.map(|(first, last)| usize::try_from(last - first + 1).unwrap_or(0));
        let count = counts.into_iter().try_fold(1, usize::checked_mul);
        match count {
            Some(count) if count <= MAX_SCANNED && count < self.values.len() => {
                let at = |place| self.at(nth(place, axes, counts)).id();
                Interval::around((0..count).filter_map(at).map(|id| id as i64))
            }
            _ => self.ids,
        }
    }
}

/// The index of an element of a rectangle, counted in row-major order.
fn nth<const N: usize>(place: usize, axes: [(i64, i64); N], counts: [usize; N]) -> [i64; N] {
    let mut index = unflatten(place as i64, counts);
    for (index, (first, _)) in index.iter_mut().zip(axes) {
        *index += first;
    }
    index
}

impl<E: Element, const N: usize> Table<E, N> {
    /// A float.
    ///
    /// # Panics
    /// If the index is out of bounds. A layer checks its indices before.
    #[inline(always)]
    pub fn float(&self, index: [i64; N]) -> f64 {
        (*self.at(index)).into()
    }
}

/// An element of data: an id, a mark or a float.
pub trait DataElement: Copy {
    /// The id, if it is one.
    fn id(self) -> Option<usize>;
}

impl DataElement for usize {
    fn id(self) -> Option<usize> {
        Some(self)
    }
}

impl DataElement for bool {
    fn id(self) -> Option<usize> {
        Some(usize::from(self))
    }
}

impl<E: Element> DataElement for E {
    fn id(self) -> Option<usize> {
        None
    }
}

impl<S: Shape, V: DataElement, D: Storage<V>> Data<S, V, D> for Tensor<S, V, D> {
    fn read<const N: usize>(self, declared: Declared<N>) -> Result<Table<V, N>, Error<D::Err>> {
        declared.check(self.shape().concrete().into_iter())?;
        declared.table(values(&self))
    }
}

/// One id, for unbatched input.
impl<D: HasErr> Data<(), usize, D> for usize {
    fn read<const N: usize>(self, declared: Declared<N>) -> Result<Table<usize, N>, Error<D::Err>> {
        declared.table(vec![self])
    }
}

/// Borrowed data, for several calls.
impl<S, V, D: HasErr, P: Data<S, V, D> + Clone> Data<S, V, D> for &P {
    fn read<const N: usize>(self, declared: Declared<N>) -> Result<Table<V, N>, Error<D::Err>> {
        self.clone().read(declared)
    }
}

/// Products of two ids fit into an `i64`.
const ID_COUNT: usize = 1 << 31;

impl<const N: usize> Declared<N> {
    /// Unbatched input is one sequence.
    fn shape(&self) -> [usize; N] {
        self.axes.map(|(axis, size)| match axis {
            BATCH if !self.batched => 1,
            _ => size,
        })
    }

    /// The axes that a tensor has, with their positions in it.
    fn given(&self) -> impl Iterator<Item = (usize, (&'static str, usize))> {
        let batched = self.batched;
        let given = self.axes.into_iter();
        given
            .filter(move |(axis, _)| batched || *axis != BATCH)
            .enumerate()
    }

    fn check<Dev>(&self, found: impl Iterator<Item = usize>) -> Result<(), Error<Dev>> {
        let Declared { layer, data, .. } = *self;
        for ((axis, (name, expected)), found) in self.given().zip(found) {
            if found != expected {
                return Err(Error::DataMismatch {
                    layer,
                    data,
                    axis,
                    name,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    fn table<V: DataElement, Dev>(&self, values: Vec<V>) -> Result<Table<V, N>, Error<Dev>> {
        let ids = values.iter().enumerate();
        let ids = ids.filter_map(|(place, value)| Some((place, value.id()?)));
        if let Some((place, id)) = ids.clone().find(|(_, id)| *id >= ID_COUNT) {
            return Err(self.out_of_range(place, id));
        }
        Ok(Table {
            ids: Interval::around(ids.map(|(_, id)| id as i64)),
            values: Arc::new(values),
            shape: self.shape(),
        })
    }

    fn out_of_range<Dev>(&self, place: usize, index: usize) -> Error<Dev> {
        let sizes: Vec<_> = self.given().map(|(_, (_, size))| size).collect();
        Error::OutOfRange {
            operation: self.layer,
            what: self.data,
            index,
            count: ID_COUNT,
            place: index_of(place, &sizes),
        }
    }
}

const BATCH: &str = "batch";

#[cfg(test)]
mod tests {
    use dfdx::{prelude::*, tensor::CpuError};

    use super::*;

    type Read<V, const N: usize> = Result<Table<V, N>, Error<CpuError>>;

    fn tensor<S: Shape, V: Unit>(values: &[V], shape: S) -> Tensor<S, V, Cpu>
    where
        Cpu: TensorFromVec<V>,
    {
        Cpu::default().tensor_from_vec(values.to_vec(), shape)
    }

    fn declared<const N: usize>(axes: [(&'static str, usize); N], batched: bool) -> Declared<N> {
        Declared {
            layer: "Layer",
            data: "data",
            axes,
            batched,
        }
    }

    fn read<S: Shape, V: Unit + DataElement, const N: usize>(
        tensor: impl Data<S, V, Cpu>,
        declared: Declared<N>,
    ) -> Read<V, N> {
        tensor.read(declared)
    }

    const PAIRS: [(&str, usize); 3] = [("batch", 2), ("q_len", 3), ("kv_len", 2)];

    fn pairs() -> Table<usize, 3> {
        let ids = [4, 1, 0, 2, 9, 9, 7, 7, 7, 3, 5, 8];
        read(tensor(&ids, (2, 3, 2)), declared(PAIRS, true)).unwrap()
    }

    #[test]
    fn ids_are_read_by_index() {
        let ids = pairs();
        assert_eq!(
            [ids.id([0, 0, 0]), ids.id([0, 2, 1]), ids.id([1, 1, 1])],
            [4, 9, 3]
        );
    }

    #[test]
    fn marks_are_read_by_index_and_by_rectangle() {
        let marks = tensor(&[true, true, false, true, false, false], (2, 3));
        let marks = read(marks, declared([("batch", 2), ("kv_len", 3)], true)).unwrap();
        assert!(marks.mark([0, 1]) && !marks.mark([0, 2]) && !marks.mark([1, 2]));
        let over = |b: Interval, keys: std::ops::Range<usize>| {
            let at = Zone::of(&(0..1), &keys);
            marks.marks(&at, [at.within(b), at.kv_idx()])
        };
        let [first, second, both] = [(0, 0), (1, 1), (0, 1)].map(|(a, b)| Interval::between(a, b));
        assert_eq!(over(first, 0..2), Truth::True);
        assert!(matches!(over(first, 1..3), Truth::Unknown(Some(_))));
        assert_eq!(over(second, 1..3), Truth::False);
        assert_eq!(over(both, 0..1), Truth::True);
        assert!(matches!(over(Interval::ANY, 0..3), Truth::Unknown(_)));
    }

    #[test]
    fn floats_are_read_by_index() {
        let floats = tensor(&[0.5_f32, 1.5, 2.5, 3.5], (usize::from(2_u8), Const::<2>));
        let floats = read(&floats, declared([("heads", 2), ("2", 2)], true)).unwrap();
        assert_eq!(floats.float([1, 0]), 2.5);
    }

    #[test]
    fn an_unbatched_input_is_one_sequence() {
        let ids = read(
            tensor(&[6, 5], (2,)),
            declared([("q_len", 2), ("batch", 1)], false),
        );
        assert_eq!(ids.unwrap().id([1, 0]), 5);
        let number = read(tensor(&[6], ()), declared([("batch", 1)], false));
        assert_eq!(number.unwrap().id([0]), 6);
        let number = read(7, declared([("batch", 1)], false));
        assert_eq!(number.unwrap().id([0]), 7);
    }

    #[test]
    fn intervals_contain_the_elements() {
        let ids = pairs();
        let all = pairs().values;
        let between = Interval::between;
        for (b, q, k) in [(0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 2, 1)] {
            for (q_end, k_end) in [(q, k), (2, k), (q, 1), (2, 1)] {
                let places = (q..=q_end).flat_map(|q| (k..=k_end).map(move |k| (q, k)));
                let expected = places.map(|(q, k)| all[b * 6 + q * 2 + k] as i64);
                let [at, from_q, from_k] = [b, q, k].map(|i| i as i64);
                let rectangle = [
                    between(at, at),
                    between(from_q, q_end as i64),
                    between(from_k, k_end as i64),
                ];
                assert_eq!(ids.span(rectangle), Interval::around(expected));
            }
        }
        // Indices beyond the axes do not exist.
        let around = [between(0, 0), between(1, 70), between(-5, 0)];
        assert_eq!(ids.span(around), between(0, 9));
        assert_eq!(ids.span([Interval::ANY; 3]), between(0, 9));
    }

    #[test]
    fn large_rectangles_have_the_interval_of_all_elements() {
        let ids: Vec<_> = (0..40_000).collect();
        let table = read(
            tensor(&ids, (40_000,)),
            declared([("kv_len", 40_000)], true),
        )
        .unwrap();
        let small = Interval::between(5, 9);
        let large = Interval::between(5, 39_000);
        assert_eq!(table.span([small]), small);
        assert_eq!(table.span([large]), Interval::between(0, 39_999));
    }

    #[test]
    fn every_axis_is_checked() {
        for (shape, message) in [
            (
                (3, 3, 2),
                "Layer: axis 0 of `data` has size 3, but `batch` is 2",
            ),
            (
                (2, 4, 2),
                "Layer: axis 1 of `data` has size 4, but `q_len` is 3",
            ),
            (
                (2, 3, 1),
                "Layer: axis 2 of `data` has size 1, but `kv_len` is 2",
            ),
        ] {
            let ids = vec![0; shape.0 * shape.1 * shape.2];
            let error = read(tensor(&ids, shape), declared(PAIRS, true)).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn ids_above_the_limit_are_errors() {
        let ids = tensor(&[0, 1, 2, usize::MAX], (2, 2));
        let error = read(ids, declared([("q_len", 2), ("heads", 2)], true)).unwrap_err();
        let message = format!(
            "Layer: the data at [1, 1] is {}, but there are 2147483648: 0 to 2147483647",
            usize::MAX
        );
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn empty_data_is_supported() {
        let none = read(
            tensor::<_, usize>(&[], (0, 3)),
            declared([("batch", 0), ("q_len", 3)], true),
        );
        assert_eq!(none.unwrap().span([Interval::ANY; 2]), Interval::ANY);
    }
}
