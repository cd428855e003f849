// A proxy between a client and the server that records requests and makes faults: as sdk/scenarios.yaml describes them.

import { createServer, request } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";

/** Does "GET /v1/jobs/*" match this request? */
export function matches(pattern, method, path) {
  const [wantedMethod, wantedPath] = pattern.split(" ");
  if (wantedMethod !== method) return false;
  const [wanted, given] = [wantedPath.split("/"), path.split("/")];
  return wanted.length === given.length && wanted.every((part, index) => part === "*" || part === given[index]);
}

/** Starts the proxy. `requests` grows with each request: {request, body, headers}. */
export async function startProxy(target, faults = []) {
  const requests = [];
  const seen = faults.map(() => 0);
  const { hostname, port } = new URL(target);

  const server = createServer(async (incoming, outgoing) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const path = incoming.url.split("?")[0];
    requests.push({ request: `${incoming.method} ${path}`, body: parsed(body), headers: incoming.headers });
    // Every fault counts the requests that it matches, also those that another one is for.
    const [fault] = faults.filter((one, index) => {
      if (one.refuse || !matches(one.request, incoming.method, path)) return false;
      seen[index] += 1;
      const nth = one.nth ?? 1;
      return nth === "all" || [nth].flat().includes(seen[index]);
    });
    if (fault?.drop === "request") return incoming.socket.destroy();
    if (fault?.answer) return answer(outgoing, fault.answer);
    const headers = { ...incoming.headers, host: `${hostname}:${port}`, connection: "close" };
    delete headers["transfer-encoding"];
    if (body.length > 0) headers["content-length"] = body.length;
    const forwarded = request({ hostname, port, method: incoming.method, path: incoming.url, headers }, (response) => {
      if (fault?.drop === "answer") {
        response.resume();
        response.on("end", () => incoming.socket.destroy());
        return;
      }
      pass(response, outgoing, fault?.cut);
    });
    forwarded.on("error", () => incoming.socket.destroy());
    outgoing.on("close", () => forwarded.destroy());
    forwarded.end(body);
  });
  server.keepAliveTimeout = 60_000;
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () =>
    new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  return { url: `http://127.0.0.1:${server.address().port}`, requests, stop };
}

function parsed(body) {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

function answer(outgoing, { status, headers = {}, body = "" }) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const type = typeof body === "string" ? "text/html" : "application/problem+json";
  outgoing.writeHead(status, { "content-type": type, ...headers }).end(text);
}

function pass(response, outgoing, cut) {
  const headers = { ...response.headers };
  delete headers.connection;
  outgoing.writeHead(response.statusCode, headers);
  outgoing.flushHeaders();
  let left = cut ?? Infinity;
  // The bytes before the cut must have left before the connection ends.
  const end = () => setTimeout(() => outgoing.destroy(), 20);
  response.on("data", (chunk) => {
    if (left <= 0) return;
    outgoing.write(chunk.subarray(0, Math.min(left, chunk.length)));
    left -= chunk.length;
    if (left <= 0) end();
  });
  if (left <= 0) end();
  response.on("end", () => (cut === undefined ? outgoing.end() : end()));
  response.on("error", () => outgoing.destroy());
  response.on("aborted", () => outgoing.destroy());
}

/**
 * A proxy for bytes. `cutNext(n)`: the next answer is cut after n bytes, its head included; resolves when that has happened.
 * `cutEvery(nth, step)`: each nth answer is cut, at a place that moves on by `step` bytes.
 */
export async function startCuttingProxy(target) {
  const { hostname, port } = new URL(target);
  let cut;
  let everyNth = Infinity;
  let placeStep = 0;
  let requests = 0;
  let cuts = 0;
  const sockets = new Set();
  const server = createTcpServer((client) => {
    const upstream = connect(Number(port), hostname);
    sockets.add(client).add(upstream);
    let left = Infinity;
    let struck;
    client.on("data", (bytes) => {
      // The cut is for the answer to a request, not for a connection that is only open.
      if (cut && left === Infinity) ({ left, struck } = { left: cut.after, struck: cut.struck });
      cut = undefined;
      requests += 1;
      if (left === Infinity && requests % everyNth === 0) left = (cuts * placeStep) % 400;
      upstream.write(bytes);
    });
    upstream.on("data", (bytes) => {
      if (bytes.length <= left) {
        left -= bytes.length;
        client.write(bytes);
        if (left > 0) return;
      } else client.write(bytes.subarray(0, left));
      if (left === Infinity) return;
      left = 0;
      client.write("", () => client.destroy());
      upstream.destroy();
      cuts += 1;
      struck?.();
    });
    for (const socket of [client, upstream]) {
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cutNext: (after) => new Promise((struck) => (cut = { after, struck })),
    cutEvery(nth, step) {
      everyNth = nth;
      placeStep = step;
    },
    get cuts() {
      return cuts;
    },
    /** Closes all connections. */
    breakAll() {
      for (const socket of sockets) socket.destroy();
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(resolve);
        for (const socket of sockets) socket.destroy();
      }),
  };
}
