// outlast/testing: run a handler without a server, start a real server, sign deliveries.

export { startOutlast, type OutlastServer, type StartOptions } from "./testing/server.js";
