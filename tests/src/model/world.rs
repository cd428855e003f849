//! Everything the model remembers, and the one way a job changes in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::change::ScheduledDelete;
use outlast_core::checkpoint::{Checkpoint, SECTIONS_MAX, Section};
use outlast_core::gate::Hold;
use outlast_core::inbound_event::InboundEvent;
use outlast_core::object::DELETE_DELAY;
use outlast_core::state::Phase;
use outlast_core::{
    Change, Clock, Command, Effect, Entropy, Event, Job, JobId, NamespaceId, Object, ObjectKey, Queue, QueueId,
    Refusal, Role, State, Status, Timestamp, Update,
};
use outlast_store::artifacts::StoredObject;
use outlast_store::keys::{KeyId, KeyRecord};
use outlast_store::operations::{Operation, OperationId};

use super::rules::Rules;

/// A job with all that belongs to it.
#[derive(Clone, Debug)]
pub struct Row {
    pub job: Job,
    pub events: Vec<Event>,
    pub wake_at: Option<Timestamp>,
    pub result: Option<Arc<str>>,
    pub downloads: u64,
    pub checkpoint: Option<Checkpoint>,
    pub sections: BTreeMap<Box<str>, Section>,
}

pub struct World {
    pub(super) rules: Rules,
    clock: Arc<dyn Clock>,
    entropy: Box<dyn Entropy + Send>,
    pub now: Timestamp,
    pub(super) waiting_max: u64,
    pub(super) namespaces: BTreeMap<String, NamespaceId>,
    pub queues: BTreeMap<QueueId, Arc<Queue>>,
    /// By position: the order in which they were published.
    pub rows: BTreeMap<u64, Row>,
    pub(super) positions: BTreeMap<JobId, u64>,
    pub(super) keys: BTreeMap<KeyId, KeyRecord>,
    /// With the job each belongs to, which may be gone.
    pub objects: BTreeMap<ObjectKey, (JobId, StoredObject)>,
    pub operations: BTreeMap<OperationId, Operation>,
    /// In the order in which they came.
    pub(super) inbound_events: Vec<(NamespaceId, InboundEvent)>,
    pub(super) queues_made: u32,
    pub(super) jobs_made: u64,
    pub(super) sealing_key: Option<i64>,
}

/// The effect of a command.
pub(super) enum Done {
    Unchanged,
    Changed { before: Status, stalled: bool, published: Vec<Arc<str>> },
    Deleted,
}

impl World {
    pub(super) fn new(rules: Rules, clock: Arc<dyn Clock>, entropy: Box<dyn Entropy + Send>) -> World {
        World {
            rules,
            now: clock.now(),
            clock,
            entropy,
            waiting_max: u64::MAX,
            namespaces: BTreeMap::new(),
            queues: BTreeMap::new(),
            rows: BTreeMap::new(),
            positions: BTreeMap::new(),
            keys: BTreeMap::new(),
            objects: BTreeMap::new(),
            operations: BTreeMap::new(),
            inbound_events: Vec::new(),
            queues_made: 0,
            jobs_made: 0,
            sealing_key: None,
        }
    }

    /// Time never goes back, whatever the clock says.
    pub(super) fn tick(&mut self) {
        self.now = self.now.max(self.clock.now());
    }

    pub fn row(&self, id: JobId) -> Option<&Row> {
        self.rows.get(self.positions.get(&id)?)
    }

    /// The deliveries under way.
    pub(super) fn delivering(&self) -> Vec<JobId> {
        let delivers =
            |row: &&Row| matches!(&row.job.state, State::Running(running) if running.phase == Phase::Delivering);
        self.rows.values().filter(delivers).map(|row| row.job.id).collect()
    }

    pub fn queue_of(&self, job: &Job) -> &Arc<Queue> {
        self.queues.get(&job.queue).expect("a job has a queue")
    }

    pub(super) fn find_queue(&self, namespace: NamespaceId, name: &str) -> Option<Arc<Queue>> {
        self.queues.values().find(|queue| queue.namespace == namespace && queue.name == name).cloned()
    }

    pub(super) fn insert(&mut self, row: Row) {
        self.jobs_made += 1;
        self.positions.insert(row.job.id, self.jobs_made);
        self.rows.insert(self.jobs_made, row);
    }

    /// Takes a job out with all that belongs to it. If it was the probe of a held queue, another one must try.
    pub fn remove(&mut self, id: JobId) {
        let Some(row) = self.positions.remove(&id).and_then(|position| self.rows.remove(&position)) else {
            return;
        };
        for role in [Role::Result, Role::Checkpoint] {
            self.schedule_delete(id, ScheduledDelete { role: Some(role), attached: true, at: self.now });
            self.schedule_delete(
                id,
                ScheduledDelete { role: Some(role), attached: false, at: self.now.plus(DELETE_DELAY) },
            );
        }
        let queue = self.queue_of(&row.job);
        if let Some(hold) = queue.hold.filter(|hold| hold.probe == Some(id)) {
            let vacant = Queue { hold: Some(Hold { probe: None, ..hold }), ..Queue::clone(queue) };
            self.queues.insert(vacant.id, Arc::new(vacant));
        }
    }

