//! The thin sender: request out, answer in, nothing decided.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Request, Response};
use rustls::crypto::CryptoProvider;

use super::decode::{exchange, head_is_enough, refusal, unreadable};
use super::settings::AccountId;
use super::{
    Answer, ApiKey, BaseUrl, Call, Exchange, Flaw, Gateway, GatewayError, ListPage, ListQuery, Mode, Requests,
    SettingsError, TransientCause, decode_list, decode_retrieve,
};
use crate::config::{Secret, StripeSettings};
use crate::domain::external::External;
use crate::domain::id::ExternalRef;

/// The longest body that is read, in bytes. A page of 100 PaymentIntents with their charges has a tenth of it.
pub const BODY_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Shorter than the minute between two ticks: a connection that was frozen together with its Lambda is most likely dead,
/// and is not worth an error.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// Stripe over HTTP. One for the life of the process: building it reads the system's certificate authorities, and it keeps
/// its connections. `Debug` hides the key.
#[derive(Debug)]
pub struct StripeClient {
    requests: Requests,
    mode: Mode,
    http: reqwest::Client,
}

/// What came back, before it is decoded.
struct Received {
    status: u16,
    headers: HeaderMap,
    body: Result<Vec<u8>, BodyFault>,
}

enum BodyFault {
    BrokenOff(reqwest::Error),
    TooLong,
}

impl StripeClient {
    /// Checks the settings and sets up TLS. Sends nothing.
    pub fn new(settings: &StripeSettings, key: &Secret) -> Result<Self, SettingsError> {
        let key = ApiKey::parse(key.reveal())?;
        let base = BaseUrl::parse(&settings.api_base)?;
        let is_https = base.is_https();
        let requests = Requests::new(base, &key, settings.account.as_deref())?;

        install_tls_provider();
        let mut http = reqwest::Client::builder()
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.request_timeout)
            .pool_idle_timeout(POOL_IDLE)
            // The key goes to the configured address and nowhere else, and every request is one that the caller paced.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never())
            .https_only(is_https)
            .tls_backend_rustls();
        if !is_https {
            // no TLS is spoken, so that not even the certificate authorities need to be there
            http = http.tls_certs_only([]);
        }
        let http = http.build().map_err(|source| SettingsError::Client { source })?;
        Ok(Self { requests, mode: key.mode(), http })
    }

    /// Whether the settings can be used, where the key is not there yet.
    pub fn check(settings: &StripeSettings) -> Result<(), SettingsError> {
        BaseUrl::parse(&settings.api_base)?;
        settings.account.as_deref().map_or(Ok(()), |account| AccountId::parse(account).map(drop))
    }

    /// Which of Stripe's two worlds the key opens.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    async fn send(&self, call: &Call, request: Request) -> Result<Received, GatewayError> {
        let mut response = self
            .http
            .execute(request)
            .await
            .map_err(|error| network(Exchange::unanswered(call.clone()).into(), error))?;
        Ok(Received {
            status: response.status().as_u16(),
            headers: std::mem::take(response.headers_mut()),
            body: read(&mut response).await,
        })
    }
}

impl Gateway for StripeClient {
    async fn retrieve(&self, id: &ExternalRef) -> Result<External, GatewayError> {
        let call = Call::Retrieve(id.clone());
        let received = self.send(&call, self.requests.retrieve(id)).await?;
        let body = complete(&call, &received.headers, received.status, received.body)?;
        decode_retrieve(id, Answer { status: received.status, headers: &received.headers, body: &body })
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage, GatewayError> {
        let call = Call::List { starting_after: query.starting_after.clone() };
        let received = self.send(&call, self.requests.list(query)).await?;
        let body = complete(&call, &received.headers, received.status, received.body)?;
        decode_list(query, Answer { status: received.status, headers: &received.headers, body: &body })
    }

    fn livemode(&self) -> Option<bool> {
        Some(self.mode == Mode::Live)
    }
}

/// rustls takes the process's provider, and reqwest panics where there is none. Twice is as good as once.
pub fn install_tls_provider() {
    if CryptoProvider::get_default().is_some() {
        return;
    }
    match rustls::crypto::ring::default_provider().install_default() {
        Ok(()) => {}
        // another thread was faster: theirs is as good
        Err(rejected) => drop::<Arc<CryptoProvider>>(rejected),
    }
}

async fn read(response: &mut Response) -> Result<Vec<u8>, BodyFault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyFault::BrokenOff)? {
        if body.len() + chunk.len() > BODY_MAX_BYTES {
            return Err(BodyFault::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The whole body, or the error for the lack of it. Where the head is enough, it decides: a 429 whose body broke off must
/// not be tried again at once.
fn complete(
    call: &Call,
    headers: &HeaderMap,
    status: u16,
    body: Result<Vec<u8>, BodyFault>,
) -> Result<Vec<u8>, GatewayError> {
    let head = Answer { status, headers, body: &[] };
    match body {
        Ok(body) => Ok(body),
        Err(BodyFault::BrokenOff(_) | BodyFault::TooLong) if head_is_enough(status) => Err(refusal(call.clone(), head)),
        Err(BodyFault::BrokenOff(error)) => Err(network(exchange(call.clone(), head), error)),
        Err(BodyFault::TooLong) => Err(unreadable(Flaw::TooLong, call.clone(), head)),
    }
}

fn network(exchange: Box<Exchange>, error: reqwest::Error) -> GatewayError {
    let cause = if error.is_timeout() {
        TransientCause::TimedOut
    } else if error.is_connect() {
        TransientCause::NotConnected
    } else {
        TransientCause::BrokenOff
    };
    GatewayError::Transient { cause, retry_after: None, exchange, source: Some(error.without_url()) }
}

#[cfg(test)]
mod tests;
