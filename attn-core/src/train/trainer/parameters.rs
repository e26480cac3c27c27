//! The parameters of a model in one arena, and their gradients.

use std::{collections::BTreeMap, convert::Infallible, ops::Range, sync::Arc};

use dfdx::tensor::UniqueId;

use super::{Trainable, model::ErrOf};
use crate::{
    Element,
    fused::{Arena, Derivative, Gradients, Operation, Slot, Watch, ranges_of_trained},
    kernel::{Dtype, elementwise, optim::squared_norm, parallel::run_pass},
    train::parameters::{Made, for_each, for_each_mut},
};

/// All parameters, in the order of the model.
pub(super) struct Parameters<E: Element> {
    pub(super) arena: Arena<E>,
    pub(super) all: Vec<Trained>,
    /// The tensor of each slot, and where it is in the arena.
    places: Vec<(UniqueId, Range<usize>)>,
    /// Whether the gradient of each slot is wanted.
    pub(super) trained: Arc<[bool]>,
    /// The slots of tensors with one id, of which each has a part of the gradient.
    same: Vec<Vec<Slot>>,
    gradients: Gradients<E>,
    /// The number of operands of the loss before the parameters.
    inputs: usize,
}

/// A parameter.
pub(super) struct Trained {
    pub(super) name: String,
    pub(super) id: UniqueId,
    /// The number of parameters of the model before it, under all names: its place in `Choices::all`, where its sizes are.
    pub(super) index: usize,
    /// Where it is in the arena.
    pub(super) range: Range<usize>,
    /// Where its gradient is: where that of the first tensor with its id is.
    slot: Slot,
    /// The number of the tensors with other ids before it: those with the same one have the same gradient.
    pub(super) group: usize,
    /// Whether it is the first one with its id.
    is_first: bool,
    /// The range of it that this rank updates.
    pub(super) own: Range<usize>,
}

impl Trained {
    /// Whether this rank updates numbers of it. One without any is on all ranks.
    pub(super) fn has_own(&self) -> bool {
        !self.own.is_empty() || self.range.is_empty()
    }

    /// Where the numbers that this rank updates are in the arena.
    pub(super) fn own_range(&self) -> Range<usize> {
        let start = self.range.start;
        start + self.own.start..start + self.own.end
    }
}

/// The slots of each tensor, and where they are in the arena.
type Places = BTreeMap<UniqueId, Vec<(Slot, Range<usize>)>>;

impl<E: Element> Parameters<E> {
    /// Those of a model.
    pub(super) fn of<M: Trainable<Element = E>>(model: &mut M) -> Result<Self, ErrOf<M>> {
        let mut made = Made::new();
        for_each_mut(model, |_, parameter| parameter.make_contiguous(&mut made))?;
        let arena = Arena::default();
        let mut operation = Operation::of_step(Arc::clone(&arena), Dtype::Model);
        operation.begin_parameters();
        model.reserve(&mut operation)?;
        let reserved = operation.into_parameters();
        let mut places = Places::new();
        let mut slots = Vec::new();
        if let Some(reserved) = reserved {
            reserved.fill();
            for tensor in &reserved.tensors {
                slots.push((tensor.slot.index(), (tensor.id, tensor.range.clone())));
                let of_id = places.entry(tensor.id).or_default();
                of_id.push((tensor.slot, tensor.range.clone()));
            }
        }
        let all = parameters_at(&places, model);
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        let same = places.into_values().filter(|places| places.len() > 1);
        let same = same.map(|places| places.into_iter().map(|(slot, _)| slot).collect());
        let mut parameters = Self {
            arena,
            all,
            same: same.collect(),
            gradients: Gradients::default(),
            trained: Arc::new([]),
            places: slots.into_iter().map(|(_, place)| place).collect(),
            inputs: 0,
        };
        parameters.train(|_| true);
        Ok(parameters)
    }

