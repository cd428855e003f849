# @generated from docs/reference/openapi.json by scripts/make_wire.py; do not change it here.
# ruff: noqa: E501
"""The objects of the API as the server sends and takes them, with the wire's names."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

Status = Literal["pending", "queued", "running", "succeeded", "failed", "cancelled", "expired"]


class _PublishedJobRequired(TypedDict):
    id: str
    queue: str
    status: Status
    createdAt: str
    statusUrl: str
    streamUrl: str
    cancelUrl: str
    duplicate: bool
    dedupeBy: Literal["key", "payload"]


class PublishedJob(_PublishedJobRequired, total=False):
    payloadMismatch: bool


class PublishedJobBatch(TypedDict):
    jobs: list[dict[str, Any]]


class _JobSummaryRequired(TypedDict):
    id: str
    queue: str
    status: Status
    replays: int
    attempt: int
    maxAttempts: int
    deferCount: int
    version: int
    priority: int
    key: Union[str, None]
    tags: dict[str, str]
    idempotencyKey: Union[str, None]
    progress: Union[Progress, None]
    checkpoint: Union[dict[str, Any], None]
    resultUrl: Union[str, None]
    resultMeta: Union[dict[str, Any], None]
    error: Union[dict[str, Any], None]
    lastError: Union[str, None]
    createdAt: str
    queuedAt: Union[str, None]
    startedAt: Union[str, None]
    finishedAt: Union[str, None]
    scheduledFor: Union[str, None]
    pendingReason: Union[str, None]
    cancelReason: Union[str, None]
    callback: Union[dict[str, Any], None]
    pipeline: Union[dict[str, Any], None]


class JobSummary(_JobSummaryRequired, total=False):
    runningPhase: Literal["delivering", "awaiting_ack", "leased"]
    leaseExpiresAt: str
    lastHeartbeatAt: Union[str, None]
    cancelRequested: bool
    worker: Union[str, None]
    liveness: Literal["working", "slow", "stuck", "dead"]
    stalled: bool


class _JobRequired(TypedDict):
    id: str
    queue: str
    status: Status
    replays: int
    attempt: int
    maxAttempts: int
    deferCount: int
    version: int
    priority: int
    key: Union[str, None]
    tags: dict[str, str]
    idempotencyKey: Union[str, None]
    progress: Union[Progress, None]
    checkpoint: Union[dict[str, Any], None]
    resultUrl: Union[str, None]
    resultMeta: Union[dict[str, Any], None]
    error: Union[dict[str, Any], None]
    lastError: Union[str, None]
    createdAt: str
    queuedAt: Union[str, None]
    startedAt: Union[str, None]
    finishedAt: Union[str, None]
    scheduledFor: Union[str, None]
    pendingReason: Union[str, None]
    cancelReason: Union[str, None]
    callback: Union[dict[str, Any], None]
    pipeline: Union[dict[str, Any], None]
    payload: Any
    events: list[JobEvent]
    transitions: list[JobEvent]
    attempts: list[JobEvent]


class Job(_JobRequired, total=False):
    runningPhase: Literal["delivering", "awaiting_ack", "leased"]
    leaseExpiresAt: str
    lastHeartbeatAt: Union[str, None]
    cancelRequested: bool
    worker: Union[str, None]
    liveness: Literal["working", "slow", "stuck", "dead"]
    stalled: bool


class JobEvent(TypedDict):
    """One entry of a job's log. The other members depend on the type."""

    seq: int
    at: str
    type: Literal["state", "attempt", "checkpoint", "output", "result", "callback", "note"]


class JobEventPage(TypedDict):
    items: list[JobEvent]
    nextAfter: int


class ChangedJobs(TypedDict):
    jobs: list[Union[JobSummary, dict[str, Any]]]


class WorkerList(TypedDict):
    items: list[dict[str, Any]]
    complete: bool


class ReceivedJobs(TypedDict):
    jobs: list[ReceivedJob]


class ReceivedJob(TypedDict):
    id: str
    queue: str
    mode: Literal["standard", "ack", "pull"]
    lease: str
    leaseExpiresAt: str
    deadline: Union[str, None]
    key: Union[str, None]
    tags: dict[str, str]
    heartbeatTimeout: Union[float, None]
    drainTimeout: float
    attempt: int
    maxAttempts: int
    deferCount: int
    replays: int
    createdAt: str
    checkpoint: Union[Checkpoint, None]
    checkpointIncompatible: bool
    sections: list[str]
    softTimeLimit: Union[float, None]
    hardTimeLimit: Union[float, None]
    traceparent: Union[str, None]
    payload: Any


