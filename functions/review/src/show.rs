//! One finding, with all that a person needs to decide about it. Reads only.

use reconciler::domain::Timestamp;
use reconciler::domain::id::ExternalRef;
use reconciler::domain::payment::Reference;
use reconciler::domain::review::{Decision, FindingNow, PaymentNow, choices};
use reconciler::domain::severity::severity;
use reconciler::domain::verdict::{Kind, Verdict};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::ReviewError;

/// The longest evidence that is shown whole, in bytes of its JSON.
const EVIDENCE_MAX: usize = 256 * 1024;

/// The answer to `show`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// As of when.
    #[serde(with = "time::serde::rfc3339")]
    pub read_at: Timestamp,
    /// Which.
    pub finding: i64,
    /// To be named in a decision.
    pub revision: i64,
    /// How much it matters.
    pub severity: &'static str,
    /// Its kind.
    pub kind: String,
    /// `repairable` or `needs_review`.
    pub verdict: String,
    /// The payment's key; `None` for an object of Stripe's alone.
    pub payment: Option<String>,
    /// The PaymentIntent.
    pub external_ref: Option<String>,
    /// The payment's state, as it was found.
    pub local_state: Option<String>,
    /// Stripe's status, as it was found.
    pub external_status: Option<String>,
    /// What was seen when it opened, or when either side changed last.
    pub evidence: Value,
    /// When it was found.
    #[serde(with = "time::serde::rfc3339")]
    pub detected_at: Timestamp,
    /// When it was seen last.
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen_at: Timestamp,
    /// Since when repairs are known not to help.
    #[serde(with = "time::serde::rfc3339::option")]
    pub escalated_at: Option<Timestamp>,
    /// It is put off until then.
    #[serde(with = "time::serde::rfc3339::option")]
    pub snoozed_until: Option<Timestamp>,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub resolved_at: Option<Timestamp>,
    /// How it ended.
    pub resolution: Option<String>,
    /// The payment as it is now; `None` where there is none.
    pub payment_now: Option<PaymentShown>,
    /// What Stripe said last.
    pub observation: Option<Observation>,
    /// What can be decided about it now.
    pub choices: Vec<&'static str>,
    /// The transition that `apply` would be.
    pub transition: Option<&'static str>,
    /// The object in Stripe's dashboard.
    pub stripe_url: Option<String>,
    /// What was decided before, the newest first.
    pub reviews: Vec<Value>,
    /// The other findings of the payment, the newest first.
    pub earlier: Vec<Value>,
    /// The commands and events that came of it, the newest first.
    pub outbox: Vec<Value>,
}

impl Shown {
    /// Until when it is put off, if it is now.
    pub fn put_off_until(&self) -> Option<Timestamp> {
        self.snoozed_until.filter(|until| *until > self.read_at && self.resolved_at.is_none())
    }
}

/// The payment as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaymentShown {
    /// The view's state.
    pub state: Option<String>,
    /// The view's reference.
    pub external_ref: Option<String>,
    /// The view's match key.
    pub match_key: Option<String>,
    /// When it was made; `None` where its date is none.
    #[serde(with = "time::serde::rfc3339::option")]
    pub created_at: Option<Timestamp>,
    /// When it changed last; the same.
    #[serde(with = "time::serde::rfc3339::option")]
    pub updated_at: Option<Timestamp>,
}

/// What Stripe said last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observation {
    /// The status, `not_found` included.
    pub external_status: Option<String>,
    /// When it was asked.
    #[serde(with = "time::serde::rfc3339")]
    pub observed_at: Timestamp,
}

/// Reads a finding. `None` where there is no such one.
pub async fn show(db: &impl GenericClient, finding: i64, now: Timestamp) -> Result<Option<Shown>, ReviewError> {
    let failed = |source| ReviewError::Query { what: "a finding", source };
    let Some(row) = read(db, finding).await? else { return Ok(None) };
    let is = finding_of(&row).map_err(failed)?;
    let mut shown = shown_of(&row, &is, now).map_err(failed)?;
    shown.reviews = rows_as_json(db, "reviews", include_str!("sql/reviews.sql"), &[(&finding, Type::INT8)]).await?;
    let of: [(&(dyn ToSql + Sync), Type); 3] =
        [(&finding, Type::INT8), (&shown.payment, Type::TEXT), (&shown.external_ref, Type::TEXT)];
    let earlier = rows_as_json(db, "earlier findings", include_str!("sql/earlier.sql"), &of).await?;
    shown.outbox = rows_as_json(db, "the outbox", include_str!("sql/outbox_of.sql"), &[(&finding, Type::INT8)]).await?;
    Ok(Some(Shown { earlier, ..shown }))
}

