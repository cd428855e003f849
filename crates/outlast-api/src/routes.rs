//! Every URL on one screen: method, path, the scope it needs, what it reads, who answers. The router, the OpenAPI
//! document and the authorisation matrix are all made from this table; a route without a scope does not compile.

use std::pin::Pin;

use axum::response::Response;
use http::Method;
use outlast_engine::keys::scope::Word;
use outlast_engine::keys::token::Can;

use crate::budget::Priority;
use crate::error::Problem;
use crate::request::RequestContext;
use crate::schema::{Field, Object};
use crate::{
    checkpoint, dead_letters, dev_clock, events, fields, health, jobs, keys, objects, openapi, operations, outcome,
    publish, queues, receive, reload, results, simple, stream, token, welcome, work, workers, ws,
};

/// The credential that a caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    Scope(Word),
}

/// How large a body may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A few settings, or nothing.
    Small,
    Job,
    Batch,
}

/// A body that belongs to the user as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw {
    /// Any JSON.
    Json,
    /// Anything, of any length; it is never held in memory as a whole.
    Bytes,
}

/// The body of a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Nothing,
    /// JSON of the user's own.
    Anything,
    /// A schema of `openapi::schemas`.
    Named(&'static str),
    Metrics,
    /// For people: HTML or plain text.
    Page,
    /// Server-sent events.
    Stream,
    /// Bytes that a user stored.
    Bytes,
}

