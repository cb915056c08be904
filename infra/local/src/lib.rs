//! The laptop's stack, for the demo, the tests and the benchmark; nothing here is deployed.

pub mod chromium;
pub mod demo;
pub mod desk;
pub mod fake;
pub mod function_url;
mod loopback;
pub mod moto;
pub mod postgres;
pub mod python;
pub mod sandbox;
pub mod tls_front;
