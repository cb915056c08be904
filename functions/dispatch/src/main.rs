//! The Lambda function `dispatch`.

use bootstrap::lambda::{self, Failed};
use bootstrap::metrics::{Tick, catalogue::DISPATCH};
use bootstrap::{chain, logging};
use dispatch::{DispatchError, Host, metrics};
use tracing::level_filters::LevelFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let failed = |error: &DispatchError| Failed { error_type: error.error_type(), message: chain(error) };
    let host = Host::from_settings(&lambda::environment).await;
    lambda::serve(async |_payload, deadline| {
        let tick = Tick::begin(&DISPATCH); // let go of without an end, it has failed
        let host = host.as_ref().map_err(failed)?;
        let report = host.tick(Some(deadline)).await.map_err(|error| failed(&error))?;
        tick.end(&metrics::records(&report));
        report.log();
        Ok(report)
    })
    .await
}