    /// Says which tensors are trained. The gradients of the others are not computed from here on, and there is no memory for them.
    pub(super) fn train(&mut self, is_trained: impl Fn(UniqueId) -> bool) {
        let trained: Arc<[bool]> = self.places.iter().map(|(id, _)| is_trained(*id)).collect();
        if trained == self.trained {
            return;
        }
        let ranges: Vec<_> = self.places.iter().map(|(_, range)| range.clone()).collect();
        let of_gradients = ranges_of_trained::<E>(&ranges, &trained);
        let lens = ranges.iter().map(Range::len);
        self.gradients = Gradients::of_parameters(lens.zip(of_gradients));
        self.inputs = 0;
        for of in &mut self.all {
            of.slot = of.slot.if_wanted(is_trained(of.id));
        }
        for slot in self.same.iter_mut().flatten() {
            *slot = slot.if_wanted(trained[slot.index()]);
        }
        self.trained = trained;
    }

    /// The bytes of the gradients.
    pub(super) fn gradient_bytes(&self) -> usize {
        self.gradients.len() * size_of::<E>()
    }

    /// Adds the gradients of a loss times a weight. Memory that a kernel took for one that nobody wants goes back.
    pub(super) fn add(&mut self, derivative: Derivative<E>, weight: f64) {
        self.prepare_for(&derivative);
        derivative.run(E::of(weight), &mut self.gradients);
        self.gradients.release_unwanted();
    }

    /// [`add`](Self::add), where `watch` hears of the gradients that are finished.
    pub(super) fn add_watched<W: Watch<Gradients<E>>>(
        &mut self,
        derivative: Derivative<E>,
        weight: f64,
        watch: impl FnOnce(usize) -> W,
    ) -> W {
        self.prepare_for(&derivative);
        let watch = watch(self.inputs);
        let watch = derivative.run_watched(E::of(weight), &mut self.gradients, watch);
        self.gradients.release_unwanted();
        watch
    }

    fn prepare_for(&mut self, derivative: &Derivative<E>) {
        let inputs = derivative.lens.len() - self.places.len();
        self.gradients
            .set_inputs(self.inputs, &derivative.lens[..inputs]);
        self.inputs = inputs;
        self.gradients.allocate();
    }

    /// Adds up what belongs to one gradient.
    pub(super) fn merge(&mut self) {
        for slots in &self.same {
            let slots = slots.iter().map(|slot| slot.behind(self.inputs));
            self.gradients.sum(slots);
        }
    }

    /// The places that the gradient of a parameter is the sum of: none if it is that of a parameter before it.
    pub(super) fn slots(&self, of: &Trained) -> Vec<Slot> {
        let mut same = self.same.iter();
        match same.find(|slots| slots.contains(&of.slot)) {
            _ if !of.is_first => Vec::new(),
            Some(slots) => slots.clone(),
            None => vec![of.slot],
        }
    }

    /// The gradients, and the number of inputs before those of the parameters.
    pub(super) fn gradients(&mut self) -> (&mut Gradients<E>, usize) {
        (&mut self.gradients, self.inputs)
    }

    /// Makes room for gradients, also where no batch has been.
    pub(super) fn prepare(&mut self) {
        self.gradients.allocate();
    }

    /// Says which range of each parameter this rank updates.
    pub(super) fn own(&mut self, own: impl Fn(usize) -> Range<usize>) {
        for (index, of) in self.all.iter_mut().enumerate() {
            of.own = own(index);
        }
    }

    /// This rank updates all of them.
    pub(super) fn own_all(&mut self) {
        for of in &mut self.all {
            of.own = 0..of.range.len();
        }
    }

    /// Whether the gradient of a parameter is wanted.
    pub(super) fn is_trained(&self, of: &Trained) -> bool {
        of.slot.wanted().is_some()
    }

    /// The trained ones of these, with their places.
    pub(super) fn trained_in(&self, of: Range<usize>) -> impl Iterator<Item = (usize, &Trained)> {
        let all = of.clone().zip(&self.all[of]);
        all.filter(|(_, of)| self.is_trained(of))
    }

    /// Those of these whose gradients are exchanged: of the parameters with one gradient the first.
    pub(super) fn exchanged(&self, of: Range<usize>) -> Vec<(usize, &Trained)> {
        let trained = self.trained_in(of);
        trained.filter(|(_, of)| of.is_first).collect()
    }