/// A status that is not a problem, what it means and what it brings.
pub type Success = (u16, &'static str, Shape);

type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

pub struct Route {
    /// Its name for generated clients, a verb and a noun. It never changes.
    pub operation: &'static str,
    pub method: Method,
    pub path: &'static str,
    pub need: Need,
    /// Another scope that is as good: a worker reads what earlier attempts have left for it.
    pub also_by: Option<Word>,
    /// The capability that a token to the job needs; `None`: tokens are refused.
    pub token: Option<Can>,
    pub body: Option<&'static Object>,
    pub query: &'static [Field],
    pub size: Size,
    /// A body that is no object of ours.
    pub raw: Option<Raw>,
    /// Headers with a meaning of ours.
    pub headers: &'static [Field],
    /// The usual success first.
    pub answer: Success,
    pub also: &'static [Success],
    pub summary: &'static str,
    /// Vital: it keeps the lease of a living worker, says how the work went, or shows why the server refuses the rest.
    pub priority: Priority,
    pub(crate) handler: fn(RequestContext) -> HandlerFuture,
}

macro_rules! handler {
    ($function:path) => {
        |request| Box::pin($function(request))
    };
}

const OPEN: Need = Need::Nothing;
const PUBLISH: Need = Need::Scope(Word::Publish);
const CONSUME: Need = Need::Scope(Word::Consume);
const READ: Need = Need::Scope(Word::Read);
const MANAGE: Need = Need::Scope(Word::Manage);
const ADMIN: Need = Need::Scope(Word::Admin);

/// A route without body and query.
#[expect(clippy::too_many_arguments, reason = "a line of the table of routes names all of them")]
const fn plain(
    operation: &'static str,
    method: Method,
    path: &'static str,
    need: Need,
    answer: (u16, &'static str, Shape),
    handler: fn(RequestContext) -> HandlerFuture,
) -> Route {
    Route {
        operation,
        method,
        path,
        need,
        also_by: None,
        token: None,
        body: None,
        query: fields::NOTHING,
        size: Size::Small,
        raw: None,
        headers: fields::NOTHING,
        answer,
        also: &[],
        summary: answer.1,
        priority: Priority::Ordinary,
        handler,
    }
}

impl Route {
    const fn reads(mut self, body: &'static Object, size: Size) -> Route {
        self.body = Some(body);
        self.size = size;
        self
    }

    const fn takes(mut self, raw: Raw) -> Route {
        self.raw = Some(raw);
        self.size = Size::Job;
        self
    }

    const fn sized(mut self, size: Size) -> Route {
        self.size = size;
        self
    }

    const fn asks(mut self, query: &'static [Field]) -> Route {
        self.query = query;
        self
    }

    const fn headers(mut self, headers: &'static [Field]) -> Route {
        self.headers = headers;
        self
    }

    const fn or_by(mut self, word: Word) -> Route {
        self.also_by = Some(word);
        self
    }

    /// Answers to a token as well. Only for routes that name one job, as `{id}`.
    const fn by_token(mut self, can: Can) -> Route {
        self.token = Some(can);
        self
    }

    const fn vital(mut self) -> Route {
        self.priority = Priority::Vital;
        self
    }

    const fn or(mut self, also: &'static [Success]) -> Route {
        self.also = also;
        self
    }
}

const QUEUE: Shape = Shape::Named("Queue");
const JOB: Shape = Shape::Named("Job");
const JOBS: Shape = Shape::Named("JobPage");
const REPORTED: Shape = Shape::Named("ReportResult");
const OPERATION: Shape = Shape::Named("Operation");
const HEALTH: Shape = Shape::Named("Health");

const PARTS: &[Success] =
    &[(206, "the part that a Range asked for", Shape::Bytes), (416, "the Range lies behind the end", Shape::Nothing)];

const PUBLISHED_BEFORE: &[Success] =
    &[(200, "the key has this job already, or the job is finished within the wait", Shape::Named("PublishResult"))];

/// Only of `outlast dev --clock manual`; not in the OpenAPI document.
pub static DEV_ROUTES: &[Route] = &[plain(
    "advanceClock",
    Method::POST,
    "/v1/dev/clock",
    ADMIN,
    (200, "moves the clock", Shape::Anything),
    handler!(dev_clock::advance),
)
.reads(&fields::ADVANCE_CLOCK, Size::Small)];

#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    plain("createQueue",          Method::POST,   "/v1/queues",                        MANAGE,  (201, "creates a queue", QUEUE),                                        handler!(queues::create)).reads(&fields::QUEUE_NEW, Size::Small),
    plain("listQueues",           Method::GET,    "/v1/queues",                        READ,    (200, "lists queues by name", Shape::Named("QueuePage")),               handler!(queues::list)).asks(fields::PAGE),
    plain("putQueue",             Method::PUT,    "/v1/queues/{queue}",                MANAGE,  (200, "creates or replaces a queue", QUEUE),                            handler!(queues::put)).reads(&fields::QUEUE, Size::Small).headers(fields::MATCH_HEADERS).or(&[(201, "it did not exist before", QUEUE)]),
    plain("updateQueue",          Method::PATCH,  "/v1/queues/{queue}",                MANAGE,  (200, "changes settings of a queue", QUEUE),                            handler!(queues::patch)).reads(&fields::QUEUE_PATCH, Size::Small).headers(fields::MATCH_HEADERS),
    plain("getQueue",             Method::GET,    "/v1/queues/{queue}",                READ,    (200, "shows a queue with its counts", QUEUE),                          handler!(queues::show)),
    plain("deleteQueue",          Method::DELETE, "/v1/queues/{queue}",                MANAGE,  (204, "deletes a queue", Shape::Nothing),                               handler!(queues::delete)).asks(fields::DELETE_QUEUE).or(&[(202, "with force: its jobs go first", OPERATION)]),
    plain("pauseQueue",           Method::POST,   "/v1/queues/{queue}/pause",          MANAGE,  (200, "stops handing out jobs", QUEUE),                                 handler!(queues::pause)),
    plain("resumeQueue",          Method::POST,   "/v1/queues/{queue}/resume",         MANAGE,  (200, "hands out jobs again", QUEUE),                                   handler!(queues::resume)),
    plain("rotateQueueSecret",    Method::POST,   "/v1/queues/{queue}/rotate-secret",  MANAGE,  (200, "makes a new signing secret, shown this once", Shape::Named("RotatedSecret")), handler!(queues::rotate_secret)).reads(&fields::ROTATE, Size::Small),
    plain("purgeQueue",           Method::POST,   "/v1/queues/{queue}/purge",          MANAGE,  (202, "cancels all waiting jobs", OPERATION),                           handler!(operations::purge)),
    plain("publishJob",           Method::POST,   "/v1/queues/{queue}/jobs",           PUBLISH, (202, "publishes a job", Shape::Named("PublishedJob")),                    handler!(publish::one)).reads(&fields::PUBLISH, Size::Job).headers(fields::PUBLISH_HEADERS).or(PUBLISHED_BEFORE),
    plain("publishJobs",          Method::POST,   "/v1/queues/{queue}/jobs/batch",     PUBLISH, (202, "publishes jobs in one commit", Shape::Named("PublishedJobBatch")),  handler!(publish::batch)).reads(&fields::PUBLISH_BATCH, Size::Batch),
    plain("receiveJobs",          Method::POST,   "/v1/queues/{queue}/receive",        CONSUME, (200, "hands out jobs to a puller", Shape::Named("ReceivedJobs")),          handler!(receive::receive)).reads(&fields::RECEIVE, Size::Small),
    plain("receiveFromQueues",    Method::POST,   "/v1/receive",                       CONSUME, (200, "hands out jobs of several queues", Shape::Named("ReceivedJobs")),  handler!(receive::several)).reads(&fields::RECEIVE_SEVERAL, Size::Small),
    plain("listWorkers",          Method::GET,    "/v1/workers",                       READ,    (200, "lists the workers that ask for jobs", Shape::Named("WorkerList")), handler!(workers::list)),
    plain("streamQueue",          Method::GET,    "/v1/queues/{queue}/stream",         READ,    (200, "what changes in a queue, as server-sent events", Shape::Stream), handler!(stream::queue)),
    plain("listDeadLetters",      Method::GET,    "/v1/queues/{queue}/dead",           READ,    (200, "lists dead letters", JOBS),                                      handler!(dead_letters::list)).asks(fields::PAGE),
    plain("replayDeadLetters",    Method::POST,   "/v1/queues/{queue}/dead/replay",    MANAGE,  (202, "replays dead letters in bulk", OPERATION),                       handler!(dead_letters::replay)).reads(&fields::DEAD_REPLAY, Size::Small).or(&[(200, "a dry run: only counted", Shape::Named("ReplayDryRun"))]),
    plain("discardDeadLetters",   Method::DELETE, "/v1/queues/{queue}/dead",           MANAGE,  (202, "deletes all dead letters", OPERATION),                           handler!(dead_letters::discard)),

    plain("listJobs",             Method::GET,    "/v1/jobs",                          READ,    (200, "lists jobs, newest first", JOBS),                                handler!(jobs::list)).asks(fields::LIST_JOBS),
    plain("waitForJobs",          Method::POST,   "/v1/jobs/wait",                     READ,    (200, "waits until one of several jobs changes", Shape::Named("ChangedJobs")), handler!(jobs::wait)).reads(&fields::JOBS_WAIT, Size::Batch),
    plain("getJob",               Method::GET,    "/v1/jobs/{id}",                     READ,    (200, "shows a job; long-polls with wait", JOB),                        handler!(jobs::show)).asks(fields::JOB_WAIT).headers(fields::SEEN_HEADERS).or(&[(304, "the job has not changed since it was read", Shape::Nothing), (410, "the job, whose result has expired and was deleted", JOB)]).by_token(Can::Read),
    plain("deleteJob",            Method::DELETE, "/v1/jobs/{id}",                     MANAGE,  (200, "cancels a job", JOB),                                            handler!(jobs::cancel)).by_token(Can::Cancel),
    plain("listJobEvents",        Method::GET,    "/v1/jobs/{id}/events",              READ,    (200, "the job's log, oldest first", Shape::Named("JobEventPage")),           handler!(jobs::events)).asks(fields::EVENTS).by_token(Can::Read),
    plain("streamJob",            Method::GET,    "/v1/jobs/{id}/stream",              READ,    (200, "the job's log as server-sent events, live to its end", Shape::Stream), handler!(stream::job)).asks(fields::STREAM).headers(fields::STREAM_HEADERS).or(&[(204, "the job is finished, and nothing came after that event", Shape::Nothing)]).by_token(Can::Read),
    plain("openJobSocket",        Method::GET,    "/v1/jobs/{id}/ws",                  READ,    (101, "the same over a WebSocket, which also takes {\"type\":\"cancel\"}", Shape::Nothing), handler!(ws::job)).asks(fields::SOCKET).by_token(Can::Read),
    plain("getResult",            Method::GET,    "/v1/jobs/{id}/result",              READ,    (200, "the job's inline result", Shape::Anything),                      handler!(results::show)).or(&[(307, "to where the uploaded result is, for some minutes", Shape::Nothing)]).by_token(Can::Download),
    plain("cancelJob",            Method::POST,   "/v1/jobs/{id}/cancel",              MANAGE,  (200, "cancels a job", JOB),                                            handler!(jobs::cancel)).by_token(Can::Cancel),
    plain("createJobToken",       Method::POST,   "/v1/jobs/{id}/token",               READ,    (201, "makes a token to this job, for a browser", Shape::Named("Token")), handler!(token::create)).reads(&fields::TOKEN, Size::Small),
    plain("replayJob",            Method::POST,   "/v1/jobs/{id}/replay",              MANAGE,  (200, "starts a dead letter again", JOB),                        handler!(jobs::replay)).reads(&fields::REPLAY, Size::Job),
    plain("heartbeatJob",         Method::POST,   "/v1/jobs/{id}/heartbeat",           CONSUME, (200, "keeps the lease of a job that is being worked on", Shape::Named("HeartbeatResult")), handler!(work::heartbeat)).reads(&fields::HEARTBEAT, Size::Job).headers(fields::LEASE_HEADERS).vital(),
    plain("reportProgress",       Method::PUT,    "/v1/jobs/{id}/progress",            CONSUME, (200, "says how far the work is", Shape::Named("ProgressResult")),    handler!(work::progress)).reads(&fields::PROGRESS, Size::Small).headers(fields::LEASE_HEADERS).vital(),
    plain("appendOutput",         Method::POST,   "/v1/jobs/{id}/output",              CONSUME, (200, "appends text to the job's log", Shape::Named("OutputResult")), handler!(work::output)).reads(&fields::OUTPUT, Size::Job).headers(fields::LEASE_HEADERS).vital(),
    plain("setDirectives",        Method::POST,   "/v1/jobs/{id}/directives",          MANAGE,  (200, "tells the worker something at its next heartbeat", REPORTED),    handler!(work::direct)).reads(&fields::DIRECTIVES, Size::Small),
    plain("saveCheckpoint",       Method::PUT,    "/v1/jobs/{id}/checkpoint",          CONSUME, (200, "keeps where the next attempt goes on from", REPORTED),           handler!(checkpoint::put)).reads(&fields::CHECKPOINT, Size::Job).headers(fields::LEASE_HEADERS).vital(),
    plain("getCheckpoint",        Method::GET,    "/v1/jobs/{id}/checkpoint",          READ,    (200, "the last checkpoint", Shape::Named("Checkpoint")),               handler!(checkpoint::show)).or_by(Word::Consume),
    plain("listSections",         Method::GET,    "/v1/jobs/{id}/sections",            READ,    (200, "the finished sections by name", Shape::Named("SectionPage")),    handler!(checkpoint::sections)).asks(fields::PAGE).or_by(Word::Consume),
    plain("getSection",           Method::GET,    "/v1/jobs/{id}/sections/{name}",     READ,    (200, "one finished section", Shape::Anything),                         handler!(checkpoint::section)).or_by(Word::Consume),
    plain("saveSection",          Method::PUT,    "/v1/jobs/{id}/sections/{name}",     CONSUME, (200, "keeps one finished section", REPORTED),                          handler!(checkpoint::put_section)).takes(Raw::Json).headers(fields::LEASE_HEADERS).vital(),
    plain("uploadCheckpoint",     Method::PUT,    "/v1/jobs/{id}/checkpoint/blob",     CONSUME, (200, "keeps a checkpoint of any length", REPORTED),                    handler!(objects::put_checkpoint)).takes(Raw::Bytes).asks(fields::CHECKPOINT_BLOB).headers(fields::LEASE_HEADERS).vital(),
    plain("downloadCheckpoint",   Method::GET,    "/v1/jobs/{id}/checkpoint/blob",     READ,    (200, "the bytes of the last checkpoint", Shape::Bytes),                handler!(objects::checkpoint)).or(PARTS).or_by(Word::Consume),
    plain("uploadResult",         Method::PUT,    "/v1/jobs/{id}/result",              CONSUME, (201, "uploads the result, of any length", Shape::Named("UploadedResult")),   handler!(results::put)).takes(Raw::Bytes).asks(fields::RESULT_NAME).headers(fields::LEASE_HEADERS).vital(),
    plain("createUpload",         Method::POST,   "/v1/jobs/{id}/result/upload",       CONSUME, (201, "links to upload the result with", Shape::Named("UploadLinks")),       handler!(results::begin)).reads(&fields::UPLOAD, Size::Small).headers(fields::LEASE_HEADERS).vital(),
    plain("finalizeUpload",       Method::POST,   "/v1/jobs/{id}/result/finalize",     CONSUME, (201, "what was uploaded becomes the result", Shape::Named("UploadedResult")), handler!(results::finalize)).reads(&fields::FINALIZE, Size::Job).headers(fields::LEASE_HEADERS).vital(),
    plain("downloadObject",       Method::GET,    "/v1/objects/{link}",                OPEN,    (200, "the bytes that a link leads to", Shape::Bytes),                  handler!(objects::get)).or(PARTS),
    plain("uploadObject",         Method::PUT,    "/v1/objects/{link}",                OPEN,    (200, "takes the bytes of an upload", Shape::Named("UploadedBytes")),           handler!(objects::put)).takes(Raw::Bytes),
    plain("ackJob",               Method::POST,   "/v1/jobs/{id}/ack",                 CONSUME, (200, "the work is done", REPORTED),                                    handler!(outcome::ack)).reads(&fields::ACK, Size::Job).headers(fields::LEASE_HEADERS).vital(),
    plain("nackJob",              Method::POST,   "/v1/jobs/{id}/nack",                CONSUME, (200, "the work failed", REPORTED),                                     handler!(outcome::nack)).reads(&fields::NACK, Size::Small).headers(fields::LEASE_HEADERS).vital(),
    plain("deferJob",             Method::POST,   "/v1/jobs/{id}/defer",               CONSUME, (200, "not now; no attempt is charged", REPORTED),                      handler!(outcome::defer)).reads(&fields::DEFER, Size::Small).headers(fields::LEASE_HEADERS).vital(),
    plain("releaseJob",           Method::POST,   "/v1/jobs/{id}/release",             CONSUME, (200, "handed back at once, free", REPORTED),                           handler!(outcome::release)).reads(&fields::RELEASE, Size::Small).headers(fields::LEASE_HEADERS).vital(),
    plain("confirmCancel",        Method::POST,   "/v1/jobs/{id}/cancelled",           CONSUME, (200, "a requested cancel was carried out", REPORTED),                  handler!(outcome::cancelled)).reads(&fields::CONFIRM, Size::Small).headers(fields::LEASE_HEADERS).vital(),
    plain("reportOutcomes",       Method::POST,   "/v1/outcomes",                      CONSUME, (200, "outcomes of several jobs", Shape::Named("ReportResults")),       handler!(outcome::batch)).reads(&fields::OUTCOMES, Size::Batch).vital(),
    plain("heartbeatJobs",        Method::POST,   "/v1/heartbeats",                    CONSUME, (200, "heartbeats of many jobs", Shape::Named("HeartbeatResults")),           handler!(work::heartbeats)).reads(&fields::HEARTBEATS, Size::Batch).vital(),
    plain("reportProgressBatch",  Method::POST,   "/v1/progress",                      CONSUME, (200, "progress of many jobs", Shape::Named("ProgressResults")),  handler!(work::reports)).reads(&fields::PROGRESS_BATCH, Size::Batch).vital(),

    plain("sendEvent",            Method::POST,   "/events/{source}/{type}",           PUBLISH, (200, "an event of your own program", Shape::Named("InboundEventReceipt")),      handler!(events::send)).takes(Raw::Json).sized(Size::Batch).headers(fields::EVENT_HEADERS),
    plain("listEvents",           Method::GET,    "/v1/events",                        READ,    (200, "lists events of sources, newest first", Shape::Named("InboundEventPage")), handler!(events::list)).asks(fields::LIST_EVENTS),
    plain("getEvent",             Method::GET,    "/v1/events/{id}",                   READ,    (200, "shows an event with its payload", Shape::Named("InboundEvent")),  handler!(events::show)),
    plain("replayEvent",          Method::POST,   "/v1/events/{id}/replay",            MANAGE,  (202, "makes jobs of an event again", Shape::Named("InboundEventReplay")),   handler!(events::replay)).reads(&fields::REPLAY_EVENT, Size::Small),

    plain("listOperations",       Method::GET,    "/v1/operations",                    READ,    (200, "lists operations, newest first", Shape::Named("OperationPage")), handler!(operations::list)).asks(fields::NEWEST),
    plain("getOperation",         Method::GET,    "/v1/operations/{id}",               READ,    (200, "shows an operation", OPERATION),                                 handler!(operations::show)),
    plain("stopOperation",        Method::POST,   "/v1/operations/{id}/stop",          MANAGE,  (200, "stops an operation where it is", OPERATION),                     handler!(operations::stop)),

    plain("createKey",            Method::POST,   "/v1/keys",                          ADMIN,   (201, "makes a key, shown this once", Shape::Named("IssuedKey")),       handler!(keys::create)).reads(&fields::KEY, Size::Small),
    plain("listKeys",             Method::GET,    "/v1/keys",                          ADMIN,   (200, "lists keys without their text", Shape::Named("KeyPage")),        handler!(keys::list)).asks(fields::PAGE),
    plain("revokeKey",            Method::DELETE, "/v1/keys/{id}",                     ADMIN,   (200, "revokes a key", Shape::Named("Key")),                            handler!(keys::revoke)).asks(fields::REVOKE_KEY),

    plain("reloadConfiguration",  Method::POST,   "/v1/reload",                        ADMIN,   (200, "reads the configuration file again", Shape::Named("ReloadResult")),  handler!(reload::reload)),

    plain("listSimpleQueues",     Method::GET,    "/api/queues",                       CONSUME, (200, "simple form: lists pull queues", Shape::Named("SimpleQueues")),  handler!(simple::queues)),
    plain("receiveMessages",      Method::GET,    "/api/queues/{queue}/messages",      CONSUME, (200, "simple form: takes messages", Shape::Named("SimpleMessages")),         handler!(simple::messages)).asks(fields::MESSAGES),
    plain("ackMessages",          Method::POST,   "/api/queues/{queue}/ack",           CONSUME, (200, "simple form: messages are done", Shape::Named("SimpleAckResult")),         handler!(simple::ack)).reads(&fields::SIMPLE_IDS, Size::Batch).vital(),
    plain("nackMessages",         Method::POST,   "/api/queues/{queue}/nack",          CONSUME, (200, "simple form: messages failed", Shape::Named("SimpleNackResult")),          handler!(simple::nack)).reads(&fields::SIMPLE_IDS, Size::Batch).vital(),

    plain("getWelcomePage",       Method::GET,    "/",                                 OPEN,    (200, "a page for people who open this address in a browser", Shape::Page), handler!(welcome::show)),
    plain("getHealth",            Method::GET,    "/healthz",                          OPEN,    (200, "the process is alive", HEALTH),                                  handler!(health::alive)),
    plain("getLiveness",          Method::GET,    "/livez",                            OPEN,    (200, "the process is alive", HEALTH),                                  handler!(health::alive)),
    plain("getReadiness",         Method::GET,    "/readyz",                           OPEN,    (200, "the store answers and we are not draining", HEALTH),             handler!(health::ready)),
    plain("getMetrics",           Method::GET,    "/metrics",                          READ,    (200, "metrics as Prometheus text or OpenMetrics", Shape::Metrics),                                   handler!(health::alive)).vital(),
    plain("getOpenapi",           Method::GET,    "/openapi.json",                     OPEN,    (200, "this API as OpenAPI 3.1", Shape::Anything),                      handler!(openapi::show)),
];
