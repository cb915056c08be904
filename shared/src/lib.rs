//! A payment reconciler for Postgres and Stripe.

pub mod domain;
