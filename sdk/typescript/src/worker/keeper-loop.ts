// The keeper: renews the leases of all jobs of this process in one request, sends their progress, and learns of cancels and lost
// leases. It runs in a thread of its own (scripts/inline-keeper.mjs turns this file into its source) or, where the runtime has
// no such threads, on the main loop. So it imports nothing but types, and everything it needs is passed to it.

export interface HeldJob {
  id: string;
  lease: string;
  /** Milliseconds after which the lease would end without a beat. */
  leaseMillis: number;
  /** The queue's `heartbeatTimeout`, where it has one. */
  heartbeatMillis: number | null;
}

export type KeeperCommand =
  | { type: "hold"; jobs: HeldJob[] }
  | { type: "release"; ids: string[] }
  | { type: "progress"; id: string; report: object }
  | { type: "stop" };

export type KeeperNotice =
  | { type: "directives"; id: string; directives: string[]; softLimitReached: boolean; deadline: string | null }
  | { type: "lost"; id: string; code: string; detail: string }
  | { type: "let go"; ids: string[] }
  | { type: "trouble"; message: string };

export interface KeeperLink {
  url: string;
  authorization: string;
  /** Does the server know `wait` and `seen`? */
  canWait: boolean;
  /** The main loop may be blocked for so long before the keeper lets its jobs go. */
  maxBlockedMillis: number;
}

export interface KeeperPorts {
  fetch: typeof globalThis.fetch;
  /** Grows while the main loop runs. */
  ticks: () => number;
  notify: (notice: KeeperNotice) => void;
}

export interface KeeperControl {
  command(command: KeeperCommand): void;
}

