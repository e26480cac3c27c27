//! The parameters of a model in one arena, and their gradients.

use std::{collections::BTreeMap, convert::Infallible, ops::Range, sync::Arc};

use dfdx::tensor::UniqueId;

use super::{Trainable, model::ErrOf};
use crate::{
    Element,
    fused::{Arena, Derivative, Gradients, Operation, Slot, Watch},
    kernel::{elementwise, optim::squared_norm},
    train::parameters::{Made, ParamPath, for_each, for_each_mut},
};

/// All parameters, in the order of the model.
pub(super) struct Parameters<E: Element> {
    pub(super) arena: Arena<E>,
    pub(super) all: Vec<Trained>,
    /// The tensor of each slot.
    ids: Vec<UniqueId>,
    /// Whether the gradient of each slot is wanted.
    pub(super) trained: Arc<[bool]>,
    /// The slots of tensors with one id, of which each has a part of the gradient.
    same: Vec<Vec<Slot>>,
    gradients: Gradients<E>,
    /// The number of operands of the loss before the parameters.
    inputs: usize,
    /// How many numbers each slot has.
    lens: Vec<usize>,
}

/// A parameter.
pub(super) struct Trained {
    pub(super) path: ParamPath,
    pub(super) dims: Vec<usize>,
    pub(super) id: UniqueId,
    /// Where it is in the arena.
    pub(super) range: Range<usize>,
    /// Where its gradient is: where that of the first tensor with its id is.
    slot: Slot,
    /// The number of the tensors with other ids before it: those with the same one have the same gradient.
    pub(super) group: usize,
    /// Whether it is the first one with its id.
    is_first: bool,
    /// Whether this rank updates it.
    pub(super) is_own: bool,
}

impl<E: Element> Parameters<E> {
    /// Those of a model.
    pub(super) fn of<M: Trainable<Element = E>>(model: &mut M) -> Result<Self, ErrOf<M>> {
        let mut made = Made::new();
        for_each_mut(model, |_, parameter| parameter.make_contiguous(&mut made))?;
        let arena = Arena::default();
        let mut operation = Operation::of_step(Arc::clone(&arena));
        operation.begin_parameters();
        model.reserve(&mut operation)?;
        let reserved = operation.into_parameters();
        let mut places: BTreeMap<_, Vec<(Slot, Range<usize>)>> = BTreeMap::new();
        let mut ids = Vec::new();
        if let Some(reserved) = reserved {
            reserved.fill();
            for tensor in &reserved.tensors {
                ids.push((tensor.slot.index(), tensor.id(), tensor.range.len()));
                let of_id = places.entry(tensor.id()).or_default();
                of_id.push((tensor.slot, tensor.range.clone()));
            }
        }
        let mut all: Vec<Trained> = Vec::new();
        let mut seen = BTreeMap::<_, usize>::new();
        let mut groups = BTreeMap::<_, usize>::new();
        let Ok(()) = for_each(model, |path, parameter| {
            let id = parameter.id();
            let Some(places) = places.get(&id) else {
                return Ok(());
            };
            let next = groups.len();
            let group = *groups.entry(id).or_insert(next);
            let before = seen.entry(id).or_default();
            if let (Some((_, range)), Some((slot, _))) = (places.get(*before), places.first()) {
                all.push(Trained {
                    path,
                    dims: parameter.dims(),
                    id,
                    range: range.clone(),
                    slot: *slot,
                    group,
                    is_first: *before == 0,
                    is_own: true,
                });
            }
            *before += 1;
            Ok::<_, Infallible>(())
        });
        ids.sort_unstable_by_key(|(slot, ..)| *slot);
        let lens = ids.iter().map(|(.., len)| *len).collect();
        let ids: Vec<_> = ids.into_iter().map(|(_, id, _)| id).collect();
        let same = places.into_values().filter(|places| places.len() > 1);
        let same = same.map(|places| places.into_iter().map(|(slot, _)| slot).collect());
        Ok(Self {
            arena,
            all,
            same: same.collect(),
            gradients: Gradients::default(),
            trained: vec![true; ids.len()].into(),
            ids,
            inputs: 0,
            lens,
        })
    }

    /// Says which tensors are trained. The gradients of the others are not computed from here on, and their memory goes back.
    pub(super) fn train(&mut self, is_trained: impl Fn(UniqueId) -> bool) {
        self.trained = self.ids.iter().map(|id| is_trained(*id)).collect();
        for of in &mut self.all {
            of.slot = of.slot.if_wanted(is_trained(of.id));
        }
        for slot in self.same.iter_mut().flatten() {
            *slot = slot.if_wanted(self.trained[slot.index()]);
        }
        self.release_unwanted();
    }

