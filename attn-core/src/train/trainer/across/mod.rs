//! A step of several ranks.
//!
//! Each rank has a part of the batch, and gradients of all parameters by it. It updates an equal range of each parameter, and alone keeps the
//! optimizer's lists for it (ZeRO, stage 1: Rajbhandari et al., 2020). Where an algorithm needs a whole parameter, one rank has all of it. In
//! a step
//!
//! 1. every rank sends each other one the gradients of its ranges, which that adds in the order of the ranks; perhaps in bf16, where what is
//!    missing of the numbers is sent with those of the next step;
//! 2. the norm of all gradients is the sum of the ranks' parts of it;
//! 3. the ranks update their ranges, and send them to all.

mod bytes;
mod feedback;
mod shards;
mod state;

use std::{collections::VecDeque, ops::Range};

pub(crate) use self::feedback::RoundingErrors;
use self::{
    bytes::{Format, Reader},
    shards::{Bucket, Part as ShardPart, Shards},
};
use super::parameters::{Parameters, Trained};
use crate::{
    Element,
    fused::{FinishedSlots, Gradients, Watch},
    random::Part,
    train::{
        Own,
        collective::{Call, Collective, CollectiveError, Message, Outgoing, Pending},
    },
};

/// How gradients are exchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// The bytes that are exchanged at a time, at least.
    pub(super) bucket_bytes: usize,
    pub(super) is_bf16: bool,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            bucket_bytes: 4 << 20,
            is_bf16: false,
        }
    }
}

/// The other ranks of a trainer.
pub(super) struct Across<E> {
    collective: Box<dyn Collective>,
    /// The errors of the gradients that this rank has sent, if it sends them in bf16.
    errors: Option<RoundingErrors<E>>,
    /// Who updates what; the next step decides it if there are none.
    shards: Option<Shards>,
    /// The part of the lists that this rank has. Without it, every rank has all lists.
    own: Option<Own>,
    /// How many buckets of gradients are exchanged since the last step.
    begun: usize,
    /// The exchanges of those buckets whose messages have not been received.
    pending: VecDeque<Pending>,
}

/// The ranks, and what this one has alone.
pub(crate) struct OfRank<'a, E> {
    pub(crate) ranks: &'a mut dyn Collective,
    /// The part of the lists. Without it, every rank has all lists.
    pub(crate) own: Option<&'a Own>,
    pub(crate) errors: Option<&'a RoundingErrors<E>>,
}

/// The part of a rank in a batch.
pub(super) struct Share {
    /// The factor of its loss in that of all ranks.
    pub(super) factor: f64,
    /// The targets of all ranks.
    pub(super) targets: usize,
    pub(super) part: Part,
}

impl Share {
    /// That of a rank without others.
    pub(super) const fn all(targets: usize) -> Self {
        Self {
            factor: 1.0,
            targets,
            part: Part::WHOLE,
        }
    }
}

/// What the ranks have to have in common.
pub(super) struct Description {
    /// The parameters, and how they are updated.
    pub(super) model: String,
    pub(super) settings: String,
}

impl<E: Element> Across<E> {
    pub(super) fn new(collective: Box<dyn Collective>) -> Self {
        Self {
            collective,
            errors: None,
            shards: None,
            own: None,
            begun: 0,
            pending: VecDeque::new(),
        }
    }

    pub(super) fn collective(&self) -> &dyn Collective {
        &*self.collective
    }

    pub(super) fn collective_mut(&mut self) -> &mut dyn Collective {
        &mut *self.collective
    }