class ReportResult(TypedDict):
    id: str
    accepted: Any
    status: Status
    version: int


class HeartbeatResult(TypedDict):
    id: str
    accepted: Any
    leaseExpiresAt: Union[str, None]
    deadline: Union[str, None]
    directives: list[Literal["cancel", "checkpoint_now", "hand_over", "slow_down"]]
    cancelRequested: bool
    softLimitReached: bool


class ReportResults(TypedDict):
    results: list[Union[ReportResult, dict[str, Any]]]


class HeartbeatResults(TypedDict):
    results: list[Union[HeartbeatResult, dict[str, Any]]]


class ProgressResults(TypedDict):
    results: list[Union[ProgressResult, dict[str, Any]]]


class InboundEventReceipt(TypedDict):
    event_id: str
    duplicate: bool
    jobs_created: int


class InboundEventPage(TypedDict):
    items: list[dict[str, Any]]
    nextCursor: Union[str, None]


class InboundEvent(TypedDict):
    id: str
    source: str
    type: str
    providerEventId: Union[str, None]
    receivedAt: str
    jobsCreated: int
    headers: dict[str, str]
    payload: Any


class ReloadResult(TypedDict):
    sources: int
    queues: int
    needsRestart: list[str]


class InboundEventReplay(TypedDict):
    event_id: str
    jobs: list[dict[str, Any]]


class Progress(TypedDict):
    pct: Union[float, None]
    stage: Union[str, None]
    stagePct: Union[float, None]
    stagesDone: Union[int, None]
    stagesTotal: Union[int, None]
    itemsDone: Union[int, None]
    itemsTotal: Union[int, None]
    message: Union[str, None]
    startedAt: str
    at: str
    eta: Union[str, None]


class ProgressResult(TypedDict):
    id: str
    accepted: Any
    progress: Progress


class OutputResult(TypedDict):
    id: str
    accepted: Any
    status: Status
    version: int
    seq: Union[int, None]


class UploadedResult(TypedDict):
    id: str
    accepted: Any
    length: int
    sha256: str
    filename: Union[str, None]
    contentType: Union[str, None]
    version: int


class UploadLinks(TypedDict):
    uploadId: str
    method: Any
    url: str
    parts: list[dict[str, Any]]
    expiresAt: str
    headers: dict[str, str]


class UploadedBytes(TypedDict):
    length: int
    sha256: str


class Checkpoint(TypedDict):
    schemaVersion: int
    data: Any
    length: int
    at: str
    replays: int
    attempt: int
    blobUrl: Union[str, None]
    sha256: Union[str, None]


class SectionPage(TypedDict):
    items: list[dict[str, Any]]
    nextCursor: Union[str, None]


class Operation(TypedDict):
    id: str
    kind: Literal["replay", "purge", "discard", "delete"]
    queue: str
    status: Literal["running", "done", "stopped", "stuck"]
    processed: int
    skipped: int
    limit: Union[int, None]
    ratePerSecond: Union[int, None]
    createdAt: str
    finishedAt: Union[str, None]


class ReplayDryRun(TypedDict):
    dryRun: Any
    matched: int


class Key(TypedDict):
    id: str
    prefix: str
    name: str
    namespace: str
    scopes: list[str]
    createdAt: str
    expiresAt: Union[str, None]
    revokedAt: Union[str, None]


class RotatedSecret(TypedDict):
    queue: str
    signingSecret: str
    previousValidUntil: Union[str, None]
    version: int


class Delivery(TypedDict):
    id: str
    queue: str
    mode: Literal["standard", "ack", "pull"]
    key: Union[str, None]
    tags: dict[str, str]
    deadline: Union[str, None]
    webhookTimeout: float
    heartbeatTimeout: Union[float, None]
    drainTimeout: float
    checkpoint: Union[Checkpoint, None]
    sections: list[str]
    payload: Any
    attempt: int
    maxAttempts: int
    deferCount: int
    replays: int
    createdAt: str
    lease: str
    leaseExpiresAt: str


class _CallbackRequired(TypedDict):
    id: str
    queue: str
    status: Status
    replays: int
    error: Union[dict[str, Any], None]
    finishedAt: str


class Callback(_CallbackRequired, total=False):
    result: Any
    resultUrl: str


