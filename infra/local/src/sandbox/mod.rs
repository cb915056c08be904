//! A stateful Stripe, as far as PaymentIntents go.
//!
//! Two layers. [`Account`] is the pure core: a request and the time go in, a [`Reply`] comes out, and the same calls
//! give the same replies. [`Sandbox`] puts it behind HTTP on the loopback interface.
//!
//! It is a witness against the reconciler, so it shares none of its decoder: the JSON and the errors are written
//! here, from Stripe's documentation, its SDKs and what people quoted in public threads. From the domain it takes
//! only the list of statuses and the timestamp.
//!
//! It sends webhooks too (`webhooks`), signed as Stripe signs them, to endpoints on this machine.
//!
//! Left out: search, `payment_method_types` of older API versions, idempotency keys, the list of events.
//! Objects are always written in one API version, whatever `Stripe-Version` says.

mod account;
mod attempt;
mod change;
mod control;
mod course;
mod endpoint;
mod error;
mod fault;
mod intent;
mod key;
mod ledger;
mod limit;
mod log;
mod params;
mod read;
mod render;
mod seed;
mod server;
mod webhooks;
mod wire;
mod write;

pub use account::{ACCOUNT_ID, API_VERSION, Account};
pub use attempt::{Charge, ChargeStatus, Decline, MethodKind, PaymentError};
pub use change::ChangeError;
pub use endpoint::Endpoint;
pub use fault::{Chance, Fault, FaultId, FaultRule};
pub use intent::{CaptureMethod, PaymentIntent};
pub use key::{Grant, Permission};
pub use limit::{LimitReason, Limits};
pub use log::{Counters, Given, LOG_CAPACITY, LogEntry};
pub use seed::PaymentIntentSeed;
pub use server::{Clock, Options, Sandbox, SandboxError, Sending};
pub use webhooks::{
    Delivered, Delivery, DeliveryEntry, DeliveryRule, DeliveryRuleId, Event, EventType, Mishap, WebhookCounters,
    WebhookEndpoint, WebhookEndpointId, WebhookError,
};
pub use wire::{Hold, Reply, Request, Response};

#[cfg(test)]
mod tests;
