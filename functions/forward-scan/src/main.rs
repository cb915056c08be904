//! The Lambda function `forward-scan`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), bootstrap::lambda::Error> {
    bootstrap::lambda::serve_scan(&bootstrap::metrics::catalogue::FORWARD_SCAN, None, forward_scan::run).await
}
