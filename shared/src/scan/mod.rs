//! What the scans share: observe (Stripe, outside any transaction) → decide (pure) → commit (one statement).
//!
//! This is the one place that spans the store, the gateway and the budget; none of those knows another.

pub mod bulk;
pub mod cycle;
pub mod evidence;
pub mod examine;
pub mod list;
mod listing;
pub mod observe;
pub mod steps;
pub mod walk;
pub mod withhold;

use std::collections::HashSet;

use tokio_postgres::Client;

use crate::budget::{Budget, BudgetError};
use crate::clock::Clock;
use crate::config::ScanSettings;
use crate::domain::Timestamp;
use crate::domain::id::ExternalRef;
use crate::domain::verdict::Verdict;
use crate::store::commit::{JudgedPayment, Written};
use crate::store::{Keyset, StoreError};
use crate::telemetry::Report;
use observe::{ObserveError, Observing};
use steps::Steps;

/// What a tick of a scan works with. Built once, borrowed by every tick.
#[derive(Debug)]
pub struct Deps<'a, G> {
    /// Postgres, with the rights of `reconciler_scan`.
    pub db: &'a Client,
    /// Stripe.
    pub gateway: &'a G,
    /// The request budget that all functions share.
    pub budget: &'a Budget,
    /// The process's clock.
    pub clock: &'a Clock,
    /// How to go about it.
    pub settings: &'a ScanSettings,
    /// The order of the walk.
    pub keyset: Keyset,
    /// No call to Stripe is issued after this; what is finished by then is committed.
    pub deadline: Option<Timestamp>,
    /// Who is told of the tick's steps.
    pub steps: &'a Steps,
}

impl<'a, G> Deps<'a, G> {
    /// The part that asking Stripe needs.
    pub fn observing(&self, pass_over: bool) -> Observing<'a, G> {
        Observing {
            gateway: self.gateway,
            budget: self.budget,
            db: self.db,
            clock: self.clock,
            concurrency: usize::try_from(self.settings.concurrency).unwrap_or(1),
            deadline: self.deadline,
            pass_over,
        }
    }
}

/// A tick failed. Nothing is written, and the cursor stands where it stood.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Postgres.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Stripe refused the key, or the budget is out of reach.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// So much is missing at Stripe that a person has to look first.
    #[error(
        "the batch of job {job} at revision {revision} is withheld and nothing is written: {reason}. Check the key, the \
         account and the reference column first. If these payments really are missing at Stripe, release this batch, once: \
         at the review desk, or with `cargo review release --job {job} --revision {revision} --note` and the reason"
    )]
    Withheld {
        /// Which job.
        job: String,
        /// The revision to release.
        revision: i64,
        /// What was seen.
        reason: String,
        /// The tick, with its counts; its outcome is `withheld`.
        report: Box<Report>,
    },
    /// The invocation's input cannot be used. Nothing was asked and nothing is written.
    #[error("{0}")]
    Input(String),
    /// Stripe answered with an object of the other mode (live or test): a wrong key.
    #[error(
        "Stripe answered with {id}, whose livemode is not STRIPE_LIVEMODE = {expected}: the key is one of the other mode, or the \
         setting is wrong"
    )]
    OtherMode {
        /// The object.
        id: ExternalRef,
        /// What the settings say.
        expected: bool,
    },
}

impl From<BudgetError> for RunError {
    fn from(error: BudgetError) -> Self {
        Self::Observe(ObserveError::Budget(error))
    }
}

impl RunError {
    /// A name that does not change, for alarms and for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Store(StoreError::Ports(_)) => "PortsNotReady",
            Self::Store(_) => "DatabaseFailed",
            Self::Observe(ObserveError::Refused { .. }) => "StripeKeyRefused",
            Self::Observe(ObserveError::Budget(_)) => "BudgetFailed",
            Self::Observe(ObserveError::NoWayOn { .. }) => "StripeListEndless",
            Self::Withheld { .. } => "BatchWithheld",
            Self::Input(_) => "InputUnusable",
            Self::OtherMode { .. } => "StripeKeyRefused",
        }
    }
}

/// Counts every judged payment under its verdict; one that changed, or that a faster scan observed meanwhile, as in flight.
pub fn report_judged(report: &mut Report, judged: &[JudgedPayment], written: &Written) {
    let passed_by: HashSet<&str> = written.passed_by.iter().map(String::as_str).collect();
    for judged in judged {
        let passed_by = passed_by.contains(judged.payment.id.as_str());
        report.count(if passed_by { Verdict::InFlight } else { judged.outcome.verdict() });
    }
}

/// Takes what a commit wrote into the report, and says a line for each finding that opened (promise 12).
pub fn report_written(report: &mut Report, written: &Written) {
    for finding in &written.opened {
        tracing::warn!(
            job = %report.job,
            finding = finding.id,
            payment = finding.payment_id.as_deref(),
            external_ref = finding.external_ref.as_deref(),
            kind = %finding.kind,
            verdict = %finding.verdict,
            "finding opened"
        );
        *report.opened_by_kind.entry(finding.kind.clone()).or_default() += 1;
    }
    for finding in &written.escalated {
        tracing::warn!(
            job = %report.job,
            finding = finding.id,
            payment = finding.payment_id.as_deref(),
            kind = %finding.kind,
            "finding escalated: its repairs did not help"
        );
    }
    report.findings_escalated += u64::try_from(written.escalated.len()).unwrap_or(u64::MAX);
    for finding in &written.closed {
        *report.closed_by_kind.entry(finding.kind.clone()).or_default() += 1;
    }
    report.findings_opened += u64::try_from(written.opened.len()).unwrap_or(u64::MAX);
    report.findings_closed += u64::try_from(written.closed.len()).unwrap_or(u64::MAX);
    report.commands_queued += written.commands_queued;
}