/// Reads a finding's row, with its payment and observation.
pub(crate) async fn read(db: &impl GenericClient, finding: i64) -> Result<Option<Row>, ReviewError> {
    let row = db.query_typed_opt(include_str!("sql/finding_now.sql"), &[(&finding, Type::INT8)]).await;
    row.map_err(|source| ReviewError::Query { what: "a finding", source })
}

/// The part of the row that a decision depends on.
pub(crate) fn finding_of(row: &Row) -> Result<FindingNow, tokio_postgres::Error> {
    let payment = if row.try_get("payment_is_there")? {
        let reference = Reference::from_view(row.try_get("payment_ref")?);
        Some(PaymentNow {
            state: row.try_get("payment_state")?,
            external_ref: reference.as_str().map(str::to_owned),
            external_status: row.try_get("observed_status")?,
        })
    } else {
        None
    };
    Ok(FindingNow {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        verdict: row.try_get("verdict")?,
        revision: row.try_get("revision")?,
        local_state: row.try_get("local_state")?,
        external_status: row.try_get("external_status")?,
        external_ref: row.try_get("external_ref")?,
        resolution: row.try_get("resolution")?,
        snoozed_until: row.try_get("snoozed_until")?,
        command_waits: row.try_get("command_waits")?,
        has_payment: row.try_get::<_, Option<String>>("payment_id")?.is_some(),
        payment,
    })
}

fn shown_of(row: &Row, is: &FindingNow, now: Timestamp) -> Result<Shown, tokio_postgres::Error> {
    let evidence = readable(row.try_get("evidence")?);
    let choices = choices(is, now);
    let transition = choices.iter().find_map(|choice| match choice {
        Decision::Apply(transition) => Some(transition.as_str()),
        Decision::Accept | Decision::Retry | Decision::Snooze { .. } => None,
    });
    let severity = match Kind::parse(&is.kind) {
        _ if is.verdict == Verdict::Repairable.as_str() => "low",
        Some(kind) => severity(kind).as_str(),
        None => "critical",
    };
    let observed_at: Option<Timestamp> = row.try_get("observed_at")?;
    let external_status = row.try_get("observed_status")?;
    let payment_now = match &is.payment {
        None => None,
        Some(payment) => Some(PaymentShown {
            state: payment.state.clone(),
            external_ref: payment.external_ref.clone(),
            match_key: row.try_get("payment_match_key")?,
            created_at: row.try_get("payment_created_at")?,
            updated_at: row.try_get("payment_updated_at")?,
        }),
    };
    Ok(Shown {
        read_at: now,
        finding: is.id,
        revision: is.revision,
        severity,
        kind: is.kind.clone(),
        verdict: is.verdict.clone(),
        payment: row.try_get("payment_id")?,
        external_ref: is.external_ref.clone(),
        local_state: is.local_state.clone(),
        external_status: is.external_status.clone(),
        stripe_url: stripe_url(is.external_ref.as_deref(), &evidence),
        evidence,
        detected_at: row.try_get("detected_at")?,
        last_seen_at: row.try_get("last_seen_at")?,
        escalated_at: row.try_get("escalated_at")?,
        snoozed_until: is.snoozed_until,
        resolved_at: row.try_get("resolved_at")?,
        resolution: is.resolution.clone(),
        payment_now,
        observation: observed_at.map(|observed_at| Observation { external_status, observed_at }),
        choices: choices.iter().map(|choice| choice.as_str()).collect(),
        transition,
        reviews: Vec::new(),
        earlier: Vec::new(),
        outbox: Vec::new(),
    })
}

/// The page of a PaymentIntent in Stripe's dashboard; only for what looks like the id of one.
pub(crate) fn stripe_url(reference: Option<&str>, evidence: &Value) -> Option<String> {
    let id = ExternalRef::parse(reference?)?;
    let mode = if evidence["livemode"] == false { "test/" } else { "" };
    Some(format!("https://dashboard.stripe.com/{mode}payments/{id}"))
}

/// Evidence as JSON; as a text where it is deeper or larger than JSON is read here, and cut off where an answer of Lambda's could
/// not hold it.
fn readable(written: &str) -> Value {
    if written.len() <= EVIDENCE_MAX {
        return serde_json::from_str(written).unwrap_or_else(|_too_deep| Value::from(written));
    }
    let end = written.floor_char_boundary(EVIDENCE_MAX);
    Value::from(format!("{}… ({} bytes in all)", written.get(..end).unwrap_or_default(), written.len()))
}

async fn rows_as_json(
    db: &impl GenericClient,
    what: &'static str,
    sql: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Value>, ReviewError> {
    let failed = |source| ReviewError::Query { what, source };
    let sql = format!("select to_jsonb(r) from (\n{sql}\n) r");
    let rows = db.query_typed(&sql, parameters).await.map_err(failed)?;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(failed)
}
