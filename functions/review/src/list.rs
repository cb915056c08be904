//! What is open: a page of it, and the whole in figures. Reads only, in the caller's transaction, so that page and figures
//! belong together.

use reconciler::domain::Timestamp;
use reconciler::domain::severity::{Severity, severity};
use reconciler::domain::verdict::Kind;
use serde::Serialize;
use time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::ReviewError;
use crate::request::{List, Place};

/// The answer to `list`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// As of when.
    #[serde(with = "time::serde::rfc3339")]
    pub read_at: Timestamp,
    /// The findings of this page.
    pub findings: Vec<Listed>,
    /// How many the filter leaves.
    pub matching: i64,
    /// `after` of the next page; `None` on the last one.
    pub next: Option<String>,
    /// Everything that is open, whatever the filter.
    pub totals: Totals,
    /// The batches that are withheld until a person lets them through.
    pub withheld: Vec<Withheld>,
}

/// A finding in the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
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
    /// The application's own key for it.
    pub match_key: Option<String>,
    /// The payment's state, as it was found.
    pub local_state: Option<String>,
    /// Stripe's status, as it was found.
    pub external_status: Option<String>,
    /// Whether Stripe's side had another status when it was looked at before.
    pub stripe_changed: bool,
    /// What is at stake, in the currency's minor unit.
    pub amount_minor: Option<i64>,
    /// The currency, in lower case.
    pub currency: Option<String>,
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
}

/// Everything that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// What waits for a person.
    pub waiting: i64,
    /// The same by severity, the most severe first.
    pub by_severity: Vec<BySeverity>,
    /// When the oldest of them was found.
    #[serde(with = "time::serde::rfc3339::option")]
    pub oldest: Option<Timestamp>,
    /// What they are about, where it is known.
    pub money_at_risk: Vec<Money>,
    /// Of how many it is not known.
    pub without_amount: i64,
    /// What a person has put off.
    pub snoozed: i64,
    /// What the reconciler is repairing.
    pub repairing: i64,
}

/// How many of one severity wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BySeverity {
    /// Which.
    pub severity: &'static str,
    /// How many.
    pub findings: i64,
}

/// A sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Money {
    /// In lower case.
    pub currency: String,
    /// In the currency's minor unit.
    pub amount_minor: i64,
    /// Of how many findings.
    pub findings: i64,
}

/// A withheld batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Withheld {
    /// Whose.
    pub job: String,
    /// To be named in a release.
    pub revision: i64,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub withheld_at: Timestamp,
    /// Why.
    pub because: String,
}

/// Reads a page.
pub async fn list(db: &impl GenericClient, request: &List, now: Timestamp) -> Result<Listing, ReviewError> {
    let failed = |source| ReviewError::Query { what: "the open findings", source };
    let (kinds, ranks) = ranks();
    let detected_before = now.saturating_sub(Duration::hours(request.min_age_hours));
    let after = request.after;
    let rank = after.map(|place| place.rank);
    let at = after.map(|place| place.detected_at);
    let id = after.map(|place| place.id);
    let parameters: [(&(dyn ToSql + Sync), Type); 14] = [
        (&now, Type::TIMESTAMPTZ),
        (&kinds, Type::TEXT_ARRAY),
        (&ranks, Type::INT4_ARRAY),
        (&request.kind, Type::TEXT),
        (&request.state.as_str(), Type::TEXT),
        (&request.local_state, Type::TEXT),
        (&request.external_status, Type::TEXT),
        (&detected_before, Type::TIMESTAMPTZ),
        (&request.payment, Type::TEXT),
        (&request.sort.as_str(), Type::TEXT),
        (&rank, Type::INT4),
        (&at, Type::TIMESTAMPTZ),
        (&id, Type::INT8),
        (&(request.limit + 1), Type::INT8), // one more says whether there is a next page
    ];
    let rows = db.query_typed(include_str!("sql/list.sql"), &parameters).await.map_err(failed)?;
    let matching = match rows.first() {
        Some(row) => row.try_get("matching").map_err(failed)?,
        // an empty page behind the last one: the first one says how many there are
        None if after.is_some() => {
            let first = List { after: None, limit: 1, ..request.clone() };
            return Ok(Listing { findings: Vec::new(), next: None, ..Box::pin(list(db, &first, now)).await? });
        }
        None => 0,
    };
    let mut listed: Vec<(Place, Listed)> = rows.iter().map(listed_of).collect::<Result<_, _>>().map_err(failed)?;
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let more = listed.len() > limit;
    listed.truncate(limit);
    let next = listed.last().filter(|_| more).map(|(place, _)| place.written());
    Ok(Listing {
        read_at: now,
        findings: listed.into_iter().map(|(_, listed)| listed).collect(),
        matching,
        next,
        totals: totals(db, now).await?,
        withheld: withheld(db).await?,
    })
}

