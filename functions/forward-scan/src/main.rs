//! The Lambda function `forward-scan`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    bootstrap::lambda::serve_scan(forward_scan::run).await
}