    pub(super) fn of_rank(&mut self) -> OfRank<'_, E> {
        OfRank {
            ranks: &mut *self.collective,
            own: self.own.as_ref(),
            errors: self.errors.as_ref(),
        }
    }

    /// Goes on with the rounding errors of a checkpoint.
    pub(super) fn set_errors(&mut self, errors: Option<RoundingErrors<E>>) {
        self.errors = errors;
    }

    /// Forgets the rounding errors: the step that they are of was not taken.
    pub(super) fn forget_errors(&mut self) {
        if let Some(errors) = &mut self.errors {
            *errors = RoundingErrors::default();
        }
    }

    /// The bytes of the rounding errors.
    pub(super) fn error_bytes(&self) -> usize {
        let errors = self.errors.as_ref();
        errors.map_or(0, |errors| errors.len() * size_of::<E>())
    }

    /// The numbers of gradients in messages.
    const fn format(&self) -> Format {
        match self.errors {
            None => Format::Full,
            Some(_) => Format::Bf16,
        }
    }

    /// Before the gradients of a step, which are sums over batches of this weight, are exchanged.
    pub(super) fn begin_step(&mut self, weight: f64) {
        if let Some(errors) = &mut self.errors
            && self.begun == 0
        {
            errors.set_weight(weight);
        }
    }

    /// Ends all ranks.
    pub(super) fn fail(&mut self, reason: &str) {
        self.collective.fail(reason);
    }

    /// Whether the ranks have come together.
    pub(super) fn has_shards(&self) -> bool {
        self.shards.is_some()
    }

    /// Whether each rank updates a range of this parameter.
    pub(super) fn cuts(&self, parameter: usize) -> bool {
        let shards = self.shards.as_ref();
        shards.is_some_and(|shards| shards.cuts(parameter))
    }

    /// The next step brings the ranks together again: the parameters, or which of them are trained, have changed.
    pub(super) fn forget_shards(&mut self) {
        self.shards = None;
    }

    /// Before the first step: checks that all ranks are set up the same, gives all of them the parameters of rank 0, and decides who
    /// updates what.
    pub(super) fn join(
        &mut self,
        parameters: &mut Parameters<E>,
        traffic: Traffic,
        is_whole: impl Fn(&Trained) -> bool,
        description: impl FnOnce() -> Description,
    ) -> Result<(), CollectiveError> {
        let Description { model, settings } = description();
        self.collective.agree("model", model.as_bytes())?;
        self.collective.agree("settings", settings.as_bytes())?;
        let mut message = Vec::new();
        if self.collective.rank() == 0 {
            bytes::write(parameters.numbers(), &mut message);
        }
        let message = self.collective.broadcast(0, message)?;
        if self.collective.rank() != 0 {
            let numbers = parameters.numbers_mut();
            let call = Call::Broadcast { root: 0 };
            message.check_len(0, call, size_of_val(numbers))?;
            Reader(&message).read(numbers);
        }
        let shards = Shards::new(
            &parts(parameters, is_whole),
            self.collective.ranks(),
            traffic.bucket_bytes / size_of::<E>(),
        );
        let rank = self.collective.rank();
        parameters.own(|index| shards.range(index, rank));
        self.errors = traffic.is_bf16.then(|| {
            let gradients = shards.buckets().iter().flat_map(|of| &of.gradients);
            let mut errors = self.errors.take().unwrap_or_default();
            errors.keep(rank, gradients);
            errors
        });
        self.shards = Some(shards);
        Ok(())
    }

    /// The part that this rank has in a batch: so many targets, in so many rows.
    pub(super) fn share(&mut self, targets: usize, rows: usize) -> Result<Share, CollectiveError> {
        let all = [targets, rows].map(|number| number as f64);
        let all = self.collective.gather_numbers(&all)?;
        let sum: f64 = all.iter().map(|of| of[0]).sum();
        let before = all[..self.collective.rank()].iter();
        let before: f64 = before.map(|of| of[1]).sum();
        let factor = match sum > 0.0 {
            true => targets as f64 / sum,
            // The loss of no targets is that of each rank, NaN if it is a mean.
            false => 1.0 / all.len() as f64,
        };
        Ok(Share {
            factor,
            targets: sum as usize,
            part: Part::new(before as u64, rows as u64),
        })
    }

    /// The sums of numbers over all ranks.
    pub(super) fn sum<const N: usize>(
        &mut self,
        numbers: [f64; N],
    ) -> Result<[f64; N], CollectiveError> {
        let sums = self.collective.sum(&numbers)?;
        Ok(std::array::from_fn(|index| sums[index]))
    }

    /// The least of the numbers of all ranks.
    pub(super) fn least(&mut self, number: usize) -> Result<usize, CollectiveError> {
        let all = self.collective.gather_numbers(&[number as f64])?;
        let least = all.iter().map(|of| of[0]).fold(f64::INFINITY, f64::min);
        Ok(least as usize)
    }

    /// Adds the gradients of all ranks, in their order, to those of the numbers that this rank updates.
    ///
    /// They are sums over batches of this weight.
    pub(super) fn reduce(
        &mut self,
        parameters: &mut Parameters<E>,
        weight: f64,
    ) -> Result<(), CollectiveError> {
        parameters.prepare();
        self.begin_step(weight);
        let rank = self.collective.rank();
        for index in 0.. {
            // The messages of a bucket travel while those of the one before it are added.
            while self.pending.len() < 2 && self.next_bucket().is_some() {
                let (gradients, inputs) = parameters.gradients();
                self.begin_bucket(gradients, inputs)?;
            }
            let Some(pending) = self.pending.pop_front() else {
                break;
            };
            let messages = self.collective.wait(pending)?;
            if let Some(shards) = &self.shards {
                let bucket = shards.buckets()[index].parameters.clone();
                add(rank, &messages, self.format(), parameters, bucket)?;
            }
        }
        self.begun = 0;
        Ok(())
    }

    /// The first bucket whose gradients are not exchanged yet.
    fn next_bucket(&self) -> Option<&Bucket> {
        self.shards.as_ref()?.buckets().get(self.begun)
    }

    /// Begins the exchange of the next bucket. The gradients of parameters are behind those of so many inputs.
    fn begin_bucket(
        &mut self,
        gradients: &mut Gradients<E>,
        inputs: usize,
    ) -> Result<(), CollectiveError> {
        let messages = Outgoing::Each(self.pack(gradients, inputs));
        let pending = self.collective.begin(Call::AllToAll, messages)?;
        self.pending.push_back(pending);
        self.begun += 1;
        Ok(())
    }

    /// A message to each rank, with its ranges of the gradients of the next bucket: a byte that says whether there is a gradient, and the
    /// numbers. This rank's own ranges are never rounded.
    fn pack(&mut self, gradients: &mut Gradients<E>, inputs: usize) -> Vec<Vec<u8>> {
        let (own, ranks) = (self.collective.rank(), self.collective.ranks());
        let (format, errors) = (self.format(), &mut self.errors);
        let shards = self.shards.as_ref();
        let bucket = shards.and_then(|shards| shards.buckets().get(self.begun));
        let of_bucket = bucket.map_or(&[][..], |bucket| &bucket.gradients);
        let others = || (0..ranks).filter(|rank| *rank != own);
        let mut messages = vec![Vec::new(); ranks];
        for rank in others() {
            let ranges = of_bucket.iter().map(|of| of.owners.range(rank));
            let lens = ranges.map(|range| 1 + format.bytes::<E>(range.len()));
            messages[rank].reserve_exact(Message::HEADER + lens.sum::<usize>());
        }
        for of in of_bucket {
            let gradient = gradients.sum(of.slots.iter().map(|slot| slot.behind(inputs)));
            for rank in others() {
                let range = of.owners.range(rank);
                if range.is_empty() {
                    continue;
                }
                let message = &mut messages[rank];
                message.push(u8::from(gradient.is_some()));
                let Some(numbers) = gradient.map(|gradient| &gradient[range.clone()]) else {
                    continue;
                };
                match errors {
                    None => bytes::write(numbers, message),
                    Some(errors) => {
                        bytes::write_rounded(numbers, errors.part(of, own, range), message);
                    }
                }
            }
        }
        messages
    }

    /// Gives all ranks the parameters that each has updated.
    pub(super) fn gather(&mut self, parameters: &mut Parameters<E>) -> Result<(), CollectiveError> {
        let Some(shards) = &self.shards else {
            return Ok(());
        };
        let rank = self.collective.rank();
        let mut before = None;
        for bucket in shards.buckets() {
            let bucket = &bucket.parameters;
            let mut message = Vec::new();
            for (_, of) in parameters.trained_in(bucket.clone()) {
                bytes::write(&parameters.numbers()[of.own_range()], &mut message);
            }
            let pending = self
                .collective
                .begin(Call::AllGather, Outgoing::Same(message))?;
            if let Some((bucket, pending)) = before.replace((bucket.clone(), pending)) {
                read(
                    rank,
                    shards,
                    &self.collective.wait(pending)?,
                    parameters,
                    bucket,
                )?;
            }
        }
        match before {
            None => Ok(()),
            Some((bucket, pending)) => read(
                rank,
                shards,
                &self.collective.wait(pending)?,
                parameters,
                bucket,
            ),
        }
    }
}

