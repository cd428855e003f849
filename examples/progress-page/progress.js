// Follows one job in the browser through server-sent events. No key comes here: the token is for this one job.

const find = (id) => document.getElementById(id);

// The words about a progress report, as far as it has them.
function describe(progress, now) {
  const parts = [];
  if (progress.stage) parts.push(progress.stage);
  if (progress.itemsTotal) parts.push(`${progress.itemsDone} of ${progress.itemsTotal}`);
  if (progress.eta) parts.push(`${Math.max(0, Math.round((Date.parse(progress.eta) - now) / 1000))} s left`);
  if (progress.message) parts.push(progress.message);
  return parts.join(" · ");
}

function follow(streamUrl) {
  // The browser reconnects by itself and says which event it had last, so that nothing is missed.
  const stream = new EventSource(streamUrl);
  stream.addEventListener("progress", (event) => {
    const progress = JSON.parse(event.data);
    if (progress.pct !== null) find("bar").value = progress.pct;
    find("detail").textContent = describe(progress, Date.now());
  });
  stream.addEventListener("state", (event) => {
    find("status").textContent = JSON.parse(event.data).to;
  });
  // A final state need not be the last one: a job that has failed may have been replayed since. Only this event is the end.
  stream.addEventListener("end", (event) => {
    stream.close();
    if (JSON.parse(event.data).status === "succeeded") find("bar").value = 100;
    find("cancel").disabled = true;
    document.body.dataset.ended = "yes";
  });
}

find("start").addEventListener("click", async () => {
  find("start").disabled = true;
  const answer = await fetch("/reports", { method: "POST" });
  if (!answer.ok) {
    find("status").textContent = `not started: ${answer.status}`;
    return;
  }
  const { streamUrl, cancelUrl } = await answer.json();
  find("cancel").disabled = false;
  find("cancel").addEventListener("click", () => fetch(cancelUrl, { method: "POST" }), { once: true });
  follow(streamUrl);
});
