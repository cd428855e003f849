// @generated from docs/reference/openapi.json by `make gen`; do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export type components = {
    schemas: {
        /** @description The work is done. */
        Ack: {
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description any JSON, kept as the job's result; JSON */
            result?: unknown;
            /** @description what the attempt used, by unit, as {"tokens": 1234}; kept with the attempt; an object of at most 16 numbers from 0 to 1000000000000, with names of 1 to 64 bytes */
            usage?: {
                [key: string]: number;
            };
        };
        Callback: {
            error: {
                message: string | null;
                reason: string;
            } | null;
            /** Format: date-time */
            finishedAt: string;
            /** Format: uuid */
            id: string;
            queue: string;
            replays: number;
            result?: unknown;
            resultUrl?: string;
            status: components["schemas"]["Status"];
        };
        /** @description A requested cancel was carried out. */
        CancelConfirmed: {
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
        };
        ChangedJobs: {
            jobs: (components["schemas"]["JobSummary"] | {
                error: components["schemas"]["Problem"];
                /** Format: uuid */
                id: string;
            })[];
        };
        Checkpoint: {
            /** Format: date-time */
            at: string;
            attempt: number;
            blobUrl: string | null;
            data: unknown;
            length: number;
            replays: number;
            schemaVersion: number;
            sha256: string | null;
        };
        /** @description Replays dead letters in bulk; everything if nothing is given. */
        DeadReplay: {
            /** @description only count; true or false */
            dryRun?: boolean;
            /** @description only jobs like this; an object */
            filter?: {
                /**
                 * Format: date-time
                 * @description failed at or after; a time like "2026-11-15T20:37:00Z"
                 */
                finishedAfter?: string;
                /**
                 * Format: date-time
                 * @description failed before; a time like "2026-11-15T20:37:00Z"
                 */
                finishedBefore?: string;
                /** @description this fair-share key; text of 1 to 128 bytes */
                key?: string;
                /**
                 * @description why it failed; one of "attempts_exhausted", "not_retryable", "ack_timeout", "deferral_exhausted", "max_age_exceeded", "set_aside"
                 * @enum {string}
                 */
                reason?: "attempts_exhausted" | "not_retryable" | "ack_timeout" | "deferral_exhausted" | "max_age_exceeded" | "set_aside";
                /** @description all of these tags; an object of at most 16 texts, with names of 1 to 64 bytes and values of at most 256 */
                tags?: {
                    [key: string]: string;
                };
            };
            /** @description only these jobs; a list of at most 1000 entries */
            ids?: string[];
            /** @description stop after so many; a whole number from 1 to 1000000000 */
            limit?: number;
            /** @description not faster than this; a whole number from 1 to 100000 */
            ratePerSecond?: number;
        };
        /** @description Not now; no attempt is charged. */
        Defer: {
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description what went wrong, for people; text of 1 to 1024 bytes */
            reason?: string;
            /** @description when to come back; the queue's backpressureDelay if unset; seconds, or a duration like "30s", from 0s to 1d */
            retryAfter?: number | string;
            /**
             * @description what to hold; only the job if unset; one of "queue", "job"
             * @enum {string}
             */
            scope?: "queue" | "job";
        };
        Delivery: {
            attempt: number;
            checkpoint: components["schemas"]["Checkpoint"] | null;
            /** Format: date-time */
            createdAt: string;
            deadline: string | null;
            deferCount: number;
            drainTimeout: number;
            heartbeatTimeout: number | null;
            /** Format: uuid */
            id: string;
            key: string | null;
            lease: string;
            /** Format: date-time */
            leaseExpiresAt: string;
            maxAttempts: number;
            /** @enum {string} */
            mode: "standard" | "ack" | "pull";
            payload: unknown;
            queue: string;
            replays: number;
            sections: string[];
            tags: {
                [key: string]: string;
            };
            webhookTimeout: number;
        };
        /** @description Directives for the worker's next heartbeats; they replace earlier ones. */
        Directives: {
            /** @description what to ask for; none ends it; a list of at most 3 entries */
            directives: ("checkpoint_now" | "hand_over" | "slow_down")[];
        };
        /** @description An upload is complete; it becomes the result if it is what is said here. */
        Finalize: {
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description how many bytes there must be; a whole number from 0 to 9223372036854775807 */
            length?: number;
            /** @description of an upload in parts; a list of at most 1000 entries */
            parts?: {
                /** @description as the object store answered; text of 1 to 256 bytes */
                etag: string;
                /** @description from 1 on; a whole number from 1 to 1000 */
                number: number;
            }[];
            /** @description what their digest must be; 64 hexadecimal digits */
            sha256?: string;
            /** @description which upload; the uploadId as it was given (16 hexadecimal digits) */
            uploadId: string;
        };
        Health: {
            status: string;
        };
        /** @description Still at work: the lease is extended. */
        Heartbeat: {
            /** @description where to go on from; kept in the same transaction; an object */
            checkpoint?: {
                /** @description any JSON; the next attempt gets it byte for byte; JSON */
                data: unknown;
                /** @description the worker's own number for the form of the data; a whole number from 0 to 4294967295 */
                schemaVersion: number;
            };
            /** @description the lease from now on; as it was given if left out; seconds, or a duration like "30s", from 1s to 12h */
            extend?: number | string;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description how far the work is; an object */
            progress?: {
                /** @description items that are done; a whole number from 0 to 9007199254740992 */
                itemsDone?: number;
                /** @description items there are; a whole number from 0 to 9007199254740992 */
                itemsTotal?: number;
                /** @description a line for people; text of 1 to 1024 bytes */
                message?: string;
                /** @description how much is done; worked out from items or stages if left out; a number from 0 to 100 */
                pct?: number;
                /** @description what is being done; text of 1 to 128 bytes */
                stage?: string;
                /** @description how much of the stage is done; a number from 0 to 100 */
                stagePct?: number;
                /** @description stages that are done; a whole number from 0 to 9007199254740992 */
                stagesDone?: number;
                /** @description stages there are; a whole number from 0 to 9007199254740992 */
                stagesTotal?: number;
            };
        };
        /** @description Heartbeats of a worker with many jobs, each on its own, one durable commit. */
        HeartbeatBatch: {
            /** @description the heartbeats; a list of at most 1000 entries */
            heartbeats: components["schemas"]["HeartbeatEntry"][];
            /** @description how long to wait for directives that were not seen; the leases are renewed first; seconds, or a duration like "30s", from 0s to 30s */
            wait?: number | string;
        };
        /** @description One heartbeat of many: the job, its lease, and what a heartbeat carries. */
        HeartbeatEntry: {
            /** @description where to go on from; kept in the same transaction; an object */
            checkpoint?: {
                /** @description any JSON; the next attempt gets it byte for byte; JSON */
                data: unknown;
                /** @description the worker's own number for the form of the data; a whole number from 0 to 4294967295 */
                schemaVersion: number;
            };
            /** @description the lease from now on; as it was given if left out; seconds, or a duration like "30s", from 1s to 12h */
            extend?: number | string;
            /** @description the job; a job id (UUID) */
            id: string;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description how far the work is; an object */
            progress?: {
                /** @description items that are done; a whole number from 0 to 9007199254740992 */
                itemsDone?: number;
                /** @description items there are; a whole number from 0 to 9007199254740992 */
                itemsTotal?: number;
                /** @description a line for people; text of 1 to 1024 bytes */
                message?: string;
                /** @description how much is done; worked out from items or stages if left out; a number from 0 to 100 */
                pct?: number;
                /** @description what is being done; text of 1 to 128 bytes */
                stage?: string;
                /** @description how much of the stage is done; a number from 0 to 100 */
                stagePct?: number;
                /** @description stages that are done; a whole number from 0 to 9007199254740992 */
                stagesDone?: number;
                /** @description stages there are; a whole number from 0 to 9007199254740992 */
                stagesTotal?: number;
            };
            /** @description the directives that the worker knows of; others end the wait; a list of at most 4 entries */
            seen?: ("cancel" | "checkpoint_now" | "hand_over" | "slow_down")[];
        };
        HeartbeatResult: {
            /** @constant */
            accepted: true;
            cancelRequested: boolean;
            deadline: string | null;
            directives: ("cancel" | "checkpoint_now" | "hand_over" | "slow_down")[];
            /** Format: uuid */
            id: string;
            leaseExpiresAt: string | null;
            softLimitReached: boolean;
        };
        HeartbeatResults: {
            results: (components["schemas"]["HeartbeatResult"] | {
                /** @constant */
                accepted: false;
                error: components["schemas"]["Problem"];
                id: string | null;
            })[];
        };
        InboundEvent: {
            headers: {
                [key: string]: string;
            };
            /** Format: uuid */
            id: string;
            jobsCreated: number;
            payload: unknown;
            providerEventId: string | null;
            /** Format: date-time */
            receivedAt: string;
            source: string;
            type: string;
        };
        InboundEventPage: {
            items: {
                headers: {
                    [key: string]: string;
                };
                /** Format: uuid */
                id: string;
                jobsCreated: number;
                providerEventId: string | null;
                /** Format: date-time */
                receivedAt: string;
                source: string;
                type: string;
            }[];
            nextCursor: string | null;
        };
        InboundEventReceipt: {
            duplicate: boolean;
            /** Format: uuid */
            event_id: string;
            jobs_created: number;
        };
        InboundEventReplay: {
            /** Format: uuid */
            event_id: string;
            jobs: ({
                /** Format: uuid */
                id: string;
                queue: string;
                status: components["schemas"]["Status"];
            } | {
                error: components["schemas"]["Problem"];
                queue: string;
            })[];
        };
        IssuedKey: components["schemas"]["Key"] & {
            /** @description the key itself; it is shown only this once */
            key: string;
        };
        Job: components["schemas"]["JobSummary"] & {
            attempts: components["schemas"]["JobEvent"][];
            events: components["schemas"]["JobEvent"][];
            payload: unknown;
            transitions: components["schemas"]["JobEvent"][];
        };
        /** @description One entry of a job's log. The other members depend on the type. */
        JobEvent: {
            /** Format: date-time */
            at: string;
            seq: number;
            /** @enum {string} */
            type: "state" | "attempt" | "checkpoint" | "output" | "result" | "callback" | "note";
        };
        JobEventPage: {
            items: components["schemas"]["JobEvent"][];
            nextAfter: number;
        };
        /** @description A page may be short or empty while nextCursor is set: follow it to the end. */
        JobPage: {
            items: components["schemas"]["JobSummary"][];
            nextCursor: string | null;
        };
        JobSummary: {
            attempt: number;
            callback: {
                attempt?: number;
                deferCount?: number;
                finishedAt?: string | null;
                /** Format: uuid */
                id?: string;
                lastError?: string | null;
                maxAttempts?: number;
                scheduledFor?: string | null;
                status?: string;
                url: string;
            } | null;
            cancelReason: string | null;
            cancelRequested?: boolean;
            checkpoint: {
                at: string | null;
                attempt: number | null;
                length: number | null;
                schemaVersion: number | null;
                sections: number;
            } | null;
            /** Format: date-time */
            createdAt: string;
            deferCount: number;
            error: {
                message: string | null;
                reason: string;
            } | null;
            finishedAt: string | null;
            /** Format: uuid */
            id: string;
            idempotencyKey: string | null;
            key: string | null;
            lastError: string | null;
            lastHeartbeatAt?: string | null;
            /** Format: date-time */
            leaseExpiresAt?: string;
            /** @enum {string} */
            liveness?: "working" | "slow" | "stuck" | "dead";
            maxAttempts: number;
            pendingReason: string | null;
            pipeline: Record<string, never> | null;
            priority: number;
            progress: components["schemas"]["Progress"] | null;
            queue: string;
            queuedAt: string | null;
            replays: number;
            resultMeta: {
                contentType: string | null;
                downloadCount?: number;
                filename?: string | null;
                length: number;
                partial?: boolean;
                sha256?: string | null;
            } | null;
            resultUrl: string | null;
            /** @enum {string} */
            runningPhase?: "delivering" | "awaiting_ack" | "leased";
            scheduledFor: string | null;
            stalled?: boolean;
            startedAt: string | null;
            status: components["schemas"]["Status"];
            tags: {
                [key: string]: string;
            };
            version: number;
            worker?: string | null;
        };
        /** @description Jobs to wait for. */
        JobsWait: {
            /** @description 1 to 1,000 jobs; a list of at most 1000 entries */
            jobs: components["schemas"]["WaitedJob"][];
            /** @description how long to wait for a newer version of any of them; seconds, or a duration like "30s", from 0s to 30s */
            wait?: number | string;
        };
        Key: {
            /** Format: date-time */
            createdAt: string;
            expiresAt: string | null;
            id: string;
            name: string;
            namespace: string;
            prefix: string;
            revokedAt: string | null;
            scopes: string[];
        };
        /** @description A page may be short or empty while nextCursor is set: follow it to the end. */
        KeyPage: {
            items: components["schemas"]["Key"][];
            nextCursor: string | null;
        };
        /** @description The work failed. */
        Nack: {
            /** @description instead of the backoff; seconds, or a duration like "30s", from 0s to 1d */
            delay?: number | string;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description what went wrong, for people; text of 1 to 1024 bytes */
            reason?: string;
            /** @description false makes it a dead letter at once; true or false */
            retryable?: boolean;
            /** @description what the attempt used, by unit, as {"tokens": 1234}; kept with the attempt; an object of at most 16 numbers from 0 to 1000000000000, with names of 1 to 64 bytes */
            usage?: {
                [key: string]: number;
            };
        };
        /** @description Where the next attempt goes on from, kept together with its progress. */
        NewCheckpoint: {
            /** @description any JSON; the next attempt gets it byte for byte; JSON */
            data: unknown;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description how far the work is with this checkpoint; an object */
            progress?: {
                /** @description items that are done; a whole number from 0 to 9007199254740992 */
                itemsDone?: number;
                /** @description items there are; a whole number from 0 to 9007199254740992 */
                itemsTotal?: number;
                /** @description a line for people; text of 1 to 1024 bytes */
                message?: string;
                /** @description how much is done; worked out from items or stages if left out; a number from 0 to 100 */
                pct?: number;
                /** @description what is being done; text of 1 to 128 bytes */
                stage?: string;
                /** @description how much of the stage is done; a number from 0 to 100 */
                stagePct?: number;
                /** @description stages that are done; a whole number from 0 to 9007199254740992 */
                stagesDone?: number;
                /** @description stages there are; a whole number from 0 to 9007199254740992 */
                stagesTotal?: number;
            };
            /** @description the worker's own number for the form of the data; a whole number from 0 to 4294967295 */
            schemaVersion: number;
        };
        /** @description A job to be published. */
        NewJob: {
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 7d */
            ackTimeout?: number | string;
            /** @description gets a POST when the job ends; an http or https URL without user, password or fragment of 1 to 2048 bytes */
            callbackUrl?: string;
            /** @description not before this much time has passed; seconds, or a duration like "30s", from 0s to 3650d */
            delay?: number | string;
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 30d */
            hardTimeLimit?: number | string;
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 1d */
            heartbeatTimeout?: number | string;
            /** @description one job per key inside the queue's window; visible ASCII of 1 to 255 bytes */
            idempotencyKey?: string;
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 30d */
            jobTimeout?: number | string;
            /** @description fair-share key, a tenant say; text of 1 to 128 bytes */
            key?: string;
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 365d */
            maxAge?: number | string;
            /** @description instead of the queue's; a whole number from 1 to 20 */
            maxAttempts?: number;
            /** @description instead of the queue's; a whole number from 0 to 100000 */
            maxDeferrals?: number;
            /** @description reserved: refused until mail can be configured; an e-mail address of 3 to 254 bytes */
            notifyEmail?: string;
            /** @description any JSON, delivered byte for byte; JSON */
            payload?: unknown;
            /** @description higher goes first; a whole number from -100 to 100 */
            priority?: number;
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 3650d */
            resultTtl?: number | string;
            /**
             * Format: date-time
             * @description not before this time; a time like "2026-11-15T20:37:00Z"
             */
            runAt?: string;
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 30d */
            softTimeLimit?: number | string;
            /**
             * Format: date-time
             * @description not started by then: cancelled; a time like "2026-11-15T20:37:00Z"
             */
            startBy?: string;
            /** @description for lists; an object of at most 16 texts, with names of 1 to 64 bytes and values of at most 256 */
            tags?: {
                [key: string]: string;
            };
            /** @description instead of the queue's; seconds, or a duration like "30s", from 1s to 12h */
            visibilityTimeout?: number | string;
        };
        /** @description Jobs to be published in one durable commit. */
        NewJobBatch: {
            /** @description the jobs, each as in a single publish; a list of at most 18446744073709551615 entries */
            jobs: components["schemas"]["NewJob"][];
        };
        /** @description A key to be made. */
        NewKey: {
            /** @description when it stops working; never if unset; seconds, or a duration like "30s", from 1s to 3650d */
            expiresIn?: number | string;
            /** @description what it is for; text of 1 to 128 bytes */
            name: string;
            /** @description another namespace than the caller's; operators only; a name (letters, digits, ".", "_", "-", starting with a letter or digit) of 1 to 128 bytes */
            namespace?: string;
            /** @description what it may do; a list of at most 32 entries */
            scopes: string[];
        };
        /** @description Text for those who watch: an LLM's tokens, a line of a log. */
        NewOutput: {
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description 1, 2, 3 and so on in each hand-out: a part that is sent again is appended once; a whole number from 1 to 9007199254740992 */
            part?: number;
            /** @description appended to the job's log as it is; text of 1 to 16384 bytes */
            text: string;
        };
        /** @description How far the work is, from its worker. */
        NewProgress: {
            /** @description items that are done; a whole number from 0 to 9007199254740992 */
            itemsDone?: number;
            /** @description items there are; a whole number from 0 to 9007199254740992 */
            itemsTotal?: number;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description a line for people; text of 1 to 1024 bytes */
            message?: string;
            /** @description how much is done; worked out from items or stages if left out; a number from 0 to 100 */
            pct?: number;
            /** @description what is being done; text of 1 to 128 bytes */
            stage?: string;
            /** @description how much of the stage is done; a number from 0 to 100 */
            stagePct?: number;
            /** @description stages that are done; a whole number from 0 to 9007199254740992 */
            stagesDone?: number;
            /** @description stages there are; a whole number from 0 to 9007199254740992 */
            stagesTotal?: number;
        };
        /** @description A queue to be created: a name, and settings. */
        NewQueue: {
            /** @description how long to wait for the outcome in ack mode; seconds, or a duration like "30s", from 1s to 7d */
            ackTimeout?: number | string;
            /**
             * @description what a missing outcome leads to; one of "retry", "dead"
             * @enum {string}
             */
            ackTimeoutAction?: "retry" | "dead";
            /** @description a push queue may be drained by pullers too; true or false */
            allowPull?: boolean;
            /** @description waits between attempts; an object */
            backoff?: {
                /** @description the first (exponential) or every (fixed) wait; seconds, or a duration like "30s", from 0s to 1d */
                delay?: number | string;
                /** @description schedule: the waits; the last one repeats; a list of at most 20 entries */
                delays?: (number | string)[];
                /** @description exponential: each wait is so many times the one before; a number from 1 to 10 */
                factor?: number;
                /** @description share of a wait that chance may take away; a number from 0 to 1 */
                jitter?: number;
                /** @description exponential: no wait is longer; seconds, or a duration like "30s", from 0s to 1d */
                maxDelay?: number | string;
                /**
                 * @description exponential multiplies the delay by factor each time; schedule takes the delays in order; one of "exponential", "fixed", "schedule"
                 * @enum {string}
                 */
                type?: "exponential" | "fixed" | "schedule";
            };
            /** @description the hold when no time was given; seconds, or a duration like "30s", from 0s to 1d */
            backpressureDelay?: number | string;
            /**
             * @description what an answer of 429, 503 or 529 holds; one of "queue", "job"
             * @enum {string}
             */
            backpressureScope?: "queue" | "job";
            /** @description jobs running at once; a whole number from 1 to 100000 */
            concurrency?: number | null;
            /**
             * @description when an idempotency key is free again; one of "always", "unless_failed"
             * @enum {string}
             */
            dedupe?: "always" | "unless_failed";
            /**
             * @description payload: publishes without a key are compared by payload; one of "key", "payload"
             * @enum {string}
             */
            dedupeBy?: "key" | "payload";
            /** @description how long a key is remembered; as retention if unset; seconds, or a duration like "30s", from 1s to 3650d */
            dedupeWindow?: (number | string) | null;
            /** @description time to stop after a cancel request; seconds, or a duration like "30s", from 0s to 1h */
            drainTimeout?: number | string;
            /** @description jobTimeout moves on while progress moves; true or false */
            extendWhileProgressing?: boolean;
            /**
             * @description whether a report must name its lease; one of "optional", "required"
             * @enum {string}
             */
            fencing?: "optional" | "required";
            /** @description per attempt; ends it; seconds, or a duration like "30s", from 1s to 30d */
            hardTimeLimit?: (number | string) | null;
            /** @description sent with each delivery; an object of at most 20 texts, with names of 1 to 128 bytes and values of at most 1024 */
            headers?: {
                [key: string]: string;
            };
            /** @description a running job must heartbeat this often; seconds, or a duration like "30s", from 1s to 1d */
            heartbeatTimeout?: (number | string) | null;
            /** @description over all attempts, from the first hand-out; seconds, or a duration like "30s", from 1s to 30d */
            jobTimeout?: (number | string) | null;
            /** @description checkpoints and sections stay after success, until the job is purged; true or false */
            keepCheckpoints?: boolean;
            /** @description age beyond which a deferred job fails; seconds, or a duration like "30s", from 1s to 365d */
            maxAge?: number | string;
            /** @description charged attempts before a job is a dead letter; a whole number from 1 to 20 */
            maxAttempts?: number;
            /** @description free deferrals before a job fails; a whole number from 0 to 100000 */
            maxDeferrals?: number;
            /**
             * @description standard: the webhook's answer is the outcome; ack: the outcome comes later; pull: handed out by receive; one of "standard", "ack", "pull"
             * @enum {string}
             */
            mode?: "standard" | "ack" | "pull";
            /** @description the queue's name; a name (letters, digits, ".", "_", "-", starting with a letter or digit) of 1 to 128 bytes */
            name: string;
            /** @description hand-outs over time; an object */
            rateLimit?: {
                /** @description hand-outs per period; a whole number from 1 to 1000000 */
                limit: number;
                /** @description the period; seconds, or a duration like "30s", from 100ms to 1d */
                per: number | string;
            } | null;
            /** @description how long results are kept; seconds, or a duration like "30s", from 1s to 3650d */
            resultTtl?: number | string;
            /** @description how long finished jobs are kept; seconds, or a duration like "30s", from 1s to 3650d */
            retention?: number | string;
            /** @description name of the plain HMAC header; a header name of 1 to 64 bytes */
            signatureHeader?: string;
            /** @description signs deliveries; made by the server if left out, and shown once; "whsec_" and base64, or 16 to 255 visible ASCII characters of 16 to 255 bytes */
            signingSecret?: string;
            /** @description per attempt; tells the worker; seconds, or a duration like "30s", from 1s to 30d */
            softTimeLimit?: (number | string) | null;
            /**
             * @description what a stall leads to; one of "flag", "retry"
             * @enum {string}
             */
            stallAction?: "flag" | "retry";
            /** @description heartbeats without progress for this long count as a stall; seconds, or a duration like "30s", from 1s to 1d */
            stallTimeout?: number | string;
            /** @description presets; any field beside it wins; one of "anthropic", "openai", "report", "transcode", "webhook" */
            template?: ("anthropic" | "openai" | "report" | "transcode" | "webhook") | null;
            /** @description the lease of a pull hand-out; seconds, or a duration like "30s", from 1s to 12h */
            visibilityTimeout?: number | string;
            /** @description how long a delivery may take; seconds, or a duration like "30s", from 1s to 1m */
            webhookTimeout?: number | string;
            /** @description where jobs are delivered; an http or https URL without user, password or fragment of 1 to 2048 bytes */
            webhookUrl?: string | null;
        };
        /** @description A token to one job: it can be given to a browser, which must not have a key. */
        NewToken: {
            /** @description what its holder may do; a list of at most 5 entries */
            can: ("read" | "watch" | "output" | "cancel" | "download")[];
            /** @description when it stops working, at the latest with the key; one hour if unset; seconds, or a duration like "30s", from 1s to 7d */
            expiresIn?: number | string;
        };
        /** @description A result that its worker uploads by links. */
        NewUpload: {
            /** @description sent with every download; a media type such as "text/csv" of 3 to 255 bytes */
            contentType?: string;
            /** @description suggested file name of the download; sanitised first; text of 1 to 1024 bytes */
            filename?: string;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description in how many parts at most it will come; 1 if unset; a whole number from 1 to 1000 */
            parts?: number;
        };
        Operation: {
            /** Format: date-time */
            createdAt: string;
            finishedAt: string | null;
            id: string;
            /** @enum {string} */
            kind: "replay" | "purge" | "discard" | "delete";
            limit: number | null;
            processed: number;
            queue: string;
            ratePerSecond: number | null;
            skipped: number;
            /** @enum {string} */
            status: "running" | "done" | "stopped" | "stuck";
        };
        /** @description A page may be short or empty while nextCursor is set: follow it to the end. */
        OperationPage: {
            items: components["schemas"]["Operation"][];
            nextCursor: string | null;
        };
        /** @description Outcomes of several jobs, each on its own, one durable commit. */
        OutcomeBatch: {
            /** @description the outcomes; a list of at most 1000 entries */
            outcomes: components["schemas"]["OutcomeEntry"][];
        };
        /** @description One outcome of a batch: the job, its lease, and the fields of that outcome. */
        OutcomeEntry: {
            /** @description instead of the backoff; seconds, or a duration like "30s", from 0s to 1d */
            delay?: number | string;
            /** @description the job; a job id (UUID) */
            id: string;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /**
             * @description what happened; one of "ack", "nack", "defer", "release", "cancelled"
             * @enum {string}
             */
            outcome: "ack" | "nack" | "defer" | "release" | "cancelled";
            /** @description what went wrong, for people; text of 1 to 1024 bytes */
            reason?: string;
            /** @description any JSON, kept as the job's result; JSON */
            result?: unknown;
            /** @description false makes it a dead letter at once; true or false */
            retryable?: boolean;
            /** @description when to come back; the queue's backpressureDelay if unset; seconds, or a duration like "30s", from 0s to 1d */
            retryAfter?: number | string;
            /**
             * @description what to hold; only the job if unset; one of "queue", "job"
             * @enum {string}
             */
            scope?: "queue" | "job";
            /** @description what the attempt used, by unit, as {"tokens": 1234}; kept with the attempt; an object of at most 16 numbers from 0 to 1000000000000, with names of 1 to 64 bytes */
            usage?: {
                [key: string]: number;
            };
        };
        OutputResult: {
            /** @constant */
            accepted: true;
            /** Format: uuid */
            id: string;
            seq: number | null;
            status: components["schemas"]["Status"];
            version: number;
        };
        Problem: {
            /** @enum {string} */
            code?: "invalid_request" | "lease_required" | "unauthorized" | "forbidden" | "route_not_found" | "queue_not_found" | "job_not_found" | "result_not_found" | "checkpoint_not_found" | "section_not_found" | "upload_not_found" | "result_missing" | "result_damaged" | "key_not_found" | "operation_not_found" | "event_not_found" | "source_not_found" | "method_not_allowed" | "request_timeout" | "queue_exists" | "queue_not_empty" | "lease_lost" | "not_running" | "outcome_conflict" | "no_cancel_requested" | "not_replayable" | "key_taken" | "last_admin_key" | "payload_fixed" | "result_exists" | "output_full" | "output_gap" | "sections_full" | "uploads_full" | "not_pullable" | "job_expired" | "version_mismatch" | "set_by_file" | "payload_too_large" | "uri_too_long" | "unsupported_media_type" | "too_many_requests" | "overloaded" | "draining" | "unavailable" | "store_unavailable" | "blobs_unavailable" | "secrets_sealed" | "disk_full" | "unsupported_transfer_encoding" | "data_damaged" | "job_set_aside" | "internal";
            /** @description what to do about it */
            detail: string;
            errors?: {
                field: string;
                message: string;
            }[];
            status: number;
            title: string;
            type?: string;
        };
        Progress: {
            /** Format: date-time */
            at: string;
            eta: string | null;
            itemsDone: number | null;
            itemsTotal: number | null;
            message: string | null;
            pct: number | null;
            stage: string | null;
            stagePct: number | null;
            stagesDone: number | null;
            stagesTotal: number | null;
            /** Format: date-time */
            startedAt: string;
        };
        /** @description Progress of many jobs from one worker, each on its own. */
        ProgressBatch: {
            /** @description the reports; a list of at most 1000 entries */
            reports: components["schemas"]["ProgressEntry"][];
        };
        /** @description One report of many: the job, its lease, and how far it is. */
        ProgressEntry: {
            /** @description the job; a job id (UUID) */
            id: string;
            /** @description items that are done; a whole number from 0 to 9007199254740992 */
            itemsDone?: number;
            /** @description items there are; a whole number from 0 to 9007199254740992 */
            itemsTotal?: number;
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
            /** @description a line for people; text of 1 to 1024 bytes */
            message?: string;
            /** @description how much is done; worked out from items or stages if left out; a number from 0 to 100 */
            pct?: number;
            /** @description what is being done; text of 1 to 128 bytes */
            stage?: string;
            /** @description how much of the stage is done; a number from 0 to 100 */
            stagePct?: number;
            /** @description stages that are done; a whole number from 0 to 9007199254740992 */
            stagesDone?: number;
            /** @description stages there are; a whole number from 0 to 9007199254740992 */
            stagesTotal?: number;
        };
        ProgressResult: {
            /** @constant */
            accepted: true;
            /** Format: uuid */
            id: string;
            progress: components["schemas"]["Progress"];
        };
        ProgressResults: {
            results: (components["schemas"]["ProgressResult"] | {
                /** @constant */
                accepted: false;
                error: components["schemas"]["Problem"];
                id: string | null;
            })[];
        };
        PublishedJob: {
            cancelUrl: string;
            /** Format: date-time */
            createdAt: string;
            /** @enum {string} */
            dedupeBy: "key" | "payload";
            duplicate: boolean;
            /** Format: uuid */
            id: string;
            payloadMismatch?: boolean;
            queue: string;
            status: components["schemas"]["Status"];
            statusUrl: string;
            streamUrl: string;
        };
        PublishedJobBatch: {
            jobs: ({
                /** Format: date-time */
                createdAt: string;
                /** @enum {string} */
                dedupeBy: "key" | "payload";
                duplicate: boolean;
                /** Format: uuid */
                id: string;
                payloadMismatch?: boolean;
                status: components["schemas"]["Status"];
                statusUrl: string;
                streamUrl: string;
            } | {
                error: components["schemas"]["Problem"];
            })[];
        };
        PublishResult: components["schemas"]["PublishedJob"] | components["schemas"]["Job"];
        Queue: {
            /** @description how long to wait for the outcome in ack mode */
            ackTimeout: number;
            /**
             * @description what a missing outcome leads to
             * @enum {string}
             */
            ackTimeoutAction: "retry" | "dead";
            /** @description a push queue may be drained by pullers too */
            allowPull: boolean;
            /** @description waits between attempts */
            backoff: {
                delay?: unknown;
                delays?: unknown;
                factor?: unknown;
                jitter?: unknown;
                maxDelay?: unknown;
                type?: unknown;
            };
            /** @description the hold when no time was given */
            backpressureDelay: number;
            /**
             * @description what an answer of 429, 503 or 529 holds
             * @enum {string}
             */
            backpressureScope: "queue" | "job";
            /** @description jobs running at once */
            concurrency: number | null;
            counts: {
                cancelled: number;
                expired: number;
                failed: number;
                pending: number;
                queued: number;
                running: number;
                succeeded: number;
            };
            /** Format: date-time */
            createdAt: string;
            declared: {
                events: string[];
                filter: string | null;
                idempotencyKey: string | null;
                settings: string[];
                source: string | null;
            } | null;
            /**
             * @description when an idempotency key is free again
             * @enum {string}
             */
            dedupe: "always" | "unless_failed";
            /**
             * @description payload: publishes without a key are compared by payload
             * @enum {string}
             */
            dedupeBy: "key" | "payload";
            /** @description how long a key is remembered; as retention if unset */
            dedupeWindow: number | null;
            /** @description time to stop after a cancel request */
            drainTimeout: number;
            /** @description jobTimeout moves on while progress moves */
            extendWhileProgressing: boolean;
            /**
             * @description whether a report must name its lease
             * @enum {string}
             */
            fencing: "optional" | "required";
            /** @description per attempt; ends it */
            hardTimeLimit: number | null;
            /** @description sent with each delivery */
            headers: {
                [key: string]: string;
            };
            /** @description a running job must heartbeat this often */
            heartbeatTimeout: number | null;
            hold: {
                probe: string | null;
                probing: boolean;
                /** @enum {string} */
                reason: "backpressure" | "circuit" | "deferred";
                round: number;
                /** Format: date-time */
                until: string;
            } | null;
            /** @description over all attempts, from the first hand-out */
            jobTimeout: number | null;
            /** @description checkpoints and sections stay after success, until the job is purged */
            keepCheckpoints: boolean;
            /** @description age beyond which a deferred job fails */
            maxAge: number;
            /** @description charged attempts before a job is a dead letter */
            maxAttempts: number;
            /** @description free deferrals before a job fails */
            maxDeferrals: number;
            /**
             * @description standard: the webhook's answer is the outcome; ack: the outcome comes later; pull: handed out by receive
             * @enum {string}
             */
            mode: "standard" | "ack" | "pull";
            /** @description the queue's name */
            name: string;
            paused: boolean;
            /** @description hand-outs over time */
            rateLimit: {
                limit?: unknown;
                per?: unknown;
            } | null;
            /** @description how long results are kept */
            resultTtl: number;
            /** @description how long finished jobs are kept */
            retention: number;
            /** @description name of the plain HMAC header */
            signatureHeader: string;
            /** @description signs deliveries; made by the server if left out, and shown once */
            signingSecret?: string;
            /** @description per attempt; tells the worker */
            softTimeLimit: number | null;
            /**
             * @description what a stall leads to
             * @enum {string}
             */
            stallAction: "flag" | "retry";
            /** @description heartbeats without progress for this long count as a stall */
            stallTimeout: number;
            /** @description presets; any field beside it wins */
            template: ("anthropic" | "openai" | "report" | "transcode" | "webhook") | null;
            /** Format: date-time */
            updatedAt: string;
            version: number;
            /** @description the lease of a pull hand-out */
            visibilityTimeout: number;
            /** @description how long a delivery may take */
            webhookTimeout: number;
            /** @description where jobs are delivered */
            webhookUrl: string | null;
        };
        /** @description A page may be short or empty while nextCursor is set: follow it to the end. */
        QueuePage: {
            items: components["schemas"]["Queue"][];
            nextCursor: string | null;
        };
        /** @description Settings to change; what is left out stays. */
        QueuePatch: {
            /** @description how long to wait for the outcome in ack mode; seconds, or a duration like "30s", from 1s to 7d */
            ackTimeout?: number | string;
            /**
             * @description what a missing outcome leads to; one of "retry", "dead"
             * @enum {string}
             */
            ackTimeoutAction?: "retry" | "dead";
            /** @description a push queue may be drained by pullers too; true or false */
            allowPull?: boolean;
            /** @description waits between attempts; an object */
            backoff?: {
                /** @description the first (exponential) or every (fixed) wait; seconds, or a duration like "30s", from 0s to 1d */
                delay?: number | string;
                /** @description schedule: the waits; the last one repeats; a list of at most 20 entries */
                delays?: (number | string)[];
                /** @description exponential: each wait is so many times the one before; a number from 1 to 10 */
                factor?: number;
                /** @description share of a wait that chance may take away; a number from 0 to 1 */
                jitter?: number;
                /** @description exponential: no wait is longer; seconds, or a duration like "30s", from 0s to 1d */
                maxDelay?: number | string;
                /**
                 * @description exponential multiplies the delay by factor each time; schedule takes the delays in order; one of "exponential", "fixed", "schedule"
                 * @enum {string}
                 */
                type?: "exponential" | "fixed" | "schedule";
            };
            /** @description the hold when no time was given; seconds, or a duration like "30s", from 0s to 1d */
            backpressureDelay?: number | string;
            /**
             * @description what an answer of 429, 503 or 529 holds; one of "queue", "job"
             * @enum {string}
             */
            backpressureScope?: "queue" | "job";
            /** @description jobs running at once; a whole number from 1 to 100000 */
            concurrency?: number | null;
            /**
             * @description when an idempotency key is free again; one of "always", "unless_failed"
             * @enum {string}
             */
            dedupe?: "always" | "unless_failed";
            /**
             * @description payload: publishes without a key are compared by payload; one of "key", "payload"
             * @enum {string}
             */
            dedupeBy?: "key" | "payload";
            /** @description how long a key is remembered; as retention if unset; seconds, or a duration like "30s", from 1s to 3650d */
            dedupeWindow?: (number | string) | null;
            /** @description time to stop after a cancel request; seconds, or a duration like "30s", from 0s to 1h */
            drainTimeout?: number | string;
            /** @description jobTimeout moves on while progress moves; true or false */
            extendWhileProgressing?: boolean;
            /**
             * @description whether a report must name its lease; one of "optional", "required"
             * @enum {string}
             */
            fencing?: "optional" | "required";
            /** @description per attempt; ends it; seconds, or a duration like "30s", from 1s to 30d */
            hardTimeLimit?: (number | string) | null;
            /** @description sent with each delivery; an object of at most 20 texts, with names of 1 to 128 bytes and values of at most 1024 */
            headers?: {
                [key: string]: string;
            };
            /** @description a running job must heartbeat this often; seconds, or a duration like "30s", from 1s to 1d */
            heartbeatTimeout?: (number | string) | null;
            /** @description over all attempts, from the first hand-out; seconds, or a duration like "30s", from 1s to 30d */
            jobTimeout?: (number | string) | null;
            /** @description checkpoints and sections stay after success, until the job is purged; true or false */
            keepCheckpoints?: boolean;
            /** @description age beyond which a deferred job fails; seconds, or a duration like "30s", from 1s to 365d */
            maxAge?: number | string;
            /** @description charged attempts before a job is a dead letter; a whole number from 1 to 20 */
            maxAttempts?: number;
            /** @description free deferrals before a job fails; a whole number from 0 to 100000 */
            maxDeferrals?: number;
            /**
             * @description standard: the webhook's answer is the outcome; ack: the outcome comes later; pull: handed out by receive; one of "standard", "ack", "pull"
             * @enum {string}
             */
            mode?: "standard" | "ack" | "pull";
            /** @description the queue's name; a name (letters, digits, ".", "_", "-", starting with a letter or digit) of 1 to 128 bytes */
            name?: string;
            /** @description hand-outs over time; an object */
            rateLimit?: {
                /** @description hand-outs per period; a whole number from 1 to 1000000 */
                limit: number;
                /** @description the period; seconds, or a duration like "30s", from 100ms to 1d */
                per: number | string;
            } | null;
            /** @description how long results are kept; seconds, or a duration like "30s", from 1s to 3650d */
            resultTtl?: number | string;
            /** @description how long finished jobs are kept; seconds, or a duration like "30s", from 1s to 3650d */
            retention?: number | string;
            /** @description name of the plain HMAC header; a header name of 1 to 64 bytes */
            signatureHeader?: string;
            /** @description signs deliveries; made by the server if left out, and shown once; "whsec_" and base64, or 16 to 255 visible ASCII characters of 16 to 255 bytes */
            signingSecret?: string;
            /** @description per attempt; tells the worker; seconds, or a duration like "30s", from 1s to 30d */
            softTimeLimit?: (number | string) | null;
            /**
             * @description what a stall leads to; one of "flag", "retry"
             * @enum {string}
             */
            stallAction?: "flag" | "retry";
            /** @description heartbeats without progress for this long count as a stall; seconds, or a duration like "30s", from 1s to 1d */
            stallTimeout?: number | string;
            /** @description presets; any field beside it wins; one of "anthropic", "openai", "report", "transcode", "webhook" */
            template?: ("anthropic" | "openai" | "report" | "transcode" | "webhook") | null;
            /** @description the lease of a pull hand-out; seconds, or a duration like "30s", from 1s to 12h */
            visibilityTimeout?: number | string;
            /** @description how long a delivery may take; seconds, or a duration like "30s", from 1s to 1m */
            webhookTimeout?: number | string;
            /** @description where jobs are delivered; an http or https URL without user, password or fragment of 1 to 2048 bytes */
            webhookUrl?: string | null;
        };
        /** @description Settings of a queue; what is left out has its default. */
        QueueSettings: {
            /** @description how long to wait for the outcome in ack mode; seconds, or a duration like "30s", from 1s to 7d */
            ackTimeout?: number | string;
            /**
             * @description what a missing outcome leads to; one of "retry", "dead"
             * @enum {string}
             */
            ackTimeoutAction?: "retry" | "dead";
            /** @description a push queue may be drained by pullers too; true or false */
            allowPull?: boolean;
            /** @description waits between attempts; an object */
            backoff?: {
                /** @description the first (exponential) or every (fixed) wait; seconds, or a duration like "30s", from 0s to 1d */
                delay?: number | string;
                /** @description schedule: the waits; the last one repeats; a list of at most 20 entries */
                delays?: (number | string)[];
                /** @description exponential: each wait is so many times the one before; a number from 1 to 10 */
                factor?: number;
                /** @description share of a wait that chance may take away; a number from 0 to 1 */
                jitter?: number;
                /** @description exponential: no wait is longer; seconds, or a duration like "30s", from 0s to 1d */
                maxDelay?: number | string;
                /**
                 * @description exponential multiplies the delay by factor each time; schedule takes the delays in order; one of "exponential", "fixed", "schedule"
                 * @enum {string}
                 */
                type?: "exponential" | "fixed" | "schedule";
            };
            /** @description the hold when no time was given; seconds, or a duration like "30s", from 0s to 1d */
            backpressureDelay?: number | string;
            /**
             * @description what an answer of 429, 503 or 529 holds; one of "queue", "job"
             * @enum {string}
             */
            backpressureScope?: "queue" | "job";
            /** @description jobs running at once; a whole number from 1 to 100000 */
            concurrency?: number | null;
            /**
             * @description when an idempotency key is free again; one of "always", "unless_failed"
             * @enum {string}
             */
            dedupe?: "always" | "unless_failed";
            /**
             * @description payload: publishes without a key are compared by payload; one of "key", "payload"
             * @enum {string}
             */
            dedupeBy?: "key" | "payload";
            /** @description how long a key is remembered; as retention if unset; seconds, or a duration like "30s", from 1s to 3650d */
            dedupeWindow?: (number | string) | null;
            /** @description time to stop after a cancel request; seconds, or a duration like "30s", from 0s to 1h */
            drainTimeout?: number | string;
            /** @description jobTimeout moves on while progress moves; true or false */
            extendWhileProgressing?: boolean;
            /**
             * @description whether a report must name its lease; one of "optional", "required"
             * @enum {string}
             */
            fencing?: "optional" | "required";
            /** @description per attempt; ends it; seconds, or a duration like "30s", from 1s to 30d */
            hardTimeLimit?: (number | string) | null;
            /** @description sent with each delivery; an object of at most 20 texts, with names of 1 to 128 bytes and values of at most 1024 */
            headers?: {
                [key: string]: string;
            };
            /** @description a running job must heartbeat this often; seconds, or a duration like "30s", from 1s to 1d */
            heartbeatTimeout?: (number | string) | null;
            /** @description over all attempts, from the first hand-out; seconds, or a duration like "30s", from 1s to 30d */
            jobTimeout?: (number | string) | null;
            /** @description checkpoints and sections stay after success, until the job is purged; true or false */
            keepCheckpoints?: boolean;
            /** @description age beyond which a deferred job fails; seconds, or a duration like "30s", from 1s to 365d */
            maxAge?: number | string;
            /** @description charged attempts before a job is a dead letter; a whole number from 1 to 20 */
            maxAttempts?: number;
            /** @description free deferrals before a job fails; a whole number from 0 to 100000 */
            maxDeferrals?: number;
            /**
             * @description standard: the webhook's answer is the outcome; ack: the outcome comes later; pull: handed out by receive; one of "standard", "ack", "pull"
             * @enum {string}
             */
            mode?: "standard" | "ack" | "pull";
            /** @description the queue's name; a name (letters, digits, ".", "_", "-", starting with a letter or digit) of 1 to 128 bytes */
            name?: string;
            /** @description hand-outs over time; an object */
            rateLimit?: {
                /** @description hand-outs per period; a whole number from 1 to 1000000 */
                limit: number;
                /** @description the period; seconds, or a duration like "30s", from 100ms to 1d */
                per: number | string;
            } | null;
            /** @description how long results are kept; seconds, or a duration like "30s", from 1s to 3650d */
            resultTtl?: number | string;
            /** @description how long finished jobs are kept; seconds, or a duration like "30s", from 1s to 3650d */
            retention?: number | string;
            /** @description name of the plain HMAC header; a header name of 1 to 64 bytes */
            signatureHeader?: string;
            /** @description signs deliveries; made by the server if left out, and shown once; "whsec_" and base64, or 16 to 255 visible ASCII characters of 16 to 255 bytes */
            signingSecret?: string;
            /** @description per attempt; tells the worker; seconds, or a duration like "30s", from 1s to 30d */
            softTimeLimit?: (number | string) | null;
            /**
             * @description what a stall leads to; one of "flag", "retry"
             * @enum {string}
             */
            stallAction?: "flag" | "retry";
            /** @description heartbeats without progress for this long count as a stall; seconds, or a duration like "30s", from 1s to 1d */
            stallTimeout?: number | string;
            /** @description presets; any field beside it wins; one of "anthropic", "openai", "report", "transcode", "webhook" */
            template?: ("anthropic" | "openai" | "report" | "transcode" | "webhook") | null;
            /** @description the lease of a pull hand-out; seconds, or a duration like "30s", from 1s to 12h */
            visibilityTimeout?: number | string;
            /** @description how long a delivery may take; seconds, or a duration like "30s", from 1s to 1m */
            webhookTimeout?: number | string;
            /** @description where jobs are delivered; an http or https URL without user, password or fragment of 1 to 2048 bytes */
            webhookUrl?: string | null;
        };
        ReceivedJob: {
            attempt: number;
            checkpoint: components["schemas"]["Checkpoint"] | null;
            checkpointIncompatible: boolean;
            /** Format: date-time */
            createdAt: string;
            deadline: string | null;
            deferCount: number;
            drainTimeout: number;
            hardTimeLimit: number | null;
            heartbeatTimeout: number | null;
            /** Format: uuid */
            id: string;
            key: string | null;
            lease: string;
            /** Format: date-time */
            leaseExpiresAt: string;
            maxAttempts: number;
            /** @enum {string} */
            mode: "standard" | "ack" | "pull";
            payload: unknown;
            queue: string;
            replays: number;
            sections: string[];
            softTimeLimit: number | null;
            tags: {
                [key: string]: string;
            };
            traceparent: string | null;
        };
        ReceivedJobs: {
            jobs: components["schemas"]["ReceivedJob"][];
        };
        /** @description One of the queues to hand out from. */
        ReceiveQueue: {
            /** @description the queue; a name (letters, digits, ".", "_", "-", starting with a letter or digit) of 1 to 128 bytes */
            name: string;
            /** @description how often it is asked first, beside the others; 1 if unset; a whole number from 1 to 1000 */
            weight?: number;
        };
        /** @description Which jobs to hand out. */
        ReceiveRequest: {
            /** @description schemaVersions of checkpoints that the worker can go on from; any if unset; a list of at most 32 entries */
            acceptsSchema?: number[];
            /** @description the program of the worker; shown with the worker; an object */
            agent?: {
                /** @description where it runs; text of 1 to 255 bytes */
                host?: string;
                /** @description its process; a whole number from 0 to 4294967295 */
                pid?: number;
                /** @description what it is made with, like outlast-python/0.1.0; text of 1 to 128 bytes */
                sdk?: string;
            };
            /** @description how many at most; 1 if unset; a whole number from 1 to 100 */
            batch?: number;
            /** @description the lease, instead of the queue's; seconds, or a duration like "30s", from 1s to 12h */
            visibilityTimeout?: number | string;
            /** @description how long to wait for the first one; seconds, or a duration like "30s", from 0s to 30s */
            wait?: number | string;
            /** @description who asks; shown with the job; text of 1 to 128 bytes */
            worker?: string;
        };
        /** @description Which jobs of several queues to hand out. */
        ReceiveSeveralRequest: {
            /** @description schemaVersions of checkpoints that the worker can go on from; any if unset; a list of at most 32 entries */
            acceptsSchema?: number[];
            /** @description the program of the worker; shown with the worker; an object */
            agent?: {
                /** @description where it runs; text of 1 to 255 bytes */
                host?: string;
                /** @description its process; a whole number from 0 to 4294967295 */
                pid?: number;
                /** @description what it is made with, like outlast-python/0.1.0; text of 1 to 128 bytes */
                sdk?: string;
            };
            /** @description how many at most; 1 if unset; a whole number from 1 to 100 */
            batch?: number;
            /** @description 1 to 100 queues; a list of at most 100 entries */
            queues: components["schemas"]["ReceiveQueue"][];
            /** @description the lease, instead of the queue's; seconds, or a duration like "30s", from 1s to 12h */
            visibilityTimeout?: number | string;
            /** @description how long to wait for the first one; seconds, or a duration like "30s", from 0s to 30s */
            wait?: number | string;
            /** @description who asks; shown with the job; text of 1 to 128 bytes */
            worker?: string;
        };
        /** @description Handed back at once, free. */
        Release: {
            /** @description as handed out; also as header x-outlast-lease; the lease as it was handed out (32 hexadecimal digits) */
            lease?: string;
        };
        ReloadResult: {
            needsRestart: string[];
            queues: number;
            sources: number;
        };
        /** @description Starts a failed or cancelled job again. */
        Replay: {
            /** @description forget what was saved before; true or false */
            fresh?: boolean;
            /** @description a new payload; JSON */
            payload?: unknown;
        };
        ReplayDryRun: {
            /** @constant */
            dryRun: true;
            matched: number;
        };
        /** @description New jobs of a stored event. */
        ReplayEvent: {
            /** @description only in this queue; in all that take it if left out; a name (letters, digits, ".", "_", "-", starting with a letter or digit) of 1 to 128 bytes */
            queue?: string;
        };
        ReportResult: {
            /** @constant */
            accepted: true;
            /** Format: uuid */
            id: string;
            status: components["schemas"]["Status"];
            version: number;
        };
        ReportResults: {
            results: (components["schemas"]["ReportResult"] | {
                /** @constant */
                accepted: false;
                error: components["schemas"]["Problem"];
                id: string | null;
            })[];
        };
        RotatedSecret: {
            previousValidUntil: string | null;
            queue: string;
            /** @description shown this once */
            signingSecret: string;
            version: number;
        };
        /** @description A new signing secret beside the present one. */
        RotateSecret: {
            /** @description how long the present one still signs; one day if left out; seconds, or a duration like "30s", from 0s to 30d */
            overlap?: number | string;
            /** @description the new one; made by the server if left out; "whsec_" and base64, or 16 to 255 visible ASCII characters of 16 to 255 bytes */
            signingSecret?: string;
        };
        SectionPage: {
            items: {
                /** Format: date-time */
                at: string;
                length: number;
                name: string;
                value: unknown;
            }[];
            nextCursor: string | null;
        };
        SimpleAckResult: {
            acked: number;
        };
        /** @description Messages by id or receipt. */
        SimpleIds: {
            /** @description job ids or receipts; a list of at most 1000 entries */
            ids: string[];
        };
        SimpleMessages: {
            messages: {
                attempt: number;
                /** Format: date-time */
                created_at: string;
                event_id: string;
                event_type: string | null;
                headers: Record<string, never>;
                /** Format: uuid */
                id: string;
                payload: unknown;
                receipt: string;
            }[];
        };
        SimpleNackResult: {
            dead: number;
            retried: number;
        };
        SimpleQueues: {
            queues: {
                depth: number;
                events: string[];
                name: string;
                source: string | null;
                visibility_timeout: string;
            }[];
        };
        /** @enum {string} */
        Status: "pending" | "queued" | "running" | "succeeded" | "failed" | "cancelled" | "expired";
        Token: {
            can: ("read" | "watch" | "output" | "cancel" | "download")[];
            /** Format: date-time */
            expiresAt: string;
            statusUrl: string;
            streamUrl: string;
            token: string;
        };
        UploadedBytes: {
            length: number;
            sha256: string;
        };
        UploadedResult: {
            /** @constant */
            accepted: true;
            contentType: string | null;
            filename: string | null;
            /** Format: uuid */
            id: string;
            length: number;
            sha256: string;
            version: number;
        };
        UploadLinks: {
            /** Format: date-time */
            expiresAt: string;
            headers: {
                [key: string]: string;
            };
            /** @constant */
            method: "PUT";
            parts: {
                number: number;
                url: string;
            }[];
            uploadId: string;
            url: string;
        };
        /** @description A job, and the version of it that is known. */
        WaitedJob: {
            /** @description the job; a job id (UUID) */
            id: string;
            /** @description the version already seen; 0 if unset; a whole number from 0 to 9223372036854775807 */
            version?: number;
        };
        WorkerList: {
            complete: boolean;
            items: {
                agent: {
                    host: string | null;
                    pid: number | null;
                    sdk: string | null;
                };
                holds: number;
                jobs: string[];
                queues: string[];
                seenAt: string | null;
                worker: string | null;
            }[];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
};
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
