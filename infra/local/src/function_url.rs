//! A Lambda Function URL on a laptop: HTTP on the loopback interface in front of a handler that takes the URL's payload
//! (format 2.0) and gives its answer. The handler is a closure: a function in this process, or a real binary under a
//! simulated Runtime API.
//!
//! As AWS documents it: names of headers are in lower case and several values of one are joined with commas; a body of a
//! textual content type goes in as it is and any other one in base64; an answer without `statusCode` is the body of a 200;
//! a handler that fails is a 502, and the caller is not told why. Left out: cookies as a list of their own, the query taken
//! apart, IAM authorization.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use reconciler::clock::Clock;
use reconciler::domain::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::loopback::Listening;

/// The largest payload that Lambda takes, in bytes.
pub const PAYLOAD_MAX: usize = 6 * 1024 * 1024;

/// The URL cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on 127.0.0.1")]
pub struct FunctionUrlError(#[from] io::Error);

/// The function failed or gave no answer, with its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the function failed: {0}")]
pub struct HandlerFailed(pub String);

/// An open Function URL. Dropping it closes the port and every connection.
pub struct FunctionUrl {
    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub base_url: String,
    listening: Listening,
}

impl FunctionUrl {
    /// Opens a URL on any free port. `handler` is given the payload, several at a time where several come; `clock` is for
    /// the time in it. Must be called within a tokio runtime.
    pub async fn start<H, A>(clock: Clock, handler: H) -> Result<Self, FunctionUrlError>
    where
        H: Fn(Value) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, HandlerFailed>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let exchange = move |request| {
            let (handler, clock) = (Arc::clone(&handler), clock.clone());
            async move { Ok::<_, Infallible>(exchange(request, clock.now(), handler.as_ref()).await) }
        };
        let listening = Listening::start(0, exchange).await?;
        Ok(Self { base_url: listening.base_url.clone(), listening })
    }

    /// Closes the port and every connection, and comes back when that is done.
    pub async fn stop(mut self) {
        self.listening.stop().await;
    }
}

/// The webhook function in this process, as a handler. `clock` is what the signature's time is compared with.
pub fn webhook(
    host: Arc<webhook::Host>,
    clock: Clock,
) -> impl Fn(Value) -> std::pin::Pin<Box<dyn Future<Output = Result<Value, HandlerFailed>> + Send>> + Send + Sync {
    move |payload| {
        let (host, now) = (Arc::clone(&host), clock.now());
        Box::pin(async move {
            let taken = host.take(payload, now).await;
            let answer = taken.map_or_else(|error| webhook::answer_error(&error), |taken| taken.response);
            serde_json::to_value(answer).map_err(|error| HandlerFailed(error.to_string()))
        })
    }
}

async fn exchange<H, A>(request: hyper::Request<Incoming>, now: Timestamp, handler: &H) -> hyper::Response<Full<Bytes>>
where
    H: Fn(Value) -> A,
    A: Future<Output = Result<Value, HandlerFailed>>,
{
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, PAYLOAD_MAX).collect().await else {
        return plain(413, r#"{"message":"Request must be smaller than 6291456 bytes"}"#);
    };
    match handler(payload(&head, &body.to_bytes(), now)).await.and_then(answer) {
        Ok(response) => response,
        Err(failed) => {
            tracing::error!(error = %failed, "a Function URL's handler");
            plain(502, r#"{"message":"Internal Server Error"}"#)
        }
    }
}

fn plain(status: u16, body: &'static str) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    if let Ok(status) = hyper::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    response
}

/// The payload of a request.
fn payload(head: &Parts, body: &[u8], now: Timestamp) -> Value {
    let mut headers: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let joined = headers.entry(name.as_str()).or_default();
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(&value);
    }
    let header = |name: &str| headers.get(name).map(String::as_str);
    let text = std::str::from_utf8(body).ok().filter(|_| is_text(header("content-type").unwrap_or_default()));
    let path = head.uri.path();
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": head.uri.query().unwrap_or_default(),
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "laptop",
            "domainName": header("host"),
            "domainPrefix": "laptop",
            "http": {
                "method": head.method.as_str(),
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": header("user-agent"),
            },
            "requestId": format!("laptop-{}", now.unix_timestamp_nanos()),
            "routeKey": "$default",
            "stage": "$default",
            "timeEpoch": i64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or_default(),
        },
        "body": text.map_or_else(|| STANDARD.encode(body), str::to_owned),
        "isBase64Encoded": text.is_none(),
    })
}