/// Reads the figures of the whole.
pub async fn totals(db: &impl GenericClient, now: Timestamp) -> Result<Totals, ReviewError> {
    let failed = |source| ReviewError::Query { what: "the figures of the open findings", source };
    let (kinds, ranks) = ranks();
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&now, Type::TIMESTAMPTZ), (&kinds, Type::TEXT_ARRAY), (&ranks, Type::INT4_ARRAY)];
    let rows = db.query_typed(include_str!("sql/totals.sql"), &parameters).await.map_err(failed)?;
    let mut totals = Totals::default();
    for row in &rows {
        add(&mut totals, row).map_err(failed)?;
    }
    totals.money_at_risk.sort_by(|a, b| a.currency.cmp(&b.currency));
    Ok(totals)
}

fn add(totals: &mut Totals, row: &Row) -> Result<(), tokio_postgres::Error> {
    let findings: i64 = row.try_get("findings")?;
    let rank: Option<i32> = row.try_get("rank")?;
    let severity = match rank {
        None => {
            totals.snoozed += findings;
            return Ok(());
        }
        Some(-1) => {
            totals.repairing += findings;
            return Ok(());
        }
        Some(rank) => severity_of(rank),
    };
    totals.waiting += findings;
    match totals.by_severity.iter_mut().find(|of| of.severity == severity) {
        Some(of) => of.findings += findings,
        None => totals.by_severity.push(BySeverity { severity, findings }),
    }
    let oldest: Option<Timestamp> = row.try_get("oldest")?;
    totals.oldest = [totals.oldest, oldest].into_iter().flatten().min();
    let currency: Option<String> = row.try_get("currency")?;
    let amount: Option<i64> = row.try_get::<_, Option<String>>("amount_minor")?.and_then(|sum| sum.parse().ok());
    let Some((currency, amount_minor)) = currency.zip(amount) else {
        totals.without_amount += findings;
        return Ok(());
    };
    match totals.money_at_risk.iter_mut().find(|money| money.currency == currency) {
        Some(money) => {
            money.amount_minor = money.amount_minor.saturating_add(amount_minor);
            money.findings += findings;
        }
        None => totals.money_at_risk.push(Money { currency, amount_minor, findings }),
    }
    Ok(())
}

async fn withheld(db: &impl GenericClient) -> Result<Vec<Withheld>, ReviewError> {
    let failed = |source| ReviewError::Query { what: "the withheld batches", source };
    let rows = db.query_typed(include_str!("sql/withheld.sql"), &[]).await.map_err(failed)?;
    let of = |row: &Row| {
        Ok(Withheld {
            job: row.try_get("job")?,
            revision: row.try_get("revision")?,
            withheld_at: row.try_get("withheld_at")?,
            because: row.try_get("withheld_because")?,
        })
    };
    rows.iter().map(of).collect::<Result<_, _>>().map_err(failed)
}

/// Each kind's rank by severity, for SQL: names and ranks.
fn ranks() -> (Vec<String>, Vec<i32>) {
    Kind::all().map(|kind| (kind.to_string(), severity(kind).rank())).unzip()
}

/// The word for a rank. A kind that no one knows has the first.
fn severity_of(rank: i32) -> &'static str {
    Severity::ALL.into_iter().find(|severity| severity.rank() == rank).unwrap_or(Severity::Critical).as_str()
}

fn listed_of(row: &Row) -> Result<(Place, Listed), tokio_postgres::Error> {
    let place = Place { rank: row.try_get("rank")?, detected_at: row.try_get("detected_at")?, id: row.try_get("id")? };
    let listed = Listed {
        finding: place.id,
        revision: row.try_get("revision")?,
        severity: severity_of(place.rank),
        kind: row.try_get("kind")?,
        verdict: row.try_get("verdict")?,
        payment: row.try_get("payment_id")?,
        external_ref: row.try_get("external_ref")?,
        match_key: row.try_get("match_key")?,
        local_state: row.try_get("local_state")?,
        external_status: row.try_get("external_status")?,
        stripe_changed: row.try_get::<_, Option<bool>>("stripe_changed")?.unwrap_or(false),
        amount_minor: row.try_get("amount_minor")?,
        currency: row.try_get("currency")?,
        detected_at: place.detected_at,
        last_seen_at: row.try_get("last_seen_at")?,
        escalated_at: row.try_get("escalated_at")?,
        snoozed_until: row.try_get("snoozed_until")?,
    };
    Ok((place, listed))
}
