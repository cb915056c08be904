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
mod bulk;
mod causes;
mod cli;
mod demo;
mod dispatch;
mod eventbridge;
mod findings;
mod gates;
mod gateway_conformance;
mod killed;
mod lag;
mod lambda;
mod migrate;
mod outbox_claim;
mod overlap;
mod pacing;
mod privileges;
mod readme;
mod repair_races;
mod reverse;
mod reverse_orphans;
mod reverse_overlap;
mod review;
mod review_desk;
mod schedule;
mod second_adapter;
mod secrets;
mod sweep;
mod telemetry;
mod template;
mod template_functions;
mod template_metrics;
mod tls;
mod transition;
mod unfinished;
mod walk;
mod webhook;
mod webhook_delivery;
mod widget;
mod withhold;
mod world;
