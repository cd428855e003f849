// outlast/testing: run a handler without a server, start a real server, sign deliveries.

import { serveChild } from "./testing/run-job.js";

export { runJob, type Run, type RunOptions, type RunOutcome } from "./testing/run-job.js";
export type { StoredUpload } from "./testing/memory-reports.js";
export { startOutlast, type OutlastServer, type StartOptions } from "./testing/server.js";
export { delivery, signDelivery, type DeliveryOptions } from "./testing/sign.js";

// `killAfter` starts this file as a child process.
if (process.env["OUTLAST_TEST_CHILD"] === "1" && process.send !== undefined) {
  delete process.env["OUTLAST_TEST_CHILD"];
  serveChild();
}
