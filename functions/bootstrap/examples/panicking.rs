//! A function that panics when its payload says so: what the tests use to see that a panic is reported and survived.

use bootstrap::lambda::{Failed, serve};
use bootstrap::metrics::{Record, Tick, catalogue};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(async |payload, _deadline| {
        let tick = Tick::begin(&catalogue::DISPATCH);
        assert!(payload.get("panic").is_none(), "told to panic");
        tick.end(&[Record::of_tick(&catalogue::DISPATCH, vec![(catalogue::FAILED, 0)])]);
        Ok::<_, Failed>(payload)
    })
    .await
}
