//! What the clients of AWS share. Built by the first that needs it, so a process that names nothing of AWS builds none of it.

use std::sync::OnceLock;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_secretsmanager::config::SharedHttpClient;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use tokio::sync::OnceCell;

/// The settings of a client in `region`: credentials and endpoint where every AWS tool finds them, the variables that Lambda
/// sets, or a profile. Calls nothing; credentials are fetched with the first call. HTTP client and credentials are the
/// process's, whatever the region.
pub async fn config(region: Region) -> SdkConfig {
    static SHARED: OnceCell<SdkConfig> = OnceCell::const_new();
    let load = async || {
        let loader = aws_config::defaults(BehaviorVersion::latest()).region(region.clone());
        loader.http_client(process_http_client()).load().await
    };
    SHARED.get_or_init(load).await.clone().into_builder().region(region).build()
}

/// One for all clients: each would read the system's certificate authorities anew.
fn process_http_client() -> SharedHttpClient {
    static SHARED: OnceLock<SharedHttpClient> = OnceLock::new();
    SHARED.get_or_init(http_client).clone()
}

/// rustls with ring, as the Stripe client: aws-lc gathers randomness on its first use, which a cold start would wait for.
pub fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
