//! Whether a batch is written at all (promise 11).
//!
//! A batch is **withheld** if and only if no person has released it and
//! - more of its rows than the cap, and more than half of those asked, are missing at Stripe: a wrong account, a restored
//!   database, a wrong reference column; or
//! - every answered row exists in the other mode only, and so does everything that Stripe once knew: a wrong key.
//!
//! One row of the other mode among good ones is a finding like any other, and so are many drifts of any other kind: a long
//! outage of the webhook must go through, however much there is. The second rule asks Stripe again for payments that it is
//! known to have, since a small batch of nothing but test rows would otherwise hold up the walk for ever.

use super::observe::Answer;
use crate::domain::external::External;

/// What the answers of a batch come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Rows that were asked and answered.
    pub answered: u64,
    /// Of these, confirmed 404s.
    pub missing: u64,
    /// Of these, 404s that say the other mode has a similar object.
    pub other_mode: u64,
}

impl Missing {
    /// Counts some more answers.
    pub fn count(&mut self, answers: &[Answer]) {
        for answer in answers {
            match answer {
                Answer::Confirmed { external, .. } => {
                    self.answered += 1;
                    if let External::NotFound { other_mode } = external {
                        self.missing += 1;
                        self.other_mode += u64::from(*other_mode);
                    }
                }
                Answer::PassedOver | Answer::HeldUp | Answer::Unfinished => {}
            }
        }
    }

    /// More than the cap, and more than half.
    pub fn is_a_flood(&self, cap: u32) -> bool {
        self.missing > u64::from(cap) && self.missing * 2 > self.answered
    }

    /// Nothing but objects of the other mode.
    pub fn looks_like_a_wrong_key(&self) -> bool {
        self.answered > 0 && self.other_mode == self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_more_than_the_cap_and_more_than_half() {
        let missing = |answered, missing| Missing { answered, missing, other_mode: 0 };
        assert!(!missing(50, 50).is_a_flood(50));
        assert!(missing(51, 51).is_a_flood(50));
        assert!(missing(101, 51).is_a_flood(50));
        assert!(!missing(102, 51).is_a_flood(50));
        assert!(missing(1, 1).is_a_flood(0));
        assert!(!missing(0, 0).is_a_flood(0));
    }

    #[test]
    fn a_wrong_key_is_nothing_but_the_other_mode() {
        let other = |answered, other_mode| Missing { answered, missing: other_mode, other_mode };
        assert!(other(1, 1).looks_like_a_wrong_key());
        assert!(!other(2, 1).looks_like_a_wrong_key());
        assert!(!other(0, 0).looks_like_a_wrong_key());
    }
}
