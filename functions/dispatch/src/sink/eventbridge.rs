//! Events to an EventBridge bus, by `PutEvents`.
//!
//! - An event is **accepted** if and only if its own entry of the answer carries an event id and no error code. An answer with
//!   another number of entries than were sent, or that counts more failures than it names, says that of none.
//! - A **call that fails as a whole** (no connection, no answer in time, throttling, 5xx, refused rights) is an error of each
//!   event in it. The SDK tries such a call twice at the most, so an event whose first answer was lost may go out twice.
//! - An **entry that fails alone** is sent once more, alone, before it is an error of its event. From there on the outbox's
//!   growing pauses take over.
//!
//! The order of requests and entries does not matter: no two events of one call are of one payment, and the next one of a
//! payment is not claimed before this one is marked.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::config::retry::RetryConfig;
use aws_sdk_eventbridge::config::timeout::TimeoutConfig;
use aws_sdk_eventbridge::config::{Builder, Credentials, Region};
use aws_sdk_eventbridge::operation::put_events::PutEventsOutput;
use aws_sdk_eventbridge::types::{PutEventsRequestEntry, PutEventsResultEntry};
use bootstrap::{aws, chain};
use futures_util::future::join_all;
use reconciler::config::ConfigError;

use super::{EVENTS_PER_CALL, Event, EventSink, SinkError};

/// The `source` of every event, for the patterns of rules. It does not change.
pub const SOURCE: &str = "payment-reconciler";

/// The entries of one request together stay within this. AWS documents 256 KB for a request in some regions and 1 MB in
/// others; an entry that is larger than this goes alone, and EventBridge judges it.
const REQUEST_BYTES: usize = 256 * 1024;

/// No region takes an entry that is larger: it is refused here, and the others of its batch go out.
const ENTRY_BYTES_MAX: usize = 1024 * 1024;

/// The pause before the SDK's second attempt, at most.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How long and how often a request is tried. It all ends well within the dispatcher's lease.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the connection.
    pub connect: Duration,
    /// For one attempt, connection included.
    pub attempt: Duration,
    /// For all attempts, pauses, and fetching credentials.
    pub operation: Duration,
    /// Attempts of a request that fails as a whole, the first one included.
    pub attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            attempt: Duration::from_secs(4),
            operation: Duration::from_secs(10),
            attempts: 2,
        }
    }
}

/// Publishes to one bus.
#[derive(Clone, Debug)]
pub struct EventBridgeSink {
    client: Client,
    bus: String,
    limits: Limits,
}

impl EventBridgeSink {
    /// Takes region, credentials and endpoint where every AWS tool finds them: the variables that Lambda sets, or a profile.
    /// `bus` is a name or an ARN. Calls nothing; credentials are fetched when the first event goes out.
    pub async fn from_environment(bus: &str) -> Result<Self, ConfigError> {
        // not the SDK's whole chain, which asks the network for a region where none is set
        let region = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
            .or_else(ProfileFileRegionProvider::new());
        let Some(region) = region.region().await else {
            return Err(ConfigError::Missing {
                key: "AWS_REGION",
                expected: "the region of EVENT_BUS, such as eu-west-1",
            });
        };
        let limits = Limits::default();
        let config = Builder::from(&aws::config(region).await)
            .timeout_config(limits.timeouts())
            .retry_config(limits.retries())
            .build();
        Ok(Self { client: Client::from_conf(config), bus: bus.to_owned(), limits })
    }

    /// For an EventBridge that is played by another program, such as moto, at `endpoint`: credentials and region are made up.
    pub fn at(endpoint: &str, bus: &str, limits: Limits) -> Self {
        let config = aws_sdk_eventbridge::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("none", "none", None, None, "made up"))
            .endpoint_url(endpoint)
            .http_client(aws::http_client())
            .timeout_config(limits.timeouts())
            .retry_config(limits.retries())
            .build();
        Self { client: Client::from_conf(config), bus: bus.to_owned(), limits }
    }

    /// One request. `Err`: it failed as a whole, and nothing is known of any entry.
    async fn put(&self, entries: Vec<PutEventsRequestEntry>) -> Result<Vec<Result<(), SinkError>>, SinkError> {
        let sent = entries.len();
        match self.client.put_events().set_entries(Some(entries)).send().await {
            Ok(output) => answers_of(sent, &output),
            Err(error) => Err(SinkError(format!("PutEvents failed: {}", chain(&error)))),
        }
    }

    fn entry_of(&self, event: &Event) -> Entry {
        let detail = event.sent_detail().to_string();
        let bytes = SOURCE.len() + event.name.len() + detail.len();
        let entry = PutEventsRequestEntry::builder()
            .source(SOURCE)
            .detail_type(&event.name)
            .detail(detail)
            .event_bus_name(&self.bus)
            .build();
        Entry { bytes, entry }
    }
}

