// The main entry: the client and the worker.

export { Outlast, type OutlastOptions } from "./client.js";
export {
  Queue,
  item,
  type Item,
  type PublishCallOptions,
  type PublishManyOptions,
  type PublishOptions,
  type QueueSchemas,
} from "./queue.js";
export {
  Job,
  type JobStatus,
  type JobToken,
  type JobView,
  type ReplayOptions,
  type ResultOptions,
  type TokenOptions,
} from "./job.js";
export type { EventsOptions, JobEvent, Progress } from "./job-events.js";
export type { DownloadOptions, DownloadTarget } from "./download.js";
export type { Duration } from "./duration.js";
export { List, type Page, type PageOptions } from "./list.js";
export type { JobListOptions, Key, Operation, QueueView, InboundEvent } from "./resources.js";
export { SchemaMismatch, type StandardSchema } from "./schema.js";
export type { JsonCodec } from "./transport.js";
export type { components } from "./wire.js";
export {
  Busy,
  Conflict,
  DownloadDamaged,
  Forbidden,
  InDoubt,
  InvalidRequest,
  JobCancelled,
  JobExpired,
  JobFailed,
  LeaseLost,
  NotFound,
  OutlastError,
  Refused,
  ResultIsFile,
  TooLarge,
  Unauthorized,
  Unavailable,
  WaitTimeout,
  type FieldError,
} from "./errors.js";
export {
  worker,
  Worker,
  type BatchHandler,
  type QueueHandler,
  type Queues as WorkerQueues,
  type WorkerOptions,
} from "./worker/worker.js";
export type { Handler, Outcome } from "./worker/perform.js";
export type { RunningJob, SectionOptions } from "./worker/running-job.js";
export type { ProgressReport } from "./worker/reports.js";
export type { UploadOptions, UploadSource, Uploaded } from "./worker/upload.js";
export {
  CheckpointIncompatible,
  Defer,
  NotRetryable,
  provider,
  Stopped,
  type DeferOptions,
  type StopReason,
} from "./worker/stops.js";
