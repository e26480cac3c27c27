//! The ranks of a program, whatever it was built with.

use super::{Collective, CollectiveError};

/// The ranks of this program: those that `mpirun` or `srun` started, with the feature `mpi`; without it, this process alone. PyTorch:
/// `dist.init_process_group()`.
///
/// ```no_run
/// # use attn::{prelude::*, train::{AdamWConfig, CollectiveError, processes}};
/// # model! {
/// #     struct Net<d = 2>;
/// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
/// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
/// # }
/// # let model = Cpu::default().build_module::<Net, f32>();
/// let trainer = model.trainer(AdamWConfig::default()).across(processes()?);
/// # Ok::<(), CollectiveError>(())
/// ```
///
/// # Errors
/// [`CollectiveError::Unavailable`] if the process has ranks already, or if it is one of several but was built without the feature `mpi`:
/// each would train a model of its own.
#[doc(alias("init_process_group", "MPI_Init"))]
pub fn processes() -> Result<impl Collective + 'static, CollectiveError> {
    #[cfg(feature = "mpi")]
    return super::Mpi::new();
    #[cfg(not(feature = "mpi"))]
    match started(|name| std::env::var(name).ok()) {
        None => Ok(super::Alone::default()),
        Some(count) => Err(CollectiveError::Unavailable {
            reason: format!(
                "this is one of {count} processes of a run, but was built without the feature `mpi`: \
                 build it with `--features mpi`, or start one process"
            ),
        }),
    }
}

/// How many processes were started together, if there are several: the launchers of Open MPI, MPICH and Slurm say so.
#[cfg(any(test, not(feature = "mpi")))]
fn started(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let launchers = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"].into_iter();
    let counts = launchers.filter_map(|name| variable(name)?.parse().ok());
    counts.filter(|count| *count > 1).max()
}

#[cfg(test)]
mod tests {
    use super::started;

    #[test]
    fn several_processes_are_known_by_their_launcher() {
        let found = |name: &'static str, value: &'static str| {
            started(|asked| (asked == name).then(|| value.into()))
        };
        assert_eq!(found("OMPI_COMM_WORLD_SIZE", "3"), Some(3));
        assert_eq!(found("PMI_SIZE", "2"), Some(2));
        assert_eq!(found("OMPI_COMM_WORLD_SIZE", "1"), None);
        assert_eq!(found("HOME", "3"), None);
    }
}
