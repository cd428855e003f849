//! The store as others see it: connects, checks, migrates, and turns each verb into a call of a lane, a transaction of its
//! own, or a read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::checkpoint::Section;
use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::{Clock, Event, JobId, NamespaceId, ObjectKey, Outage, Queue, QueueId, Timestamp};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::apply::{LockWait, due, release};
use super::claim::looks_wide;
use super::clock::DatabaseClock;
use super::connect::ConnectTarget;
use super::group_commit::Batcher;
use super::ingest_handler::{INGEST_TRANSACTIONS_MAX, IngestHandler};
use super::options::{CONNECTIONS_MIN, OpenError, Options, Prepared};
use super::outage_detector::OutageDetector;
use super::read::ReadView;
use super::server_check::ServerReport;
use super::session::Sql;
use super::shared::{StoreContext, StoreSetup};
use super::transact::{Once, Tx, TxFuture, begin_text, startup_options};
use super::write_handler::{WriteAnswer, WriteHandler, WriteRequest};
use super::{artifacts, dead_letters, inbound_events, keys, migrate, operations, queues, read, verify};
use crate::alarms::Due;
use crate::artifacts::{Artifacts, DueDeletions, InlineResult, ObjectInspection, StoredObject};
use crate::codec::job_id::JobIdCodec;
use crate::damage::Damage;
use crate::dead_letters::{DeadLetterPage, ListDeadLetters};
use crate::error::Error;
use crate::histogram::Histogram;
use crate::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent};
use crate::job_detail::JobDetail;
use crate::jobs::{
    Applied, ClaimRequest, Claimed, Declined, FoundJob, JobCommand, JobPage, JobStore, ListJobs, NewJob, Published,
    Reach,
};
use crate::keys::{KeyId, KeyRecord, NewKey, Revocation};
use crate::operations::{NewOperation, Operation, OperationId};
use crate::queues::{DeleteRefusal, ExpectedVersion, QueueCounts, QueueDraft, SaveRefusal, StoredQueue};

/// Transactions under way at once. A second one would halve the groups and cost more than its overlap gains; the other
/// nodes overlap anyway.
const WRITERS: usize = 1;
/// Calls that may wait for another transaction, for a locked job or a queue with a concurrency limit, must not delay
/// the rest.
const WAITERS: usize = 3;
/// How long a start may take, migrations of large tables included; then it fails and may be retried.
const OPEN_MAX: Duration = Duration::from_secs(600);

pub struct PostgresStore {
    shared: Arc<StoreContext>,
    findings: ServerReport,
    identity: u64,
    writers: Batcher<WriteHandler>,
    waiters: Batcher<WriteHandler>,
    inbox: Batcher<IngestHandler>,
    attendance: OutageDetector,
}

impl PostgresStore {
    /// Connects, checks what it finds, migrates and starts the lanes.
    pub async fn open(options: Options) -> Result<PostgresStore, OpenError> {
        let target = ConnectTarget::parse(&options.url)?;
        let silent = OpenError::Silent { place: target.place.clone(), seconds: OPEN_MAX.as_secs() };
        timeout(OPEN_MAX, PostgresStore::open_at(target, options)).await.unwrap_or(Err(silent))
    }

    async fn open_at(target: ConnectTarget, options: Options) -> Result<PostgresStore, OpenError> {
        let (mut client, local) = target.connect().await?;
        let findings = ServerReport::ask(&target, &client, local).await?;
        findings.check(options.allow_unsafe)?;
        migrate::migrate(&mut client).await?;
        let mut entropy = options.entropy;
        let secret = secret(&client, entropy.next_u64().cast_signed()).await?;
        let named = match options.prepared {
            Prepared::On => true,
            Prepared::Off => false,
            Prepared::Auto => findings.direct,
        };
        let shared = Arc::new(StoreContext::new(StoreSetup {
            pool: target
                .pool(options.connections.max(CONNECTIONS_MIN), findings.direct.then(startup_options).as_deref())?,
            ids: JobIdCodec::new(secret),
            entropy,
            compose: options.compose,
            clock: Arc::new(DatabaseClock::new(findings.now)),
            test_clock: options.clock,
            named,
            begin: begin_text(findings.direct, findings.synchronous_commit || options.allow_unsafe),
            namespace_waiting_max: options.namespace_waiting_max,
        }));
        shared.begin_crash_epoch().await?;
        let waiting_max = options.waiting_writes_max;
        Ok(PostgresStore {
            writers: Batcher::start(&shared, WRITERS, waiting_max),
            waiters: Batcher::start(&shared, WAITERS, waiting_max),
            inbox: Batcher::start(&shared, INGEST_TRANSACTIONS_MAX, waiting_max),
            identity: secret.cast_unsigned(),
            attendance: OutageDetector::default(),
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

    pub fn findings(&self) -> &ServerReport {
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
        F: for<'t, 's> FnMut(&'t mut Tx<'s>) -> TxFuture<'t, T> + Send + 'static,
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
struct PendingAnswer<'a> {
    store: &'a PostgresStore,
    answer: oneshot::Receiver<Result<WriteAnswer, Error>>,
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Ok(WriteAnswer::Claimed(claimed))) = self.answer.try_recv() {
            release(&self.store.shared, claimed);
        }
    }
}

static PING: Sql = Sql { text: "SELECT 1", types: &[] };
const PING_MAX: Duration = Duration::from_secs(2);

#[async_trait]
impl JobStore for PostgresStore {
    async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        match self.writers.call(WriteRequest::Publish(jobs)).await? {
            WriteAnswer::Published(published) => Ok(published),
            WriteAnswer::Claimed(_) | WriteAnswer::Applied(_) => Err(Error::Indeterminate),
        }
    }

    async fn ingest(&self, new: Vec<NewInboundEvent>) -> Result<Vec<Ingested>, Error> {
        self.inbox.call(new).await
    }

    async fn inbound_event(&self, namespace: NamespaceId, id: InboundEventId) -> Result<Option<InboundEvent>, Error> {
        self.shared.noted(inbound_events::one(&self.shared, namespace, id).await)
    }

    async fn inbound_events(&self, list: ListInboundEvents) -> Result<InboundEventPage, Error> {
        self.shared.noted(inbound_events::list(&self.shared, &list).await)
    }

    async fn prune_inbound_events(&self, before: Timestamp, limit: usize) -> Result<usize, Error> {
        transact!(self, tx, [], inbound_events::prune(before, limit, tx))
    }

    async fn claim(&self, want: ClaimRequest) -> Result<Option<Claimed>, Error> {
        let lane = if looks_wide(&want, &self.shared) { &self.writers } else { &self.waiters };
        let mut awaited = PendingAnswer { store: self, answer: lane.send(WriteRequest::Claim(want))? };
        match (&mut awaited.answer).await.map_err(|_| Error::Indeterminate)?? {
            WriteAnswer::Claimed(claimed) => Ok(claimed),
            WriteAnswer::Published(_) | WriteAnswer::Applied(_) => Err(Error::Indeterminate),
        }
    }

    async fn apply(&self, orders: Vec<JobCommand>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let orders: Arc<[JobCommand]> = orders.into();
        for (lane, patience) in [(&self.writers, LockWait::Hurries), (&self.waiters, LockWait::Waits)] {
            if let WriteAnswer::Applied(Some(applied)) =
                lane.call(WriteRequest::Apply(Arc::clone(&orders), patience)).await?
            {
                return Ok(applied);
            }
        }
        Err(Error::Indeterminate)
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        due(&self.shared, limit).await
    }

    async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error> {
        self.shared.noted(read::job(&ReadView::anew(&self.shared), reach, id).await)
    }

    async fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        self.shared.noted(read::job_detail(&self.shared, reach, id).await)
    }

