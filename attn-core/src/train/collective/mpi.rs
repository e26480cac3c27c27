//! Ranks that `mpirun` started.
//!
//! MPI is driven by a thread of its own, which has the messages of one operation after the other. So what the ranks compute between
//! [`begin`](super::Collective::begin) and [`wait`](super::Collective::wait) goes on beside it.

use std::{
    cell::RefCell,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use mpi::{
    Tag,
    environment::Threading,
    request::{Request, Scope, StaticScope},
    topology::{Process, SimpleCommunicator},
    traits::{Communicator, CommunicatorCollectives, Destination, Equivalence, Source},
};

use super::{
    CollectiveError, Message,
    link::{self, Broken, End, Link, Sequence, end_of},
    peers::{self, Peers},
};

/// The tag of all messages.
const TAG: Tag = 0x0a77;

/// The bytes that MPI gets at a time: it counts them by an `i32`.
const CHUNK: usize = 1 << 30;

/// How often a thread that nobody waits for asks MPI for news.
const PAUSE: Duration = Duration::from_micros(50);

/// How often a rank that has ended does so.
const PAUSE_AT_END: Duration = Duration::from_millis(1);

/// How long a rank that has failed tries to say so.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long it does where a rank is gone, which receives nothing: the launcher kills the others a second later.
const LITTLE_PATIENCE: Duration = Duration::from_millis(200);

/// A rank of the processes that `mpirun` started. PyTorch: `dist.init_process_group("mpi")`.
///
/// ```no_run
/// # use attn::{prelude::*, train::{AdamWConfig, CollectiveError, Mpi}};
/// # model! {
/// #     struct Net<d = 2>;
/// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
/// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
/// # }
/// # let model = Cpu::default().build_module::<Net, f32>();
/// let trainer = model.trainer(AdamWConfig::default()).across(Mpi::new()?);
/// # Ok::<(), CollectiveError>(())
/// ```
///
/// `mpirun --bind-to none -n 2 cargo run --release --features mpi` starts two of them. Without `--bind-to none`, Open MPI binds each of two
/// processes to one core, which all threads of the process then share. A program that is started without `mpirun` is the only rank.
///
/// A process has one, which is dropped before the process ends. A rank that panics or fails tells the others, and ends MPI in no other way
/// than by the end of its process: `mpirun` ends those that are left.
///
/// A rank whose process is killed is named by the others on its machine, on Linux: the operation in which they wait for it is
/// [`CollectiveError::Failed`]. Open MPI's `mpirun` sends them SIGTERM in the same moment, and kills them a second later. So a program has the
/// time to print the error if it handles SIGTERM, as one does whose [`fit`](crate::train::Trainer::fit) saves and stops. Of a rank on another machine the
/// launcher alone tells.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    ranks: usize,
    sequence: Sequence,
    jobs: Option<Sender<Vec<Message>>>,
    done: Receiver<Result<Vec<Option<Message>>, Broken>>,
    /// Whether the rank has nothing to do but to wait.
    is_waiting: Arc<AtomicBool>,
}

