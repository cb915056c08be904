//! The answers as metrics.

use bootstrap::metrics::Record;
use bootstrap::metrics::catalogue::{
    BY_DECISION, DECISIONS, DIGESTS, DURATION, FAILED, Function, REQUESTS_REFUSED, REVIEW, REVIEW_DECIDE,
    TIME_TO_DECISION,
};

use crate::{Answer, Desk};

/// Which function a desk is, for metrics.
pub fn function(desk: Desk) -> &'static Function {
    match desk {
        Desk::Reading => &REVIEW,
        Desk::Deciding => &REVIEW_DECIDE,
    }
}

/// The records of an answer that took so long.
pub fn records(desk: Desk, answer: &Answer, duration_ms: u64) -> Vec<Record> {
    let refused = u64::from(matches!(answer, Answer::Refused(_)));
    let recorded = match answer {
        Answer::Recorded(recorded) => Some(recorded),
        Answer::Listed(_) | Answer::Shown(_) | Answer::Digest(_) | Answer::Refused(_) | Answer::Described { .. } => {
            None
        }
    };
    let announced = matches!(answer, Answer::Digest(digest) if digest.announced);
    let mut values = vec![(FAILED, 0), (DURATION, duration_ms), (REQUESTS_REFUSED, refused)];
    if desk == Desk::Deciding {
        values.extend([(DECISIONS, u64::from(recorded.is_some())), (DIGESTS, u64::from(announced))]);
    }
    let decision = recorded.map(|recorded| {
        let values = vec![(DECISIONS, 1), (TIME_TO_DECISION, recorded.waited_seconds)];
        Record::of(&REVIEW_DECIDE, &BY_DECISION, &[recorded.decision], values)
    });
    std::iter::once(Record::of_tick(function(desk), values)).chain(decision).collect()
}
