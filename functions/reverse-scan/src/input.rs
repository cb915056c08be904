//! What an invocation may be given.

use reconciler::domain::Timestamp;
use reconciler::scan::RunError;
use serde_json::Value;
use time::Date;
use time::Time;
use time::format_description::well_known::{Iso8601, Rfc3339};

/// An invocation's input. A schedule's has none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Walk back to here, this once.
    pub from: Option<Timestamp>,
}

/// The input cannot be used. Nothing was called.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the input's from = {0} is not usable: a date such as \"2026-01-01\", midnight in UTC, or an RFC 3339 time")]
pub struct InputError(String);

impl From<InputError> for RunError {
    fn from(error: InputError) -> Self {
        Self::Input(error.to_string())
    }
}

impl Input {
    /// Reads an invocation's payload: `{"from": "2026-01-01"}`. Whatever else it holds is a schedule's and none of ours.
    pub fn parse(payload: &Value) -> Result<Self, InputError> {
        let from = match payload.get("from") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let moment = value.as_str().and_then(moment_of);
                Some(moment.ok_or_else(|| InputError(value.to_string()))?)
            }
        };
        Ok(Self { from })
    }
}

fn moment_of(text: &str) -> Option<Timestamp> {
    let midnight = |date: Date| date.with_time(Time::MIDNIGHT).assume_utc();
    Timestamp::parse(text, &Rfc3339).or_else(|_no_time| Date::parse(text, &Iso8601::DATE).map(midnight)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_date_is_its_midnight_in_utc_and_a_schedules_payload_is_no_input() {
        let from = |payload| Input::parse(&payload).map(|input| input.from.map(Timestamp::unix_timestamp));
        assert_eq!(from(json!({"from": "2026-01-01"})), Ok(Some(1_767_225_600)));
        assert_eq!(from(json!({"from": "2026-01-01T02:00:00+02:00"})), Ok(Some(1_767_225_600)));
        for none in [json!(null), json!({}), json!({"source": "aws.scheduler", "from": null}), json!([1])] {
            assert_eq!(from(none), Ok(None));
        }
        for bad in [json!({"from": "yesterday"}), json!({"from": 1_767_225_600}), json!({"from": "2026-13-01"})] {
            assert!(Input::parse(&bad).unwrap_err().to_string().contains("from"), "{bad}");
        }
    }
}
