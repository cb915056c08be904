//! The Lambda function `migrate`: by hand, or as a CloudFormation custom resource.

use bootstrap::{lambda, logging};
use reconciler::clock::Clock;
use tracing::level_filters::LevelFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    lambda::serve(async |payload, deadline| {
        migrate::invocation::answer(&lambda::environment, &Clock::System, payload, deadline).await
    })
    .await
}
