// outlast/react: `useJob` follows a job in a component. Components of one job share one connection.

import { useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { watchJob, type JobState, type WatchOptions } from "./browser.js";

export type UseJobOptions = Omit<WatchOptions, "signal">;

export interface UsedJob extends Omit<JobState, "version"> {
  /** Asks the server to cancel the job. */
  cancel: () => Promise<void>;
}

export function useJob(options: UseJobOptions): UsedJob {
  const { url, id, token, initial } = options;
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  const watch = useMemo(
    () => {
      const onExpired = options.onExpired && (() => latest.current.onExpired!());
      return watchJob({ url, id, token, initial, onExpired });
    },
    // Another job is another watch; a newer token or state of the same job is not.
    [url, id],
  );
  useEffect(() => watch.renew(token), [watch, token]);
  const { version: _, ...state } = useSyncExternalStore(watch.subscribe, watch.current, watch.current);
  return { ...state, cancel: watch.cancel };
}