class IssuedKey(TypedDict):
    id: str
    prefix: str
    name: str
    namespace: str
    scopes: list[str]
    createdAt: str
    expiresAt: Union[str, None]
    revokedAt: Union[str, None]
    key: str


class Token(TypedDict):
    token: str
    can: list[Literal["read", "watch", "output", "cancel", "download"]]
    expiresAt: str
    statusUrl: str
    streamUrl: str


class Health(TypedDict):
    status: str


class SimpleMessages(TypedDict):
    messages: list[dict[str, Any]]


class SimpleQueues(TypedDict):
    queues: list[dict[str, Any]]


class SimpleAckResult(TypedDict):
    acked: int


class SimpleNackResult(TypedDict):
    retried: int
    dead: int


class _QueueRequired(TypedDict):
    template: Union[Literal["anthropic", "openai", "report", "transcode", "webhook"], None]
    mode: Literal["standard", "ack", "pull"]
    allowPull: bool
    webhookUrl: Union[str, None]
    headers: dict[str, str]
    webhookTimeout: float
    maxAttempts: int
    backoff: dict[str, Any]
    ackTimeout: float
    ackTimeoutAction: Literal["retry", "dead"]
    visibilityTimeout: float
    heartbeatTimeout: Union[float, None]
    stallTimeout: float
    stallAction: Literal["flag", "retry"]
    softTimeLimit: Union[float, None]
    hardTimeLimit: Union[float, None]
    jobTimeout: Union[float, None]
    extendWhileProgressing: bool
    keepCheckpoints: bool
    drainTimeout: float
    maxDeferrals: int
    maxAge: float
    backpressureScope: Literal["queue", "job"]
    backpressureDelay: float
    rateLimit: Union[dict[str, Any], None]
    concurrency: Union[int, None]
    resultTtl: float
    retention: float
    dedupe: Literal["always", "unless_failed"]
    dedupeWindow: Union[float, None]
    dedupeBy: Literal["key", "payload"]
    fencing: Literal["optional", "required"]
    signatureHeader: str
    name: str
    paused: bool
    hold: Union[dict[str, Any], None]
    version: int
    createdAt: str
    updatedAt: str
    counts: dict[str, Any]
    declared: Union[dict[str, Any], None]


class Queue(_QueueRequired, total=False):
    signingSecret: str


class QueuePage(TypedDict):
    """A page may be short or empty while nextCursor is set: follow it to the end."""

    items: list[Queue]
    nextCursor: Union[str, None]


class JobPage(TypedDict):
    """A page may be short or empty while nextCursor is set: follow it to the end."""

    items: list[JobSummary]
    nextCursor: Union[str, None]


class OperationPage(TypedDict):
    """A page may be short or empty while nextCursor is set: follow it to the end."""

    items: list[Operation]
    nextCursor: Union[str, None]


class KeyPage(TypedDict):
    """A page may be short or empty while nextCursor is set: follow it to the end."""

    items: list[Key]
    nextCursor: Union[str, None]


class _NewQueueRequired(TypedDict):
    name: str


class NewQueue(_NewQueueRequired, total=False):
    """A queue to be created: a name, and settings."""

    template: Union[Literal["anthropic", "openai", "report", "transcode", "webhook"], None]
    mode: Literal["standard", "ack", "pull"]
    allowPull: bool
    webhookUrl: Union[str, None]
    headers: dict[str, str]
    webhookTimeout: Union[float, str]
    maxAttempts: int
    backoff: dict[str, Any]
    ackTimeout: Union[float, str]
    ackTimeoutAction: Literal["retry", "dead"]
    visibilityTimeout: Union[float, str]
    heartbeatTimeout: Union[Union[float, str], None]
    stallTimeout: Union[float, str]
    stallAction: Literal["flag", "retry"]
    softTimeLimit: Union[Union[float, str], None]
    hardTimeLimit: Union[Union[float, str], None]
    jobTimeout: Union[Union[float, str], None]
    extendWhileProgressing: bool
    keepCheckpoints: bool
    drainTimeout: Union[float, str]
    maxDeferrals: int
    maxAge: Union[float, str]
    backpressureScope: Literal["queue", "job"]
    backpressureDelay: Union[float, str]
    rateLimit: Union[dict[str, Any], None]
    concurrency: Union[int, None]
    resultTtl: Union[float, str]
    retention: Union[float, str]
    dedupe: Literal["always", "unless_failed"]
    dedupeWindow: Union[Union[float, str], None]
    dedupeBy: Literal["key", "payload"]
    fencing: Literal["optional", "required"]
    signatureHeader: str
    signingSecret: str


