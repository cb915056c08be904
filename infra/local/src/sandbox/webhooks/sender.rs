//! The sending: a connection for each POST; a redirect is an answer like any other, and no proxy is asked.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::super::server::{Shared, delay};
use super::log::Delivered;
use super::queue::Delivery;

/// How long an endpoint has for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// How much of an answer is read and how much of it is kept, in bytes and in characters.
const BODY_MAX: usize = 64 * 1024;
const BODY_KEPT: usize = 200;

type SendError = Box<dyn std::error::Error + Send + Sync>;

/// Sends what is due, one after the other, and what becomes due by it. How many attempts that were. One that is broken off
/// in the middle stays in the queue.
pub(in super::super) async fn deliver(shared: &Shared) -> u64 {
    let _turn = shared.turn.lock().await;
    let mut sent = 0;
    while let Some(delivery) = shared.with_silently(|account, now| account.next_delivery(now)) {
        let delivered = post(&delivery).await;
        shared.with(|account, now| account.settle_delivery(&delivery, delivered, now));
        sent += 1;
    }
    sent
}

/// Sends whatever becomes due, for ever.
pub(in super::super) async fn keep_delivering(shared: &Shared) {
    let mut changes = shared.counters.subscribe();
    loop {
        // Marked as seen before looking, so that an event in between wakes us.
        changes.borrow_and_update();
        deliver(shared).await;
        let left = shared.with_silently(|account, now| account.next_delivery_at().map(|at| at - now));
        let due = async {
            match left {
                Some(left) => delay(Duration::try_from(left).unwrap_or_default()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                return; // the sender lives as long as `shared`
            },
            () = due => {}
        }
    }
}

/// Posts a delivery and waits for the answer.
async fn post(delivery: &Delivery) -> Delivered {
    match tokio::time::timeout(ANSWER_MAX, exchange(delivery)).await {
        Ok(Ok(delivered)) => delivered,
        Ok(Err(error)) => Delivered::Unanswered(error.to_string()),
        Err(late) => Delivered::Unanswered(late.to_string()),
    }
}

async fn exchange(delivery: &Delivery) -> Result<Delivered, SendError> {
    let uri: Uri = delivery.url.parse()?;
    let authority = uri.authority().ok_or("the URL names no host")?.as_str().to_owned();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(80))).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json; charset=utf-8")
        .header(USER_AGENT, "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
        .header("stripe-signature", &delivery.signature)
        .body(Full::new(Bytes::from(delivery.body.clone())))?;

    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await?.to_bytes();
        let body = String::from_utf8_lossy(&body).chars().take(BODY_KEPT).collect();
        Ok(Delivered::Answered { status, body })
    };
    let driven = async {
        match connection.await {
            // It ends when the answer is there, or with an error that the answer's end reports as well.
            Ok(()) | Err(_) => std::future::pending::<()>().await,
        }
    };
    tokio::select! {
        answer = answer => answer,
        () = driven => Err("the connection has ended".into()),
    }
}
