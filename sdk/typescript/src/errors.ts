// The errors of the SDK. A `Refused` is definite: nothing was stored. An `InDoubt` is not: the request may have been stored.

export interface FieldError {
  field: string;
  message: string;
}

/** The problem document of a refusal, as far as there is one. */
export interface Problem {
  code?: string;
  title?: string;
  detail?: string;
  errors?: FieldError[];
}

export class OutlastError extends Error {
  override readonly name: string = "OutlastError";
}

export interface Refusal {
  code: string;
  status: number;
  detail: string;
  errors?: FieldError[] | undefined;
  retryAfter?: number | undefined;
  cause?: unknown;
}

/** The server has refused the request: nothing was stored or changed. */
export class Refused extends OutlastError {
  override readonly name: string = "Refused";
  /** Stable word for the reason; see docs/reference/ERRORS.md of the server. */
  readonly code: string;
  /** Status of HTTP; 0 where there was no connection. */
  readonly status: number;
  readonly detail: string;
  readonly errors: FieldError[];
  /** Seconds after which a repeat may succeed, where the server has said so. */
  readonly retryAfter: number | undefined;

  constructor({ code, status, detail, errors, retryAfter, cause }: Refusal) {
    super(detail || code, cause === undefined ? undefined : { cause });
    this.code = code;
    this.status = status;
    this.detail = detail;
    this.errors = errors ?? [];
    this.retryAfter = retryAfter;
  }
}

export class InvalidRequest extends Refused {
  override readonly name = "InvalidRequest";
}
export class Unauthorized extends Refused {
  override readonly name = "Unauthorized";
}
export class Forbidden extends Refused {
  override readonly name = "Forbidden";
}
export class NotFound extends Refused {
  override readonly name = "NotFound";
}
export class Conflict extends Refused {
  override readonly name = "Conflict";
}
/** The lease is not the job's current one: stop working on the job. */
export class LeaseLost extends Refused {
  override readonly name = "LeaseLost";
}
export class TooLarge extends Refused {
  override readonly name = "TooLarge";
}
export class Busy extends Refused {
  override readonly name = "Busy";
}
export class Unavailable extends Refused {
  override readonly name = "Unavailable";
}

/** No answer, or one that does not say whether the request was stored. */
export class InDoubt extends OutlastError {
  override readonly name = "InDoubt";
}

/** The job ended as a dead letter. */
export class JobFailed extends OutlastError {
  override readonly name = "JobFailed";
  constructor(
    readonly id: string,
    readonly reason: string,
    detail: string | null,
  ) {
    super(detail ? `job ${id} failed (${reason}): ${detail}` : `job ${id} failed (${reason})`);
  }
}

export class JobCancelled extends OutlastError {
  override readonly name = "JobCancelled";
  constructor(
    readonly id: string,
    readonly reason: string,
  ) {
    super(`job ${id} was cancelled (${reason})`);
  }
}

/** The job succeeded, and its result has been deleted since. */
export class JobExpired extends OutlastError {
  override readonly name = "JobExpired";
  constructor(readonly id: string) {
    super(`the result of job ${id} has expired`);
  }
}

/** The job has not ended in the given time; it goes on. */
export class WaitTimeout extends OutlastError {
  override readonly name = "WaitTimeout";
  constructor(readonly id: string) {
    super(`job ${id} has not ended in time; it goes on`);
  }
}

/** The result is not JSON, or too long to be read as a value: use `job.download()`. */
export class ResultIsFile extends OutlastError {
  override readonly name = "ResultIsFile";
  constructor(
    readonly id: string,
    readonly length: number,
    readonly contentType: string,
  ) {
    super(`the result of job ${id} is a file (${contentType}, ${length} bytes); use download()`);
  }
}

/** Downloaded bytes that do not have the length or the SHA-256 that the server has recorded. */
export class DownloadDamaged extends OutlastError {
  override readonly name = "DownloadDamaged";
}

const classByStatus: Record<number, typeof Refused> = {
  400: InvalidRequest,
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  405: InvalidRequest,
  408: Unavailable,
  409: Conflict,
  410: NotFound,
  412: Conflict,
  413: TooLarge,
  414: TooLarge,
  415: InvalidRequest,
  429: Busy,
  501: InvalidRequest,
  503: Unavailable,
  507: Unavailable,
};
// Codes whose class is not that of their status.
const classByCode: Record<string, typeof Refused> = { lease_lost: LeaseLost, overloaded: Busy };

/** The error for a refusal, by its code, else by its status. */
export function refusal(fields: Refusal): Refused {
  const kind = classByCode[fields.code] ?? classByStatus[fields.status] ?? Refused;
  return new kind(fields);
}
