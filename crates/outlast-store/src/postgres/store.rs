//! The store as others see it: connects, checks, migrates, and turns each verb into a call of a lane, a transaction of its
//! own, or a read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::arrival::{Arrival, ArrivalId};
use outlast_core::checkpoint::Section;
use outlast_core::{Clock, Event, JobId, NamespaceId, ObjectKey, Outage, Queue, QueueId, Timestamp};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::apply::{Patience, due, release};
use super::attend::Attendance;
use super::claim::looks_wide;
use super::clock::DatabaseClock;
use super::connect::Target;
use super::findings::Findings;
use super::inbox::{INBOX_SEATS, Inbox};
use super::lane::Lane;
use super::options::{CONNECTIONS_MIN, OpenError, Options, Prepared};
use super::read::Look;
use super::session::Sql;
use super::shared::{Setup, Shared};
use super::transact::{Once, Running, Tx, begin_text, startup_options};
use super::writer::{Answer, Ask, Writer};
use super::{arrivals, dead_letters, kept, keys, migrate, operations, queues, read, verify};
use crate::alarms::Due;
use crate::arrivals::{ArrivalPage, Ingested, ListArrivals, NewArrival};
use crate::damage::Damage;
use crate::dead_letters::{DeadLetterPage, ListDeadLetters};
use crate::error::Error;
use crate::histogram::Histogram;
use crate::ids::Ids;
use crate::job_detail::JobDetail;
use crate::jobs::{
    Applied, Claim, Claimed, Declined, Found, JobPage, JobStore, ListJobs, NewJob, Order, Published, Reach,
};
use crate::kept::{Doomed, Inline, Inspection, Kept, Stored};
use crate::keys::{KeyId, KeyRecord, NewKey, Revocation};
use crate::operations::{NewOperation, Operation, OperationId};
use crate::queues::{Counts, DeleteRefusal, Expect, QueueDraft, SaveRefusal, Saved};

/// Transactions under way at once. A second one would halve the groups and cost more than its overlap gains; the other
/// nodes overlap anyway.
const WRITERS: usize = 1;
/// What has to wait for somebody else, a job that is held or a queue that counts what runs, must not hold up the rest.
const WAITERS: usize = 3;
/// How long a start may take, migrations of large tables included; then it fails, and whoever started it may try again.
const OPEN_MAX: Duration = Duration::from_secs(600);

pub struct PostgresStore {
    shared: Arc<Shared>,
    findings: Findings,
    identity: u64,
    writers: Lane<Writer>,
    waiters: Lane<Writer>,
    inbox: Lane<Inbox>,
    attendance: Attendance,
}

impl PostgresStore {
    /// Connects, checks what it finds, migrates and starts the lanes.
    pub async fn open(options: Options) -> Result<PostgresStore, OpenError> {
        let target = Target::parse(&options.url)?;
        let silent = OpenError::Silent { place: target.place.clone(), seconds: OPEN_MAX.as_secs() };
        timeout(OPEN_MAX, PostgresStore::open_at(target, options)).await.unwrap_or(Err(silent))
    }

    async fn open_at(target: Target, options: Options) -> Result<PostgresStore, OpenError> {
        let (mut client, local) = target.connect().await?;
        let findings = Findings::ask(&target, &client, local).await?;
        findings.check(options.allow_unsafe)?;
        migrate::migrate(&mut client).await?;
        let mut entropy = options.entropy;
        let secret = secret(&client, entropy.next_u64().cast_signed()).await?;
        let named = match options.prepared {
            Prepared::On => true,
            Prepared::Off => false,
            Prepared::Auto => findings.direct,
        };
        let shared = Arc::new(Shared::new(Setup {
            pool: target
                .pool(options.connections.max(CONNECTIONS_MIN), findings.direct.then(startup_options).as_deref())?,
            ids: Ids::new(secret),
            entropy,
            compose: options.compose,
            clock: Arc::new(DatabaseClock::new(findings.now)),
            test_clock: options.clock,
            named,
            begin: begin_text(findings.direct, findings.synchronous_commit || options.allow_unsafe),
            namespace_waiting_max: options.namespace_waiting_max,
        }));
        shared.begin_life().await?;
        let waiting_max = options.waiting_writes_max;
        Ok(PostgresStore {
            writers: Lane::start(&shared, WRITERS, waiting_max),
            waiters: Lane::start(&shared, WAITERS, waiting_max),
            inbox: Lane::start(&shared, INBOX_SEATS, waiting_max),
            identity: secret.cast_unsigned(),
            attendance: Attendance::default(),
            findings,
            shared,
        })
    }

