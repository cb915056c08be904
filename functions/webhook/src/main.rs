//! The Lambda function `webhook`.

use bootstrap::{lambda, logging};
use reconciler::clock::Clock;
use tracing::level_filters::LevelFilter;
use webhook::Host;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let host = Host::from_lookup(&lambda::environment);
    lambda::serve(async |payload, _deadline| match &host {
        Ok(host) => Ok(host.answer(payload, Clock::System.now()).await),
        Err(error) => Ok(webhook::answer_error(error)),
    })
    .await
}
