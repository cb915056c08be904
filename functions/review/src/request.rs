//! What the desk is asked, read strictly: an unknown action, member, word or a number out of its range is an error that names
//! it, and nothing is read or written for it. Texts are values for SQL's parameters, and never a part of a statement.

use reconciler::domain::Timestamp;
use reconciler::domain::review::PersonOnly;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use time::format_description::well_known::Rfc3339;

/// The longest request, in bytes of its JSON.
pub const REQUEST_MAX: usize = 64 * 1024;

/// The longest note, in characters.
pub const NOTE_MAX: usize = 2_000;

/// The longest text of a filter, and of a name, in characters.
const TEXT_MAX: usize = 255;

/// The last microsecond of the year 9999: no place is behind it, and Postgres knows it.
const MICROS_MAX: i64 = 253_402_300_799_999_999;

/// Findings on a page.
const LIMIT_DEFAULT: i64 = 50;
const LIMIT_MAX: i64 = 200;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// The open findings, a page of them.
    List(List),
    /// One finding.
    Show {
        /// Which.
        finding: i64,
    },
    /// A decision about a finding.
    Decide(Decide),
    /// A decision about a withheld batch: it goes through.
    Release(Release),
    /// The daily summary.
    Digest,
}

/// Which findings, and in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// One kind only.
    pub kind: Option<String>,
    /// What becomes of them.
    pub state: State,
    /// The payment's state.
    pub local_state: Option<String>,
    /// Stripe's status.
    pub external_status: Option<String>,
    /// Open for at least so many hours.
    pub min_age_hours: i64,
    /// The payment's key, the PaymentIntent's id, or the key that its metadata names the payment by.
    pub payment: Option<String>,
    /// The order.
    pub sort: Sort,
    /// How many; 1 to 200.
    pub limit: i64,
    /// Behind this place, which a page before has given.
    pub after: Option<Place>,
}

/// What becomes of an open finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for a person.
    #[default]
    NeedsReview,
    /// The reconciler repairs it.
    Repairable,
    /// A person has put it off.
    Snoozed,
    /// All of these.
    All,
}

impl State {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeedsReview => "needs_review",
            Self::Repairable => "repairable",
            Self::Snoozed => "snoozed",
            Self::All => "all",
        }
    }
}

/// An order that does not change while a person turns pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// The most severe first, of these the oldest.
    #[default]
    Severity,
    /// The oldest first.
    Oldest,
    /// The newest first.
    Newest,
}

impl Sort {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Severity => "severity",
            Self::Oldest => "oldest",
            Self::Newest => "newest",
        }
    }
}

/// A place in a list, behind one of its findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its rank by severity.
    pub rank: i32,
    /// When it was found.
    pub detected_at: Timestamp,
    /// Its id.
    pub id: i64,
}

impl Place {
    /// As a text, for the next request.
    pub fn written(self) -> String {
        format!("{}.{}.{}", self.rank, self.detected_at.unix_timestamp_nanos() / 1_000, self.id)
    }

    /// Reads what [`Place::written`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let rank = parts.next()?.parse().ok()?;
        let micros: i64 = parts.next()?.parse().ok()?;
        let id = parts.next()?.parse().ok()?;
        if !(0..=MICROS_MAX).contains(&micros) {
            return None;
        }
        let detected_at = Timestamp::from_unix_timestamp_nanos(i128::from(micros) * 1_000).ok()?;
        parts.next().is_none().then_some(Self { rank, detected_at, id })
    }
}

/// A decision about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decide {
    /// Which.
    pub finding: i64,
    /// As it was shown.
    pub revision: i64,
    /// What.
    pub decision: Asked,
    /// Why.
    pub note: String,
    /// Who the caller says to be.
    pub by: Option<String>,
}

/// A decision, before it is known when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// See `reconciler::domain::review::Decision`.
    Accept,
    /// A person's transition.
    Apply(PersonOnly),
    /// The command again.
    Retry,
    /// Until this time.
    SnoozeUntil(Timestamp),
    /// For so many days from now on.
    SnoozeDays(i64),
}

/// A withheld batch goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Which job's.
    pub job: String,
    /// As it was shown.
    pub revision: i64,
    /// Why.
    pub note: String,
    /// Who the caller says to be.
    pub by: Option<String>,
}