class QueueSettings(TypedDict, total=False):
    """Settings of a queue; what is left out has its default."""

    template: Union[Literal["anthropic", "openai", "report", "transcode", "webhook"], None]
    mode: Literal["standard", "ack", "pull"]
    allowPull: bool
    webhookUrl: Union[str, None]
    headers: dict[str, str]
    webhookTimeout: Union[float, str]
    maxAttempts: int
    backoff: dict[str, Any]
    ackTimeout: Union[float, str]
    ackTimeoutAction: Literal["retry", "dead"]
    visibilityTimeout: Union[float, str]
    heartbeatTimeout: Union[Union[float, str], None]
    stallTimeout: Union[float, str]
    stallAction: Literal["flag", "retry"]
    softTimeLimit: Union[Union[float, str], None]
    hardTimeLimit: Union[Union[float, str], None]
    jobTimeout: Union[Union[float, str], None]
    extendWhileProgressing: bool
    keepCheckpoints: bool
    drainTimeout: Union[float, str]
    maxDeferrals: int
    maxAge: Union[float, str]
    backpressureScope: Literal["queue", "job"]
    backpressureDelay: Union[float, str]
    rateLimit: Union[dict[str, Any], None]
    concurrency: Union[int, None]
    resultTtl: Union[float, str]
    retention: Union[float, str]
    dedupe: Literal["always", "unless_failed"]
    dedupeWindow: Union[Union[float, str], None]
    dedupeBy: Literal["key", "payload"]
    fencing: Literal["optional", "required"]
    signatureHeader: str
    signingSecret: str
    name: str


class QueuePatch(TypedDict, total=False):
    """Settings to change; what is left out stays."""

    template: Union[Literal["anthropic", "openai", "report", "transcode", "webhook"], None]
    mode: Literal["standard", "ack", "pull"]
    allowPull: bool
    webhookUrl: Union[str, None]
    headers: dict[str, str]
    webhookTimeout: Union[float, str]
    maxAttempts: int
    backoff: dict[str, Any]
    ackTimeout: Union[float, str]
    ackTimeoutAction: Literal["retry", "dead"]
    visibilityTimeout: Union[float, str]
    heartbeatTimeout: Union[Union[float, str], None]
    stallTimeout: Union[float, str]
    stallAction: Literal["flag", "retry"]
    softTimeLimit: Union[Union[float, str], None]
    hardTimeLimit: Union[Union[float, str], None]
    jobTimeout: Union[Union[float, str], None]
    extendWhileProgressing: bool
    keepCheckpoints: bool
    drainTimeout: Union[float, str]
    maxDeferrals: int
    maxAge: Union[float, str]
    backpressureScope: Literal["queue", "job"]
    backpressureDelay: Union[float, str]
    rateLimit: Union[dict[str, Any], None]
    concurrency: Union[int, None]
    resultTtl: Union[float, str]
    retention: Union[float, str]
    dedupe: Literal["always", "unless_failed"]
    dedupeWindow: Union[Union[float, str], None]
    dedupeBy: Literal["key", "payload"]
    fencing: Literal["optional", "required"]
    signatureHeader: str
    signingSecret: str
    name: str


class RotateSecret(TypedDict, total=False):
    """A new signing secret beside the present one."""

    signingSecret: str
    overlap: Union[float, str]


class NewJob(TypedDict, total=False):
    """A job to be published."""

    payload: Any
    idempotencyKey: str
    delay: Union[float, str]
    runAt: str
    priority: int
    key: str
    tags: dict[str, str]
    callbackUrl: str
    notifyEmail: str
    maxAttempts: int
    visibilityTimeout: Union[float, str]
    ackTimeout: Union[float, str]
    heartbeatTimeout: Union[float, str]
    softTimeLimit: Union[float, str]
    hardTimeLimit: Union[float, str]
    jobTimeout: Union[float, str]
    maxDeferrals: int
    maxAge: Union[float, str]
    resultTtl: Union[float, str]
    startBy: str


class NewJobBatch(TypedDict):
    """Jobs to be published in one durable commit."""

    jobs: list[NewJob]


class ReceiveRequest(TypedDict, total=False):
    """Which jobs to hand out."""

    batch: int
    wait: Union[float, str]
    visibilityTimeout: Union[float, str]
    worker: str
    agent: dict[str, Any]
    acceptsSchema: list[int]


