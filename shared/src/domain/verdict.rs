//! What the comparison of one payment comes to, and the closed set of kinds that a drift can have.

use std::fmt;

use super::external::ExternalStatus;
use super::payment::LocalState;

/// The outcome of comparing one payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Both sides agree, confirmed by an answer.
    InSync,
    /// Not an end on either side, or too fresh to judge.
    InFlight,
    /// We are behind Stripe, and the canonical writer can bring us up to it.
    Repairable,
    /// A person decides.
    NeedsReview,
    /// No confirmed answer.
    Unverifiable,
}

impl Verdict {
    /// The word in tables, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in_sync",
            Self::InFlight => "in_flight",
            Self::Repairable => "repairable",
            Self::NeedsReview => "needs_review",
            Self::Unverifiable => "unverifiable",
        }
    }
}

/// A judgement over a confirmed answer, or over a row that needs none. `Unverifiable` cannot come out of it: that is the
/// absence of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Both sides agree.
    InSync,
    /// Nothing to do yet.
    InFlight,
    /// The canonical writer can mend it.
    Repairable(Repair),
    /// A person decides.
    NeedsReview {
        /// What is wrong.
        kind: Kind,
        /// Somebody may have to be compensated: `PaymentCompensationRequired` goes out with the finding.
        compensation: bool,
    },
}

impl Judgement {
    /// The verdict that it is counted under.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::InSync => Verdict::InSync,
            Self::InFlight => Verdict::InFlight,
            Self::Repairable(_) => Verdict::Repairable,
            Self::NeedsReview { .. } => Verdict::NeedsReview,
        }
    }

    /// The kind of the finding that it asks for, if it is a drift.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::InSync | Self::InFlight => None,
            Self::Repairable(repair) => Some(repair.kind()),
            Self::NeedsReview { kind, .. } => Some(*kind),
        }
    }
}

/// A repair that only brings us up to what Stripe already says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repair {
    /// Stripe took the money and we do not know it.
    MissedSuccess,
    /// Stripe canceled and we do not know it.
    MissedCancel,
    /// The last attempt was declined and the customer did not try again in time.
    MissedFailure,
}

impl Repair {
    /// The kind of its finding.
    pub fn kind(self) -> Kind {
        match self {
            Self::MissedSuccess => Kind::MissedSuccess,
            Self::MissedCancel => Kind::MissedCancel,
            Self::MissedFailure => Kind::MissedFailure,
        }
    }

    /// The command that asks the canonical writer for it.
    pub fn command(self) -> &'static str {
        match self {
            Self::MissedSuccess => "ApplyPaymentSucceeded",
            Self::MissedCancel => "ApplyPaymentCanceled",
            Self::MissedFailure => "ApplyPaymentFailed",
        }
    }
}

/// The name of a drift. The set is closed, since kinds are metric dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// See [`Repair::MissedSuccess`].
    MissedSuccess,
    /// See [`Repair::MissedCancel`].
    MissedCancel,
    /// See [`Repair::MissedFailure`].
    MissedFailure,
    /// Stripe has never heard of it.
    MissingExternally,
    /// We count it as paid and Stripe does not.
    PaidLocallyNotExternally,
    /// The adapter's view does not map the state.
    UnmappedState,
    /// The reference does not look like the id of a PaymentIntent.
    MalformedReference,
    /// It should have a PaymentIntent and names none.
    NoExternalReference,
    /// In flight for longer than anything is.
    StalledInFlight,
    /// Money moved or is held at Stripe, and no payment here names it.
    OrphanCharge,
    /// The same, and its metadata names a payment here that has no reference.
    UnlinkedCharge,
    /// Any other pair that must not be.
    Unexpected(LocalWord, ExternalWord),
}

