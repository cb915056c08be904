//! The Lambda function `webhook`.

use bootstrap::metrics::{Tick, catalogue::WEBHOOK};
use bootstrap::{lambda, logging};
use reconciler::clock::Clock;
use tracing::level_filters::LevelFilter;
use webhook::{Host, answer_error, metrics};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    logging::start(logging::Output::Stdout, LevelFilter::INFO);
    let host = Host::from_lookup(&lambda::environment);
    lambda::serve(async |payload, _deadline| {
        let tick = Tick::begin(&WEBHOOK); // let go of without an end, it has failed
        let host = match &host {
            Ok(host) => host,
            Err(error) => return Ok(answer_error(error)),
        };
        match host.take(payload, Clock::System.now()).await {
            Ok(taken) => {
                let records = metrics::records(taken.delivery, tick.elapsed_ms());
                tick.end(&records);
                Ok(taken.response)
            }
            Err(error) => Ok(answer_error(&error)),
        }
    })
    .await
}