    /// Changes the gradient of what this rank updates of a parameter. It is 0 if it has none yet.
    pub(super) fn add_to_gradient(&mut self, of: usize, add: impl FnOnce(&mut [E])) {
        let of = &self.all[of];
        let gradient = self.gradients.of(of.slot.behind(self.inputs));
        add(&mut gradient[of.own.clone()]);
    }

    /// The numbers of all parameters.
    pub(super) fn numbers(&self) -> &[E] {
        self.arena.get().map_or(&[], |arena| &arena[..])
    }

    /// The same, to change.
    ///
    /// # Panics
    /// If a pass still reads the parameters.
    pub(super) fn numbers_mut(&mut self) -> &mut [E] {
        match Arc::get_mut(&mut self.arena).and_then(|arena| arena.get_mut()) {
            Some(arena) => arena,
            None => panic!("a pass still reads the parameters"),
        }
    }

    /// The gradient of what this rank updates of a parameter, if it has one.
    pub(super) fn gradient(&self, of: &Trained) -> Option<&[E]> {
        let gradient = self.gradients.given(of.slot.behind(self.inputs))?;
        Some(&gradient[of.own.clone()])
    }

    /// The square of the norm of the gradients as one vector: of the numbers that this rank updates.
    pub(super) fn squared_norm(&self) -> f64 {
        let first = self.all.iter().filter(|of| of.is_first);
        let gradients: Vec<_> = first.filter_map(|of| self.gradient(of)).collect();
        let count = gradients.iter().map(|gradient| gradient.len()).sum();
        run_pass(count, || squared_norm(&gradients))
    }

    /// The place of the first parameter whose gradient is not finite, of the numbers that this rank updates.
    pub(super) fn first_non_finite(&self) -> Option<usize> {
        let is_not_finite =
            |gradient: &[E]| gradient.iter().any(|&x| !Into::<f64>::into(x).is_finite());
        let mut all = self.all.iter();
        all.position(|of| self.gradient(of).is_some_and(is_not_finite))
    }

    /// Multiplies the gradients of the numbers that this rank updates by a factor.
    pub(super) fn scale(&mut self, factor: f64) {
        for of in self.all.iter().filter(|of| of.is_first) {
            if let Some(gradient) = self.gradients.given_mut(of.slot.behind(self.inputs)) {
                elementwise::scale(E::of(factor), &mut gradient[of.own.clone()]);
            }
        }
    }

    /// Every parameter that this rank updates, or a part of it, with the numbers of that part, and their gradient if there is one, in the order
    /// of the arena.
    ///
    /// # Panics
    /// If a pass still reads the parameters.
    pub(super) fn all_mut(&mut self) -> Vec<(&Trained, &mut [E], Option<&[E]>)> {
        let Some(arena) = Arc::get_mut(&mut self.arena).and_then(|arena| arena.get_mut()) else {
            panic!("a pass still reads the parameters");
        };
        let mut all: Vec<_> = self.all.iter().filter(|of| of.has_own()).collect();
        // Parameters without numbers stand where the next one begins.
        all.sort_unstable_by_key(|of| (of.range.start, of.range.end));
        let (mut rest, mut at) = (&mut arena[..], 0);
        let numbers = all.into_iter().map(|of| {
            let own = of.own_range();
            let behind = std::mem::take(&mut rest).split_at_mut(own.start - at).1;
            let (numbers, behind) = behind.split_at_mut(own.len());
            (rest, at) = (behind, own.end);
            let gradient = self.gradients.given(of.slot.behind(self.inputs));
            (of, numbers, gradient.map(|all| &all[of.own.clone()]))
        });
        numbers.collect()
    }

    /// Makes all gradients missing.
    pub(super) fn forget(&mut self) {
        self.gradients.forget();
    }

    /// Copies the parameters into the tensors of the model that they were read of.
    pub(super) fn write<M: Trainable<Element = E>>(&self, model: &mut M) {
        let Some(arena) = self.arena.get() else {
            return;
        };
        let mut all = self.all.iter().peekable();
        let Ok(()) = for_each_mut(model, |path, parameter| {
            if let Some(of) = all.next_if(|of| of.name == path.name) {
                parameter.write(&arena[of.range.clone()]);
            }
            Ok::<_, Infallible>(())
        });
    }
}

