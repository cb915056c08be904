//! The two questions of a walk, both pure: is a cycle due, and where does it end?
//!
//! A cycle **begins** if and only if none runs and `min_cycle` has passed since the last one began: a small table must not
//! burn the account's read allocation by going round every minute.
//!
//! A cycle **ends** at the horizon, from which on all loaded payments were created within the grace period before now (or as
//! much after it, for clocks differ): among them, rows of transactions that commit late may still appear. Where there is no
//! such payment it ends when nothing is left to load.
//!
//! The design says "the first row created within the grace period". In the order of ids that do not grow with time, old
//! payments may stand behind a fresh one, and would never be seen as long as there is some fresh one before them. So a fresh
//! payment with an old one behind it is passed, in flight, and is met in the next cycle. A payment dated further ahead than
//! the grace period is not fresh but wrongly dated.

use crate::domain::Timestamp;
use crate::domain::payment::Payment;
use crate::store::cursor::Cursor;
use time::Duration;

/// Whether a tick has anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Between two cycles, and the next is not due.
    Wait,
    /// A new cycle begins.
    Begin,
    /// The cycle that runs goes on.
    GoOn,
}

/// Whether a cycle runs, begins, or is not due.
pub fn turn(cursor: &Cursor, min_cycle: Duration, now: Timestamp) -> Turn {
    if cursor.cycle_runs() {
        Turn::GoOn
    } else if cursor.cycle_started_at.is_some_and(|began| now - began < min_cycle) {
        Turn::Wait
    } else {
        Turn::Begin
    }
}

/// How many of the payments, which are in key order, come before the horizon.
pub fn before_horizon(payments: &[Payment], grace: Duration, now: Timestamp) -> usize {
    let fresh = |payment: &&Payment| {
        let age = now - payment.created_at;
        age < grace && -age <= grace
    };
    payments.len() - payments.iter().rev().take_while(fresh).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::PaymentId;
    use crate::domain::payment::{LocalState, Reference};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const GRACE: Duration = Duration::minutes(10);

    fn created(ages: &[Duration]) -> Vec<Payment> {
        ages.iter()
            .map(|age| Payment {
                id: PaymentId::new("1"),
                reference: Reference::Absent,
                match_key: None,
                state: LocalState::Pending,
                created_at: NOW - *age,
                updated_at: NOW - *age,
                version: String::new(),
                previous: None,
            })
            .collect()
    }

    #[test]
    fn the_horizon_is_where_only_fresh_payments_follow() {
        let old = Duration::hours(1);
        assert_eq!(before_horizon(&created(&[old, old]), GRACE, NOW), 2);
        assert_eq!(before_horizon(&created(&[old, Duration::minutes(9), Duration::ZERO]), GRACE, NOW), 1);
        assert_eq!(before_horizon(&created(&[Duration::minutes(9), old]), GRACE, NOW), 2, "an old one behind is seen");
        assert_eq!(
            before_horizon(&created(&[GRACE, Duration::ZERO]), GRACE, NOW),
            1,
            "as old as the grace is old enough"
        );
        assert_eq!(before_horizon(&created(&[-GRACE]), GRACE, NOW), 0, "clocks differ");
        assert_eq!(before_horizon(&created(&[Duration::days(-9), old]), GRACE, NOW), 2, "a wrong date is no horizon");
        assert_eq!(before_horizon(&[], GRACE, NOW), 0);
    }

    #[test]
    fn a_cycle_begins_when_none_runs_and_the_last_one_began_long_enough_ago() {
        let cursor = |began: Option<i64>, ended: Option<i64>| Cursor {
            cycle_started_at: began.map(|ago| NOW - Duration::seconds(ago)),
            last_cycle_completed_at: ended.map(|ago| NOW - Duration::seconds(ago)),
            ..Cursor::NEW
        };
        let min_cycle = Duration::seconds(100);
        let turn = |began, ended| turn(&cursor(began, ended), min_cycle, NOW);
        assert_eq!(turn(None, None), Turn::Begin);
        assert_eq!(turn(Some(5), None), Turn::GoOn, "the first cycle runs");
        assert_eq!(turn(Some(500), Some(600)), Turn::GoOn, "a long one is never given up");
        assert_eq!(turn(Some(99), Some(50)), Turn::Wait);
        assert_eq!(turn(Some(99), Some(99)), Turn::Wait, "begun and ended by the same tick");
        assert_eq!(turn(Some(100), Some(50)), Turn::Begin);
    }
}
