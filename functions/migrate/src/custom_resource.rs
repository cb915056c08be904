//! CloudFormation's side: a stack that has this function as a custom resource migrates when it is deployed.
//!
//! CloudFormation waits, for an hour, until an answer is put to the address that it gave. So everything is answered that has
//! such an address: unusable properties and settings, too. Deleting does nothing: a schema with the proof of what was
//! verified is no stack's to drop.
//!
//! The address is pre-signed and so a secret: it is in no log line and no error.

use std::time::Duration;

use bootstrap::chain;
use bootstrap::lambda::Failed;
use reconciler::clock::Clock;
use reconciler::config::Lookup;
use reconciler::domain::Timestamp;
use reconciler::gateway::install_tls_provider;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Host, Url};

use crate::invocation::{Mode, Task, carry_out};

/// The resource is the schema, and there is one. Another id would have CloudFormation delete the old one after an update.
const PHYSICAL_RESOURCE_ID: &str = "reconciliation-schema";

/// The longest answer that CloudFormation takes.
const ANSWER_MAX_BYTES: usize = 4096;

/// What is kept of the invocation's time for the answer, besides what is kept of every invocation's.
const RESERVE: time::Duration = time::Duration::seconds(5);

/// Of putting the answer.
const TIMEOUT: Duration = Duration::from_secs(7);

const CUT: &str = " … (the whole of it is in the function's log)";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    request_type: String,
    #[serde(rename = "ResponseURL")]
    response_url: String,
    stack_id: String,
    request_id: String,
    logical_resource_id: String,
    #[serde(default)]
    resource_properties: Value,
}

/// What is ours of the resource's properties. Others, such as a version that forces an update, are left to the stack.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Properties {
    adapter: Option<String>,
    mode: Option<Mode>,
}

/// How it ended, in CloudFormation's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Status {
    Success,
    Failed,
}

/// What CloudFormation was told.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Told {
    status: Status,
    reason: String,
    physical_resource_id: &'static str,
    stack_id: String,
    request_id: String,
    logical_resource_id: String,
}

/// Carries a request out and puts its answer. An error only where CloudFormation could not be told: Lambda invokes again then.
pub(crate) async fn answer(
    lookup: Lookup<'_>,
    clock: &Clock,
    payload: Value,
    deadline: Timestamp,
) -> Result<Told, Failed> {
    let request = Request::deserialize(payload).map_err(|error| Failed {
        error_type: "PayloadUnusable",
        message: format!("the payload looks like CloudFormation's, and is not: {error}"),
    })?;
    let (status, reason) = match carry_out_request(lookup, clock, &request, deadline - RESERVE).await {
        Ok(reason) => (Status::Success, reason),
        Err(failed) => {
            tracing::error!(error_type = failed.error_type, error = %failed.message, "the migration failed");
            (Status::Failed, failed.message)
        }
    };
    let told = told(&request, status, &reason);
    put(&request.response_url, &told).await.map_err(|why| Failed {
        error_type: "AnswerUndelivered",
        message: format!(
            "CloudFormation could not be told that the {} of {} ended as {status:?}: {why}",
            request.request_type, request.logical_resource_id
        ),
    })?;
    Ok(told)
}

async fn carry_out_request(
    lookup: Lookup<'_>,
    clock: &Clock,
    request: &Request,
    deadline: Timestamp,
) -> Result<String, Failed> {
    match request.request_type.as_str() {
        "Create" | "Update" => {}
        "Delete" => return Ok("the schema reconciliation and what is in it stay".to_owned()),
        other => {
            return Err(Failed { error_type: "PayloadUnusable", message: format!("unknown RequestType {other:?}") });
        }
    }
    let properties = Properties::deserialize(&request.resource_properties).map_err(|error| Failed {
        error_type: "PayloadUnusable",
        message: format!("the properties of the resource are Adapter (SQL) and Mode (apply or check): {error}"),
    })?;
    let task = Task { mode: properties.mode.unwrap_or(Mode::Apply), adapter: properties.adapter };
    let report = carry_out(lookup, clock, &task, deadline).await?;
    if report.fit {
        Ok(report.checked.to_string())
    } else {
        Err(Failed { error_type: "PortsNotReady", message: report.checked.to_string() })
    }
}

