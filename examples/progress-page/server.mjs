// The part of your application that holds the key: it publishes a job, mints a token for it, and gives the page that.
// Needs nothing but Node 18 or later. Usage: OUTLAST_KEY=ol_... node server.mjs QUEUE [PORT]

import { readFile } from "node:fs/promises";
import { createServer, request } from "node:http";

const { OUTLAST_URL = "http://127.0.0.1:8080", OUTLAST_KEY } = process.env;
const [queue, port = "3000"] = process.argv.slice(2);
if (!queue || !OUTLAST_KEY) throw new Error("usage: OUTLAST_KEY=ol_... node server.mjs QUEUE [PORT]");

const FILES = { "/": ["index.html", "text/html"], "/progress.js": ["progress.js", "text/javascript"] };

async function outlast(path, body) {
  const headers = { authorization: `Bearer ${OUTLAST_KEY}`, "content-type": "application/json" };
  const answer = await fetch(OUTLAST_URL + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

// The mint. Check here who your user is, and that the job is theirs.
async function startReport() {
  const { id } = await outlast(`/v1/queues/${queue}/jobs`, { payload: { title: "Tides", sections: 20, secondsEach: 0.1 } });
  const { token, streamUrl } = await outlast(`/v1/jobs/${id}/token`, { can: ["read", "cancel"], expiresIn: "1h" });
  const { pathname, search } = new URL(streamUrl, OUTLAST_URL);
  return { id, streamUrl: pathname + search, cancelUrl: `/v1/jobs/${id}/cancel?token=${encodeURIComponent(token)}` };
}

// The browser speaks to Outlast through your own address. In production a reverse proxy does this, for /v1/jobs/ only.
function passOn(incoming, outgoing) {
  const { host, ...headers } = incoming.headers;
  const onward = request(OUTLAST_URL + incoming.url, { method: incoming.method, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  onward.on("error", () => outgoing.destroy());
  outgoing.on("close", () => onward.destroy());
  incoming.pipe(onward);
}

async function answer(incoming, outgoing) {
  if (incoming.url.startsWith("/v1/jobs/")) return passOn(incoming, outgoing);
  if (incoming.method === "POST" && incoming.url === "/reports") {
    const report = await startReport();
    return outgoing.writeHead(201, { "content-type": "application/json" }).end(JSON.stringify(report));
  }
  const [name, type] = FILES[incoming.url] ?? [];
  if (!name) return outgoing.writeHead(404).end();
  const body = await readFile(new URL(name, import.meta.url));
  return outgoing.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(body);
}

const server = createServer((incoming, outgoing) => {
  answer(incoming, outgoing).catch((error) => {
    console.error(error.message);
    outgoing.writeHead(502).end();
  });
});
server.listen(Number(port), "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
