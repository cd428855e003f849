//! Checks the server: version, the settings that durability depends on, and whether there is a pooler in between.

use std::fmt;
use std::net::SocketAddr;

use outlast_core::Timestamp;
use tokio_postgres::Client;

use super::connect::ConnectTarget;
use super::migrate;
use super::options::OpenError;

/// `pg_current_xact_id` and `pg_xact_status`, by which a lost commit is looked up, are there since 13.
const VERSION_MIN: u32 = 13;

/// Facts that the server reports about itself.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// Host, port and database.
    pub place: String,
    pub version: String,
    version_number: u32,
    pub fsync: bool,
    pub full_page_writes: bool,
    /// Otherwise every transaction asks for it.
    pub synchronous_commit: bool,
    pub encrypted: bool,
    /// There is no pooler between this process and the server.
    pub direct: bool,
    /// A standby takes no writes.
    pub read_only: bool,
    /// The number of the last migration; none on an empty database.
    pub schema: Option<u32>,
    pub schema_known: u32,
    pub(super) now: Timestamp,
}

const ASK: &str = "
    SELECT current_setting('server_version'), current_setting('server_version_num'), current_setting('fsync'),
           current_setting('full_page_writes'), current_setting('synchronous_commit'),
           coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false), inet_client_port(),
           host(inet_client_addr()), pg_is_in_recovery(), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

impl ServerReport {
    pub(super) async fn ask(
        target: &ConnectTarget,
        client: &Client,
        local: Option<SocketAddr>,
    ) -> Result<ServerReport, OpenError> {
        let row = client.query_typed(ASK, &[]).await?.pop();
        let row = row.ok_or_else(|| OpenError::Url("the server does not answer a question".to_owned()))?;
        let is_on = |at: usize| row.get::<_, &str>(at) != "off";
        let seen: Option<(&str, i32)> = row.get::<_, Option<&str>>(7).zip(row.get::<_, Option<i32>>(6));
        Ok(ServerReport {
            place: target.place.clone(),
            version: row.get(0),
            version_number: row.get::<_, &str>(1).parse().unwrap_or(0),
            fsync: is_on(2),
            full_page_writes: is_on(3),
            synchronous_commit: is_on(4),
            encrypted: row.get(5),
            direct: local.zip(seen).is_some_and(|(local, (address, port))| {
                local.ip().to_canonical().to_string() == address && i32::from(local.port()) == port
            }),
            read_only: row.get(8),
            schema: migrate::found(client).await?,
            schema_known: migrate::known(),
            now: Timestamp::from_millis(row.get(9)),
        })
    }

    /// May a store be opened here?
    pub(super) fn check(&self, allow_unsafe: bool) -> Result<(), OpenError> {
        if self.version_number / 10_000 < VERSION_MIN {
            return Err(OpenError::TooOld { found: self.version.clone(), known: VERSION_MIN });
        }
        if let Some(found) = self.schema.filter(|found| *found > self.schema_known) {
            return Err(OpenError::Newer { found, known: self.schema_known });
        }
        if self.read_only {
            return Err(OpenError::Url(format!("{} is a standby, which takes no writes", self.place)));
        }
        let settings = self.unsafe_settings();
        if !settings.is_empty() && !allow_unsafe {
            return Err(OpenError::Unsafe { settings: settings.join(" and ") });
        }
        Ok(())
    }

    /// Settings under which a power cut loses what was confirmed.
    pub fn unsafe_settings(&self) -> Vec<&'static str> {
        let settings = [(self.fsync, "fsync = off"), (self.full_page_writes, "full_page_writes = off")];
        settings.into_iter().filter(|(on, _)| !on).map(|(_, text)| text).collect()
    }
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |on: bool| if on { "on" } else { "off" };
        write!(
            f,
            "PostgreSQL {} at {}: fsync {}, full_page_writes {}, synchronous_commit {}, {}, {}",
            self.version,
            self.place,
            on(self.fsync),
            on(self.full_page_writes),
            if self.synchronous_commit { "on" } else { "off (turned on by every transaction)" },
            if self.encrypted { "encrypted" } else { "not encrypted" },
            if self.direct { "connected directly" } else { "something stands between (a pooler or proxy)" },
        )
    }
}

/// Connects, looks, changes nothing.
pub async fn inspect(url: &str) -> Result<ServerReport, OpenError> {
    let target = ConnectTarget::parse(url)?;
    let (client, local) = target.connect().await?;
    ServerReport::ask(&target, &client, local).await
}
