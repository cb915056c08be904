//! Writing everything that a part of the reverse scan's tick came to, in one statement: all of it or nothing.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::{UnderWay, Window};
use crate::domain::Timestamp;
use crate::domain::id::ExternalRef;
use crate::domain::verdict::Kind;
use crate::store::StoreError;
use crate::store::commit::{
    COMMAND_TAKES_EFFECT_WITHIN, COMMANDS_MAX, Columns, CommitOutcome, JudgedPayment, outcome_of, send_commit,
};

/// How a PaymentIntent that no payment names was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was on a page: the first look, or a sighting between two.
    Listed,
    /// It was retrieved: a look that decides.
    Retrieved,
    /// It was asked for without an answer that counts: only the next look is put off.
    Unanswered,
}

impl How {
    fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Retrieved => "retrieved",
            Self::Unanswered => "unanswered",
        }
    }
}

/// A PaymentIntent that no payment names, as it is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Its id.
    pub id: ExternalRef,
    /// How it was come by.
    pub how: How,
    /// Its status; `unreadable` or `not_found` where there was none.
    pub status: String,
    /// The payment that its metadata names.
    pub match_key: Option<String>,
    /// When Stripe created it, where that is known.
    pub created: Option<Timestamp>,
    /// When it is looked at again; `None` where it is no candidate any more.
    pub next_look_at: Option<Timestamp>,
    /// The finding that it is, with its evidence.
    pub finding: Option<(Kind, serde_json::Value)>,
}

/// The reverse scan's commit; its middle is that of the walks.
const COMMIT: &str = concat!(
    include_str!("../sql/commit_window_move.sql"),
    include_str!("../sql/commit_judged.sql"),
    include_str!("../sql/commit_window_orphans.sql"),
);

/// What a tick came to, to be written as a whole.
#[derive(Clone, Copy, Debug)]
pub struct WindowCommit<'a> {
    /// The window's next state. Its revision is the one that it was read at.
    pub window: &'a Window,
    /// Payments, each at most once.
    pub judged: &'a [JudgedPayment],
    /// PaymentIntents that no payment names, each at most once.
    pub strangers: &'a [Stranger],
}

/// Writes all of it, or nothing where another tick wrote since the window was read. A deadlock repeats the whole statement.
pub async fn commit_window(
    db: &Client,
    job: &str,
    now: Timestamp,
    commit: &WindowCommit<'_>,
) -> Result<CommitOutcome, StoreError> {
    let WindowCommit { window, judged, strangers } = *commit;
    let columns = Columns::of(judged);
    let under_way = window.under_way.as_ref();
    let (from, to) = under_way.map(|under_way| (under_way.from, under_way.to)).unzip();
    let started_at = under_way.map(|under_way| under_way.started_at);
    let page_after = under_way.and_then(|under_way| under_way.page_after.as_ref()).map(ExternalRef::as_str);
    let (completed_to, completed_at) = window.completed.unzip();
    let counted = |count: fn(&UnderWay) -> i64| under_way.map_or(0, count);
    let counters = [
        counted(|under_way| under_way.pages),
        counted(|under_way| under_way.objects),
        counted(|under_way| under_way.matched),
        counted(|under_way| under_way.unread),
        window.known,
        window.proven_matched,
    ];
    let counters = counters.as_slice();
    let takes_effect_before = now - COMMAND_TAKES_EFFECT_WITHIN;
    let ids: Vec<&str> = strangers.iter().map(|stranger| stranger.id.as_str()).collect();
    let how: Vec<&str> = strangers.iter().map(|stranger| stranger.how.as_str()).collect();
    let status: Vec<&str> = strangers.iter().map(|stranger| stranger.status.as_str()).collect();
    let match_key: Vec<Option<&str>> = strangers.iter().map(|stranger| stranger.match_key.as_deref()).collect();
    let created: Vec<Option<Timestamp>> = strangers.iter().map(|stranger| stranger.created).collect();
    let next_look_at: Vec<Option<Timestamp>> = strangers.iter().map(|stranger| stranger.next_look_at).collect();
    let finding =
        |stranger: &Stranger| stranger.finding.clone().map(|(kind, seen)| (kind.to_string(), seen.to_string()));
    let (kind, evidence): (Vec<Option<String>>, Vec<Option<String>>) =
        strangers.iter().map(|stranger| finding(stranger).unzip()).unzip();
    let parameters: [(&(dyn ToSql + Sync), Type); 34] = [
        (&job, Type::TEXT),
        (&window.revision, Type::INT8),
        (&now, Type::TIMESTAMPTZ),
        (&from, Type::TIMESTAMPTZ),
        (&to, Type::TIMESTAMPTZ),
        (&page_after, Type::TEXT),
        (&started_at, Type::TIMESTAMPTZ),
        (&window.terms, Type::TEXT),
        (&completed_to, Type::TIMESTAMPTZ),
        (&completed_at, Type::TIMESTAMPTZ),
        (&columns.payment_id, Type::TEXT_ARRAY),
        (&columns.version, Type::TEXT_ARRAY),
        (&columns.observed_at, Type::TIMESTAMPTZ_ARRAY),
        (&columns.external_status, Type::TEXT_ARRAY),
        (&columns.external_created_at, Type::TIMESTAMPTZ_ARRAY),
        (&columns.local_state, Type::TEXT_ARRAY),
        (&columns.external_ref, Type::TEXT_ARRAY),
        (&columns.verdict, Type::TEXT_ARRAY),
        (&columns.kind, Type::TEXT_ARRAY),
        (&columns.evidence, Type::TEXT_ARRAY),
        (&columns.command, Type::TEXT_ARRAY),
        (&columns.compensation, Type::BOOL_ARRAY),
        (&takes_effect_before, Type::TIMESTAMPTZ),
        (&COMMANDS_MAX, Type::INT8),
        (&counters, Type::INT8_ARRAY),
        (&window.proven_from, Type::TIMESTAMPTZ),
        (&ids, Type::TEXT_ARRAY),
        (&how, Type::TEXT_ARRAY),
        (&status, Type::TEXT_ARRAY),
        (&match_key, Type::TEXT_ARRAY),
        (&created, Type::TIMESTAMPTZ_ARRAY),
        (&next_look_at, Type::TIMESTAMPTZ_ARRAY),
        (&kind, Type::TEXT_ARRAY),
        (&evidence, Type::TEXT_ARRAY),
    ];
    let rows = send_commit(db, COMMIT, &parameters, job, window.revision).await?;
    outcome_of(&rows).map_err(|source| StoreError::CommitBatch {
        job: job.to_owned(),
        revision: window.revision,
        source,
    })
}