    /// Asks core and does what it says.
    pub(super) fn command(&mut self, position: u64, command: Command) -> Result<Done, Refusal> {
        let row = self.rows.get(&position).expect("the caller has found it");
        let queue = Arc::clone(self.queue_of(&row.job));
        let (wakes, replays) = (command.is_wake(), command.is_replay());
        let section = match &command {
            Command::Section { section, .. } => Some(section.name.clone()),
            _ => None,
        };
        let change = (self.rules.decide)(&row.job, &queue, command, self.now, self.entropy.as_mut())?;
        let blocks = |other: &&Row| replays && (self.rules.blocks_replay)(&other.job, &row.job, &queue, self.now);
        if let Some(holder) = self.rows.values().rev().find(blocks) {
            return Err(Refusal::KeyTaken { holder: holder.job.id });
        }
        if let Some(name) = section
            && row.sections.len() >= SECTIONS_MAX
            && !row.sections.contains_key(&name)
        {
            return Err(Refusal::SectionsFull);
        }
        let (id, before) = (row.job.id, row.job.status());
        match change {
            Change::None => {
                // The settings may have moved the alarm since it was set: an alarm that rang too early is set again.
                if wakes {
                    let wake_at = (self.rules.alarm)(&row.job, &queue);
                    self.row_mut(position).wake_at = wake_at;
                }
                Ok(Done::Unchanged)
            }
            Change::Delete => {
                self.remove(id);
                Ok(Done::Deleted)
            }
            Change::Update(update) => {
                let stalled = update.events.iter().any(Event::is_stall);
                let published = self.write(position, &queue, *update);
                Ok(Done::Changed { before, stalled, published })
            }
        }
    }

    /// The queues that got jobs by it.
    fn write(&mut self, position: u64, queue: &Arc<Queue>, update: Update) -> Vec<Arc<str>> {
        let wake_at = (self.rules.alarm)(&update.job, queue);
        let row = self.row_mut(position);
        row.job = update.job;
        row.events.extend(update.events);
        row.wake_at = wake_at;
        let mut outgoing = Vec::new();
        for effect in update.effects {
            match effect {
                Effect::KeepResult(body) => self.row_mut(position).result = Some(body),
                Effect::DropResult => self.row_mut(position).result = None,
                Effect::SetHold(hold) => self.queue_mut(queue.id).hold = hold,
                Effect::SetGcra(gcra) => self.queue_mut(queue.id).gcra = gcra,
                // A notice tells of the whole change, so it comes last.
                Effect::Publish { queue, content } => outgoing.push((queue, content)),
                Effect::KeepCheckpoint(checkpoint) => {
                    self.row_mut(position).checkpoint = Some(Checkpoint::clone(&checkpoint));
                }
                Effect::KeepSection(section) => {
                    self.row_mut(position).sections.insert(section.name.clone(), Section::clone(&section));
                }
                Effect::DropCheckpoints => {
                    let row = self.row_mut(position);
                    row.checkpoint = None;
                    row.sections.clear();
                }
                Effect::Expect(object) => self.put_object(position, Object::clone(&object), false),
                Effect::Keep(object) => self.put_object(position, Object::clone(&object), true),
                Effect::ScheduleDelete(delete) => self.schedule_delete(self.rows[&position].job.id, delete),
            }
        }
        let changed = self.rows[&position].clone();
        outgoing.iter().for_each(|(name, content)| self.publish_outgoing(&changed, queue, name, content));
        outgoing.into_iter().map(|(name, _)| name).collect()
    }

    fn put_object(&mut self, position: u64, object: Object, attached: bool) {
        let id = self.rows[&position].job.id;
        let downloads = self.objects.get(&object.key).map_or(0, |(_, known)| known.downloads);
        self.objects.insert(
            object.key,
            (id, StoredObject { object, attached, delete_after: None, downloads, damaged_at: None }),
        );
    }

    fn schedule_delete(&mut self, id: JobId, delete: ScheduledDelete) {
        for (job, stored) in self.objects.values_mut() {
            let role_fits = delete.role.is_none_or(|role| role == stored.object.role);
            if *job == id && stored.attached == delete.attached && role_fits && stored.delete_after.is_none() {
                stored.delete_after = Some(delete.at);
            }
        }
    }

    fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        Arc::make_mut(self.queues.get_mut(&id).expect("a job has a queue"))
    }

    fn row_mut(&mut self, position: u64) -> &mut Row {
        self.rows.get_mut(&position).expect("the caller has found it")
    }
}
