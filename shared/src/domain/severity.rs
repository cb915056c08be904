//! How much a finding matters: the order in which a person should see what is open.

use super::verdict::{ExternalWord, Kind, LocalWord};

/// How much a finding matters: what a person should see first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Money was taken or is held, or counted as taken, and the other side does not know.
    Critical,
    /// A customer's payment has no known outcome.
    High,
    /// The sides disagree, and no money is known to be wrong by it.
    Medium,
    /// It is being repaired.
    Low,
}

impl Severity {
    /// Most severe first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Medium, Self::Low];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }

    /// Its place in a list, 0 first.
    pub fn rank(self) -> i32 {
        match self {
            Self::Critical => 0,
            Self::High => 1,
            Self::Medium => 2,
            Self::Low => 3,
        }
    }
}

/// How severe an open finding is that waits for a person. One that is being repaired is [`Severity::Low`].
pub fn severity(kind: Kind) -> Severity {
    match kind {
        Kind::PaidLocallyNotExternally | Kind::OrphanCharge | Kind::UnlinkedCharge | Kind::MissedSuccess => {
            Severity::Critical
        }
        Kind::Unexpected(LocalWord::Failed, ExternalWord::Succeeded | ExternalWord::RequiresCapture) => {
            Severity::Critical
        }
        Kind::MissingExternally | Kind::NoExternalReference => Severity::High,
        Kind::Unexpected(
            LocalWord::Pending | LocalWord::Finalizing | LocalWord::Expired,
            ExternalWord::Succeeded
            | ExternalWord::RequiresConfirmation
            | ExternalWord::RequiresAction
            | ExternalWord::Processing
            | ExternalWord::RequiresCapture
            | ExternalWord::Unknown,
        ) => Severity::High,
        Kind::Unexpected(
            LocalWord::Failed,
            ExternalWord::RequiresConfirmation
            | ExternalWord::RequiresAction
            | ExternalWord::Processing
            | ExternalWord::Unknown,
        )
        | Kind::MissedCancel
        | Kind::MissedFailure
        | Kind::UnmappedState
        | Kind::MalformedReference
        | Kind::StalledInFlight => Severity::Medium,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_that_only_one_side_knows_comes_first() {
        let critical: Vec<String> =
            Kind::all().filter(|kind| severity(*kind) == Severity::Critical).map(|kind| kind.to_string()).collect();
        assert_eq!(
            critical,
            [
                "missed_success",
                "paid_locally_not_externally",
                "orphan_charge",
                "unlinked_charge",
                "unexpected:failed->succeeded",
                "unexpected:failed->requires_capture"
            ]
        );
        assert!(Severity::ALL.is_sorted_by_key(|severity| severity.rank()));
    }
}