    /// Gives back the memory of the gradients of inputs, and of parameters that are not trained.
    fn release_unwanted(&mut self) {
        let parameters = self.trained.iter().enumerate();
        let frozen = parameters.filter(|(_, is_trained)| !**is_trained);
        let frozen = frozen.map(|(slot, _)| slot + self.inputs);
        (0..self.inputs)
            .chain(frozen)
            .for_each(|slot| self.gradients.release(slot));
    }

    /// The bytes of the gradients.
    pub(super) fn gradient_bytes(&self) -> usize {
        self.gradients.len() * size_of::<E>()
    }

    /// Adds the gradients of a loss times a weight. Memory that a kernel took for one that nobody wants goes back.
    pub(super) fn add(&mut self, derivative: Derivative<E>, weight: f64) {
        self.prepare_for(&derivative);
        derivative.run(E::of(weight), &mut self.gradients);
        self.release_unwanted();
    }

    /// [`add`](Self::add), where `watch` hears of the gradients that are finished.
    pub(super) fn add_watched<W: Watch<E>>(
        &mut self,
        derivative: Derivative<E>,
        weight: f64,
        watch: impl FnOnce(usize) -> W,
    ) -> W {
        self.prepare_for(&derivative);
        let watch = watch(self.inputs);
        let watch = derivative.run_watched(E::of(weight), &mut self.gradients, watch);
        self.release_unwanted();
        watch
    }

    fn prepare_for(&mut self, derivative: &Derivative<E>) {
        let inputs = derivative.lens.len() - self.ids.len();
        self.inputs = inputs;
        self.gradients
            .prepare(&derivative.lens, |slot| slot.is_behind(inputs));
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
        let inputs = std::iter::repeat_n(0, self.inputs);
        let lens: Vec<_> = inputs.chain(self.lens.iter().copied()).collect();
        let inputs = self.inputs;
        self.gradients.prepare(&lens, |slot| slot.is_behind(inputs));
    }

    /// Says which parameters this rank updates.
    pub(super) fn own(&mut self, is_own: impl Fn(usize) -> bool) {
        for (index, of) in self.all.iter_mut().enumerate() {
            of.is_own = is_own(index);
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

    /// Changes the gradient of a parameter, which is 0 if it has none yet.
    pub(super) fn add_to_gradient(&mut self, of: usize, add: impl FnOnce(&mut [E])) {
        let slot = self.all[of].slot.behind(self.inputs);
        add(self.gradients.of(slot));
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

    /// The gradient of a parameter, if it has one.
    pub(super) fn gradient(&self, of: &Trained) -> Option<&[E]> {
        self.gradients.given(of.slot.behind(self.inputs))
    }

    /// The square of the norm of the gradients as one vector: of the parameters that this rank updates.
    pub(super) fn squared_norm(&self) -> f64 {
        let first = self.all.iter().filter(|of| of.is_first && of.is_own);
        let gradients = first.filter_map(|of| self.gradient(of));
        gradients.map(squared_norm).sum::<f64>()
    }

    /// The place of the first parameter whose gradient is not finite, of those that this rank updates.
    pub(super) fn first_non_finite(&self) -> Option<usize> {
        let is_not_finite =
            |gradient: &[E]| gradient.iter().any(|&x| !Into::<f64>::into(x).is_finite());
        let mut all = self.all.iter();
        all.position(|of| of.is_own && self.gradient(of).is_some_and(is_not_finite))
    }

    /// Multiplies all gradients by a factor.
    pub(super) fn scale(&mut self, factor: f64) {
        for of in self.all.iter().filter(|of| of.is_first && of.is_own) {
            if let Some(gradient) = self.gradients.given_mut(of.slot.behind(self.inputs)) {
                elementwise::scale(E::of(factor), gradient);
            }
        }
    }

    /// Every parameter that this rank updates with its numbers, and its gradient if it has one, in the order of the arena.
    ///
    /// # Panics
    /// If a pass still reads the parameters.
    pub(super) fn all_mut(&mut self) -> Vec<(&Trained, &mut [E], Option<&[E]>)> {
        let Some(arena) = Arc::get_mut(&mut self.arena).and_then(|arena| arena.get_mut()) else {
            panic!("a pass still reads the parameters");
        };
        let mut all: Vec<_> = self.all.iter().filter(|of| of.is_own).collect();
        all.sort_unstable_by_key(|of| of.range.start);
        let (mut rest, mut at) = (&mut arena[..], 0);
        let numbers = all.into_iter().map(|of| {
            let behind = std::mem::take(&mut rest)
                .split_at_mut(of.range.start - at)
                .1;
            let (numbers, behind) = behind.split_at_mut(of.range.len());
            (rest, at) = (behind, of.range.end);
            let gradient = self.gradients.given(of.slot.behind(self.inputs));
            (of, numbers, gradient)
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
            if let Some(of) = all.next_if(|of| of.path.name == path.name) {
                parameter.write(&arena[of.range.clone()]);
            }
            Ok::<_, Infallible>(())
        });
    }
}
