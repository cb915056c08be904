//! Whole functions against real Postgres and the Stripe sandbox, in one binary.

#![allow(
    clippy::as_conversions,
    clippy::cast_possible_wrap,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test panics where it fails"
)]

mod answers;
mod binaries;
mod causes;
mod cli;
mod dispatch;
mod findings;
mod gates;
mod gateway_conformance;
mod killed;
mod lambda;
mod migrate;
mod outbox_claim;
mod overlap;
mod pacing;
mod privileges;
mod readme;
mod repair_races;
mod schedule;
mod sweep;
mod transition;
mod walk;
mod webhook;
mod withhold;
mod world;
