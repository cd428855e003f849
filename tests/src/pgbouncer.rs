//! A transaction pooler in front of a PostgreSQL, as many hosts put one there: a connection belongs to a client only
//! for the length of a transaction, and prepared statements belong to no client.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::daemon::{Daemon, Folder, find_program, free_port, until};
use crate::postgres::Postgres;

const START_DEADLINE: Duration = Duration::from_secs(20);
const PORTS_TRIED_MAX: usize = 5;

pub struct PgBouncer {
    port: u16,
    // Before `_folder`: the process must be gone when the directory is removed.
    daemon: Daemon,
    _folder: Folder,
}

impl PgBouncer {
    /// `pool_size` connections to each database, whatever the number of clients.
    pub fn before(postgres: &Postgres, pool_size: usize) -> PgBouncer {
        let folder = Folder::not_of_root("outlast-pgbouncer-", "postgres");
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            if let Some(daemon) = start_on(&folder, postgres, port, pool_size) {
                return PgBouncer { port, daemon, _folder: folder };
            }
        }
        panic!("pgbouncer did not start on any of {PORTS_TRIED_MAX} ports")
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn log(&self) -> String {
        self.daemon.log()
    }
}

/// `None` when the port was taken.
fn start_on(folder: &Folder, postgres: &Postgres, port: u16, pool_size: usize) -> Option<Daemon> {
    let (host, server_port) = postgres.address().rsplit_once(':').map(|(a, b)| (a.to_owned(), b.to_owned()))?;
    let users = folder.write("users", "\"postgres\" \"\"\n");
    let settings = folder.write(
        "pgbouncer.ini",
        &format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\npool_mode = transaction\ndefault_pool_size = {pool_size}\n\
             max_client_conn = 500\nauth_type = trust\nauth_file = {}\n",
            users.display()
        ),
    );
    let mut command = folder.command(&find_program("pgbouncer", &[PathBuf::from("/usr/sbin")], "pgbouncer"));
    command.arg(settings);
    let mut daemon = Daemon::start(folder, command, "KILL");
    let is_up = until("pgbouncer to listen or to end", START_DEADLINE, || {
        if daemon.exit_status().is_some() {
            return Some(false);
        }
        let listens = daemon.log().contains(&format!("listening on 127.0.0.1:{port}"));
        (listens && TcpStream::connect(("127.0.0.1", port)).is_ok()).then_some(true)
    });
    is_up.then_some(daemon)
}

#[cfg(test)]
mod tests {
    use tokio_postgres::NoTls;

    use super::*;

    // The control: a session is not what a client thinks it is.
    #[tokio::test(flavor = "multi_thread")]
    async fn prepared_statements_do_not_survive_it() {
        let database = Postgres::shared().database();
        let pooler = PgBouncer::before(Postgres::shared(), 2);
        let mut clients = Vec::new();
        for _ in 0..2 {
            let url = database.url_through(&pooler.address());
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            clients.push(client);
        }
        clients[0].batch_execute("PREPARE mine AS SELECT 1").await.unwrap();

        // The first client's connection is taken by the second one's transaction.
        clients[1].batch_execute("BEGIN").await.unwrap();
        let lost = clients[0].batch_execute("EXECUTE mine").await;

        assert!(lost.is_err());
    }
}
