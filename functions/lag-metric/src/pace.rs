//! How long a cycle takes at the pace at which it goes, and whether it ever ends. Pure.
//!
//! - **Throughput** is the payments judged in the cycle that runs (in the last one, while none runs), divided by its time so
//!   far, of which a minute is the least: a tick's worth of payments takes a tick's time.
//! - **Inflow** is the payments created in the hour before the furthest payment that the walk has passed.
//! - The **projected cycle time** is the planner's estimate of all payments, divided by the throughput.
//! - **Inflow ÷ throughput** at 1 (1,000 ‰) or more says that the walk never comes to an end: payments come faster than they
//!   are judged. `REQUESTS_PER_SECOND` or `BATCH_SIZE` is too low then.

use reconciler::domain::Timestamp;
use time::Duration;

use crate::queries::Cursor;

/// A hundred years: what stands for never.
pub const NEVER_SECONDS: u64 = 3_153_600_000;

/// What stands for an inflow without any throughput.
pub const PERMILLE_MAX: u64 = 1_000_000;

const HOUR: u64 = 3_600;

/// At what pace a cycle goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Payments judged.
    pub rows: u64,
    /// In so much time, at least a minute.
    pub seconds: u64,
    /// A cycle has completed before.
    pub completed: bool,
}

/// Seconds from then to now; 0 where then is in the future.
pub fn seconds_since(then: Timestamp, now: Timestamp) -> u64 {
    u64::try_from((now - then).whole_seconds()).unwrap_or(0)
}

/// The pace of a job; a job that has never begun has none.
pub fn pace_of(cursor: Option<&Cursor>, now: Timestamp) -> Pace {
    let began = cursor.and_then(|cursor| cursor.cycle_started_at);
    let ended = cursor.and_then(|cursor| cursor.last_cycle_completed_at);
    let took = match (began, ended) {
        (None, _) => Duration::ZERO,
        (Some(began), Some(ended)) if ended >= began => ended - began,
        (Some(began), _) => now - began,
    };
    Pace {
        rows: cursor.and_then(|cursor| u64::try_from(cursor.cycle_rows).ok()).unwrap_or(0),
        seconds: u64::try_from(took.whole_seconds()).unwrap_or(0).max(60),
        completed: ended.is_some(),
    }
}

impl Pace {
    /// Payments judged in an hour.
    pub fn per_hour(self) -> u64 {
        ratio(self.rows, HOUR, self.seconds)
    }

    /// How long a cycle over so many payments takes, seconds; at most [`NEVER_SECONDS`].
    pub fn projected_seconds(self, payments: u64) -> u64 {
        match self.rows {
            0 if self.completed || payments == 0 => 0,
            0 => NEVER_SECONDS,
            rows => ratio(payments, self.seconds, rows).min(NEVER_SECONDS),
        }
    }

    /// Inflow ÷ throughput, in thousandths; at most [`PERMILLE_MAX`].
    pub fn inflow_permille(self, inflow_per_hour: u64) -> u64 {
        match (inflow_per_hour, self.rows) {
            (0, _) => 0,
            (_, 0) => PERMILLE_MAX,
            (inflow, rows) => {
                ratio(inflow.saturating_mul(1_000), self.seconds, rows.saturating_mul(HOUR)).min(PERMILLE_MAX)
            }
        }
    }
}

/// `a × b ÷ c`, rounded down.
fn ratio(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product.checked_div(u128::from(c)).and_then(|ratio| u64::try_from(ratio).ok()).unwrap_or(u64::MAX)
}

/// When a job last completed a whole cycle, in seconds before now: since its first cycle began, where none has completed; and
/// where none has begun, `lag`, since that is how long the first one is being waited for.
pub fn since_completed(cursor: Option<&Cursor>, lag: u64, now: Timestamp) -> u64 {
    cursor
        .and_then(|cursor| cursor.last_cycle_completed_at.or(cursor.cycle_started_at))
        .map_or(lag, |since| seconds_since(since, now))
}

/// How long the cycle that runs has been running, seconds; 0 between two cycles.
pub fn cycle_age(cursor: Option<&Cursor>, now: Timestamp) -> u64 {
    let Some(cursor) = cursor else { return 0 };
    match (cursor.cycle_started_at, cursor.last_cycle_completed_at) {
        (None, _) => 0,
        (Some(began), Some(ended)) if ended >= began => 0,
        (Some(began), _) => seconds_since(began, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn cursor(began: Option<i64>, ended: Option<i64>, rows: i64) -> Cursor {
        let ago = |seconds: i64| NOW - Duration::seconds(seconds);
        Cursor {
            job: "j".to_owned(),
            keyset: "id".to_owned(),
            cycle_started_at: began.map(ago),
            last_cycle_completed_at: ended.map(ago),
            cycle_rows: rows,
            furthest: None,
        }
    }

    #[test]
    fn the_pace_is_of_the_cycle_that_runs_or_of_the_last_one() {
        let pace = |began, ended, rows| pace_of(Some(&cursor(began, ended, rows)), NOW);
        assert_eq!(pace(Some(3_600), None, 18_000).per_hour(), 18_000, "it runs");
        assert_eq!(pace(Some(7_200), Some(3_600), 18_000).per_hour(), 18_000, "it ran for an hour");
        assert_eq!(pace(Some(3_600), Some(90_000), 18_000).per_hour(), 18_000, "it runs, and another one ended before");
        assert_eq!(pace(Some(5), Some(5), 200).per_hour(), 12_000, "one tick of a minute");
        assert_eq!(pace_of(None, NOW).per_hour(), 0);
    }

    #[test]
    fn a_cycle_takes_all_payments_at_that_pace() {
        let pace = Pace { rows: 18_000, seconds: 3_600, completed: true };
        assert_eq!(pace.projected_seconds(120_000), 24_000);
        assert_eq!(pace.inflow_permille(18_000), 1_000, "it never ends");
        assert_eq!(pace.inflow_permille(4_500), 250);
        let still = Pace { rows: 0, completed: false, ..pace };
        assert_eq!((still.projected_seconds(1), still.inflow_permille(1)), (NEVER_SECONDS, PERMILLE_MAX));
        assert_eq!((still.projected_seconds(0), still.inflow_permille(0)), (0, 0));
        assert_eq!(Pace { completed: true, ..still }.projected_seconds(810), 0, "a whole cycle found nothing");
        assert_eq!(pace.projected_seconds(u64::MAX), NEVER_SECONDS);
    }

    #[test]
    fn a_job_that_has_never_completed_is_waited_for_since_it_began_or_since_there_are_payments() {
        assert_eq!(since_completed(Some(&cursor(Some(50), Some(70), 1)), 9, NOW), 70);
        assert_eq!(since_completed(Some(&cursor(Some(50), None, 1)), 9, NOW), 50);
        assert_eq!(since_completed(Some(&cursor(None, None, 0)), 9, NOW), 9);
        assert_eq!(since_completed(None, 9, NOW), 9);
        assert_eq!(cycle_age(Some(&cursor(Some(50), Some(70), 1)), NOW), 50);
        assert_eq!(cycle_age(Some(&cursor(Some(50), Some(50), 1)), NOW), 0);
        assert_eq!(cycle_age(Some(&cursor(Some(50), None, 1)), NOW), 50);
        assert_eq!(cycle_age(None, NOW), 0);
    }
}