    /// The database's clock, as far as this node knows it.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock) as _
    }

    /// The same for all nodes of one store, and different for every store.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Do the tables that are kept in order, and the counts, say what the rows say? For tests; reads every row.
    pub async fn verify(&self) -> Result<bool, Error> {
        verify::verify(&self.shared).await
    }

    /// The hot statements with the plans the database makes for them, for tests.
    pub async fn plans(&self) -> Result<Vec<(&'static str, String)>, Error> {
        verify::plans(&self.shared).await
    }

    /// Runs work in a transaction of its own, to its end even if the caller goes away.
    async fn transact<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t, 's> FnMut(&'t mut Tx<'s>) -> Running<'t, T> + Send + 'static,
    {
        if self.shared.is_closed() {
            return Err(Error::Stopped);
        }
        let shared = Arc::clone(&self.shared);
        let task = tokio::spawn(async move { shared.transact(&mut Once(work)).await });
        task.await.map_err(|_| Error::Indeterminate)?
    }
}

/// Runs a verb in a transaction of its own. It may run more than once, so what it borrows is shared by all runs.
macro_rules! transact {
    ($store:ident, $tx:ident, write [$($shared:tt)*], $work:expr) => {
        transact!($store, $tx, [$($shared)*], async {
            $tx.begin_write().await?;
            $work.await
        })
    };
    ($store:ident, $tx:ident, [$($name:ident = $value:expr),*], $work:expr) => {{
        $(let $name = Arc::new($value);)*
        $store
            .transact(move |$tx| {
                $(let $name = Arc::clone(&$name);)*
                Box::pin(async move { $work.await })
            })
            .await
    }};
}

const MAKE_SECRET: &str = "INSERT INTO meta (name, value) VALUES ('secret', $1) ON CONFLICT (name) DO NOTHING";
const READ_SECRET: &str = "SELECT value FROM meta WHERE name = 'secret'";

/// The number that permutes this store's ids; made once, whichever node is first.
async fn secret(client: &Client, drawn: i64) -> Result<i64, OpenError> {
    client.execute_typed(MAKE_SECRET, &[(&drawn, Type::INT8)]).await?;
    let rows = client.query_typed(READ_SECRET, &[]).await?;
    let row = rows.first().ok_or_else(|| Error::Corrupt("the store's secret is missing".to_owned()))?;
    Ok(row.get(0))
}

/// A wait for a hand-out. If it is dropped with the answer already inside, the jobs go back at once.
struct Awaited<'a> {
    store: &'a PostgresStore,
    answer: oneshot::Receiver<Result<Answer, Error>>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Ok(Answer::Claimed(claimed))) = self.answer.try_recv() {
            release(&self.store.shared, claimed);
        }
    }
}

static PING: Sql = Sql { text: "SELECT 1", types: &[] };
const PING_MAX: Duration = Duration::from_secs(2);

