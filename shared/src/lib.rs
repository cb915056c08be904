//! A payment reconciler for Postgres and Stripe.
//!
//! It compares every payment in a company's database with Stripe, names each drift, asks the one write path to repair the
//! safe kinds, hands the rest to a person, and can say of every single payment how long ago it was verified.
//!
//! [`domain`] is pure and decides. [`store`], [`gateway`], [`writer`] and [`budget`] talk to Postgres and Stripe and do not
//! know each other. [`scan`] is what the scanning functions share, and the one module that spans them. [`config`], [`clock`] and
//! [`telemetry`] are a function's way in and out.

pub mod budget;
pub mod clock;
pub mod config;
pub mod domain;
pub mod error_chain;
pub mod gateway;
pub mod scan;
pub mod store;
pub mod telemetry;
pub mod writer;