    async fn jobs(&self, list: ListJobs) -> Result<JobPage, Error> {
        self.shared.noted(read::jobs(&ReadView::anew(&self.shared), &list).await)
    }

    async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error> {
        self.shared.noted(dead_letters::dead_letters(&ReadView::anew(&self.shared), &list).await)
    }

    async fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Result<Option<Vec<Event>>, Error> {
        self.shared.noted(read::events(&ReadView::anew(&self.shared), reach, id, after, limit).await)
    }

    async fn result(&self, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error> {
        self.shared.noted(artifacts::result(&ReadView::anew(&self.shared), reach, id).await)
    }

    async fn artifacts(&self, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error> {
        self.shared.noted(artifacts::artifacts(&ReadView::anew(&self.shared), reach, id).await)
    }

    async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        self.shared.noted(artifacts::sections(&ReadView::anew(&self.shared), reach, id, after, limit).await)
    }

    async fn section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        self.shared.noted(artifacts::section(&ReadView::anew(&self.shared), reach, id, name).await)
    }

    async fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<StoredObject>>, Error> {
        self.shared.noted(artifacts::objects(&ReadView::anew(&self.shared), reach, id).await)
    }

    async fn count_download(&self, id: JobId) -> Result<(), Error> {
        let seq = self.shared.ids.seq(id);
        transact!(self, tx, [], artifacts::count_download(seq, tx))
    }

    async fn record_inspection(&self, key: &ObjectKey, found: ObjectInspection) -> Result<(), Error> {
        transact!(self, tx, [key = key.to_string(), found = found], artifacts::record_inspection(&key, &found, tx))
    }

    async fn due_deletions(&self, limit: usize) -> Result<DueDeletions, Error> {
        artifacts::due_deletions(&self.shared, limit).await
    }

    async fn postpone_deletions(&self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Error> {
        let keys: Arc<[String]> = keys.iter().map(ObjectKey::to_string).collect();
        self.transact(move |tx| {
            let keys = Arc::clone(&keys);
            Box::pin(async move { artifacts::postpone_deletions(&keys, until, tx).await })
        })
        .await
    }

    async fn forget_objects(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        transact!(
            self,
            tx,
            [keys = keys.iter().map(ObjectKey::to_string).collect::<Vec<_>>()],
            artifacts::forget_objects(&keys, tx)
        )
    }

    async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: ExpectedVersion,
    ) -> Result<Result<StoredQueue, SaveRefusal>, Error> {
        transact!(self, tx, write [name = name.to_owned(), draft = draft], crate::queues::save(tx, namespace, &name, &draft, expect))
    }

    async fn set_paused(&self, namespace: NamespaceId, name: &str, paused: bool) -> Result<Option<Arc<Queue>>, Error> {
        transact!(self, tx, write[name = name.to_owned()], crate::queues::set_paused(tx, namespace, &name, paused))
    }

    async fn delete_queue(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error> {
        transact!(self, tx, write[name = name.to_owned()], crate::queues::delete(tx, namespace, &name))
    }

    async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, QueueCounts)>, Error> {
        queues::one(&self.shared, namespace, name).await
    }

    async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        queues::page(&self.shared, namespace, after, limit).await
    }

    async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error> {
        queues::oldest_waiting(&self.shared).await
    }

    async fn census(&self) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        queues::census(&self.shared).await
    }

    async fn record_attendance(&self) -> Result<Option<Outage>, Error> {
        self.attendance.record_attendance(&self.shared).await
    }

    /// Other nodes may be making them; the lease finds the ones that no node makes.
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
