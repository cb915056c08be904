//! stub
#![allow(missing_docs)]
use crate::domain::{
    Timestamp,
    external::{External, ExternalPayment},
    id::ExternalRef,
};
use std::future::Future;
use std::time::Duration;
pub trait Gateway: Send + Sync {
    fn retrieve(&self, id: &ExternalRef) -> impl Future<Output = Result<External, GatewayError>> + Send;
    fn list(&self, query: &ListQuery) -> impl Future<Output = Result<ListPage, GatewayError>> + Send;
}
#[derive(Debug)]
pub struct ListQuery {
    pub created_from: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
    pub limit: u8,
    pub starting_after: Option<ExternalRef>,
}
#[derive(Debug)]
pub struct ListPage {
    pub payments: Vec<ExternalPayment>,
    pub has_more: bool,
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct GatewayError;
pub enum Remedy {
    Retry,
    StopBatch { retry_after: Option<Duration> },
    EndTick,
    GiveUp,
}
impl GatewayError {
    pub fn remedy(&self) -> Remedy {
        Remedy::GiveUp
    }
}

#[derive(Debug)]
pub struct StripeClient;
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct SettingsError;
impl StripeClient {
    pub fn new(_: &crate::config::StripeSettings) -> Result<Self, SettingsError> {
        Ok(Self)
    }
}
impl Gateway for StripeClient {
    async fn retrieve(&self, _: &ExternalRef) -> Result<External, GatewayError> {
        Err(GatewayError)
    }
    async fn list(&self, _: &ListQuery) -> Result<ListPage, GatewayError> {
        Err(GatewayError)
    }
}
