//! Reading: single jobs, lists, events, results, and what is kept beside a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::checkpoint::Section;
use outlast_core::{Event, EventKind, JobId, ObjectKey, Role, Spec, State, Timestamp};
use outlast_store::artifacts::{Artifacts, DueDeletions, InlineResult, OBJECTS_MAX, ObjectInspection, StoredObject};
use outlast_store::dead_letters::{DeadLetterPage, Failure, ListDeadLetters};
use outlast_store::job_detail::{JobDetail, ResultDetail};
use outlast_store::jobs::{FoundJob, JobPage, ListJobs, Reach};
use outlast_store::page::{EncodedSize, PageSize};

use super::world::{Row, World};

/// As many as fill a page.
fn fill<T: EncodedSize>(entries: impl Iterator<Item = T>) -> Vec<T> {
    let mut size = PageSize::default();
    let fits = |entry: &T| {
        let fits = !size.is_full();
        size.add(entry.written());
        fits
    };
    entries.take_while(fits).collect()
}

/// As many of the newest as fit beside a job, oldest first; at least one.
fn newest<'e>(newest_first: impl Iterator<Item = &'e Event>) -> Vec<Event> {
    let mut events: Vec<Event> = newest_first.cloned().collect();
    let mut bytes = 0;
    let fitting = events.iter().position(|event| {
        bytes += event.written();
        bytes > 256 << 10
    });
    events.truncate(fitting.unwrap_or(events.len()).max(1));
    events.reverse();
    events
}

impl World {
    pub(super) fn job(&self, reach: &Reach, id: JobId) -> Option<FoundJob> {
        self.reached(reach, id).map(|row| self.found(row))
    }

    /// The combined result of the parts.
    pub(super) fn job_detail(&self, reach: &Reach, id: JobId) -> Option<JobDetail> {
        let row = self.reached(reach, id)?;
        let found = self.found(row);
        let events = newest(row.events.iter().rev().take(50));
        let is_move = |event: &&Event| matches!(event.kind, EventKind::State { .. } | EventKind::Attempt(_));
        let moves = newest(row.events.iter().rev().take(2050).filter(is_move).take(200));
        let work_summary = &found.job.work_summary;
        let artifacts = self.artifacts(reach, id).filter(|_| work_summary.has_checkpoint || work_summary.has_sections);
        let is_result = |stored: &StoredObject| {
            stored.attached && stored.delete_after.is_none() && stored.object.role == Role::Result
        };
        let object =
            self.objects(reach, id)?.into_iter().find(is_result).map(|stored| ResultDetail::Object(Box::new(stored)));
        let inline = row.result.as_ref().map(|_| ResultDetail::Inline { downloads: row.downloads });
        let result = match &found.job.state {
            State::Succeeded { result: Some(meta), .. } if meta.inline => inline,
            _ if found.job.has_uploaded_result() => object,
            _ => None,
        };
        let tag = ("job".to_owned(), id.to_string());
        let list = ListJobs {
            reach: Reach::Namespace(found.queue.namespace),
            queue: Some("_callbacks".to_owned()),
            status: None,
            tags: vec![tag],
            key: None,
            before: None,
            limit: 1,
        };
        let calls_back = found.job.spec.callback_url.is_some() && found.queue.name != "_callbacks";
        let callback = (calls_back && found.job.status().is_terminal()).then(|| self.jobs(&list).jobs.pop()).flatten();
        Some(JobDetail { found, events, moves, artifacts, result, callback })
    }

    pub(super) fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Option<Vec<Event>> {
        let row = self.reached(reach, id)?;
        Some(fill(row.events.iter().filter(|event| event.seq > after).take(limit).cloned()))
    }

    pub(super) fn result(&self, reach: &Reach, id: JobId) -> Option<InlineResult> {
        let row = self.reached(reach, id)?;
        row.result.clone().map(|body| InlineResult { body, downloads: row.downloads })
    }

    pub(super) fn artifacts(&self, reach: &Reach, id: JobId) -> Option<Artifacts> {
        let row = self.reached(reach, id)?;
        Some(Artifacts { checkpoint: row.checkpoint.clone(), sections: row.sections.keys().cloned().collect() })
    }

    pub(super) fn sections(&self, reach: &Reach, id: JobId, after: Option<&str>, limit: usize) -> Option<Vec<Section>> {
        let row = self.reached(reach, id)?;
        let later = row.sections.values().filter(|section| Some(&*section.name) > after);
        Some(fill(later.take(limit).cloned()))
    }

    pub(super) fn section(&self, reach: &Reach, id: JobId, name: &str) -> Option<Section> {
        self.reached(reach, id)?.sections.get(name).cloned()
    }

    pub(super) fn objects(&self, reach: &Reach, id: JobId) -> Option<Vec<StoredObject>> {
        self.reached(reach, id)?;
        let mut of_job: Vec<StoredObject> =
            self.objects.values().filter(|(job, _)| *job == id).map(|(_, stored)| stored.clone()).collect();
        of_job.sort_by_key(|stored| (stored.delete_after.is_some(), std::cmp::Reverse(stored.object.key.to_string())));
        of_job.truncate(OBJECTS_MAX);
        Some(of_job)
    }