/// Exchanges the gradients of the last batch of a step while the backward pass goes on with others.
pub(super) struct Exchange<E> {
    pub(super) across: Across<E>,
    /// How many inputs have gradients before those of the parameters.
    pub(super) inputs: usize,
}

impl<E: Element> Watch<Gradients<E>> for Exchange<E> {
    fn hear(&mut self, finished: &FinishedSlots, gradients: &mut Gradients<E>) {
        let inputs = self.inputs;
        let is_finished = |bucket: &Bucket| {
            let slots = bucket.gradients.iter().flat_map(|of| &of.slots);
            let mut slots = slots.map(|slot| slot.behind(inputs));
            slots.all(|slot| finished.contains(slot))
        };
        while self.across.next_bucket().is_some_and(is_finished) {
            // The next operation returns the error again.
            if self.across.begin_bucket(gradients, inputs).is_err() {
                break;
            }
        }
    }
}

fn parts<E: Element>(
    parameters: &Parameters<E>,
    is_whole: impl Fn(&Trained) -> bool,
) -> Vec<ShardPart> {
    let all = parameters.all.iter();
    all.map(|of| ShardPart {
        name: of.name.clone(),
        len: of.range.len(),
        group: of.group,
        is_trained: parameters.is_trained(of),
        is_whole: is_whole(of),
        slots: parameters.slots(of),
    })
    .collect()
}

