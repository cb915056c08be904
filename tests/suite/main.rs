//! Whole functions against real Postgres and the Stripe sandbox, in one binary.
