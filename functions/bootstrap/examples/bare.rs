//! The least that a Lambda function in Rust is: what the cold start of ours is compared with.

use lambda_runtime::{LambdaEvent, run, service_fn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    run(service_fn(|event: LambdaEvent<Value>| async move { Ok::<_, lambda_runtime::Error>(event.payload) })).await
}