impl Kind {
    /// Every kind there is.
    pub fn all() -> impl Iterator<Item = Self> {
        const NAMED: [Kind; 11] = [
            Kind::MissedSuccess,
            Kind::MissedCancel,
            Kind::MissedFailure,
            Kind::MissingExternally,
            Kind::PaidLocallyNotExternally,
            Kind::UnmappedState,
            Kind::MalformedReference,
            Kind::NoExternalReference,
            Kind::StalledInFlight,
            Kind::OrphanCharge,
            Kind::UnlinkedCharge,
        ];
        const LOCAL: [LocalWord; 4] =
            [LocalWord::Pending, LocalWord::Finalizing, LocalWord::Expired, LocalWord::Failed];
        const EXTERNAL: [ExternalWord; 6] = [
            ExternalWord::Succeeded,
            ExternalWord::RequiresConfirmation,
            ExternalWord::RequiresAction,
            ExternalWord::Processing,
            ExternalWord::RequiresCapture,
            ExternalWord::Unknown,
        ];
        let pairs = LOCAL.into_iter().flat_map(|local| EXTERNAL.map(|external| Self::Unexpected(local, external)));
        NAMED.into_iter().chain(pairs)
    }

    /// Reads a kind's name. `None` where no kind is called so.
    pub fn parse(text: &str) -> Option<Self> {
        Self::all().find(|kind| kind.to_string() == text)
    }

    /// The command that repairs it, where one can.
    pub fn repair(self) -> Option<Repair> {
        [Repair::MissedSuccess, Repair::MissedCancel, Repair::MissedFailure]
            .into_iter()
            .find(|repair| repair.kind() == self)
    }
}

/// A local state in the name of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalWord {
    /// `pending`
    Pending,
    /// `finalizing`
    Finalizing,
    /// `expired`
    Expired,
    /// `failed`
    Failed,
}

impl LocalWord {
    fn state(self) -> LocalState {
        match self {
            Self::Pending => LocalState::Pending,
            Self::Finalizing => LocalState::Finalizing,
            Self::Expired => LocalState::Expired,
            Self::Failed => LocalState::Failed,
        }
    }
}

/// An external status in the name of a kind; any text that we do not know is `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExternalWord {
    /// `succeeded`
    Succeeded,
    /// `requires_confirmation`
    RequiresConfirmation,
    /// `requires_action`
    RequiresAction,
    /// `processing`
    Processing,
    /// `requires_capture`
    RequiresCapture,
    /// Any other text; its wording goes into the evidence.
    Unknown,
}

impl ExternalWord {
    fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::RequiresConfirmation => "requires_confirmation",
            Self::RequiresAction => "requires_action",
            Self::Processing => "processing",
            Self::RequiresCapture => "requires_capture",
            Self::Unknown => "unknown",
        }
    }
}

/// The statuses that are neither an end nor a wait for the customer's next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moving {
    Confirmation,
    Action,
    Processing,
    Capture,
}

impl From<Moving> for ExternalWord {
    fn from(moving: Moving) -> Self {
        match moving {
            Moving::Confirmation => Self::RequiresConfirmation,
            Moving::Action => Self::RequiresAction,
            Moving::Processing => Self::Processing,
            Moving::Capture => Self::RequiresCapture,
        }
    }
}

/// The columns of the classification table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Succeeded,
    Canceled,
    RequiresPaymentMethod,
    Moving(Moving),
    Unknown,
}

impl From<&ExternalStatus> for Column {
    fn from(status: &ExternalStatus) -> Self {
        match status {
            ExternalStatus::Succeeded => Self::Succeeded,
            ExternalStatus::Canceled => Self::Canceled,
            ExternalStatus::RequiresPaymentMethod => Self::RequiresPaymentMethod,
            ExternalStatus::RequiresConfirmation => Self::Moving(Moving::Confirmation),
            ExternalStatus::RequiresAction => Self::Moving(Moving::Action),
            ExternalStatus::Processing => Self::Moving(Moving::Processing),
            ExternalStatus::RequiresCapture => Self::Moving(Moving::Capture),
            ExternalStatus::Unknown(_) => Self::Unknown,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MissedSuccess => "missed_success",
            Self::MissedCancel => "missed_cancel",
            Self::MissedFailure => "missed_failure",
            Self::MissingExternally => "missing_externally",
            Self::PaidLocallyNotExternally => "paid_locally_not_externally",
            Self::UnmappedState => "unmapped_state",
            Self::MalformedReference => "malformed_reference",
            Self::NoExternalReference => "no_external_reference",
            Self::StalledInFlight => "stalled_in_flight",
            Self::OrphanCharge => "orphan_charge",
            Self::UnlinkedCharge => "unlinked_charge",
            Self::Unexpected(local, external) => {
                let local = local.state();
                return write!(f, "unexpected:{}->{}", local.as_str().unwrap_or("null"), external.as_str());
            }
        })
    }
}
