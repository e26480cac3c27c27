//! A forward pass.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Merge, PutTape, SplitTape, Storage, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    entry::{Attended, Attends, ForwardOptions, Layer, Observer, Recorder, Wanted},
    fused::GradientRefs,
};

/// The state of a forward pass: the tape, whether the model trains, and the form of its operations.
///
/// The tapes of the inputs become the tape of the pass, and the output takes it. In between, an operation puts the tape on its first
/// operand and takes it off its result. The operations are those of [`ops`](crate::ops) or, in a composed pass, of
/// [`ops::composed`](crate::ops::composed). Both report the same errors.
///
/// After an error, the pass cannot continue: the tape is lost.
///
/// ```
/// use attn::{__private::runtime::{entry::ForwardOptions, model::Pass}, dfdx::prelude::*, nn::{Embedding, LayerNorm, Linear}};
///
/// let dev = Cpu::default();
/// let embedding = dev.build_module::<Embedding<65, 8>, f32>();
/// let norm = dev.build_module::<LayerNorm<8>, f32>();
/// let head = dev.build_module::<Linear<8, 3>, f32>();
/// let ids: Tensor<Rank1<4>, usize, _> = dev.tensor([1, 2, 3, 1]);
///
/// let mut pass = Pass::new(ForwardOptions::TRAIN);
/// let ids = pass.input(ids.leaky_traced());
/// let x = pass.embedding(&ids, &embedding).unwrap();
/// let x = pass.layer_norm(&x, &norm).unwrap();
/// let y = pass.linear(&x, &head).unwrap();
/// let y: Tensor<Rank2<4, 3>, f32, _, OwnedTape<f32, Cpu>> = pass.output(y);
///
/// let gradients = y.sum().backward();
/// assert_eq!(gradients.get(&head.bias).array(), [4.0; 3]);
/// assert_eq!(gradients.get(&embedding.weight).array()[0], [0.0; 8]);
/// ```
#[derive(Debug)]
pub struct Pass<'a, T> {
    tape: T,
    run: ForwardOptions<'a>,
}

impl<'a, T> Pass<'a, T> {
    /// A pass without inputs.
    pub fn new(run: ForwardOptions<'a>) -> Self
    where
        T: Default,
    {
        Self {
            tape: T::default(),
            run,
        }
    }

    /// Whether the model trains. Then operations such as dropout are random if there is a tape.
    pub(crate) fn train(&self) -> bool {
        self.run.train
    }

    /// Whether operations run on slices.
    pub(crate) fn fused<E: Element, D: Backend<E>>(&self) -> bool {
        self.run.is_fused::<E, D>()
    }

    /// Shows no results to the observer until [`resume`](Self::resume), which takes what this returns: a loop over steps has as many
    /// results as the call has steps.
    pub fn pause(&mut self) -> Option<&'a Observer> {
        self.run.observer.take()
    }

    /// Shows results to the observer again.
    pub fn resume(&mut self, observer: Option<&'a Observer>) {
        self.run.observer = observer;
    }

    /// How many attentions were recorded so far.
    pub fn attentions(&self) -> usize {
        self.run.recorder.map_or(0, Recorder::count)
    }

    /// Joins the weights that the steps of a scan recorded behind the `first` attentions, `each` at a step.
    pub fn join_steps(&self, first: usize, each: usize, reverse: bool) {
        if let Some(recorder) = self.run.recorder {
            recorder.join_steps(first, each, reverse);
        }
    }

    /// Adds an input, of numbers or of indices: its tape is merged into that of the pass.
    pub fn input<S: Shape, F: Clone, D: Storage<F>>(
        &mut self,
        x: Tensor<S, F, D, T>,
    ) -> Tensor<S, F, D>
    where
        T: Default + Merge<T>,
    {
        let (x, tape) = x.split_tape();
        self.tape = std::mem::take(&mut self.tape).merge(tape);
        x
    }

    /// The tape, for [several outputs](super::tapes_of_results).
    pub fn into_tape(self) -> T {
        self.tape
    }

    /// The output with the tape. A second output gets an empty tape.
    pub fn output<S: Shape, E, D: Storage<E>>(&mut self, y: Tensor<S, E, D>) -> Tensor<S, E, D, T>
    where
        T: Default,
    {
        y.put_tape(std::mem::take(&mut self.tape))
    }

