//! One file per command or noun. Each reads its flags, calls the server or reads the disk, and prints.

pub(crate) mod backup;
pub(crate) mod completions;
pub(crate) mod consume;
pub(crate) mod dead;
pub(crate) mod defaults;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod filter;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod listen;
pub(crate) mod operations;
pub(crate) mod queues;
pub(crate) mod restore;
pub(crate) mod send;
pub(crate) mod sources;
pub(crate) mod start;
pub(crate) mod reload;
pub(crate) mod tail;
pub(crate) mod validate;
pub(crate) mod worker;

mod argument;
mod settings;
mod stop;

use crate::client::page::Page;
use crate::client::{Client, Remote};
use crate::config::Environment;
use crate::display::Display;
use crate::failure::Failure;
use crate::output;

/// The server a command talks to, and how it prints.
pub(crate) struct Session {
    pub client: Client,
    /// Print the server's JSON instead of tables.
    pub is_json: bool,
    pub display: Display,
}

impl Session {
    pub(crate) fn open(remote: &Remote, environment: &Environment) -> Result<Session, Failure> {
        let (client, display) = (Client::new(remote, environment)?, Display::of_stdout(environment));
        Ok(Session { client, is_json: remote.json, display })
    }

    /// A list as JSON, as a table, or as the remark that it is empty.
    fn print_page(&self, page: &Page, empty: &str, table: impl Fn(&Page) -> String) -> Result<(), Failure> {
        if self.is_json {
            return output::print_json(&page.to_json()?);
        }
        if page.items.is_empty() {
            return output::print(&format!("{empty}\n"));
        }
        output::print(&table(page))?;
        if let Some(cursor) = &page.next_cursor {
            output::note(&format!("more: --cursor {cursor}"));
        }
        Ok(())
    }
}