impl Mpi {
    /// Joins the ranks.
    ///
    /// # Errors
    /// [`CollectiveError::Unavailable`] if the process has a rank already, or MPI refuses programs of several threads.
    pub fn new() -> Result<Self, CollectiveError> {
        let (jobs, of_rank) = channel();
        let (to_rank, done) = channel();
        let (begun, places) = channel();
        let is_waiting = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_waiting);
        let drive = move || {
            // All calls are made by this thread.
            let universe = mpi::initialize_with_threading(Threading::Funneled);
            let Some((universe, provided)) = universe else {
                let _ = begun.send(Err(
                    "MPI is initialised already: a process has one `Mpi`".to_owned()
                ));
                return;
            };
            if provided < Threading::Funneled {
                let _ = begun.send(Err(format!(
                    "MPI supports {provided:?} threads, and has to be built for `MPI_THREAD_FUNNELED`"
                )));
                return;
            }
            let world = universe.world();
            let mut all = vec![0; 2 * world.size() as usize];
            world.all_gather_into(&peers::own(), &mut all[..]);
            if begun.send(Ok([world.rank(), world.size()])).is_ok() {
                let driver = Driver {
                    world,
                    peers: RefCell::new(Peers::new(all.as_chunks().0)),
                    done: to_rank.clone(),
                    is_waiting: flag,
                };
                driver.run(&of_rank);
            }
            // Ends MPI, before the rank hears of it.
            drop(universe);
            drop(to_rank);
        };
        let unavailable = |reason: String| CollectiveError::Unavailable { reason };
        let thread = thread::Builder::new().name("mpi".into()).spawn(drive);
        thread.map_err(|error| unavailable(format!("no thread for MPI: {error}")))?;
        let place = places
            .recv()
            .unwrap_or_else(|_| Err("MPI could not be initialised".into()));
        let [rank, ranks] = place.map_err(unavailable)?.map(|number| number as usize);
        Ok(Self {
            rank,
            ranks,
            sequence: Sequence::default(),
            jobs: Some(jobs),
            done,
            is_waiting,
        })
    }
}

impl Link for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn sequence(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    fn post(&mut self, messages: Vec<Message>) {
        // Behind an error the thread has ended, and the sequence returns the error.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(messages));
    }

    fn receive(&mut self) -> Result<Vec<Option<Message>>, Broken> {
        self.is_waiting.store(true, Ordering::Relaxed);
        let received = self.done.recv();
        self.is_waiting.store(false, Ordering::Relaxed);
        received.unwrap_or_else(|_| {
            Err(Broken {
                rank: self.rank,
                end: End::Failed {
                    rank: self.rank,
                    reason: "the thread that drives MPI has ended".into(),
                },
            })
        })
    }
}

impl Drop for Mpi {
    /// Waits until all ranks are here, unless one has failed.
    fn drop(&mut self) {
        link::leave(self);
        self.jobs = None;
        self.is_waiting.store(true, Ordering::Relaxed);
        let has_failed = self.sequence.has_failed();
        loop {
            match self.done.recv_timeout(PATIENCE) {
                Ok(Ok(messages)) if messages.is_empty() => break,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if has_failed => break,
                _ => {}
            }
        }
    }
}

link::collective!(Mpi, |this| &this.sequence);

/// Sends that are not complete.
struct Sends<'a, S: Scope<'a>> {
    requests: Vec<Request<'a, [u8], S>>,
    scope: S,
}

impl<'a, S: Scope<'a> + Copy> Sends<'a, S> {
    const fn new(scope: S) -> Self {
        Self {
            requests: Vec::new(),
            scope,
        }
    }

    /// Begins to send a message to each rank but this one.
    fn begin(&mut self, world: &SimpleCommunicator, messages: &'a [Message]) {
        for (to, message) in (0..).zip(messages) {
            if to == world.rank() {
                continue;
            }
            let mut rest = message.bytes();
            loop {
                let (chunk, others) = rest.split_at(rest.len().min(CHUNK));
                let process = world.process_at_rank(to);
                let request = process.immediate_send_with_tag(self.scope, chunk, TAG);
                self.requests.push(request);
                // The last chunk is shorter, so that its end is known.
                if chunk.len() < CHUNK {
                    break;
                }
                rest = others;
            }
        }
    }

    /// Goes on, and says whether all are complete.
    fn are_complete(&mut self) -> bool {
        let requests = mem::take(&mut self.requests).into_iter();
        self.requests = requests.filter_map(|send| send.test().err()).collect();
        self.requests.is_empty()
    }
}

/// The message of a rank, as far as it has arrived.
#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// The next of its chunks.
    chunk: Vec<u8>,
    is_complete: bool,
}

impl Incoming {
    fn add_chunk(&mut self) {
        if self.is_complete {
            return;
        }
        self.is_complete = self.chunk.len() < CHUNK;
        let mut chunk = mem::take(&mut self.chunk);
        match self.bytes.is_empty() {
            true => self.bytes = chunk,
            false => self.bytes.append(&mut chunk),
        }
    }
}

