//! The order of operations: every message says which one it belongs to.
//!
//! A [`Link`] carries messages; it loses none, and keeps their order. A rank sends one to every other rank in each operation, so the message
//! number `n` of each rank belongs to operation `n`, or says that there is none, because the rank has left or has failed.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Call, CollectiveError, Message, Outgoing, Pending};

/// Carries messages between ranks.
pub(super) trait Link {
    fn rank(&self) -> usize;

    fn ranks(&self) -> usize;

    fn sequence(&mut self) -> &mut Sequence;

    /// Sends a message to each rank but this one, whose message is ignored. It does not wait.
    fn post(&mut self, messages: Vec<Message>);

    /// The next message of every rank but this one, in the order in which they were sent.
    ///
    /// # Errors
    /// A rank that will send no more.
    fn receive(&mut self) -> Result<Vec<Option<Message>>, Broken>;
}

/// A rank that will send no more.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) rank: usize,
    pub(super) end: End,
}

/// How a rank ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// It has left.
    Left,
    /// A rank failed, which may be another one, whose error it passes on.
    Failed { rank: usize, reason: String },
}

/// The operations of a rank so far.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Those that have begun and have not been received, with the message of this rank to itself.
    begun: BTreeMap<u64, (Call, Message)>,
    /// Those that were received before somebody waited for them.
    received: BTreeMap<u64, Vec<Message>>,
    next: u64,
    bytes_sent: u64,
    waited: Duration,
    failed: Option<CollectiveError>,
}

impl Sequence {
    pub(super) fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether nobody waits for this rank any more, since all know that it ended.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}

/// The words of a header.
const ENDED: u64 = u64::MAX;
const LEFT: u64 = 0;
const FAILED: u64 = 1;

/// Puts a header behind the bytes.
fn seal(mut bytes: Vec<u8>, header: [u64; 3]) -> Message {
    for word in header {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    Message(Arc::new(bytes))
}

impl Message {
    /// Those that a link received.
    #[cfg(feature = "mpi")]
    pub(super) fn of_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() >= Self::HEADER).then(|| Self(Arc::new(bytes)))
    }

    /// With the header.
    #[cfg(feature = "mpi")]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn of_end(end: &End) -> Self {
        match end {
            End::Left => seal(Vec::new(), [ENDED, LEFT, 0]),
            End::Failed { rank, reason } => {
                seal(reason.clone().into_bytes(), [ENDED, FAILED, *rank as u64])
            }
        }
    }

    fn header(&self) -> [u64; 3] {
        header_of(&self.0)
    }

    /// How the rank ended that sent this, if it did.
    pub(super) fn end(&self) -> Option<End> {
        end_of(&self.0)
    }
}

/// The header of the bytes of a message, which are not fewer than it has.
fn header_of(bytes: &[u8]) -> [u64; 3] {
    let (words, _) = bytes[bytes.len() - Message::HEADER..].as_chunks();
    std::array::from_fn(|word| u64::from_le_bytes(words[word]))
}

/// How the rank ended that sent the bytes of a message, if it did.
pub(super) fn end_of(bytes: &[u8]) -> Option<End> {
    match header_of(bytes) {
        [ENDED, LEFT, _] => Some(End::Left),
        [ENDED, _, rank] => {
            let reason = &bytes[..bytes.len() - Message::HEADER];
            Some(End::Failed {
                rank: rank as usize,
                reason: String::from_utf8_lossy(reason).into_owned(),
            })
        }
        _ => None,
    }
}

impl Call {
    fn words(self) -> [u64; 2] {
        match self {
            Call::AllToAll => [0, 0],
            Call::AllGather => [1, 0],
            Call::Broadcast { root } => [2, root as u64],
            Call::Numbers => [3, 0],
            Call::Barrier => [4, 0],
            Call::Agree => [5, 0],
        }
    }

    fn of_words([call, root]: [u64; 2]) -> Self {
        match call {
            0 => Call::AllToAll,
            1 => Call::AllGather,
            2 => Call::Broadcast {
                root: root as usize,
            },
            3 => Call::Numbers,
            4 => Call::Barrier,
            _ => Call::Agree,
        }
    }
}

pub(super) fn begin<L: Link>(
    link: &mut L,
    call: Call,
    send: Outgoing,
) -> Result<Pending, CollectiveError> {
    let (rank, ranks) = (link.rank(), link.ranks());
    let sequence = link.sequence();
    if let Some(error) = &sequence.failed {
        return Err(error.clone());
    }
    let number = sequence.next;
    let [call_word, root] = call.words();
    // A number of more than 2^56 operations is never reached.
    let header = [number << 8 | call_word, root, ranks as u64];
    let messages: Vec<_> = match send {
        Outgoing::Same(bytes) => vec![seal(bytes, header); ranks],
        Outgoing::Each(all) => {
            assert_eq!(all.len(), ranks, "a message for each rank");
            all.into_iter().map(|bytes| seal(bytes, header)).collect()
        }
    };
    let others = messages.iter().enumerate().filter(|(to, _)| *to != rank);
    sequence.bytes_sent += others.map(|(_, message)| message.len() as u64).sum::<u64>();
    sequence.next += 1;
    sequence
        .begun
        .insert(number, (call, messages[rank].clone()));
    link.post(messages);
    Ok(Pending(number))
}

