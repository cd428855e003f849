//! Arrivals: all of one or nothing of it, once for each id of the provider.

use outlast_core::arrival::{Arrival, ArrivalId};
use outlast_core::{JobId, NamespaceId, Timestamp};
use outlast_store::Error;
use outlast_store::arrivals::{ArrivalPage, Ingested, ListArrivals, NewArrival, created};
use outlast_store::page::{PageSize, Written};

use super::world::World;

impl World {
    pub(super) fn ingest(&mut self, arrivals: &[NewArrival]) -> Result<Vec<Ingested>, Error> {
        let waiting_max = self.waiting_max;
        let needs_room = |new: &&NewArrival| !new.jobs.is_empty() && self.known_arrival(new).is_none();
        for new in arrivals.iter().filter(needs_room) {
            let others = arrivals.iter().filter(|other| other.namespace == new.namespace).filter(needs_room);
            let jobs: usize = others.map(|other| other.jobs.len()).sum();
            if self.waiting(new.namespace) + jobs as u64 > waiting_max {
                return Err(Error::QuotaReached { waiting_max });
            }
        }
        Ok(arrivals.iter().map(|new| self.ingest_one(new)).collect())
    }

    fn ingest_one(&mut self, new: &NewArrival) -> Ingested {
        if let Some(id) = self.known_arrival(new) {
            return Ingested::Existing { id };
        }
        self.jobs_made += 1;
        let id = ArrivalId(JobId::new(self.now, u128::from(self.jobs_made)));
        let jobs: Vec<_> = new.jobs.iter().map(|job| self.publish(&new.stamped(job, id))).collect();
        self.arrivals.push((new.namespace, new.stored(id, self.now, created(&jobs))));
        Ingested::Created { id, jobs }
    }

    fn known_arrival(&self, new: &NewArrival) -> Option<ArrivalId> {
        let same = |(namespace, arrival): &&(NamespaceId, Arrival)| {
            *namespace == new.namespace && arrival.source == new.source && arrival.key == new.key
        };
        self.arrivals.iter().find(same).filter(|_| new.key.is_some()).map(|(_, found)| found.id)
    }

    pub(super) fn arrival(&self, namespace: NamespaceId, id: ArrivalId) -> Option<Arrival> {
        let is_it = |(owner, arrival): &&(NamespaceId, Arrival)| *owner == namespace && arrival.id == id;
        self.arrivals.iter().find(is_it).map(|(_, arrival)| arrival.clone())
    }

    pub(super) fn arrivals(&self, list: &ListArrivals) -> ArrivalPage {
        let fits = |(place, (namespace, arrival)): &(usize, &(NamespaceId, Arrival))| {
            *namespace == list.namespace
                && list.before.is_none_or(|before| (*place as u64) < before)
                && list.source.as_deref().is_none_or(|source| source == &*arrival.source)
                && list.kind.as_deref().is_none_or(|kind| kind == &*arrival.kind)
        };
        let newest_first = self.arrivals.iter().enumerate().rev().filter(fits);
        let (mut page, mut size) = (ArrivalPage { arrivals: Vec::new(), next: None }, PageSize::default());
        for (place, (_, arrival)) in newest_first {
            size.add(arrival.written());
            page.arrivals.push(Arrival { body: "".into(), ..arrival.clone() });
            if page.arrivals.len() == list.limit || size.is_full() {
                page.next = Some(place as u64);
                break;
            }
        }
        page
    }

    pub(super) fn prune_arrivals(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = self.arrivals.iter().take(limit).take_while(|(_, arrival)| arrival.at < before).count();
        self.arrivals.drain(..old);
        old
    }
}
