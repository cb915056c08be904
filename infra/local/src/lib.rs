//! The laptop's stack, for the demo, the tests and the benchmark; nothing here is deployed.

pub mod sandbox;
