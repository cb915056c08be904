//! The Lambda function `lag-metric`.

use bootstrap::lambda::{self, Failed};
use bootstrap::metrics::{Tick, catalogue::LAG_METRIC};
use bootstrap::{chain, logging};
use lag_metric::{Host, LagError, metrics};
use tracing::level_filters::LevelFilter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let failed = |error: &LagError| Failed { error_type: error.error_type(), message: chain(error) };
    let host = Host::from_lookup(&lambda::environment);
    lambda::serve(async |_payload, _deadline| {
        let tick = Tick::begin(&LAG_METRIC); // let go of without an end, it has failed
        let report = host.as_ref().map_err(failed)?.tick().await.map_err(|error| failed(&error))?;
        tick.end(&metrics::records(&report));
        logging::log_tick(&report);
        Ok(report)
    })
    .await
}
