//! Arrivals: all of one or nothing of it, once for each id of the provider.

use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::{JobId, NamespaceId, Timestamp};
use outlast_store::Error;
use outlast_store::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent, created};
use outlast_store::page::{EncodedSize, PageSize};

use super::world::World;

impl World {
    pub(super) fn ingest(&mut self, inbound_events: &[NewInboundEvent]) -> Result<Vec<Ingested>, Error> {
        let waiting_max = self.waiting_max;
        let needs_room = |new: &&NewInboundEvent| !new.jobs.is_empty() && self.known_arrival(new).is_none();
        for new in inbound_events.iter().filter(needs_room) {
            let others = inbound_events.iter().filter(|other| other.namespace == new.namespace).filter(needs_room);
            let jobs: usize = others.map(|other| other.jobs.len()).sum();
            if self.waiting(new.namespace) + jobs as u64 > waiting_max {
                return Err(Error::QuotaReached { waiting_max });
            }
        }
        Ok(inbound_events.iter().map(|new| self.ingest_one(new)).collect())
    }

    fn ingest_one(&mut self, new: &NewInboundEvent) -> Ingested {
        if let Some(id) = self.known_arrival(new) {
            return Ingested::Existing { id };
        }
        self.jobs_made += 1;
        let id = InboundEventId(JobId::new(self.now, u128::from(self.jobs_made)));
        let jobs: Vec<_> = new.jobs.iter().map(|job| self.publish(&new.stamped(job, id))).collect();
        self.inbound_events.push((new.namespace, new.stored(id, self.now, created(&jobs))));
        Ingested::Created { id, jobs }
    }

    fn known_arrival(&self, new: &NewInboundEvent) -> Option<InboundEventId> {
        let same = |(namespace, inbound_event): &&(NamespaceId, InboundEvent)| {
            *namespace == new.namespace && inbound_event.source == new.source && inbound_event.key == new.key
        };
        self.inbound_events.iter().find(same).filter(|_| new.key.is_some()).map(|(_, found)| found.id)
    }

    pub(super) fn inbound_event(&self, namespace: NamespaceId, id: InboundEventId) -> Option<InboundEvent> {
        let is_it =
            |(owner, inbound_event): &&(NamespaceId, InboundEvent)| *owner == namespace && inbound_event.id == id;
        self.inbound_events.iter().find(is_it).map(|(_, inbound_event)| inbound_event.clone())
    }

    pub(super) fn inbound_events(&self, list: &ListInboundEvents) -> InboundEventPage {
        let fits = |(place, (namespace, inbound_event)): &(usize, &(NamespaceId, InboundEvent))| {
            *namespace == list.namespace
                && list.before.is_none_or(|before| (*place as u64) < before)
                && list.source.as_deref().is_none_or(|source| source == &*inbound_event.source)
                && list.kind.as_deref().is_none_or(|kind| kind == &*inbound_event.kind)
        };
        let newest_first = self.inbound_events.iter().enumerate().rev().filter(fits);
        let (mut page, mut size) = (InboundEventPage { inbound_events: Vec::new(), next: None }, PageSize::default());
        for (place, (_, inbound_event)) in newest_first {
            size.add(inbound_event.written());
            page.inbound_events.push(InboundEvent { body: "".into(), ..inbound_event.clone() });
            if page.inbound_events.len() == list.limit || size.is_full() {
                page.next = Some(place as u64);
                break;
            }
        }
        page
    }

    pub(super) fn prune_inbound_events(&mut self, before: Timestamp, limit: usize) -> usize {
        let old =
            self.inbound_events.iter().take(limit).take_while(|(_, inbound_event)| inbound_event.at < before).count();
        self.inbound_events.drain(..old);
        old
    }
}
