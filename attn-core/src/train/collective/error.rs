//! Why an operation of several ranks ended.

use super::Call;

/// Why an operation of a [`Collective`](super::Collective) has no result. The run of this rank ends with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A rank has failed: it has panicked, or its step is an error.
    #[error("rank {rank} has failed, so this one ends in its {call}: {reason}")]
    Failed {
        /// The rank that failed first.
        rank: usize,
        /// Why, in its words.
        reason: String,
        /// The operation of this rank.
        call: Call,
    },

    /// A rank has left the run, while others go on.
    #[error(
        "rank {rank} has left the run, so this one ends in its {call}: do all ranks take the same number of steps?"
    )]
    Left {
        /// The rank.
        rank: usize,
        /// The operation of this rank.
        call: Call,
    },

    /// Two ranks call different operations.
    #[error(
        "rank {rank} is in `{found}`, the operation {found_number} of its run, and this rank in `{expected}`, its operation {expected_number}: all \
         ranks call the same in the same order"
    )]
    Order {
        /// The other rank.
        rank: usize,
        /// Its operation.
        found: Call,
        /// The number of it, from 1.
        found_number: u64,
        /// The operation of this rank.
        expected: Call,
        /// The number of it, from 1.
        expected_number: u64,
    },

    /// The message of a rank has another length: it computes something else.
    #[error(
        "rank {rank} sent {found} bytes in `{call}`, not {expected}: do all ranks have the same program, model and settings?"
    )]
    Length {
        /// The rank.
        rank: usize,
        /// The operation.
        call: Call,
        /// The bytes that it sent.
        found: usize,
        /// The bytes that this rank expects.
        expected: usize,
    },

    /// A rank is not set up as rank 0 is.
    #[error("rank {rank} has {} than rank 0: {}", other(what), advice(what))]
    Differs {
        /// The first such rank.
        rank: usize,
        /// The difference.
        what: String,
    },

    /// There are no ranks to join.
    #[error("{reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// The words for what differs.
fn other(what: &str) -> String {
    match what {
        "data" | "settings" | "parts of `fit`" => format!("other {what}"),
        what => format!("another {what}"),
    }
}

/// The advice for a value that differs, by its name.
fn advice(what: &str) -> &'static str {
    match what {
        "program" => "start the same executable file on all machines",
        "model" => "declare the same sizes, algorithm and frozen parameters on all ranks",
        "settings" => "give all trainers the same settings, learning rates and step",
        "configuration of `fit`" | "parts of `fit`" => "call `fit` with the same on all ranks",
        "state of `fit`" | "checkpoint" => {
            "all ranks go on from the same checkpoint, in a folder that all of them share"
        }
        "data" => "copy the same files to all machines, and read them in the same way",
        _ => "give all ranks the same",
    }
}
