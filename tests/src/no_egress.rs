//! The way out of an engine that delivers nowhere: every URL has the right shape, and nothing is ever sent.

use async_trait::async_trait;
use outlast_engine::egress::{Egress, Incoming, Outgoing, RefusedUrl, SendError};

#[derive(Debug, Default)]
pub struct NoEgress;

#[async_trait]
impl Egress for NoEgress {
    fn check(&self, _: &str) -> Result<(), RefusedUrl> {
        Ok(())
    }

    async fn send(&self, _: Outgoing) -> Result<Incoming, SendError> {
        Err(SendError::blocked())
    }
}