pub(super) fn wait<L: Link>(
    link: &mut L,
    Pending(number): Pending,
) -> Result<Vec<Message>, CollectiveError> {
    loop {
        let sequence = link.sequence();
        if let Some(error) = &sequence.failed {
            return Err(error.clone());
        }
        if let Some(messages) = sequence.received.remove(&number) {
            return Ok(messages);
        }
        let Some((first, (call, own))) = sequence.begun.pop_first() else {
            panic!("an operation is waited for once");
        };
        match receive(link, first, call, own) {
            Ok(messages) => {
                link.sequence().received.insert(first, messages);
            }
            Err(error) => {
                let end = passed_on(link.rank(), &error);
                end_with(link, error, &end);
            }
        }
    }
}

fn receive<L: Link>(
    link: &mut L,
    number: u64,
    call: Call,
    own: Message,
) -> Result<Vec<Message>, CollectiveError> {
    let begin = Instant::now();
    let received = link.receive();
    link.sequence().waited += begin.elapsed();
    let messages = received.map_err(|Broken { rank, end }| match end {
        End::Left => CollectiveError::Left { rank, call },
        End::Failed { rank, reason } => CollectiveError::Failed { rank, reason, call },
    })?;
    let messages = messages
        .into_iter()
        .map(|message| message.unwrap_or_else(|| own.clone()));
    let messages: Vec<_> = messages.collect();
    for (rank, message) in messages.iter().enumerate() {
        let [word, root, _] = message.header();
        let found = Call::of_words([word & 0xff, root]);
        if found != call || word >> 8 != number {
            return Err(CollectiveError::Order {
                rank,
                found,
                found_number: (word >> 8) + 1,
                expected: call,
                expected_number: number + 1,
            });
        }
    }
    Ok(messages)
}

/// What the other ranks are told of an error, so that all name the rank that failed first.
fn passed_on(own: usize, error: &CollectiveError) -> End {
    let (rank, reason) = match error {
        CollectiveError::Failed { rank, reason, .. } => (*rank, reason.clone()),
        CollectiveError::Left { rank, .. } => (*rank, "it has left the run".into()),
        other => (own, other.to_string()),
    };
    End::Failed { rank, reason }
}

/// Ends all ranks, because this one has failed.
pub(super) fn fail<L: Link>(link: &mut L, reason: &str) {
    let (rank, reason) = (link.rank(), reason.to_owned());
    let call = Call::Barrier;
    let end = End::Failed {
        rank,
        reason: reason.clone(),
    };
    end_with(link, CollectiveError::Failed { rank, reason, call }, &end);
}

fn end_with<L: Link>(link: &mut L, error: CollectiveError, end: &End) {
    if link.sequence().has_failed() {
        return;
    }
    link.sequence().failed = Some(error);
    let messages = vec![Message::of_end(end); link.ranks()];
    link.post(messages);
}

/// How a rank ends whose link is dropped.
pub(super) fn leave<L: Link>(link: &mut L) {
    if link.sequence().has_failed() {
        return;
    }
    if std::thread::panicking() {
        fail(link, "it has panicked");
    } else {
        let messages = vec![Message::of_end(&End::Left); link.ranks()];
        link.post(messages);
    }
}

/// Implements [`Collective`](super::Collective) for a link.
macro_rules! collective {
    ($Link:ty, |$this:ident| $sequence:expr) => {
        impl $crate::train::collective::Collective for $Link {
            fn rank(&self) -> usize {
                $crate::train::collective::link::Link::rank(self)
            }

            fn ranks(&self) -> usize {
                $crate::train::collective::link::Link::ranks(self)
            }

            fn begin(
                &mut self,
                call: $crate::train::collective::Call,
                send: $crate::train::collective::Outgoing,
            ) -> Result<
                $crate::train::collective::Pending,
                $crate::train::collective::CollectiveError,
            > {
                $crate::train::collective::link::begin(self, call, send)
            }

            fn wait(
                &mut self,
                pending: $crate::train::collective::Pending,
            ) -> Result<
                Vec<$crate::train::collective::Message>,
                $crate::train::collective::CollectiveError,
            > {
                $crate::train::collective::link::wait(self, pending)
            }

            fn fail(&mut self, reason: &str) {
                $crate::train::collective::link::fail(self, reason);
            }

            fn bytes_sent(&self) -> u64 {
                let $this = self;
                $sequence.bytes_sent()
            }

            fn waited(&self) -> std::time::Duration {
                let $this = self;
                $sequence.waited()
            }
        }
    };
}
pub(super) use collective;
