//! The processes of the other ranks, as far as they are on this machine: whether they are still there.
//!
//! A process that is killed says nothing to the others. MPI does not tell them either: its launcher ends all of them after a moment, and
//! that is the time in which they can say whom they miss.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::ErrorKind,
    process,
    time::{Duration, Instant},
};

use super::link::{Broken, End};

/// How often a rank that waits looks for the others.
const INTERVAL: Duration = Duration::from_millis(20);

/// A process tells the others this of itself: its id, and a number for the machine, which is 0 where it has none.
pub(super) fn own() -> [u64; 2] {
    [process::id().into(), machine().unwrap_or(0)]
}

/// The machine, and its container: ids are of one of these.
fn machine() -> Option<u64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = DefaultHasher::new();
    (boot, namespace).hash(&mut hasher);
    Some(hasher.finish().max(1))
}

/// The processes of all ranks.
#[derive(Debug)]
pub(super) struct Peers {
    /// The ids of those on this machine.
    ids: Vec<Option<u64>>,
    looked: Instant,
    /// A rank that was gone the last time: what it has sent before that may still arrive.
    gone: Option<usize>,
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "MPI alone asks"))]
    has_lost: bool,
}

impl Peers {
    /// The processes that said this of themselves.
    pub(super) fn new(all: &[[u64; 2]]) -> Self {
        let [_, here] = own();
        let id = |&[id, machine]: &[u64; 2]| (machine == here && machine != 0).then_some(id);
        Self {
            ids: all.iter().map(id).collect(),
            looked: Instant::now(),
            gone: None,
            has_lost: false,
        }
    }

    /// Whether a rank was named.
    #[cfg(feature = "mpi")]
    pub(super) const fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// A rank that is gone, of those that are missed. It is named when it has been gone for a while.
    pub(super) fn missing(&mut self, is_missed: impl Fn(usize) -> bool) -> Option<Broken> {
        if self.looked.elapsed() < INTERVAL {
            return None;
        }
        self.looked = Instant::now();
        let mut ids = self.ids.iter().enumerate();
        let (rank, id) = ids.find_map(|(rank, id)| {
            let id = id.filter(|id| is_missed(rank) && is_gone(*id))?;
            Some((rank, id))
        })?;
        if self.gone.replace(rank) != Some(rank) {
            return None;
        }
        self.has_lost = true;
        let reason = format!("its process, {id}, is gone: it was killed, or has crashed");
        Some(Broken {
            rank,
            end: End::Failed { rank, reason },
        })
    }
}

/// Linux: no such process.
const ESRCH: i32 = 3;

/// Whether a process of this machine has ended, although its parent may not know yet.
fn is_gone(id: u64) -> bool {
    match fs::read_to_string(format!("/proc/{id}/stat")) {
        // The name, in parentheses, may have any characters.
        Ok(stat) => {
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
            state.is_some_and(|state| state.starts_with(['Z', 'X']))
        }
        // Linux says the latter of a process that ends while its file is read. Other errors, as of a rank without free descriptors, say nothing.
        Err(error) => error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{process::Command, thread};

    use super::*;

    /// The rank that is missed first, and how often none was.
    fn look(peers: &mut Peers, missed: &[usize]) -> (u32, Option<usize>) {
        for times in 0..3 {
            thread::sleep(2 * INTERVAL);
            if let Some(broken) = peers.missing(|rank| missed.contains(&rank)) {
                return (times, Some(broken.rank));
            }
        }
        (3, None)
    }

    #[test]
    fn a_process_that_is_killed_is_named_if_it_is_missed() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let [own, machine] = own();
        assert_ne!(machine, 0);
        let id = child.id().into();
        let elsewhere = [u64::from(u32::MAX), machine ^ 1];
        let mut peers = Peers::new(&[[own, machine], elsewhere, [id, machine]]);
        assert_eq!(look(&mut peers, &[0, 1, 2]), (3, None));
        child.kill().unwrap();
        assert_eq!(look(&mut peers, &[0, 1]), (3, None));
        // Its parent has not asked how it ended.
        assert_eq!(look(&mut peers, &[1, 2]), (1, Some(2)));
        child.wait().unwrap();
        assert_eq!(look(&mut peers, &[2]), (0, Some(2)));
        assert!(peers.missing(|_| true).is_none(), "it has just looked");
    }
}
