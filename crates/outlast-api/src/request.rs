//! One request on its way to a handler: who calls, what they reach, and what they sent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::IF_NONE_MATCH;
use http::{HeaderMap, Version};
use outlast_core::JobId;
use outlast_core::queue::is_name;
use outlast_core::system_queue;
use outlast_engine::Rooms;
use outlast_engine::keys::scope::Principal;
use outlast_engine::keys::token::{JobSight, Token};
use outlast_store::jobs::Reach;

use crate::answers::{Answers, Turn, Weight};
use crate::budget::{Charge, Full, Holder, Priority};
use crate::budgets::Budgets;
use crate::dev_clock::DevClock;
use crate::error::Problem;
use crate::limits::Limits;
use crate::reload::Reload;
use crate::schema::{Object, Values, read};
use crate::view::Views;

/// A place among the waiting requests is charged for so many jobs or queues that a request listens to: together they cost
/// about as much memory as a waiting connection.
const LISTENERS_PER_PLACE: usize = 4;

pub(crate) struct RequestContext {
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) answers: Arc<Answers>,
    pub(crate) views: Arc<Views>,
    pub(crate) reload: Option<Reload>,
    pub(crate) dev_clock: Option<DevClock>,
    /// `None` only on routes that need no key. For a token: its key.
    pub(crate) principal: Option<Principal>,
    /// The reach of the caller's scope for this route.
    pub(crate) reach: Reach,
    /// The token that was sent in place of a key.
    pub(crate) token: Option<Token>,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) query: Values<'static>,
    /// Parameters of the form `tag.NAME`.
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) version: Version,
    pub(crate) body: Bytes,
    /// A body that is not read into memory, where the route takes one. Locked only because a body alone cannot be
    /// shared.
    pub(crate) upload: Mutex<Body>,
    pub(crate) held: RequestCharges,
}

/// The charges of a request.
pub(crate) struct RequestCharges {
    pub(crate) holder: Holder,
    pub(crate) slot: Charge,
    /// For the body.
    pub(crate) bytes: Charge,
}

/// The place of a request that waits.
pub(crate) struct WaitingPlace(#[expect(dead_code, reason = "dropped to give the place back")] Charge);

impl RequestContext {
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The caller. Routes that need a key always have one.
    pub(crate) fn caller(&self) -> Result<&Principal, Problem> {
        self.principal.as_ref().ok_or_else(crate::auth::unauthorized)
    }

    /// Waits until a read that may be large may begin; to be held until the answer is written out.
    pub(crate) async fn turn(&self, weight: Weight) -> Result<Turn, Problem> {
        self.answers.turn(self.holder(), weight).await
    }

    /// Which shares this call is counted against.
    pub(crate) fn holder(&self) -> Holder {
        self.held.holder
    }

    /// The address that clients know this server by; empty where paths will do.
    pub(crate) fn base(&self) -> &str {
        self.rooms.push.public_url()
    }

    /// How much of a job the caller sees.
    pub(crate) fn sight(&self) -> JobSight {
        self.token.as_ref().map_or(JobSight::Whole, Token::sight)
    }

    /// How long an answer may go on: no longer than the token.
    pub(crate) fn life(&self, most: Duration) -> Duration {
        self.token.as_ref().map_or(most, |token| token.expires_at.since(self.rooms.clock.now()).min(most))
    }

    /// Before a wait that may be long: gives back the slot and the body, and keeps of the headers only what the answer
    /// depends on, so that a waiting request costs little beside its connection.
    pub(crate) fn begin_wait(&mut self) -> Result<WaitingPlace, Full> {
        let place = self.reserve_wait(1)?;
        self.begin_reserved_wait();
        Ok(place)
    }

    /// Room to wait for so many jobs or queues, before it is known whether there is anything to wait for.
    pub(crate) fn reserve_wait(&self, listeners: usize) -> Result<WaitingPlace, Full> {
        let places = listeners.div_ceil(LISTENERS_PER_PLACE);
        Ok(WaitingPlace(self.budgets.waiters.take(self.held.holder, Priority::Ordinary, places)?))
    }

    /// The wait begins, in a place that was reserved.
    pub(crate) fn begin_reserved_wait(&mut self) {
        let headers = std::mem::take(&mut self.headers);
        self.headers.extend(headers.get_all(IF_NONE_MATCH).iter().map(|value| (IF_NONE_MATCH, value.clone())));
        self.body = Bytes::new();
        self.held.bytes.release();
        self.held.slot.release();
    }

    /// After the wait. The request may have been given jobs, so it gets a slot even where none is free.
    pub(crate) fn end_wait(&mut self, waiting: WaitingPlace) {
        drop(waiting);
        self.held.slot.grow_anyway(1);
    }

    /// The place of a stream, which holds no request slot while it is open.
    pub(crate) fn open_stream(&self) -> Result<Charge, Full> {
        self.budgets.streams.take(self.held.holder, Priority::Ordinary, 1)
    }

    /// The queue of the URL, if the caller's scope covers it; to anyone else it does not exist.
    pub(crate) fn queue(&self) -> Result<&str, Problem> {
        let name = self.parameter("queue");
        self.covers(name)?;
        Ok(name)
    }

    /// Does the caller's scope cover the queue? To anyone else it does not exist.
    pub(crate) fn covers(&self, name: &str) -> Result<(), Problem> {
        let is_covered = match &self.reach {
            Reach::Everything | Reach::Namespace(_) => true,
            Reach::Queues(_, names) => names.iter().any(|known| known == name),
        };
        if is_covered && is_name(name) { Ok(()) } else { Err(Problem::queue_not_found(name)) }
    }

    /// The same for publishing, which the table of system queues may allow.
    pub(crate) fn queue_to_publish(&self) -> Result<&str, Problem> {
        match system_queue(self.parameter("queue")) {
            Some(own) if own.users_may_publish => self.tended_queue(),
            _ => self.queue(),
        }
    }

    /// The same where a system queue may be meant: it can be looked at and tended, not pulled from or deleted.
    pub(crate) fn tended_queue(&self) -> Result<&str, Problem> {
        match system_queue(self.parameter("queue")) {
            Some(own) if !matches!(self.reach, Reach::Queues(..)) => Ok(own.name),
            _ => self.queue(),
        }
    }

    /// The job of the URL. Text that is no id names no job.
    pub(crate) fn job(&self) -> Result<JobId, Problem> {
        self.parameter("id").parse().map_err(|_| Problem::job_not_found())
    }

    pub(crate) fn read(&self, object: &'static Object) -> Result<Values<'_>, Problem> {
        read(object, &self.body).map_err(Problem::invalid)
    }

    /// The body of an upload; empty when it was taken before.
    pub(crate) fn take_upload(&self) -> Body {
        std::mem::take(&mut self.upload.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A header that is not text reads as empty. No header may be empty, so the request is refused; the header never
    /// counts as absent.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap_or_default())
    }
}
