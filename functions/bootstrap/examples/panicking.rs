//! A function that panics when its payload says so: what the tests use to see that a panic is reported and survived.

use bootstrap::lambda::{Failed, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(async |payload, _deadline| {
        assert!(payload.get("panic").is_none(), "told to panic");
        Ok::<_, Failed>(payload)
    })
    .await
}
