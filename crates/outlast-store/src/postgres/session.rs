//! One connection and the statements sent over it. Statements are prepared under a name where that is safe, and sent whole
//! each time where a pooler may change the connection in between.
//!
//! Futures of one session that are joined are sent together and answered in order: what does not depend on an answer
//! costs no round trip of its own. A statement has to be [ready](Session::ready) before it is joined with others,
//! since preparing it in between would change the order.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::Object;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, SimpleQueryMessage};

/// A statement with the types of its parameters.
pub(super) struct Sql {
    pub(super) text: &'static str,
    pub(super) types: &'static [Type],
}

pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Session {
    /// Only `None` while it is dropped.
    client: Option<Object>,
    named: bool,
    /// A transaction or a read is under way: a session that is dropped now is in an unknown state and must not be used
    /// again.
    open: AtomicBool,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_open() {
            drop(self.client.take().map(Object::take));
        }
    }
}

impl Session {
    pub(super) fn new(client: Object, named: bool) -> Session {
        Session { client: Some(client), named, open: AtomicBool::new(false) }
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("a session has its connection until it is dropped")
    }

    pub(super) fn begun(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    pub(super) fn ended(&self) {
        self.open.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    /// Prepares what this connection has not seen yet.
    pub(super) async fn ready(&self, statements: &[&Sql]) -> Result<(), Error> {
        if self.named {
            for sql in statements {
                self.client().prepare_typed_cached(sql.text, sql.types).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn query(&self, sql: &Sql, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        if self.named {
            let statement = self.client().prepare_typed_cached(sql.text, sql.types).await?;
            return self.client().query(&statement, parameters).await;
        }
        self.client().query_typed(sql.text, &typed(sql, parameters)).await
    }

    pub(super) async fn execute(&self, sql: &Sql, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        if self.named {
            let statement = self.client().prepare_typed_cached(sql.text, sql.types).await?;
            return self.client().execute(&statement, parameters).await;
        }
        self.client().execute_typed(sql.text, &typed(sql, parameters)).await
    }

    /// Sends text as it is: `BEGIN`, `COMMIT`.
    pub(super) async fn send(&self, text: &str) -> Result<(), Error> {
        self.client().batch_execute(text).await
    }

    /// The first column of what a text gives, row by row.
    pub(super) async fn lines(&self, text: &str) -> Result<Vec<String>, Error> {
        let mut lines = Vec::new();
        for message in self.client().simple_query(text).await? {
            if let SimpleQueryMessage::Row(row) = message {
                lines.extend(row.get(0).map(str::to_owned));
            }
        }
        Ok(lines)
    }
}

fn typed<'a>(sql: &Sql, parameters: &[Parameter<'a>]) -> Vec<(Parameter<'a>, Type)> {
    parameters.iter().copied().zip(sql.types.iter().cloned()).collect()
}