    /// Calls `run` with the tape. It must return a tensor that has the tape.
    ///
    /// Other tensors that need a tape in `run` get an empty one, by dfdx's `retaped`.
    ///
    /// # Errors
    /// The error of `run`.
    pub fn with_tape<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        run: impl FnOnce(T) -> Result<Tensor<S, E, D, T>, Error<D::Err>>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        let (y, tape) = run(std::mem::take(&mut self.tape))?.split_tape();
        self.tape = tape;
        if let Some(observer) = self.run.observer {
            self.observe(observer, &y);
        }
        Ok(y)
    }

    /// Shows the result of an operation to the observer, and its gradient when that is known.
    fn observe<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        observer: &Observer,
        y: &Tensor<S, E, D>,
    ) where
        T: Tape<E, D>,
    {
        let shape = y.shape().concrete().into_iter().collect();
        // dfdx cannot list the numbers of an empty tensor.
        let numbers = match y.shape().num_elements() {
            0 => Vec::new(),
            _ => y.as_vec(),
        };
        let numbers = numbers.iter().filter_map(|y| y.to_f64());
        let result = observer.result(shape, numbers);
        let observer = observer.clone();
        let mut reference = GradientRefs::default();
        let slot = reference.add(y);
        self.tape.add_backward_op(move |tape| {
            let mut gradient = reference.take(tape)?;
            let mut numbers = gradient.of(slot).iter().filter_map(|d_y| d_y.to_f64());
            observer.gradient(result, numbers.find(|d_y| !d_y.is_finite()));
            reference.give_back(gradient, tape)
        });
    }

    /// Runs a declared layer in the form of this pass, on the input that `input` makes with the tape.
    ///
    /// # Errors
    /// The error of the layer.
    pub fn layer<L, X, S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        layer: &L,
        input: impl FnOnce(T) -> X,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        L: Layer<X, Output = Tensor<S, E, D, T>, Err = D::Err>,
        T: Tape<E, D>,
    {
        let run = self.run;
        self.with_tape(|tape| layer.run(input(tape), run))
    }

    /// Runs a declared attention, as [`layer`](Self::layer), with the results that are wanted beside its output.
    ///
    /// # Errors
    /// The error of the layer.
    #[allow(clippy::type_complexity, reason = "three tensors")]
    pub fn attention<L, X, S: Shape, W: Shape, Q: Shape, E: Element, D: Backend<E>>(
        &mut self,
        layer: &L,
        wanted: Wanted,
        input: impl FnOnce(T) -> X,
    ) -> Result<Attended<Tensor<S, E, D>, Tensor<W, E, D>, Tensor<Q, E, D>>, Error<D::Err>>
    where
        L: Attends<
                X,
                Output = Tensor<S, E, D, T>,
                Weights = Tensor<W, E, D, T>,
                Lse = Tensor<Q, E, D, T>,
                Err = D::Err,
            >,
        T: Tape<E, D>,
    {
        let run = ForwardOptions {
            wanted: Wanted {
                weights: wanted.weights || self.run.wanted.weights,
                ..wanted
            },
            ..self.run
        };
        let attended = layer.attend(input(std::mem::take(&mut self.tape)), run)?;
        run.record(&attended);
        Ok(Attended {
            output: self.taken(attended.output),
            weights: attended
                .weights
                .filter(|_| wanted.weights)
                .map(|weights| self.taken(weights)),
            lse: attended.lse.map(|lse| self.taken(lse)),
        })
    }

    /// A result without its tape, which is merged into that of the pass.
    fn taken<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        y: Tensor<S, E, D, T>,
    ) -> Tensor<S, E, D>
    where
        T: Tape<E, D>,
    {
        let y = self.input(y);
        if let Some(observer) = self.run.observer {
            self.observe(observer, &y);
        }
        y
    }

    /// Runs an operation on a tensor with the tape, in the form of this pass.
    pub(crate) fn run<S: Shape, S2: Shape, F: Clone, E: Element, D: Backend<E> + Storage<F>>(
        &mut self,
        x: &Tensor<S, F, D>,
        operation: impl FnOnce(bool, Tensor<S, F, D, T>) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        let fused = self.fused::<E, D>();
        self.with_tape(|tape| operation(fused, x.clone().put_tape(tape)))
    }
}

/// The tensor with this tape.
pub fn on<S: Shape, F: Clone, D: Storage<F>, T>(
    tape: T,
    x: &Tensor<S, F, D>,
) -> Tensor<S, F, D, T> {
    x.clone().put_tape(tape)
}