/// The next chunk of a rank.
enum Receive<'a, S: Scope<'a>> {
    Expected(&'a mut Vec<u8>),
    UnderWay(Request<'a, Vec<u8>, S>),
    Complete,
}

impl<'a, S: Scope<'a>> Receive<'a, S> {
    /// Goes on as far as it can without waiting. It returns the chunk once, when it is complete.
    fn go_on(&mut self, from: Process<'_>, scope: S) -> Option<&'a [u8]> {
        let mut now = mem::replace(self, Self::Complete);
        if let Self::Expected(chunk) = now {
            now = match from.immediate_matched_probe_with_tag(TAG) {
                None => Self::Expected(chunk),
                Some((message, status)) => {
                    chunk.resize(status.count(u8::equivalent_datatype()) as usize, 0);
                    Self::UnderWay(message.immediate_matched_receive_into(scope, chunk))
                }
            };
        }
        if let Self::UnderWay(request) = now {
            now = match request.test_with_data() {
                Ok((_, chunk)) => return Some(chunk),
                Err(request) => Self::UnderWay(request),
            };
        }
        *self = now;
        None
    }
}

/// What the thread has.
struct Driver {
    world: SimpleCommunicator,
    peers: RefCell<Peers>,
    done: Sender<Result<Vec<Option<Message>>, Broken>>,
    is_waiting: Arc<AtomicBool>,
}

impl Driver {
    /// Carries messages until the rank leaves.
    fn run(&self, jobs: &Receiver<Vec<Message>>) {
        while let Ok(messages) = jobs.recv() {
            let end = messages.first().and_then(Message::end);
            if let Some(End::Failed { .. }) = end {
                self.stay(&mut Sends::new(StaticScope), messages);
            }
            let is_last = end.is_some();
            let received = self.exchange(&messages, is_last, jobs);
            if is_last {
                break;
            }
            // A rank that does not wait has left, and says so by another job.
            let _ = self.done.send(Ok(received));
        }
    }

    /// Sends a message to every other rank, and receives one of each. It does not return if one of them has ended, unless this one ends, too.
    fn exchange(
        &self,
        messages: &[Message],
        is_last: bool,
        jobs: &Receiver<Vec<Message>>,
    ) -> Vec<Option<Message>> {
        let own = self.world.rank() as usize;
        let mut incoming: Vec<_> = messages.iter().map(|_| Incoming::default()).collect();
        incoming[own].is_complete = true;
        mpi::request::scope(|scope| {
            let mut sends = Sends::new(scope);
            sends.begin(&self.world, messages);
            while incoming.iter().any(|of| !of.is_complete) {
                self.receive(&mut incoming, &mut sends, is_last, jobs);
                incoming.iter_mut().for_each(Incoming::add_chunk);
            }
            while !sends.are_complete() {
                // A rank that is gone does not receive the rest.
                let missing = self.peers.borrow_mut().missing(|rank| rank != own);
                if let Some(broken) = missing.filter(|_| !is_last) {
                    self.end(broken, is_last, jobs, &mut sends);
                }
                self.pause();
            }
        });
        let received = incoming.into_iter().enumerate();
        let received = received.map(|(rank, of)| match rank == own {
            true => None,
            false => Message::of_bytes(of.bytes),
        });
        received.collect()
    }

    /// Receives the next chunk of every message that is not complete, while the sends go on.
    fn receive<'s, S: Scope<'s> + Copy>(
        &self,
        incoming: &mut [Incoming],
        sends: &mut Sends<'s, S>,
        is_last: bool,
        jobs: &Receiver<Vec<Message>>,
    ) {
        mpi::request::scope(|scope| {
            let receives = incoming.iter_mut().map(|of| match of.is_complete {
                true => (true, Receive::Complete),
                false => (of.bytes.is_empty(), Receive::Expected(&mut of.chunk)),
            });
            let mut receives: Vec<_> = receives.collect();
            loop {
                let mut are_complete = true;
                for (from, (is_first, receive)) in receives.iter_mut().enumerate() {
                    let process = self.world.process_at_rank(from as i32);
                    let chunk = receive.go_on(process, scope);
                    let broken = chunk.and_then(|chunk| broken(from, chunk, *is_first, is_last));
                    if let Some(broken) = broken {
                        self.end(broken, is_last, jobs, sends);
                    }
                    are_complete &= matches!(receive, Receive::Complete);
                }
                if are_complete {
                    break;
                }
                sends.are_complete();
                let is_missed = |rank: usize| !matches!(receives[rank].1, Receive::Complete);
                let missing = self.peers.borrow_mut().missing(is_missed);
                if let Some(broken) = missing {
                    self.end(broken, is_last, jobs, sends);
                }
                self.pause();
            }
        });
    }

    fn pause(&self) {
        match self.is_waiting.load(Ordering::Relaxed) {
            true => thread::yield_now(),
            false => thread::sleep(PAUSE),
        }
    }

    /// Ends in the middle of an exchange.
    fn end<'a, S: Scope<'a> + Copy>(
        &self,
        broken: Broken,
        is_last: bool,
        jobs: &Receiver<Vec<Message>>,
        sends: &mut Sends<'a, S>,
    ) -> ! {
        if is_last {
            self.stay(sends, Vec::new());
        }
        let _ = self.done.send(Err(broken));
        loop {
            match jobs.recv_timeout(PAUSE) {
                // The error is passed on. Operations that began before it are dropped.
                Ok(messages) if messages.first().and_then(Message::end).is_some() => {
                    self.stay(sends, messages);
                }
                Err(RecvTimeoutError::Disconnected) => self.stay(sends, Vec::new()),
                Ok(_) | Err(RecvTimeoutError::Timeout) => drop(self.go_on(sends)),
            }
        }
    }

    /// Tells the other ranks how this one ended.
    ///
    /// MPI is not ended, since other ranks do not end it: `mpirun` sees that, and ends them.
    fn stay<'a, S: Scope<'a> + Copy>(&self, sends: &mut Sends<'a, S>, messages: Vec<Message>) -> ! {
        sends.begin(&self.world, Vec::leak(messages));
        let begin = Instant::now();
        let patience = match self.peers.borrow().has_lost() {
            true => LITTLE_PATIENCE,
            false => PATIENCE,
        };
        while !self.go_on(sends) && begin.elapsed() < patience {
            thread::sleep(PAUSE);
        }
        let _ = self.done.send(Ok(Vec::new()));
        loop {
            self.go_on(sends);
            thread::sleep(PAUSE_AT_END);
        }
    }

    /// Lets the other ranks complete the operations that they are in, behind which they hear that this one has ended. It says whether all
    /// has been sent to them.
    fn go_on<'a, S: Scope<'a> + Copy>(&self, sends: &mut Sends<'a, S>) -> bool {
        let any = self.world.any_process();
        while let Some((message, status)) = any.immediate_matched_probe_with_tag(TAG) {
            let mut dropped = vec![0; status.count(u8::equivalent_datatype()) as usize];
            message.matched_receive_into(&mut dropped[..]);
        }
        sends.are_complete()
    }
}

/// Whether a rank has ended in this operation, unless all end in it, by a chunk of its message.
fn broken(rank: usize, chunk: &[u8], is_first: bool, is_last: bool) -> Option<Broken> {
    // An end has one chunk.
    let end = match is_first && chunk.len() < CHUNK {
        true if chunk.len() < Message::HEADER => Some(End::Failed {
            rank,
            reason: "it sent a message of another program".into(),
        }),
        true => end_of(chunk),
        false => None,
    };
    // At the end, a rank that is elsewhere hears that this one has left.
    let is_broken = end.is_some() != is_last;
    let end = end.unwrap_or(End::Left);
    is_broken.then_some(Broken { rank, end })
}
