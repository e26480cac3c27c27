//! Several ranks agree between their steps. One rank alone agrees with itself.

use std::time::Duration;

use super::{FitConfig, FitError, FitEvent, FitState};
use crate::train::{Collective, CollectiveError};

/// The ranks of a learner, if there are several.
type Ranks<'a> = Option<&'a mut dyn Collective>;

/// Checks that all ranks begin the same run.
pub(super) fn check(
    ranks: Ranks<'_>,
    config: FitConfig,
    state: &FitState,
) -> Result<(), CollectiveError> {
    let Some(ranks) = ranks else {
        return Ok(());
    };
    ranks.agree("configuration of `fit`", format!("{config:?}").as_bytes())?;
    ranks.agree("state of `fit`", format!("{state:?}").as_bytes())
}

/// Whether it is so on a rank.
pub(super) fn any(ranks: Ranks<'_>, is_so: bool) -> Result<bool, CollectiveError> {
    match ranks {
        Some(ranks) => Ok(ranks.sum(&[f64::from(u8::from(is_so))])?[0] > 0.0),
        None => Ok(is_so),
    }
}

/// The numbers of rank 0: ranks on different machines may differ in the last bit, and would do different things then.
pub(super) fn of_first<const N: usize>(
    ranks: Ranks<'_>,
    numbers: [f64; N],
) -> Result<[f64; N], CollectiveError> {
    let Some(ranks) = ranks else {
        return Ok(numbers);
    };
    let all = ranks.gather_numbers(&numbers)?;
    Ok(std::array::from_fn(|index| all[0][index]))
}

/// Checks that all ranks have a batch for the step behind this one, or none has.
pub(super) fn check_batch<Error>(
    ranks: Ranks<'_>,
    has_batch: bool,
    step: u64,
) -> Result<(), FitError<Error>> {
    let Some(ranks) = ranks else {
        return Ok(());
    };
    let all = ranks.gather_numbers(&[f64::from(u8::from(has_batch))])?;
    let has_none = |of: &Vec<f64>| of[0] == 0.0;
    match all.iter().position(has_none) {
        Some(rank) if !all.iter().all(has_none) => Err(FitError::Batches { rank, step }),
        _ => Ok(()),
    }
}

/// The waiting and the bytes of this rank so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    bytes_sent: u64,
    waited: Duration,
}

impl Done {
    pub(super) fn of(ranks: Ranks<'_>) -> Self {
        ranks.map_or_else(Self::default, |ranks| Self {
            bytes_sent: ranks.bytes_sent(),
            waited: ranks.waited(),
        })
    }
}

/// The waiting and the bytes of each rank since then.
pub(super) fn events(ranks: Ranks<'_>, before: Done) -> Result<Vec<FitEvent>, CollectiveError> {
    let Some(ranks) = ranks else {
        return Ok(Vec::new());
    };
    let now = Done::of(Some(&mut *ranks));
    let sent = now.bytes_sent - before.bytes_sent;
    let waited = now.waited.saturating_sub(before.waited).as_nanos();
    let all = ranks.gather_numbers(&[sent as f64, waited as f64])?;
    let event = |(rank, of): (usize, Vec<f64>)| FitEvent::Rank {
        rank,
        bytes_sent: of[0] as u64,
        waited: Duration::from_nanos(of[1] as u64),
    };
    Ok(all.into_iter().enumerate().map(event).collect())
}
