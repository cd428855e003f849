"""Writes reports of many sections. Each finished section is kept by Outlast, so after a crash the next attempt writes only
what is missing.

Needs nothing but Python 3.8 or later. Usage: OUTLAST_KEY=ol_... report.py QUEUE [--url URL] [--once] [--crash-after N]
"""

import argparse
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

WAIT_SECONDS = 20
ANSWER_TIMEOUT_SECONDS = 30
TRIES = 30


def write_section(number, payload):
    """Your work goes here: the call to a language model, say, that takes half a minute and costs money."""
    time.sleep(payload.get("secondsEach", 0))
    return {"heading": f"Section {number}", "text": f"What there is to say about {payload['title']}, part {number}."}


class Lost(Exception):
    """The job is not ours any more: another worker has it, or it was ended."""


class Cancelled(Exception):
    """Somebody has asked for the job to be cancelled."""


class Outlast:
    def __init__(self, url, key):
        self.url = url
        self.key = key

    def call(self, method, path, body=None, lease=None):
        """One call. A server that is away for a moment is tried again; every call here may be repeated."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        if lease:
            headers["X-Outlast-Lease"] = lease
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(1, TRIES + 1):
            request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS + WAIT_SECONDS) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refusal:
                if refusal.code in (404, 409):
                    raise Lost(refusal.read().decode(errors="replace")) from refusal
                if attempt == TRIES or refusal.code not in (429, 500, 502, 503, 504):
                    raise
            except OSError:
                if attempt == TRIES:
                    raise
            time.sleep(min(0.1 * 2**attempt, 5))


class Report:
    """One attempt at one job."""

    def __init__(self, outlast, job, lease_seconds):
        self.outlast = outlast
        self.id = job["id"]
        self.lease = job["lease"]
        self.payload = job["payload"]
        self.done = set(job["sections"])
        self.lease_seconds = lease_seconds
        self.is_over = threading.Event()
        self.is_cancelled = False
        self.is_lost = False

    def keep_lease(self):
        """In a thread of its own: a section may take longer than the lease."""
        while not self.is_over.wait(self.lease_seconds / 3):
            try:
                answer = self.outlast.call("POST", f"/v1/jobs/{self.id}/heartbeat", {}, self.lease)
                self.is_cancelled = self.is_cancelled or answer["cancelRequested"]
            except Lost:
                self.is_lost = True
                return
            except OSError as error:
                say(f"heartbeat: {error}")

    def write(self, crash_after):
        total = self.payload.get("sections", 161)
        say(f"job {self.id}: {len(self.done)} of {total} sections are there")
        for number in range(1, total + 1):
            name = f"section-{number:03}"
            if name in self.done:
                continue
            if self.is_lost:
                raise Lost("a heartbeat was refused")
            if self.is_cancelled:
                raise Cancelled()
            section = write_section(number, self.payload)
            # Once this is answered the section is safe, whatever happens to this process or to the server.
            self.outlast.call("PUT", f"/v1/jobs/{self.id}/sections/{name}", section, self.lease)
            self.done.add(name)
            say(f"did {name}")
            progress = {"itemsDone": len(self.done), "itemsTotal": total, "stage": "write", "message": name}
            self.outlast.call("PUT", f"/v1/jobs/{self.id}/progress", progress, self.lease)
            if len(self.done) == crash_after:
                os.kill(os.getpid(), signal.SIGKILL)

    def collect(self):
        """The whole report, with the sections that earlier attempts have written."""
        sections, cursor = [], None
        while True:
            query = f"&cursor={urllib.parse.quote(cursor)}" if cursor else ""
            page = self.outlast.call("GET", f"/v1/jobs/{self.id}/sections?limit=100{query}")
            sections.extend(item["value"] for item in page["items"])
            cursor = page["nextCursor"]
            if not cursor:
                return {"title": self.payload["title"], "sections": sections}

    def run(self, crash_after):
        keeper = threading.Thread(target=self.keep_lease, daemon=True)
        keeper.start()
        try:
            self.write(crash_after)
            self.outlast.call("POST", f"/v1/jobs/{self.id}/ack", {"result": self.collect()}, self.lease)
            say(f"ack {self.id}")
        except Cancelled:
            self.outlast.call("POST", f"/v1/jobs/{self.id}/cancelled", {}, self.lease)
            say(f"cancelled {self.id}")
        except Lost as why:
            say(f"lost {self.id}: {why}")
        except Exception as error:  # Whatever is wrong with this job, the next one may be fine.
            self.give_up(f"{type(error).__name__}: {error}")
        finally:
            self.is_over.set()
            keeper.join()

    def give_up(self, reason):
        """The work failed: Outlast tries again after the queue's backoff, with the sections that are there."""
        try:
            self.outlast.call("POST", f"/v1/jobs/{self.id}/nack", {"reason": reason[:1024]}, self.lease)
            say(f"nack {self.id}: {reason}")
        except (Lost, OSError) as error:
            say(f"lost {self.id}: {reason}, and the nack failed: {error}")


def say(text):
    # One write, so that lines of several threads stay whole.
    print(text + "\n", end="", flush=True)


def main():
    arguments = argparse.ArgumentParser(description="write the reports of one Outlast queue")
    arguments.add_argument("queue")
    arguments.add_argument("--url", default=os.environ.get("OUTLAST_URL", "http://127.0.0.1:8080"))
    arguments.add_argument("--lease", type=float, default=30, help="seconds that a job is leased; heartbeats renew it")
    arguments.add_argument("--once", action="store_true", help="end after one job")
    arguments.add_argument("--crash-after", type=int, help="kill this process when so many sections are there")
    chosen = arguments.parse_args()
    key = os.environ.get("OUTLAST_KEY")
    if not key:
        arguments.error("set OUTLAST_KEY to a key with the scopes consume and read")
    outlast = Outlast(chosen.url, key)
    while True:
        wish = {"batch": 1, "wait": WAIT_SECONDS, "visibilityTimeout": chosen.lease}
        for job in outlast.call("POST", f"/v1/queues/{chosen.queue}/receive", wish)["jobs"]:
            Report(outlast, job, chosen.lease).run(chosen.crash_after)
            if chosen.once:
                return


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
