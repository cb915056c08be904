//! Stripe's error bodies. `type` is one of four; everything else is told apart by status, code and header.

use serde_json::{Map, Value, json};

/// `error.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Api,
    Card,
    Idempotency,
    InvalidRequest,
}

/// A refusal, before it has a request id.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    pub(super) status: u16,
    kind: Kind,
    /// `Stripe-Should-Retry`; absent where Stripe leaves it to the client.
    pub(super) should_retry: Option<bool>,
    // Boxed, since every parameter's getter returns one of these.
    said: Box<Said>,
}

#[derive(Clone, Debug)]
struct Said {
    message: String,
    code: Option<String>,
    param: Option<String>,
    /// Members that only some errors have: `payment_intent`, `decline_code`, `charge`, …
    more: Map<String, Value>,
    headers: Vec<(&'static str, String)>,
}

impl ApiError {
    /// An `invalid_request_error` that a repetition would not mend.
    pub(super) fn invalid(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: Kind::InvalidRequest,
            should_retry: Some(false),
            said: Box::new(Said {
                message: message.into(),
                code: None,
                param: None,
                more: Map::new(),
                headers: Vec::new(),
            }),
        }
    }

    pub(super) fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    pub(super) fn should_retry(self, should_retry: Option<bool>) -> Self {
        Self { should_retry, ..self }
    }

    pub(super) fn code(mut self, code: &str) -> Self {
        self.said.code = Some(code.to_owned());
        self
    }

    pub(super) fn param(mut self, param: &str) -> Self {
        self.said.param = Some(param.to_owned());
        self
    }

    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.said.more.insert(name.to_owned(), value);
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.said.headers.push((name, value.into()));
        self
    }

    pub(super) fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.said.headers.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The body; absent members are omitted, as Stripe omits them.
    pub(super) fn body(&self, request_log_url: Option<&str>) -> Vec<u8> {
        let mut error = self.said.more.clone();
        let kind = match self.kind {
            Kind::Api => "api_error",
            Kind::Card => "card_error",
            Kind::Idempotency => "idempotency_error",
            Kind::InvalidRequest => "invalid_request_error",
        };
        error.insert("type".to_owned(), json!(kind));
        error.insert("message".to_owned(), json!(self.said.message));
        if let Some(code) = &self.said.code {
            error.insert("code".to_owned(), json!(code));
            error.insert("doc_url".to_owned(), json!(doc_url(code)));
        }
        if let Some(param) = &self.said.param {
            error.insert("param".to_owned(), json!(param));
        }
        if let Some(url) = request_log_url {
            error.insert("request_log_url".to_owned(), json!(url));
        }
        json!({ "error": error }).to_string().into_bytes()
    }
}

/// Where Stripe explains an error code.
pub(super) fn doc_url(code: &str) -> String {
    format!("https://stripe.com/docs/error-codes/{}", code.replace('_', "-"))
}

/// `No such payment_intent`, which says so where the other mode has one of that id.
pub(super) fn no_such_intent(status: u16, id: &str, param: &str, livemode: bool, other_mode_has_it: bool) -> ApiError {
    let (mine, other) = if livemode { ("live", "test") } else { ("test", "live") };
    let mut message = format!("No such payment_intent: '{id}'");
    if other_mode_has_it {
        message.push_str(&format!(
            "; a similar object exists in {other} mode, but a {mine} mode key was used to make this request."
        ));
    }
    ApiError::invalid(status, message).code("resource_missing").param(param)
}

pub(super) fn unrecognized_url(method: &str, path: &str) -> ApiError {
    let hint = if path.ends_with('/') && path.len() > 1 {
        " If you are trying to list objects, remove the trailing slash. If you are trying to retrieve an object, \
         make sure you passed a valid (non-empty) identifier in your code."
    } else {
        ""
    };
    ApiError::invalid(
        404,
        format!(
            "Unrecognized request URL ({method}: {path}).{hint} Please see https://stripe.com/docs or we can help at \
             https://support.stripe.com/."
        ),
    )
}
