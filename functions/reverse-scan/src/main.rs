//! The Lambda function `reverse-scan`.

use bootstrap::metrics::catalogue::REVERSE_SCAN;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), bootstrap::lambda::Error> {
    let share = Some(reverse_scan::SHARE);
    bootstrap::lambda::serve_scan_with_input(&REVERSE_SCAN, share, async |deps, now, payload| {
        reverse_scan::run(deps, now, &reverse_scan::Input::parse(payload)?).await
    })
    .await
}