/// A request cannot be used. Nothing was read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequestError(pub String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListMembers {
    kind: Option<String>,
    #[serde(default)]
    state: State,
    local_state: Option<String>,
    external_status: Option<String>,
    min_age_hours: Option<i64>,
    payment: Option<String>,
    #[serde(default)]
    sort: Sort,
    limit: Option<i64>,
    after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowMembers {
    finding: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecideMembers {
    decision: String,
    finding: Option<i64>,
    job: Option<String>,
    revision: i64,
    note: Option<String>,
    by: Option<String>,
    transition: Option<String>,
    until: Option<String>,
    days: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoMembers {}

impl Request {
    /// Reads a request: a JSON object with `action` and the members of that action.
    pub fn parse(payload: &Value) -> Result<Self, RequestError> {
        let mut members = payload.as_object().cloned().ok_or_else(|| wrong("a request is a JSON object"))?;
        let action = members.remove("action");
        match action.as_ref().and_then(Value::as_str) {
            Some("list") => list(&read("list", members)?).map(Self::List),
            Some("show") => {
                let ShowMembers { finding } = read("show", members)?;
                Ok(Self::Show { finding: positive("finding", finding)? })
            }
            Some("decide") => decide(read("decide", members)?),
            Some("digest") => read::<NoMembers>("digest", members).map(|_| Self::Digest),
            _ => Err(wrong("action has to be list, show, decide or digest")),
        }
    }
}

fn wrong(why: impl Into<String>) -> RequestError {
    RequestError(why.into())
}

fn read<T: DeserializeOwned>(action: &str, members: Map<String, Value>) -> Result<T, RequestError> {
    serde_json::from_value(Value::Object(members)).map_err(|error| wrong(format!("the action {action}: {error}")))
}

fn positive(name: &str, number: i64) -> Result<i64, RequestError> {
    if number >= 1 { Ok(number) } else { Err(wrong(format!("{name} has to be a number from 1 on"))) }
}

/// A text of a filter or a name: none where it is blank, as a form sends it.
fn text(name: &str, given: Option<&String>) -> Result<Option<String>, RequestError> {
    let Some(given) = given.map(|given| given.trim()).filter(|given| !given.is_empty()) else { return Ok(None) };
    if given.chars().count() > TEXT_MAX || given.contains('\0') {
        return Err(wrong(format!("{name} has at most {TEXT_MAX} characters, and no NUL among them")));
    }
    Ok(Some(given.to_owned()))
}

fn list(members: &ListMembers) -> Result<List, RequestError> {
    let limit = members.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(wrong(format!("limit has to be a number from 1 to {LIMIT_MAX}")));
    }
    let min_age_hours = members.min_age_hours.unwrap_or(0);
    if !(0..=100_000).contains(&min_age_hours) {
        return Err(wrong("min_age_hours has to be a number from 0 to 100000"));
    }
    let place = text("after", members.after.as_ref())?;
    let after = place
        .map(|place| Place::parse(&place).ok_or_else(|| wrong("after has to be the `next` of a page before")))
        .transpose()?;
    Ok(List {
        kind: text("kind", members.kind.as_ref())?,
        state: members.state,
        local_state: text("local_state", members.local_state.as_ref())?,
        external_status: text("external_status", members.external_status.as_ref())?,
        min_age_hours,
        payment: text("payment", members.payment.as_ref())?,
        sort: members.sort,
        limit,
        after,
    })
}

fn decide(members: DecideMembers) -> Result<Request, RequestError> {
    let note = note(members.note.as_deref())?;
    let by = text("by", members.by.as_ref())?;
    let revision = members.revision;
    let only = |name: &str, given: bool, decision: &str| {
        if given { Err(wrong(format!("{name} is not a member of the decision {decision}"))) } else { Ok(()) }
    };
    let name = members.decision.as_str();
    only("transition", members.transition.is_some() && name != "apply", name)?;
    only("until", members.until.is_some() && name != "snooze", name)?;
    only("days", members.days.is_some() && name != "snooze", name)?;
    only("job", members.job.is_some() && name != "release", name)?;
    only("finding", members.finding.is_some() && name == "release", name)?;
    let decision = match name {
        "release" => {
            let job =
                text("job", members.job.as_ref())?.ok_or_else(|| wrong("job has to name the withheld batch's job"))?;
            return Ok(Request::Release(Release { job, revision, note, by }));
        }
        "accept" => Asked::Accept,
        "retry" => Asked::Retry,
        "apply" => {
            let named = members.transition.unwrap_or_default();
            let transition = PersonOnly::ALL.into_iter().find(|transition| transition.as_str() == named);
            Asked::Apply(transition.ok_or_else(|| wrong("transition has to be reverse_paid or accept_late_success"))?)
        }
        "snooze" => snooze(members.until.as_deref(), members.days)?,
        _ => return Err(wrong("decision has to be accept, apply, retry, snooze or release")),
    };
    let finding = members.finding.ok_or_else(|| wrong("finding has to be the number of a finding"))?;
    Ok(Request::Decide(Decide { finding: positive("finding", finding)?, revision, decision, note, by }))
}

fn snooze(until: Option<&str>, days: Option<i64>) -> Result<Asked, RequestError> {
    match (until, days) {
        (Some(until), None) => Timestamp::parse(until, &Rfc3339)
            .map(Asked::SnoozeUntil)
            .map_err(|error| wrong(format!("until has to be a time such as 2026-12-24T08:00:00Z: {error}"))),
        (None, Some(days)) if (1..=30).contains(&days) => Ok(Asked::SnoozeDays(days)),
        _ => Err(wrong("a snooze has either until, a time, or days, from 1 to 30")),
    }
}

fn note(given: Option<&str>) -> Result<String, RequestError> {
    let note = given.unwrap_or_default().trim();
    // a mark or a letter without a width says nothing
    if !note.chars().any(char::is_alphanumeric) {
        return Err(wrong("note has to say why: a decision without one is not taken"));
    }
    if note.chars().count() > NOTE_MAX || note.contains('\0') {
        return Err(wrong(format!("note has at most {NOTE_MAX} characters, and no NUL among them")));
    }
    Ok(note.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(payload: &Value) -> String {
        Request::parse(payload).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (payload, words) in [
            (json!([]), "a JSON object"),
            (json!({}), "action has to be"),
            (json!({"action": "drop"}), "action has to be"),
            (json!({"action": "list", "where": "1=1"}), "unknown field `where`"),
            (json!({"action": "list", "sort": "id; drop table"}), "unknown variant"),
            (json!({"action": "list", "limit": 201}), "limit has to be"),
            (json!({"action": "list", "min_age_hours": -1}), "min_age_hours"),
            (json!({"action": "list", "after": "1.2"}), "after has to be"),
            (json!({"action": "list", "kind": "x".repeat(256)}), "kind has at most 255"),
            (json!({"action": "list", "payment": "a\u{0}b"}), "no NUL"),
            (json!({"action": "show", "finding": "1 or 1=1"}), "invalid type: string"),
            (json!({"action": "show", "finding": 0}), "finding has to be"),
            (json!({"action": "decide", "decision": "accept", "finding": 1, "revision": 0}), "note has to say why"),
            (
                json!({"action": "decide", "decision": "accept", "finding": 1, "revision": 0, "note": " \n\u{200b}–"}),
                "note has to say why",
            ),
            (json!({"action": "decide", "decision": "accept", "finding": 1, "note": "n"}), "missing field `revision`"),
            (json!({"action": "decide", "decision": "accept", "revision": 0, "note": "n"}), "finding has to be"),
            (
                json!({"action": "decide", "decision": "forget", "finding": 1, "revision": 0, "note": "n"}),
                "decision has to be",
            ),
            (
                json!({"action": "decide", "decision": "apply", "finding": 1, "revision": 0, "note": "n", "transition": "succeeded"}),
                "transition has to be",
            ),
            (
                json!({"action": "decide", "decision": "accept", "finding": 1, "revision": 0, "note": "n", "transition": "reverse_paid"}),
                "not a member",
            ),
            (
                json!({"action": "decide", "decision": "snooze", "finding": 1, "revision": 0, "note": "n", "days": 31}),
                "a snooze has",
            ),
            (
                json!({"action": "decide", "decision": "snooze", "finding": 1, "revision": 0, "note": "n", "until": "tomorrow"}),
                "until has to be",
            ),
            (json!({"action": "decide", "decision": "release", "revision": 0, "note": "n"}), "job has to name"),
            (
                json!({"action": "decide", "decision": "release", "finding": 1, "job": "j", "revision": 0, "note": "n"}),
                "not a member",
            ),
            (json!({"action": "digest", "day": "2026-01-01"}), "unknown field `day`"),
        ] {
            let error = error(&payload);
            assert!(error.contains(words), "{payload}: {error}");
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_meant() {
        let default = List { limit: 50, ..List::default() };
        assert_eq!(Request::parse(&json!({"action": "list", "kind": "  "})), Ok(Request::List(default)));
        let decide = json!({"action": "decide", "decision": "snooze", "finding": 7, "revision": 2, "note": " later ", "days": 3});
        let read =
            Decide { finding: 7, revision: 2, decision: Asked::SnoozeDays(3), note: "later".to_owned(), by: None };
        assert_eq!(Request::parse(&decide), Ok(Request::Decide(read)));
        let place =
            Place { rank: 2, detected_at: Timestamp::UNIX_EPOCH + time::Duration::microseconds(1_234_567), id: 9 };
        assert_eq!(place.written(), "2.1234567.9");
        assert_eq!(Place::parse(&place.written()), Some(place));
        for forged in ["2.1234567.9.1", "0.-377705116800000000.1", "0.253402300800000000.1", "0..1"] {
            assert_eq!(Place::parse(forged), None, "{forged}");
        }
    }
}