    pub(super) fn count_download(&mut self, id: JobId) {
        if let Some(position) = self.positions.get(&id).copied() {
            self.rows.entry(position).and_modify(|row| row.downloads += u64::from(row.result.is_some()));
        }
        let results = self
            .objects
            .values_mut()
            .filter(|(job, stored)| *job == id && stored.attached && stored.object.role == Role::Result);
        results.for_each(|(_, stored)| stored.downloads += 1);
    }

    pub(super) fn due_deletions(&self, limit: usize) -> DueDeletions {
        let mut waiting: Vec<(Timestamp, ObjectKey, Option<Box<str>>)> = self
            .objects
            .values()
            .filter_map(|(_, stored)| Some((stored.delete_after?, stored.object.key, stored.object.upload.clone())))
            .collect();
        waiting.sort();
        let due = waiting.iter().take(limit).filter(|(at, _, _)| *at <= self.now).count();
        let objects = waiting.iter().take(due).map(|(_, key, upload)| (*key, upload.clone())).collect();
        DueDeletions { objects, next: waiting.get(due).map(|(at, _, _)| *at) }
    }

    pub(super) fn record_inspection(&mut self, key: &ObjectKey, found: ObjectInspection) {
        let now = self.now;
        if let Some((_, stored)) = self.objects.get_mut(key) {
            stored.damaged_at = (found == ObjectInspection::Damaged).then_some(now);
            if let ObjectInspection::Sound(checksums) = found {
                stored.object.checksums = Some(checksums);
            }
        }
    }

    pub(super) fn postpone_deletions(&mut self, keys: &[ObjectKey], until: Timestamp) {
        let doomed =
            self.objects.iter_mut().filter(|(key, (_, stored))| keys.contains(key) && stored.delete_after.is_some());
        doomed.for_each(|(_, (_, stored))| stored.delete_after = Some(until));
    }

    pub(super) fn forget_objects(&mut self, keys: &[ObjectKey]) {
        self.objects.retain(|key, (_, stored)| stored.delete_after.is_none() || !keys.contains(key));
    }

    pub(super) fn jobs(&self, list: &ListJobs) -> JobPage {
        let older = self.rows.range(..list.before.unwrap_or(u64::MAX)).rev();
        let mut matching = older.filter(|(_, row)| self.matches(list, row)).peekable();
        let (mut jobs, mut size, mut last) = (Vec::new(), PageSize::default(), None);
        while jobs.len() < list.limit
            && !size.is_full()
            && let Some((position, row)) = matching.next()
        {
            let mut found = self.found(row);
            found.job.spec = Arc::new(Spec { payload: "".into(), ..Spec::clone(&found.job.spec) });
            size.add(found.job.written());
            jobs.push(found);
            last = Some(*position);
        }
        JobPage { jobs, next: matching.peek().and(last) }
    }

    pub(super) fn dead_letters(&self, list: &ListDeadLetters) -> DeadLetterPage {
        let mut failures = BTreeMap::new();
        for (position, row) in &self.rows {
            let queue = self.queue_of(&row.job);
            if let State::Failed { at, .. } = row.job.state
                && queue.name == list.queue
                && list.reach.covers(queue)
                && list.reach.namespace().is_some()
            {
                failures.insert(Failure { at, position: *position }, row);
            }
        }
        let mut page = DeadLetterPage { jobs: Vec::new(), next: None };
        let (mut size, mut last) = (PageSize::default(), None);
        let earlier = failures.iter().rev().filter(|(failure, _)| list.before.is_none_or(|before| **failure < before));
        for (failure, row) in earlier {
            if page.jobs.len() >= list.limit || size.is_full() {
                page.next = last;
                break;
            }
            let mut found = self.found(row);
            found.job.spec = Arc::new(Spec { payload: "".into(), ..Spec::clone(&found.job.spec) });
            size.add(found.job.written());
            page.jobs.push(found);
            last = Some(*failure);
        }
        page
    }

    fn matches(&self, list: &ListJobs, row: &Row) -> bool {
        let (job, queue) = (&row.job, self.queue_of(&row.job));
        let has =
            |tag: &(String, String)| job.spec.tags.iter().any(|(name, value)| **name == *tag.0 && **value == *tag.1);
        list.reach.covers(queue)
            && list.queue.as_ref().is_none_or(|name| *name == queue.name)
            && list.status.is_none_or(|status| job.status() == status)
            && list.key.as_ref().is_none_or(|key| job.spec.key.as_deref() == Some(key))
            && list.tags.iter().all(has)
    }

    fn reached(&self, reach: &Reach, id: JobId) -> Option<&Row> {
        self.row(id).filter(|row| reach.covers(self.queue_of(&row.job)))
    }

    fn found(&self, row: &Row) -> FoundJob {
        FoundJob { job: row.job.clone(), queue: Arc::clone(self.queue_of(&row.job)) }
    }
}