/// Adds the gradients of a bucket that the other ranks sent.
fn add<E: Element>(
    rank: usize,
    messages: &[Message],
    format: Format,
    parameters: &mut Parameters<E>,
    bucket: Range<usize>,
) -> Result<(), CollectiveError> {
    let mut readers: Vec<_> = messages.iter().map(|message| Reader(message)).collect();
    let own: Vec<_> = parameters.exchanged(bucket);
    let own: Vec<_> = own
        .into_iter()
        .filter(|(_, of)| !of.own.is_empty())
        .map(|(index, _)| index)
        .collect();
    let mut sum = Vec::new();
    for index in own {
        let len = parameters.all[index].own.len();
        sum.clear();
        // A sum of two is the same in both orders. So those of the ranks before this one are added up first, then its own and the others.
        for (from, reader) in readers.iter_mut().enumerate() {
            if from == rank {
                if !sum.is_empty() {
                    parameters.add_to_gradient(index, |gradient| {
                        gradient.iter_mut().zip(&sum).for_each(|(to, x)| *to += *x);
                    });
                }
                continue;
            }
            let short = || CollectiveError::Length {
                rank: from,
                call: Call::AllToAll,
                found: messages[from].len(),
                expected: format.bytes::<E>(len),
            };
            match reader.take(1).ok_or_else(short)? {
                [0] => {}
                _ if from < rank => {
                    sum.resize(len, E::zero());
                    reader.add(&mut sum, format).ok_or_else(short)?;
                }
                _ => {
                    let mut added = None;
                    parameters
                        .add_to_gradient(index, |gradient| added = reader.add(gradient, format));
                    added.ok_or_else(short)?;
                }
            }
        }
    }
    Ok(())
}

/// Reads the parameters of a bucket that the other ranks have updated.
fn read<E: Element>(
    rank: usize,
    shards: &Shards,
    messages: &[Message],
    parameters: &mut Parameters<E>,
    bucket: Range<usize>,
) -> Result<(), CollectiveError> {
    let mut readers: Vec<_> = messages.iter().map(|message| Reader(message)).collect();
    let starts: Vec<_> = parameters
        .trained_in(bucket)
        .map(|(index, of)| (index, of.range.start))
        .collect();
    let numbers = parameters.numbers_mut();
    for (index, start) in starts {
        for (from, reader) in readers.iter_mut().enumerate() {
            if from == rank {
                continue;
            }
            let range = shards.range(index, from);
            let expected = range.len() * size_of::<E>();
            let read = reader.read(&mut numbers[start + range.start..start + range.end]);
            read.ok_or_else(|| CollectiveError::Length {
                rank: from,
                call: Call::AllGather,
                found: messages[from].len(),
                expected,
            })?;
        }
    }
    Ok(())
}