class _ReceiveSeveralRequestRequired(TypedDict):
    queues: list[ReceiveQueue]


class ReceiveSeveralRequest(_ReceiveSeveralRequestRequired, total=False):
    """Which jobs of several queues to hand out."""

    batch: int
    wait: Union[float, str]
    visibilityTimeout: Union[float, str]
    worker: str
    agent: dict[str, Any]
    acceptsSchema: list[int]


class _ReceiveQueueRequired(TypedDict):
    name: str


class ReceiveQueue(_ReceiveQueueRequired, total=False):
    """One of the queues to hand out from."""

    weight: int


class DeadReplay(TypedDict, total=False):
    """Replays dead letters in bulk; everything if nothing is given."""

    ids: list[str]
    filter: dict[str, Any]
    limit: int
    ratePerSecond: int
    dryRun: bool


class _JobsWaitRequired(TypedDict):
    jobs: list[WaitedJob]


class JobsWait(_JobsWaitRequired, total=False):
    """Jobs to wait for."""

    wait: Union[float, str]


class _WaitedJobRequired(TypedDict):
    id: str


class WaitedJob(_WaitedJobRequired, total=False):
    """A job, and the version of it that is known."""

    version: int


class _NewTokenRequired(TypedDict):
    can: list[Literal["read", "watch", "output", "cancel", "download"]]


class NewToken(_NewTokenRequired, total=False):
    """A token to one job: it can be given to a browser, which must not have a key."""

    expiresIn: Union[float, str]


class Replay(TypedDict, total=False):
    """Starts a failed or cancelled job again."""

    fresh: bool
    payload: Any


class Heartbeat(TypedDict, total=False):
    """Still at work: the lease is extended."""

    extend: Union[float, str]
    progress: dict[str, Any]
    checkpoint: dict[str, Any]
    lease: str


class NewProgress(TypedDict, total=False):
    """How far the work is, from its worker."""

    pct: float
    stage: str
    stagePct: float
    stagesDone: int
    stagesTotal: int
    itemsDone: int
    itemsTotal: int
    message: str
    lease: str


class _NewOutputRequired(TypedDict):
    text: str


class NewOutput(_NewOutputRequired, total=False):
    """Text for those who watch: an LLM's tokens, a line of a log."""

    part: int
    lease: str


class Directives(TypedDict):
    """Directives for the worker's next heartbeats; they replace earlier ones."""

    directives: list[Literal["checkpoint_now", "hand_over", "slow_down"]]


class _NewCheckpointRequired(TypedDict):
    schemaVersion: int
    data: Any


class NewCheckpoint(_NewCheckpointRequired, total=False):
    """Where the next attempt goes on from, kept together with its progress."""

    progress: dict[str, Any]
    lease: str


class NewUpload(TypedDict, total=False):
    """A result that its worker uploads by links."""

    filename: str
    contentType: str
    parts: int
    lease: str


class _FinalizeRequired(TypedDict):
    uploadId: str


class Finalize(_FinalizeRequired, total=False):
    """An upload is complete; it becomes the result if it is what is said here."""

    length: int
    sha256: str
    parts: list[dict[str, Any]]
    lease: str


class Ack(TypedDict, total=False):
    """The work is done."""

    result: Any
    usage: dict[str, float]
    lease: str


class Nack(TypedDict, total=False):
    """The work failed."""

    retryable: bool
    reason: str
    delay: Union[float, str]
    usage: dict[str, float]
    lease: str


class Defer(TypedDict, total=False):
    """Not now; no attempt is charged."""

    retryAfter: Union[float, str]
    scope: Literal["queue", "job"]
    reason: str
    lease: str


class Release(TypedDict, total=False):
    """Handed back at once, free."""

    lease: str


class CancelConfirmed(TypedDict, total=False):
    """A requested cancel was carried out."""

    lease: str


class OutcomeBatch(TypedDict):
    """Outcomes of several jobs, each on its own, one durable commit."""

    outcomes: list[OutcomeEntry]


class _OutcomeEntryRequired(TypedDict):
    id: str
    outcome: Literal["ack", "nack", "defer", "release", "cancelled"]


class OutcomeEntry(_OutcomeEntryRequired, total=False):
    """One outcome of a batch: the job, its lease, and the fields of that outcome."""

    lease: str
    result: Any
    usage: dict[str, float]
    retryable: bool
    reason: str
    delay: Union[float, str]
    retryAfter: Union[float, str]
    scope: Literal["queue", "job"]


