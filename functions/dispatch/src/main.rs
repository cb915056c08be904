//! The Lambda function `dispatch`.

use bootstrap::lambda::{self, Failed};
use bootstrap::{chain, logging};
use dispatch::{DispatchError, DispatchReport, Host};
use tracing::level_filters::LevelFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let failed = |error: &DispatchError| Failed { error_type: error.error_type(), message: chain(error) };
    let host = Host::from_settings(&lambda::environment).await;
    lambda::serve(async |_payload, deadline| match &host {
        Ok(host) => host.tick(Some(deadline)).await.inspect(DispatchReport::log).map_err(|error| failed(&error)),
        Err(error) => Err(failed(error)),
    })
    .await
}
