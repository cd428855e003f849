// outlast/browser: follow a job in a page, with a token.

export { watchJob, Watch, WatchRefused } from "./browser/watch.js";
export type { Channel, JobState, WatchedProgress, WatchOptions } from "./browser/watch.js";
