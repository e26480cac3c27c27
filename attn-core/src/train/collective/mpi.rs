//! Ranks that `mpirun` started.
//!
//! MPI is driven by a thread of its own, which has the messages of one operation after the other. So what the ranks compute between
//! [`begin`](super::Collective::begin) and [`wait`](super::Collective::wait) goes on beside it.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use mpi::{
    Tag,
    environment::Universe,
    request::{Request, StaticScope},
    topology::{Process, SimpleCommunicator},
    traits::{Communicator, Destination, Equivalence, Source},
};

use super::{
    CollectiveError, Message,
    link::{self, Broken, End, Link, Sequence},
};

/// The tag of all messages.
const TAG: Tag = 0x0a77;

/// The bytes that MPI gets at a time: it counts them by an `i32`.
const CHUNK: usize = 1 << 30;

/// How often a thread that nobody waits for asks MPI for news.
const PAUSE: Duration = Duration::from_micros(50);

/// How long a rank that has failed tries to say so.
const PATIENCE: Duration = Duration::from_secs(2);

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
/// `mpirun -n 2 cargo run --release --features mpi` starts two of them. A program that is started without `mpirun` is the only rank.
///
/// A process has one, which is dropped before the process ends. A rank that panics or fails tells the others, and ends MPI in no other way
/// than by the end of its process: `mpirun` ends those that are left.
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
    /// [`CollectiveError::Unavailable`] if the process has a rank already.
    pub fn new() -> Result<Self, CollectiveError> {
        let (jobs, of_rank) = channel();
        let (to_rank, done) = channel();
        let (begun, places) = channel();
        let is_waiting = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_waiting);
        let drive = move || {
            let universe = mpi::initialize();
            let world = universe.as_ref().map(Universe::world);
            let place = world.as_ref().map(|world| [world.rank(), world.size()]);
            let is_there = begun.send(place).is_ok();
            if let (Some(world), true) = (world, is_there) {
                let driver = Driver {
                    world,
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
        match places.recv() {
            Ok(Some(place)) => {
                let [rank, ranks] = place.map(|number| number as usize);
                Ok(Self {
                    rank,
                    ranks,
                    sequence: Sequence::default(),
                    jobs: Some(jobs),
                    done,
                    is_waiting,
                })
            }
            Ok(None) => Err(unavailable(
                "MPI is initialised already: a process has one `Mpi`".into(),
            )),
            Err(_) => Err(unavailable("MPI could not be initialised".into())),
        }
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

/// The requests of an exchange.
type Sends<'a, S> = Vec<Request<'a, [u8], S>>;

/// What the thread has.
struct Driver {
    world: SimpleCommunicator,
    done: Sender<Result<Vec<Option<Message>>, Broken>>,
    is_waiting: Arc<AtomicBool>,
}

impl Driver {
    /// Carries messages until the rank leaves.
    fn run(&self, jobs: &Receiver<Vec<Message>>) {
        while let Ok(messages) = jobs.recv() {
            let end = messages.first().and_then(Message::end);
            if let Some(End::Failed { .. }) = end {
                self.fail(messages);
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

    fn others(&self) -> impl Iterator<Item = (usize, Process<'_>)> {
        let own = self.world.rank();
        let others = (0..self.world.size()).filter(move |rank| *rank != own);
        others.map(|rank| (rank as usize, self.world.process_at_rank(rank)))
    }

    /// Sends a message to every other rank, and receives one of each. It does not return if one of them has ended, unless this one ends, too.
    fn exchange(
        &self,
        messages: &[Message],
        is_last: bool,
        jobs: &Receiver<Vec<Message>>,
    ) -> Vec<Option<Message>> {
        mpi::request::scope(|scope| {
            let mut sends = self.send(messages, scope);
            let mut received = vec![None; messages.len()];
            let mut parts = vec![Vec::new(); messages.len()];
            loop {
                let has_news = self.receive(&mut parts, &mut received);
                sends = still_going(sends);
                let mut others = self.others().map(|(rank, _)| (rank, &received[rank]));
                let broken = others.find_map(|(rank, message)| {
                    let end = message.as_ref()?.end();
                    // At the end, a rank that is elsewhere hears that this one has left.
                    let is_broken = end.is_some() != is_last;
                    let end = end.unwrap_or(End::Left);
                    is_broken.then_some(Broken { rank, end })
                });
                if let Some(broken) = broken {
                    self.end(broken, is_last, jobs);
                }
                let is_complete = self.others().all(|(rank, _)| received[rank].is_some());
                if sends.is_empty() && is_complete {
                    return received;
                }
                if !has_news {
                    self.pause();
                }
            }
        })
    }

    fn send<'a, S: mpi::request::Scope<'a> + Copy>(
        &self,
        messages: &'a [Message],
        scope: S,
    ) -> Sends<'a, S> {
        let mut sends = Vec::new();
        for (to, process) in self.others() {
            let mut rest = messages[to].bytes();
            loop {
                let (chunk, others) = rest.split_at(rest.len().min(CHUNK));
                sends.push(process.immediate_send_with_tag(scope, chunk, TAG));
                // The last chunk is shorter, so that its end is known.
                if chunk.len() < CHUNK {
                    break;
                }
                rest = others;
            }
        }
        sends
    }

    /// Receives what has arrived.
    fn receive(&self, parts: &mut [Vec<u8>], received: &mut [Option<Message>]) -> bool {
        let mut has_news = false;
        for (from, process) in self.others() {
            if received[from].is_some() {
                continue;
            }
            let Some((message, status)) = process.immediate_matched_probe_with_tag(TAG) else {
                continue;
            };
            has_news = true;
            let mut chunk = vec![0; status.count(u8::equivalent_datatype()) as usize];
            message.matched_receive_into(&mut chunk[..]);
            let is_last = chunk.len() < CHUNK;
            match parts[from].is_empty() {
                true => parts[from] = chunk,
                false => parts[from].append(&mut chunk),
            }
            if is_last {
                let bytes = mem::take(&mut parts[from]);
                received[from] = Some(Message::of_bytes(bytes).unwrap_or_else(|| {
                    Message::of_end(&End::Failed {
                        rank: from,
                        reason: "it sent a message of another program".into(),
                    })
                }));
            }
        }
        has_news
    }

    fn pause(&self) {
        match self.is_waiting.load(Ordering::Relaxed) {
            true => thread::yield_now(),
            false => thread::sleep(PAUSE),
        }
    }

    /// Ends in the middle of an exchange. Its requests are never completed, so the thread stays.
    fn end(&self, broken: Broken, is_last: bool, jobs: &Receiver<Vec<Message>>) -> ! {
        if !is_last {
            let _ = self.done.send(Err(broken));
            // The error is passed on. Operations that began before it are dropped.
            while let Ok(messages) = jobs.recv() {
                if messages.first().and_then(Message::end).is_some() {
                    self.fail(messages);
                }
            }
        }
        self.stay()
    }

    /// Tells the other ranks that this one has failed.
    fn fail(&self, messages: Vec<Message>) -> ! {
        let mut sends = self.send(Vec::leak(messages), StaticScope);
        let begin = std::time::Instant::now();
        while !sends.is_empty() && begin.elapsed() < PATIENCE {
            sends = still_going(sends);
            thread::sleep(PAUSE);
        }
        mem::forget(sends);
        self.stay()
    }

    /// MPI is not ended, since other ranks do not end it: `mpirun` sees that, and ends them.
    fn stay(&self) -> ! {
        let _ = self.done.send(Ok(Vec::new()));
        loop {
            thread::park();
        }
    }
}

/// Those that are not complete.
fn still_going<'a, S: mpi::request::Scope<'a>>(sends: Sends<'a, S>) -> Sends<'a, S> {
    let sends = sends.into_iter();
    sends.filter_map(|send| send.test().err()).collect()
}