#[async_trait]
impl JobStore for PostgresStore {
    async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        match self.writers.call(Ask::Publish(jobs)).await? {
            Answer::Published(published) => Ok(published),
            Answer::Claimed(_) | Answer::Applied(_) => Err(Error::Indeterminate),
        }
    }

    async fn ingest(&self, new: Vec<NewArrival>) -> Result<Vec<Ingested>, Error> {
        self.inbox.call(new).await
    }

    async fn arrival(&self, namespace: NamespaceId, id: ArrivalId) -> Result<Option<Arrival>, Error> {
        self.shared.noted(arrivals::one(&self.shared, namespace, id).await)
    }

    async fn arrivals(&self, list: ListArrivals) -> Result<ArrivalPage, Error> {
        self.shared.noted(arrivals::list(&self.shared, &list).await)
    }

    async fn prune_arrivals(&self, before: Timestamp, limit: usize) -> Result<usize, Error> {
        transact!(self, tx, [], arrivals::prune(before, limit, tx))
    }

    async fn claim(&self, want: Claim) -> Result<Option<Claimed>, Error> {
        let lane = if looks_wide(&want, &self.shared) { &self.writers } else { &self.waiters };
        let mut awaited = Awaited { store: self, answer: lane.send(Ask::Claim(want))? };
        match (&mut awaited.answer).await.map_err(|_| Error::Indeterminate)?? {
            Answer::Claimed(claimed) => Ok(claimed),
            Answer::Published(_) | Answer::Applied(_) => Err(Error::Indeterminate),
        }
    }

    async fn apply(&self, orders: Vec<Order>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let orders: Arc<[Order]> = orders.into();
        for (lane, patience) in [(&self.writers, Patience::Hurries), (&self.waiters, Patience::Waits)] {
            if let Answer::Applied(Some(applied)) = lane.call(Ask::Apply(Arc::clone(&orders), patience)).await? {
                return Ok(applied);
            }
        }
        Err(Error::Indeterminate)
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        due(&self.shared, limit).await
    }

    async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<Found>, Error> {
        self.shared.noted(read::job(&Look::anew(&self.shared), reach, id).await)
    }

    async fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        self.shared.noted(read::job_detail(&self.shared, reach, id).await)
    }

    async fn jobs(&self, list: ListJobs) -> Result<JobPage, Error> {
        self.shared.noted(read::jobs(&Look::anew(&self.shared), &list).await)
    }

    async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error> {
        self.shared.noted(dead_letters::dead_letters(&Look::anew(&self.shared), &list).await)
    }

    async fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Result<Option<Vec<Event>>, Error> {
        self.shared.noted(read::events(&Look::anew(&self.shared), reach, id, after, limit).await)
    }

    async fn result(&self, reach: &Reach, id: JobId) -> Result<Option<Inline>, Error> {
        self.shared.noted(kept::result(&Look::anew(&self.shared), reach, id).await)
    }

    async fn kept(&self, reach: &Reach, id: JobId) -> Result<Option<Kept>, Error> {
        self.shared.noted(kept::kept(&Look::anew(&self.shared), reach, id).await)
    }

    async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        self.shared.noted(kept::sections(&Look::anew(&self.shared), reach, id, after, limit).await)
    }

    async fn section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        self.shared.noted(kept::section(&Look::anew(&self.shared), reach, id, name).await)
    }

    async fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<Stored>>, Error> {
        self.shared.noted(kept::objects(&Look::anew(&self.shared), reach, id).await)
    }

    async fn count_download(&self, id: JobId) -> Result<(), Error> {
        let seq = self.shared.ids.seq(id);
        transact!(self, tx, [], kept::count_download(seq, tx))
    }

    async fn record_inspection(&self, key: &ObjectKey, found: Inspection) -> Result<(), Error> {
        transact!(self, tx, [key = key.to_string(), found = found], kept::record_inspection(&key, &found, tx))
    }

    async fn doomed(&self, limit: usize) -> Result<Doomed, Error> {
        kept::doomed(&self.shared, limit).await
    }

    async fn postpone_objects(&self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Error> {
        let keys: Arc<[String]> = keys.iter().map(ObjectKey::to_string).collect();
        self.transact(move |tx| {
            let keys = Arc::clone(&keys);
            Box::pin(async move { kept::postpone_objects(&keys, until, tx).await })
        })
        .await
    }

    async fn forget_objects(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        transact!(
            self,
            tx,
            [keys = keys.iter().map(ObjectKey::to_string).collect::<Vec<_>>()],
            kept::forget_objects(&keys, tx)
        )
    }

    async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: Expect,
    ) -> Result<Result<Saved, SaveRefusal>, Error> {
        transact!(self, tx, write [name = name.to_owned(), draft = draft], crate::queues::save(tx, namespace, &name, &draft, expect))
    }

    async fn set_paused(&self, namespace: NamespaceId, name: &str, paused: bool) -> Result<Option<Arc<Queue>>, Error> {
        transact!(self, tx, write[name = name.to_owned()], crate::queues::set_paused(tx, namespace, &name, paused))
    }

    async fn delete_queue(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error> {
        transact!(self, tx, write[name = name.to_owned()], crate::queues::delete(tx, namespace, &name))
    }

    async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, Counts)>, Error> {
        queues::one(&self.shared, namespace, name).await
    }

    async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
        queues::page(&self.shared, namespace, after, limit).await
    }

    async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error> {
        queues::oldest_waiting(&self.shared).await
    }

    async fn census(&self) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
        queues::census(&self.shared).await
    }

    async fn attend(&self) -> Result<Option<Outage>, Error> {
        self.attendance.attend(&self.shared).await
    }

    /// Other nodes may be making them; what nobody makes is found by its lease.
    async fn interrupted(&self) -> Result<Vec<JobId>, Error> {
        Ok(Vec::new())
    }

    async fn sealing_key(&self, key: i64, replaces: &[i64]) -> Result<i64, Error> {
        transact!(self, tx, [replaces = replaces.to_vec()], keys::sealing_key(key, &replaces, tx))
    }

    async fn namespace(&self, name: &str) -> Result<NamespaceId, Error> {
        transact!(self, tx, [name = name.to_owned()], keys::namespace(&name, tx))
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, Error> {
        transact!(self, tx, [key = key], keys::add(&key, tx))
    }

    async fn add_first_key(&self, key: NewKey) -> Result<Option<KeyRecord>, Error> {
        transact!(self, tx, [key = key], keys::add_first(&key, tx))
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        keys::all(&self.shared).await
    }

    async fn keys_since(&self, since: Timestamp) -> Result<Vec<KeyRecord>, Error> {
        keys::since(&self.shared, since).await
    }

    async fn revoke_key(&self, namespace: Option<NamespaceId>, id: KeyId, force: bool) -> Result<Revocation, Error> {
        transact!(self, tx, [], keys::revoke(namespace, id, force, tx))
    }

    async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error> {
        transact!(self, tx, write[operation = operation], crate::operations::start(tx, &operation))
    }

    async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        let found = operations::one(&self.shared, id).await?;
        Ok(found.filter(|operation| operation.namespace == namespace))
    }

    async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        operations::newest(&self.shared, namespace, limit).await
    }

    async fn open_operations(&self) -> Result<Vec<Operation>, Error> {
        operations::open(&self.shared).await
    }

    async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        transact!(self, tx, write [], crate::operations::stop(tx, namespace, id))
    }

    async fn advance_operation(&self, id: OperationId, limit: usize) -> Result<Option<Operation>, Error> {
        transact!(self, tx, write [], crate::operations::advance(tx, id, limit))
    }

    async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error> {
        operations::count(&self.shared, operation, limit).await
    }

    fn commit_times(&self) -> Option<Arc<Histogram>> {
        Some(Arc::clone(&self.shared.commit_times))
    }

    fn damage(&self) -> Damage {
        self.shared.damage.clone()
    }

    async fn ping(&self) -> Result<(), Error> {
        let answer = timeout(PING_MAX, self.shared.read(&PING, &[])).await;
        answer.map_err(|_| Error::Unavailable)?.map(drop)
    }

    async fn close(&self) {
        self.shared.close();
        self.writers.close().await;
        self.waiters.close().await;
        self.inbox.close().await;
        self.shared.pool.close();
    }
}