/// The answer, with as much of the reason as fits.
fn told(request: &Request, status: Status, reason: &str) -> Told {
    let with = |reason: String| Told {
        status,
        reason,
        physical_resource_id: PHYSICAL_RESOURCE_ID,
        stack_id: request.stack_id.clone(),
        request_id: request.request_id.clone(),
        logical_resource_id: request.logical_resource_id.clone(),
    };
    let whole = with(reason.to_owned());
    if size(&whole) <= ANSWER_MAX_BYTES {
        return whole;
    }
    // How many bytes a character takes depends on how JSON escapes it, so the length that fits is searched for.
    let cut = |length: usize| {
        let kept = reason.get(..reason.floor_char_boundary(length)).unwrap_or_default();
        with(format!("{kept}{CUT}"))
    };
    let (mut fits, mut does_not) = (0, reason.len());
    while does_not - fits > 1 {
        let middle = usize::midpoint(fits, does_not);
        if size(&cut(middle)) <= ANSWER_MAX_BYTES { fits = middle } else { does_not = middle }
    }
    cut(fits)
}

fn size(told: &Told) -> usize {
    serde_json::to_vec(told).map_or(0, |bytes| bytes.len())
}

/// Puts the answer, without a content type: the signature of the address covers that there is none.
async fn put(address: &str, told: &Told) -> Result<(), String> {
    let url = Url::parse(address).map_err(|error| format!("its address is none: {error}"))?;
    let is_https = url.scheme() == "https";
    let is_to_this_machine = url.scheme() == "http" && is_loopback(&url);
    if !is_https && !is_to_this_machine {
        return Err("its address is not https".to_owned());
    }
    install_tls_provider();
    let mut http = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .https_only(is_https)
        .tls_backend_rustls();
    if !is_https {
        // no TLS is spoken, so that not even the certificate authorities need to be there
        http = http.tls_certs_only([]);
    }
    let body = serde_json::to_vec(told).map_err(|error| error.to_string())?;
    let http = http.build().map_err(|error| chain(&error))?;
    let answered = http.put(url).body(body).send().await.map_err(|error| chain(&error.without_url()))?;
    if answered.status().is_success() { Ok(()) } else { Err(format!("HTTP {}", answered.status().as_u16())) }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request::deserialize(serde_json::json!({
            "RequestType": "Create", "ResponseURL": "https://x.example/signed", "StackId": "arn:stack", "RequestId": "r",
            "LogicalResourceId": "Schema", "ResourceProperties": {"ServiceToken": "arn:lambda"},
        }))
        .unwrap()
    }

    #[test]
    fn a_reason_is_cut_to_what_cloudformation_takes_and_says_so() {
        let short = told(&request(), Status::Failed, "one error");
        assert_eq!(short.reason, "one error");
        for letter in ["a", "é", "\n", "🦀", "\"", "\u{1}"] {
            let long = told(&request(), Status::Failed, &letter.repeat(6_000));
            assert!((ANSWER_MAX_BYTES - 12..=ANSWER_MAX_BYTES).contains(&size(&long)), "{letter:?}: {}", size(&long));
            assert!(long.reason.ends_with(CUT) && long.reason.starts_with(letter), "{letter:?}");
        }
    }

    #[tokio::test]
    async fn the_answer_goes_over_https_or_to_this_machine_and_its_address_is_not_shown() {
        let told = told(&request(), Status::Success, "");
        for address in ["http://198.51.100.7/hushed", "ftp://127.0.0.1/hushed", "hushed", "http://127.0.0.1:1/?hushed"]
        {
            let why = put(address, &told).await.unwrap_err();
            assert!(!why.contains("hushed"), "{why}");
        }
    }
}
