// Durations as the API takes them: seconds as a number, or a text such as "500ms", "30s", "5m", "2h", "7d".

export type Duration = number | string;

const secondsPerUnit: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 };

/** The duration in seconds. `field` names it in the error. */
export function seconds(duration: Duration, field: string): number {
  if (typeof duration === "number" && duration >= 0 && Number.isFinite(duration)) return duration;
  const match = typeof duration === "string" ? /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(duration) : null;
  if (match) return Number(match[1]) * secondsPerUnit[match[2] as string]!;
  throw new TypeError(
    `${field} is seconds as a number, or a duration like "500ms", "30s", "5m", "2h" or "7d"; not ${String(duration)}`,
  );
}

/** Resolves after so many milliseconds; rejects with the reason of the signal when it is aborted before. */
export function sleep(millis: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const aborted = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, millis);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}
