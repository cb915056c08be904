//! The Lambda function `sweep`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), bootstrap::lambda::Error> {
    bootstrap::lambda::serve_scan(&bootstrap::metrics::catalogue::SWEEP, Some(sweep::SHARE), sweep::run).await
}
