//! The Lambda function `reverse-scan`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), bootstrap::lambda::Error> {
    bootstrap::lambda::serve_scan_with_input(Some(reverse_scan::SHARE), async |deps, now, payload| {
        reverse_scan::run(deps, now, &reverse_scan::Input::parse(payload)?).await
    })
    .await
}