/// The content types whose bodies go in as they are.
fn is_text(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || ["application/json", "application/xml", "application/javascript"].contains(&essence.as_str())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    is_base64_encoded: bool,
}

/// The HTTP of an answer.
fn answer(value: Value) -> Result<hyper::Response<Full<Bytes>>, HandlerFailed> {
    let failed =
        |error: &dyn std::fmt::Display| HandlerFailed(format!("its answer is not one of a Function URL: {error}"));
    if value.get("statusCode").is_none() {
        let response = hyper::Response::builder().header("content-type", "application/json");
        return response.body(Full::new(Bytes::from(value.to_string()))).map_err(|error| failed(&error));
    }
    let answer: Answer = serde_json::from_value(value).map_err(|error| failed(&error))?;
    let body = match answer.is_base64_encoded {
        true => STANDARD.decode(&answer.body).map_err(|error| failed(&error))?,
        false => answer.body.into_bytes(),
    };
    let mut response = hyper::Response::builder().status(answer.status_code);
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(Bytes::from(body))).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::builder().method("POST").uri("/stripe?a=1&b=2");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_becomes_the_payload_that_aws_documents() {
        let headers = [
            ("Content-Type", "application/json; charset=utf-8"),
            ("Stripe-Signature", "t=1"),
            ("X-A", "b"),
            ("x-a", "c"),
        ];
        let payload = payload(&head(&headers), "{\"é\":1}\n".as_bytes(), Timestamp::UNIX_EPOCH);
        for (pointer, expected) in [
            ("/version", json!("2.0")),
            ("/rawPath", json!("/stripe")),
            ("/rawQueryString", json!("a=1&b=2")),
            (
                "/headers",
                json!({"content-type": "application/json; charset=utf-8", "stripe-signature": "t=1", "x-a": "b,c"}),
            ),
            ("/requestContext/http/method", json!("POST")),
            ("/requestContext/http/path", json!("/stripe")),
            ("/requestContext/timeEpoch", json!(0)),
            ("/body", json!("{\"é\":1}\n")),
            ("/isBase64Encoded", json!(false)),
        ] {
            assert_eq!(payload.pointer(pointer), Some(&expected), "{pointer}");
        }
    }

    #[test]
    fn a_body_that_is_no_text_goes_in_as_base64() {
        for (content_type, body, text) in [
            ("application/octet-stream", &b"{}"[..], "e30="),
            ("application/json", b"\xff\x00", "/wA="),
            ("text/plain", b"", ""),
        ] {
            let payload = payload(&head(&[("content-type", content_type)]), body, Timestamp::UNIX_EPOCH);
            assert_eq!(
                (&payload["body"], &payload["isBase64Encoded"]),
                (&json!(text), &json!(content_type != "text/plain"))
            );
        }
    }

    async fn answered(value: Value) -> Result<(u16, String, Bytes), HandlerFailed> {
        let response = answer(value)?;
        let content_type =
            response.headers().get("content-type").map_or("", |value| value.to_str().unwrap()).to_owned();
        let status = response.status().as_u16();
        Ok((status, content_type, response.into_body().collect().await.unwrap().to_bytes()))
    }

    #[tokio::test]
    async fn an_answer_becomes_http() {
        let whole = json!({"statusCode": 503, "headers": {"content-type": "text/plain"}, "body": "again"});
        assert_eq!(answered(whole).await, Ok((503, "text/plain".to_owned(), Bytes::from_static(b"again"))));
        let encoded = json!({"statusCode": 200, "body": "/wA=", "isBase64Encoded": true});
        assert_eq!(answered(encoded).await, Ok((200, String::new(), Bytes::from_static(b"\xff\x00"))));
        let bare = answered(json!({"function": "x"})).await;
        assert_eq!(bare, Ok((200, "application/json".to_owned(), Bytes::from_static(br#"{"function":"x"}"#))));
        for odd in [
            json!({"statusCode": "many"}),
            json!({"statusCode": 7}),
            json!({"statusCode": 200, "body": "{", "isBase64Encoded": true}),
        ] {
            assert!(answered(odd.clone()).await.is_err(), "{odd}");
        }
    }
}
