//! The Lambda function `dispatch`. Events go to the log until there is another sink.

use bootstrap::lambda::{self, Failed};
use bootstrap::{chain, logging};
use dispatch::{DispatchError, Host, sink::LogSink};
use tracing::level_filters::LevelFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let failed = |error: &DispatchError| Failed { error_type: error.error_type(), message: chain(error) };
    let host = Host::from_lookup(&lambda::environment, LogSink);
    lambda::serve(async |_payload, _deadline| match &host {
        Ok(host) => host.tick().await.map_err(|error| failed(&error)),
        Err(error) => Err(failed(error)),
    })
    .await
}
