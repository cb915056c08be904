//! A request and its answer, without a socket.

/// A request as it left the client, with the URL and the form already decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// In capitals: `GET`.
    pub method: String,
    /// Without the query: `/v1/payment_intents/pi_1`.
    pub path: String,
    /// The query's pairs, in order; a name may come more than once (`expand[]`).
    pub query: Vec<(String, String)>,
    /// Names in any case.
    pub headers: Vec<(String, String)>,
    /// The pairs of an `application/x-www-form-urlencoded` body.
    pub form: Vec<(String, String)>,
}

impl Request {
    /// A request without a key, a query or a body.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            form: Vec::new(),
        }
    }

    /// `GET path`, with the key as a bearer token.
    pub fn get(path: &str, key: &str) -> Self {
        Self::new("GET", path).header("Authorization", &format!("Bearer {key}"))
    }

    /// `POST path`, with the key as a bearer token.
    pub fn post(path: &str, key: &str) -> Self {
        Self::new("POST", path).header("Authorization", &format!("Bearer {key}"))
    }

    /// Adds a pair to the query.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a pair to the form.
    #[must_use]
    pub fn form(mut self, name: &str, value: &str) -> Self {
        self.form.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The first header of that name, whatever its case.
    pub fn header_value(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

/// An answer with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Names as Stripe writes them.
    pub headers: Vec<(String, String)>,
    /// JSON, or HTML where a fault says so.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of that name, whatever its case.
    pub fn header_value(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The body as JSON. An error where it is not JSON, as with a proxy's HTML.
    pub fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is answered.
    Answer(Response),
    /// The connection is closed without a byte.
    Dropped,
    /// Nothing happens until [`release_all`](super::Account::release_all); then ask
    /// [`resume`](super::Account::resume).
    Hold(Hold),
}

/// A request that waits to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold(pub(super) u64);

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}