export function keeperLoop(link: KeeperLink, ports: KeeperPorts): KeeperControl {
  // A job that ends sooner needs no beat; a cancel reaches a job that is older than this without delay.
  const SETTLE_MILLIS = 800;
  const GAP_MILLIS = 400;
  const PROGRESS_MILLIS = 1000;
  const WAIT_MAX_MILLIS = 30_000;
  const ANSWER_MILLIS = 10_000;

  interface Held extends HeldJob {
    dueAt: number;
    /** Has a beat with this lease arrived? Then an open wait covers it. */
    isCovered: boolean;
    seen: string;
    progress: object | null;
  }

  const held = new Map<string, Held>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let open: AbortController | undefined;
  let isBeating = false;
  let isStopped = false;
  let failures = 0;
  let nextBeatAt = 0;
  let nextProgressAt = 0;
  let lastTick = -1;
  let lastTickAt = Date.now();

  function command(given: KeeperCommand): void {
    const now = Date.now();
    if (given.type === "stop") {
      isStopped = true;
      clearTimeout(timer);
      open?.abort();
      return;
    }
    if (given.type === "hold") {
      for (const job of given.jobs) {
        const every = everyMillisOf(job);
        const first = link.canWait ? Math.min(SETTLE_MILLIS, every) : every;
        const progress = held.get(job.id)?.progress ?? null;
        held.set(job.id, { ...job, dueAt: now + first, isCovered: false, seen: "", progress });
      }
    } else if (given.type === "release") {
      for (const id of given.ids) held.delete(id);
      if (held.size === 0) open?.abort();
    } else {
      const job = held.get(given.id);
      if (job) job.progress = given.report;
    }
    schedule();
  }

  /** Three beats in a lease, so that two may fail. */
  function everyMillisOf({ leaseMillis, heartbeatMillis }: HeldJob): number {
    return Math.min(leaseMillis, heartbeatMillis ?? Infinity) / 3;
  }

  /** Sets the one timer to the next thing that is due. */
  function schedule(): void {
    clearTimeout(timer);
    if (isStopped || held.size === 0) return;
    let at = Infinity;
    let hasProgress = false;
    for (const job of held.values()) {
      at = Math.min(at, job.dueAt);
      hasProgress ||= job.progress !== null;
    }
    at = Math.max(at, nextBeatAt);
    if (hasProgress) at = Math.min(at, nextProgressAt);
    timer = setTimeout(step, Math.min(Math.max(at - Date.now(), 0), 5000));
  }

  function step(): void {
    const now = Date.now();
    if (isLoopBlocked(now)) return letGo();
    const isBeatDue = now >= nextBeatAt && [...held.values()].some((job) => now >= job.dueAt);
    if (isBeatDue && !isBeating) void beat();
    // A newer job is not covered by the open wait: a new beat with all of them replaces it.
    else if (isBeatDue && link.canWait && open && [...held.values()].some((job) => !job.isCovered && now >= job.dueAt))
      open.abort();
    else if (now >= nextProgressAt) void sendProgress();
    schedule();
  }

  function isLoopBlocked(now: number): boolean {
    const tick = ports.ticks();
    if (tick !== lastTick) {
      lastTick = tick;
      lastTickAt = now;
    }
    return now - lastTickAt > link.maxBlockedMillis;
  }

  function letGo(): void {
    ports.notify({ type: "let go", ids: [...held.keys()] });
    held.clear();
    open?.abort();
  }

  async function beat(): Promise<void> {
    const jobs = [...held.values()].slice(0, 1000);
    const everyMillis = Math.min(...jobs.map(everyMillisOf));
    const waitMillis = link.canWait ? Math.floor(Math.min(everyMillis, WAIT_MAX_MILLIS)) : 0;
    const startedAt = Date.now();
    isBeating = true;
    nextBeatAt = startedAt + Math.min(GAP_MILLIS, everyMillis / 2);
    for (const job of jobs) {
      // Without an answer it is due again in time for two more tries.
      job.dueAt = startedAt + everyMillis;
      job.isCovered = true;
    }
    const entries = jobs.map((job) => {
      const { id, lease, progress } = job;
      job.progress = null;
      const entry: Record<string, unknown> = { id, lease };
      if (progress) entry["progress"] = progress;
      if (link.canWait) entry["seen"] = job.seen === "" ? [] : job.seen.split(" ");
      return entry;
    });
    const body: Record<string, unknown> = { heartbeats: entries };
    if (waitMillis > 0) body["wait"] = waitMillis / 1000;
    try {
      const { results, serverNow } = await post("/v1/heartbeats", body, waitMillis);
      results.forEach((result, index) => settle(jobs[index]!, result, serverNow));
      failures = 0;
      // A wait ends to be followed by the next one.
      if (link.canWait) for (const job of jobs) job.dueAt = Math.min(job.dueAt, nextBeatAt);
    } catch (error) {
      if (!isStopped && !open?.signal.aborted) {
        failures += 1;
        if (failures === 3) ports.notify({ type: "trouble", message: `heartbeats fail: ${String(error)}` });
        nextBeatAt = Date.now() + Math.min(250 * failures, 2000, everyMillis / 2);
      }
      for (const job of jobs) {
        job.isCovered = false;
        job.dueAt = Math.min(job.dueAt, nextBeatAt);
      }
    } finally {
      isBeating = false;
      open = undefined;
      schedule();
    }
  }

  interface Result {
    accepted: boolean;
    leaseExpiresAt?: string;
    deadline?: string | null;
    directives?: string[];
    softLimitReached?: boolean;
    error?: { code: string; detail?: string };
  }

  function settle(job: Held, result: Result, serverNow: number): void {
    // Released or handed out again meanwhile.
    if (held.get(job.id) !== job) return;
    if (!result.accepted) {
      const code = result.error?.code ?? "unknown";
      if (!["lease_lost", "not_running", "job_not_found"].includes(code)) return;
      held.delete(job.id);
      ports.notify({ type: "lost", id: job.id, code, detail: result.error?.detail ?? code });
      return;
    }
    const remaining = Date.parse(result.leaseExpiresAt ?? "") - serverNow;
    // The server's clock in the header has whole seconds.
    if (remaining > 0) job.leaseMillis = Math.max(remaining - 1000, 900);
    const seen = [...(result.directives ?? [])].sort().join(" ");
    const softLimitReached = result.softLimitReached ?? false;
    if (seen !== job.seen || softLimitReached) {
      job.seen = seen;
      const directives = result.directives ?? [];
      ports.notify({ type: "directives", id: job.id, directives, softLimitReached, deadline: result.deadline ?? null });
    }
  }

  async function sendProgress(): Promise<void> {
    const jobs = [...held.values()].filter((job) => job.progress !== null).slice(0, 1000);
    nextProgressAt = Date.now() + PROGRESS_MILLIS;
    if (jobs.length === 0) return;
    const reports = jobs.map(({ id, lease, progress }) => ({ id, lease, ...progress }));
    for (const job of jobs) job.progress = null;
    try {
      await post("/v1/progress", { reports }, 0);
    } catch {
      // Progress is lossy: the next report, or the next beat, brings a newer one.
    }
    schedule();
  }

  async function post(
    path: string,
    body: object,
    waitMillis: number,
  ): Promise<{ results: Result[]; serverNow: number }> {
    const control = new AbortController();
    if (path === "/v1/heartbeats") open = control;
    const limit = setTimeout(() => control.abort(), waitMillis + ANSWER_MILLIS);
    try {
      const response = await ports.fetch(link.url + path, {
        method: "POST",
        headers: { authorization: link.authorization, "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: control.signal,
      });
      const text = await response.text();
      if (!response.ok) throw new Error(`the answer was ${response.status}: ${text.slice(0, 200)}`);
      const serverNow = Date.parse(response.headers.get("date") ?? "") || Date.now();
      return { results: (JSON.parse(text) as { results: Result[] }).results, serverNow };
    } finally {
      clearTimeout(limit);
    }
  }

  return { command };
}
