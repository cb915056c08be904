//! A function under the Lambda Runtime API: one tick an invocation, its report as the answer, its error as a diagnostic whose
//! type is a name that does not change and whose message is the whole chain of causes.

pub use lambda_runtime::Error;
use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use reconciler::budget::Share;
use reconciler::domain::Timestamp;
use reconciler::gateway::StripeClient;
use reconciler::scan::{Deps, RunError};
use reconciler::telemetry::Report;
use serde::Serialize;
use serde_json::Value;
use time::Duration;
use tracing_subscriber::filter::LevelFilter;

use crate::metrics::catalogue::Function;
use crate::metrics::{Tick, scan_records};
use crate::{ScanHost, TickError, logging};

/// What is kept of an invocation's time for the commit and the report.
const RESERVE: Duration = Duration::seconds(3);

/// A failed invocation, as Lambda shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Lambda's `errorType`.
    pub error_type: &'static str,
    /// Lambda's `errorMessage`.
    pub message: String,
}

impl From<&TickError> for Failed {
    fn from(error: &TickError) -> Self {
        Self { error_type: error.error_type(), message: error.chain() }
    }
}

impl From<Failed> for Diagnostic {
    fn from(failed: Failed) -> Self {
        Self { error_type: failed.error_type.to_owned(), error_message: failed.message }
    }
}

/// Serves invocations of a scanning function until Lambda ends the process. Each writes one record of metrics.
///
/// Settings that cannot be used do not end it: they are the answer to every invocation, where somebody sees them.
pub async fn serve_scan<F>(function: &'static Function, share: Option<Share>, run: F) -> Result<(), Error>
where
    F: AsyncFn(&Deps<'_, StripeClient>, Timestamp) -> Result<Report, RunError>,
{
    serve_scan_with_input(function, share, async |deps, now, _payload| run(deps, now).await).await
}

/// The same for a function that takes an input: `run` is given the invocation's payload.
pub async fn serve_scan_with_input<F>(function: &'static Function, share: Option<Share>, run: F) -> Result<(), Error>
where
    F: AsyncFn(&Deps<'_, StripeClient>, Timestamp, &Value) -> Result<Report, RunError>,
{
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let host = ScanHost::from_lookup(&environment, share).map_err(|error| Failed::from(&error));
    serve(async |payload, deadline| {
        let tick = Tick::begin(function); // let go of without an end, it has failed
        let host = host.as_ref().map_err(Clone::clone)?;
        match host.tick(Some(deadline), async |deps, now| run(deps, now, &payload).await).await {
            Ok(report) => {
                logging::log_report(&report);
                tick.end(&scan_records(function, &report, false));
                Ok(report)
            }
            Err(error) => {
                if let Some(report) = error.report() {
                    logging::log_report(report);
                    tick.end(&scan_records(function, report, true));
                }
                Err(Failed::from(&error))
            }
        }
    })
    .await
}

/// What Lambda says of an invocation, beside its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Lambda's id of the request, by which CloudTrail knows its caller.
    pub request_id: String,
    /// The ARN that the function was invoked by.
    pub function_arn: String,
    /// The id of the identity that Cognito vouches for. To a plain invocation Lambda names nobody.
    pub cognito_identity: Option<String>,
    /// The time at which to stop issuing calls.
    pub deadline: Timestamp,
}

/// Serves invocations with `handle`, which is given the payload and the time at which to stop issuing calls. Any JSON is a
/// valid payload.
pub async fn serve<F, R>(handle: F) -> Result<(), Error>
where
    F: AsyncFn(Value, Timestamp) -> Result<R, Failed>,
    R: Serialize,
{
    serve_invocations(async |payload, invocation: Invocation| handle(payload, invocation.deadline).await).await
}

/// The same for a function that has to know who is behind an invocation.
pub async fn serve_invocations<F, R>(handle: F) -> Result<(), Error>
where
    F: AsyncFn(Value, Invocation) -> Result<R, Failed>,
    R: Serialize,
{
    let handle = &handle;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Value>| async move {
        let invocation = Invocation {
            deadline: Timestamp::from(event.context.deadline()) - RESERVE,
            request_id: event.context.request_id,
            function_arn: event.context.invoked_function_arn,
            cognito_identity: event.context.identity.map(|identity| identity.identity_id),
        };
        // on the heap: the compiler's own depth is limited
        let ended = Box::pin(handle(event.payload, invocation)).await;
        if let Err(failed) = &ended {
            tracing::error!(error_type = failed.error_type, error = %failed.message, "the tick failed");
        }
        ended
    }))
    .await
}

/// The process's environment, as a source of settings.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn environment(key: &str) -> Option<String> {
    std::env::var(key).ok()
}
