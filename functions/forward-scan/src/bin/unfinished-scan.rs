//! The Lambda function `unfinished-scan`.

use bootstrap::metrics::catalogue::UNFINISHED_SCAN;
use forward_scan::unfinished;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), bootstrap::lambda::Error> {
    bootstrap::lambda::serve_scan(&UNFINISHED_SCAN, Some(unfinished::SHARE), unfinished::run).await
}
