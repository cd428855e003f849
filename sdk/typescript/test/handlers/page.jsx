// A page with two components that follow one job.

import { createRoot } from "react-dom/client";
import { watchJob } from "outlast/browser";
import { useJob } from "outlast/react";

function JobPanel({ name, options }) {
  const { status, progress, output, isEnded, channel, error, cancel } = useJob(options);
  const shown = { status, pct: progress?.pct ?? null, output, isEnded, channel, error: error?.message };
  // Only the latest state matters; the channels are collected, because one may be passed quickly.
  (window.channels ??= new Set()).add(channel);
  return (
    <div id={name}>
      <pre>{JSON.stringify(shown)}</pre>
      <button onClick={cancel}>cancel</button>
    </div>
  );
}

window.show = (options) => {
  const withRenewal = { ...options, onExpired: () => window.newToken?.() };
  createRoot(document.getElementById("root")).render(
    <>
      <JobPanel name="one" options={withRenewal} />
      <JobPanel name="two" options={withRenewal} />
    </>,
  );
};

window.iterate = async (options) => {
  const states = [];
  for await (const { status } of watchJob(options)) if (states.at(-1) !== status) states.push(status);
  return states;
};

window.withKey = (options) => {
  try {
    watchJob(options);
    return "no error";
  } catch (error) {
    return error.message;
  }
};
