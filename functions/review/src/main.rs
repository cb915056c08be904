//! The Lambda functions `review` and `review-decide`: one program, told apart by `REVIEW_DESK`.

use bootstrap::lambda::{self, Failed, Invocation};
use bootstrap::metrics::Tick;
use bootstrap::{chain, logging};
use review::caller::{Caller, Identity};
use review::{Desk, Host, ReviewError, metrics};
use tracing::level_filters::LevelFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let failed = |error: &ReviewError| Failed { error_type: error.error_type(), message: chain(error) };
    let desk = Desk::from_lookup(&lambda::environment).map_err(ReviewError::from);
    let function = metrics::function(*desk.as_ref().unwrap_or(&Desk::Reading));
    let host = desk.and_then(|desk| Host::from_lookup(&lambda::environment, desk));
    lambda::serve_invocations(async |payload, invocation: Invocation| {
        let tick = Tick::begin(function); // let go of without an end, it has failed
        let host = host.as_ref().map_err(failed)?;
        let function_arn = invocation.function_arn;
        let identity = invocation.cognito_identity.map_or(Identity::NotKnown, Identity::Cognito);
        let caller = Caller { identity, request_id: Some(invocation.request_id) };
        let answer = host.answer(&payload, Some(&caller)).await.map_err(|error| failed(&error))?;
        // as a value, for it borrows what ends here
        let body = serde_json::to_value(host.body(&answer, &payload, &function_arn))
            .map_err(|error| Failed { error_type: "AnswerUnwritable", message: chain(&error) })?;
        let records = metrics::records(host.desk(), &answer, tick.elapsed_ms());
        tick.end(&records);
        logging::log_tick(&answer.summary(host.desk()));
        Ok(body)
    })
    .await
}