class _HeartbeatBatchRequired(TypedDict):
    heartbeats: list[HeartbeatEntry]


class HeartbeatBatch(_HeartbeatBatchRequired, total=False):
    """Heartbeats of a worker with many jobs, each on its own, one durable commit."""

    wait: Union[float, str]


class _HeartbeatEntryRequired(TypedDict):
    id: str


class HeartbeatEntry(_HeartbeatEntryRequired, total=False):
    """One heartbeat of many: the job, its lease, and what a heartbeat carries."""

    extend: Union[float, str]
    progress: dict[str, Any]
    checkpoint: dict[str, Any]
    lease: str
    seen: list[Literal["cancel", "checkpoint_now", "hand_over", "slow_down"]]


class ProgressBatch(TypedDict):
    """Progress of many jobs from one worker, each on its own."""

    reports: list[ProgressEntry]


class _ProgressEntryRequired(TypedDict):
    id: str


class ProgressEntry(_ProgressEntryRequired, total=False):
    """One report of many: the job, its lease, and how far it is."""

    pct: float
    stage: str
    stagePct: float
    stagesDone: int
    stagesTotal: int
    itemsDone: int
    itemsTotal: int
    message: str
    lease: str


class ReplayEvent(TypedDict, total=False):
    """New jobs of a stored event."""

    queue: str


class _NewKeyRequired(TypedDict):
    name: str
    scopes: list[str]


class NewKey(_NewKeyRequired, total=False):
    """A key to be made."""

    namespace: str
    expiresIn: Union[float, str]


class SimpleIds(TypedDict):
    """Messages by id or receipt."""

    ids: list[str]


class _ProblemRequired(TypedDict):
    title: str
    status: int
    detail: str


class Problem(_ProblemRequired, total=False):
    type: str
    code: Literal["invalid_request", "lease_required", "unauthorized", "forbidden", "route_not_found", "queue_not_found", "job_not_found", "result_not_found", "checkpoint_not_found", "section_not_found", "upload_not_found", "result_missing", "result_damaged", "key_not_found", "operation_not_found", "event_not_found", "source_not_found", "method_not_allowed", "request_timeout", "queue_exists", "queue_not_empty", "lease_lost", "not_running", "outcome_conflict", "no_cancel_requested", "not_replayable", "key_taken", "last_admin_key", "payload_fixed", "result_exists", "output_full", "output_gap", "sections_full", "uploads_full", "not_pullable", "job_expired", "version_mismatch", "set_by_file", "payload_too_large", "uri_too_long", "unsupported_media_type", "too_many_requests", "overloaded", "draining", "unavailable", "store_unavailable", "blobs_unavailable", "secrets_sealed", "disk_full", "unsupported_transfer_encoding", "data_damaged", "job_set_aside", "internal"]
    errors: list[dict[str, Any]]


PublishResult = Union[PublishedJob, Job]


__all__ = ["Ack", "Callback", "CancelConfirmed", "ChangedJobs", "Checkpoint", "DeadReplay", "Defer", "Delivery", "Directives", "Finalize", "Health", "Heartbeat", "HeartbeatBatch", "HeartbeatEntry", "HeartbeatResult", "HeartbeatResults", "InboundEvent", "InboundEventPage", "InboundEventReceipt", "InboundEventReplay", "IssuedKey", "Job", "JobEvent", "JobEventPage", "JobPage", "JobSummary", "JobsWait", "Key", "KeyPage", "Nack", "NewCheckpoint", "NewJob", "NewJobBatch", "NewKey", "NewOutput", "NewProgress", "NewQueue", "NewToken", "NewUpload", "Operation", "OperationPage", "OutcomeBatch", "OutcomeEntry", "OutputResult", "Problem", "Progress", "ProgressBatch", "ProgressEntry", "ProgressResult", "ProgressResults", "PublishResult", "PublishedJob", "PublishedJobBatch", "Queue", "QueuePage", "QueuePatch", "QueueSettings", "ReceiveQueue", "ReceiveRequest", "ReceiveSeveralRequest", "ReceivedJob", "ReceivedJobs", "Release", "ReloadResult", "Replay", "ReplayDryRun", "ReplayEvent", "ReportResult", "ReportResults", "RotateSecret", "RotatedSecret", "SectionPage", "SimpleAckResult", "SimpleIds", "SimpleMessages", "SimpleNackResult", "SimpleQueues", "Status", "Token", "UploadLinks", "UploadedBytes", "UploadedResult", "WaitedJob", "WorkerList"]