/// The parameters of a model at their places. Those with one tensor have its places in their order.
fn parameters_at<M: Trainable>(places: &Places, model: &M) -> Vec<Trained> {
    let mut all: Vec<Trained> = Vec::new();
    let mut seen = BTreeMap::<_, usize>::new();
    let mut groups = BTreeMap::<_, usize>::new();
    let mut indices = 0..;
    let Ok(()) = for_each(model, |path, parameter| {
        let id = parameter.id();
        let index = indices.next().unwrap_or_default();
        let Some(places) = places.get(&id) else {
            return Ok(());
        };
        let next = groups.len();
        let group = *groups.entry(id).or_insert(next);
        let before = seen.entry(id).or_default();
        if let (Some((_, range)), Some((slot, _))) = (places.get(*before), places.first()) {
            all.push(Trained {
                name: path.name,
                id,
                index,
                range: range.clone(),
                slot: *slot,
                group,
                is_first: *before == 0,
                own: 0..range.len(),
            });
        }
        *before += 1;
        Ok::<_, Infallible>(())
    });
    all
}

#[cfg(test)]
mod tests {
    use dfdx::{
        nn::DeviceBuildExt,
        tensor::{Cpu, NoneTape},
    };

    use super::*;
    use crate::nn::{Linear, UnbiasedLinear};

    type Two = (Linear<3, 2>, UnbiasedLinear<2, 5>);

    impl Trainable for (Linear<3, 2, f64, Cpu>, UnbiasedLinear<2, 5, f64, Cpu>) {
        type Element = f64;
        type Device = Cpu;

        fn reserve(
            &self,
            operation: &mut Operation<f64, Cpu, NoneTape>,
        ) -> Result<(), ErrOf<Self>> {
            operation.projection(&[&self.0])?;
            operation.projection(&[&self.1])?;
            Ok(())
        }
    }

    #[test]
    fn gradients_stand_where_their_parameters_do() {
        let mut model = Cpu::default().build_module::<Two, f64>();
        let mut parameters = Parameters::of(&mut model).unwrap();
        parameters.prepare();
        assert_eq!(parameters.gradient_bytes(), 8 * (6 + 2 + 10));
        for place in 0..parameters.all.len() {
            parameters.add_to_gradient(place, |gradient| gradient.fill(place as f64 + 1.0));
        }
        let arena = parameters.gradients.buffer();
        assert_eq!(arena.len(), parameters.numbers().len());
        let mut between = arena.to_vec();
        for (place, of) in parameters.all.iter().enumerate() {
            assert!(
                arena[of.range.clone()]
                    .iter()
                    .all(|x| *x == place as f64 + 1.0)
            );
            between[of.range.clone()].fill(0.0);
        }
        assert!(between.iter().all(|x| *x == 0.0));
    }

    #[test]
    fn parameters_without_numbers_stand_before_the_others() {
        let mut model = Cpu::default().build_module::<Two, f64>();
        let mut parameters = Parameters::of(&mut model).unwrap();
        let start = parameters.all[0].range.start;
        parameters.all[1].range = start..start;
        parameters.all[1].own = 0..0;
        let all = parameters.all_mut();
        let found: Vec<_> = all.iter().map(|(_, numbers, _)| numbers.len()).collect();
        assert_eq!(found, [0, 6, 10]);
    }

    #[test]
    fn frozen_parameters_have_no_gradient() {
        let mut model = Cpu::default().build_module::<Two, f64>();
        let mut parameters = Parameters::of(&mut model).unwrap();
        let bias = parameters.all[1].id;
        parameters.train(|id| id == bias);
        parameters.prepare();
        assert_eq!(parameters.gradients.buffer().len(), 2);
        parameters.add_to_gradient(1, |gradient| gradient.fill(1.0));
        let given: Vec<_> = parameters
            .all
            .iter()
            .map(|of| parameters.gradient(of))
            .collect();
        assert_eq!(given, [None, Some(&[1.0, 1.0][..]), None]);
    }
}
