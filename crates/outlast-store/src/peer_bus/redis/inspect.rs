//! Whether a Redis would do: connects, sends itself a message, and keeps nothing there.

use std::time::Duration;

use futures_util::StreamExt;
use redis::{Client, ConnectionAddr, IntoConnectionInfo};
use tokio::time::timeout;

use super::Error;
use super::session::within;

/// Each step; the whole takes a few of them at most.
const STEP_MAX: Duration = Duration::from_secs(3);

/// Facts about a Redis that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisReport {
    /// `None` when this user may not ask.
    pub version: Option<String>,
    pub is_encrypted: bool,
}

/// Connects and sends itself a message, on a channel that `mark` names and that has no other subscriber.
pub async fn inspect(url: &str, mark: u64) -> Result<RedisReport, Error> {
    let client = Client::open(url).map_err(Error::Url)?;
    let channel = format!("outlast:doctor:{mark:016x}");
    let mut subscriber = within(STEP_MAX, client.get_async_pubsub()).await?;
    within(STEP_MAX, subscriber.subscribe(&channel)).await?;
    let mut connection = within(STEP_MAX, client.get_multiplexed_async_connection()).await?;
    within(STEP_MAX, redis::cmd("PUBLISH").arg(&channel).arg("ping").query_async::<i64>(&mut connection)).await?;
    match timeout(STEP_MAX, subscriber.on_message().next()).await {
        Ok(Some(_)) => {}
        Ok(None) => return Err(Error::Closed),
        Err(_) => return Err(Error::Silent),
    }
    let asked = within(STEP_MAX, redis::cmd("INFO").arg("server").query_async::<String>(&mut connection)).await;
    let version = asked.ok().and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("redis_version:")).map(|version| version.trim().to_owned())
    });
    let is_encrypted = matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. });
    Ok(RedisReport { version, is_encrypted })
}

/// Host and port of a URL, for people; never the user or the password.
pub fn place(url: &str) -> Option<String> {
    let info = url.into_connection_info().ok()?;
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Some(format!("{host}:{port}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_no_user_and_no_password() {
        assert_eq!(place("redis://user:hunter2@cache:7000/3"), Some("cache:7000".to_owned()));
        assert_eq!(place("rediss://:hunter2@cache"), Some("cache:6379".to_owned()));
        assert_eq!(place("nothing"), None);
    }
}