impl EventSink for EventBridgeSink {
    /// All requests of a call go out at once, and so does what is sent again.
    fn takes_at_most(&self) -> Duration {
        self.limits.operation * 2
    }

    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        let entries: Vec<Entry> = events.iter().map(|event| self.entry_of(event)).collect();
        let too_large = |entry: &Entry| {
            let words = format!("its {} bytes are more than the {ENTRY_BYTES_MAX} of an entry", entry.bytes);
            if entry.bytes > ENTRY_BYTES_MAX { Err(SinkError(words)) } else { Ok(()) }
        };
        let mut results: Vec<Result<(), SinkError>> = entries.iter().map(too_large).collect();
        let sendable: Vec<usize> =
            results.iter().enumerate().filter(|(_, fits)| fits.is_ok()).map(|(at, _)| at).collect();

        let send = async |places: Vec<usize>| {
            let chosen = places.iter().filter_map(|at| entries.get(*at)).map(|entry| entry.entry.clone()).collect();
            (self.put(chosen).await, places)
        };
        let mut refused = Vec::new();
        for (answer, places) in join_all(requests_of(&entries, &sendable).into_iter().map(&send)).await {
            if answer.is_ok() {
                refused.extend(keep(&mut results, &places, answer));
            } else {
                keep(&mut results, &places, answer);
            }
        }
        for (answer, places) in join_all(refused.into_iter().map(|at| send(vec![at]))).await {
            keep(&mut results, &places, answer);
        }
        results
    }
}

/// An entry and what EventBridge counts of it.
struct Entry {
    bytes: usize,
    entry: PutEventsRequestEntry,
}

/// Puts what was answered into its places. The places that were not accepted.
fn keep(
    results: &mut [Result<(), SinkError>],
    places: &[usize],
    answer: Result<Vec<Result<(), SinkError>>, SinkError>,
) -> Vec<usize> {
    let each = match answer {
        Ok(each) => each,
        Err(error) => vec![Err(error); places.len()],
    };
    let mut refused = Vec::new();
    for (at, result) in places.iter().zip(each) {
        if result.is_err() {
            refused.push(*at);
        }
        if let Some(place) = results.get_mut(*at) {
            *place = result;
        }
    }
    refused
}

/// Which entries go together: ten at the most, and no more bytes than one request may have.
fn requests_of(entries: &[Entry], sendable: &[usize]) -> Vec<Vec<usize>> {
    let mut requests: Vec<Vec<usize>> = Vec::new();
    let mut filled = 0;
    for &at in sendable {
        let bytes = entries.get(at).map_or(0, |entry| entry.bytes);
        match requests.last_mut() {
            Some(request) if request.len() < EVENTS_PER_CALL && filled + bytes <= REQUEST_BYTES => {
                request.push(at);
                filled += bytes;
            }
            Some(_) | None => {
                requests.push(vec![at]);
                filled = bytes;
            }
        }
    }
    requests
}

/// What an answer says of each entry that was sent, or why it says nothing.
fn answers_of(sent: usize, output: &PutEventsOutput) -> Result<Vec<Result<(), SinkError>>, SinkError> {
    let answered = output.entries();
    if answered.len() != sent {
        return Err(SinkError(format!("PutEvents answered for {} of {sent} entries", answered.len())));
    }
    let answers: Vec<Result<(), SinkError>> = answered.iter().map(answer_of).collect();
    let named = answers.iter().filter(|answer| answer.is_err()).count();
    match usize::try_from(output.failed_entry_count()) {
        Ok(counted) if counted <= named => Ok(answers),
        Ok(_) | Err(_) => Err(SinkError(format!(
            "PutEvents counted {} failed entries and named {named}",
            output.failed_entry_count()
        ))),
    }
}

fn answer_of(entry: &PutEventsResultEntry) -> Result<(), SinkError> {
    match (entry.event_id(), entry.error_code()) {
        (Some(id), None) if !id.is_empty() => Ok(()),
        (_, Some(code)) => Err(SinkError(format!("{code}: {}", entry.error_message().unwrap_or("without a message")))),
        (Some(_) | None, None) => Err(SinkError("its answer carries neither an event id nor an error".to_owned())),
    }
}

impl Limits {
    fn timeouts(self) -> TimeoutConfig {
        TimeoutConfig::builder()
            .connect_timeout(self.connect)
            .operation_attempt_timeout(self.attempt)
            .operation_timeout(self.operation)
            .build()
    }

    fn retries(self) -> RetryConfig {
        RetryConfig::standard().with_max_attempts(self.attempts).with_initial_backoff(RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests;
