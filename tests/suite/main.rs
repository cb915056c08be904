//! Whole functions against real Postgres and the Stripe sandbox, in one binary.

mod answers;
mod findings;
mod overlap;
mod pacing;
mod privileges;
mod schedule;
mod transition;
mod walk;
mod withhold;
mod world;
