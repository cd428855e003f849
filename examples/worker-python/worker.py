"""A worker for a queue in ack mode: check the signature, answer 202 at once, work in the background, report the outcome.

Safe under redelivery: a job that is being worked on, or is done, is not done twice. Needs nothing but Python 3.8 or later.
Usage: OUTLAST_KEY=ol_... OUTLAST_SIGNING_SECRET=whsec_... worker.py [--listen HOST:PORT] [--url URL]
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY_BYTES_MAX = 2 * 1024 * 1024
TOLERANCE_SECONDS = 300
READ_TIMEOUT_SECONDS = 30
ANSWER_TIMEOUT_SECONDS = 10
REPORT_TRIES = 5
# So many finished jobs are remembered. A redelivery comes within minutes; keep more than you finish in that time.
DONE_MAX = 10_000


class Busy(Exception):
    """Raise it when the service you call asks you to wait: the job comes back later and no attempt is charged."""

    def __init__(self, retry_after_seconds):
        super().__init__(f"busy for {retry_after_seconds} s")
        self.retry_after = retry_after_seconds


def handle(payload, delivery):
    """Your work goes here. What it returns is the job's result; an exception means that the job is tried again."""
    wishes = payload if isinstance(payload, dict) else {}
    if wishes.get("busy") and delivery["deferCount"] == 0:
        raise Busy(wishes["busy"])
    say(f"did {delivery['id']}")
    time.sleep(wishes.get("seconds", 0))
    if wishes.get("fail"):
        raise RuntimeError("asked to fail")
    return {"length": len(json.dumps(payload))}


class Job:
    """A job that was received. `lease` is that of its latest delivery."""

    def __init__(self, delivery):
        self.id = delivery["id"]
        self.lease = delivery["lease"]
        self.done = False
        self.result = None


class Worker:
    def __init__(self, url, key, secret):
        self.url = url
        self.key = key
        is_marked = secret.startswith("whsec_")
        self.signing_key = base64.b64decode(secret[len("whsec_"):]) if is_marked else secret.encode()
        self.lock = threading.Lock()
        # By webhook-id, which is the same for all redeliveries.
        self.jobs = OrderedDict()

    def is_genuine(self, headers, body):
        """Standard Webhooks: an HMAC over id, time and the raw body, one signature for each live secret."""
        sent_id, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not sent_id or not sent_at.isdecimal() or abs(time.time() - int(sent_at)) > TOLERANCE_SECONDS:
            return False
        signed = f"{sent_id}.{sent_at}.".encode() + body
        digest = hmac.new(self.signing_key, signed, hashlib.sha256).digest()
        expected = ("v1," + base64.b64encode(digest).decode()).encode()
        given = headers.get("webhook-signature", "").split(" ")
        return any(hmac.compare_digest(expected, signature.encode()) for signature in given)

    def take(self, webhook_id, delivery):
        with self.lock:
            known = self.jobs.get(webhook_id)
            if known:
                # Our answer or our report was lost, or the work takes longer than ackTimeout. The old lease is dead:
                # report with this one.
                known.lease = delivery["lease"]
                is_done = known.done
            else:
                job = self.jobs[webhook_id] = Job(delivery)
        if not known:
            threading.Thread(target=self.work, args=(webhook_id, job, delivery), daemon=True).start()
            return
        say(f"again {delivery['id']} attempt {delivery['attempt']}")
        if is_done:
            outcome = {"result": known.result}
            threading.Thread(target=self.report, args=(known, "ack", outcome), daemon=True).start()

    def work(self, webhook_id, job, delivery):
        try:
            result = handle(delivery["payload"], delivery)
        except Exception as error:
            with self.lock:
                # The next delivery is a new try.
                del self.jobs[webhook_id]
            if isinstance(error, Busy):
                self.report(job, "defer", {"retryAfter": error.retry_after, "reason": str(error)})
            else:
                self.report(job, "nack", {"reason": str(error)})
            return
        with self.lock:
            job.result, job.done = result, True
            self.forget_oldest()
        self.report(job, "ack", {"result": result})

    def forget_oldest(self):
        surplus = len(self.jobs) - DONE_MAX
        oldest = [webhook_id for webhook_id, job in self.jobs.items() if job.done] if surplus > 0 else []
        for webhook_id in oldest[:max(surplus, 0)]:
            del self.jobs[webhook_id]

    def report(self, job, verb, outcome):
        """Tells Outlast the outcome. If nobody can be told now, the job is delivered again and told about then."""
        for attempt in range(1, REPORT_TRIES + 1):
            lease = job.lease
            try:
                self.call(job.id, verb, {**outcome, "lease": lease})
                say(f"{verb} {job.id}")
                return
            except urllib.error.HTTPError as refusal:
                say(f"{verb} {job.id} refused: {refusal.code} {refusal.read().decode(errors='replace')}")
                # A newer lease may have come meanwhile; without one the next delivery brings it.
                if refusal.code < 500 and refusal.code != 429 and job.lease == lease:
                    return
            except OSError as error:
                say(f"{verb} {job.id} not sent: {error}")
            time.sleep(attempt * 0.2)

    def call(self, job_id, verb, body):
        request = urllib.request.Request(
            f"{self.url}/v1/jobs/{job_id}/{verb}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS) as answer:
            answer.read()


def handler(worker):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = READ_TIMEOUT_SECONDS

        def do_POST(self):
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                self.close_connection = True
                return self.answer(413)
            body = self.rfile.read(int(length))
            if not worker.is_genuine(self.headers, body):
                return self.answer(401)
            worker.take(self.headers["webhook-id"], json.loads(body))
            return self.answer(202)

        def answer(self, status):
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    return Handler


def say(text):
    # One write, so that lines of several threads stay whole.
    print(text + "\n", end="", flush=True)


def main():
    arguments = argparse.ArgumentParser(description="do the jobs of one Outlast queue in ack mode")
    arguments.add_argument("--listen", default="127.0.0.1:9001")
    arguments.add_argument("--url", default=os.environ.get("OUTLAST_URL", "http://127.0.0.1:8080"))
    chosen = arguments.parse_args()
    key, secret = os.environ.get("OUTLAST_KEY"), os.environ.get("OUTLAST_SIGNING_SECRET")
    if not key or not secret:
        arguments.error(
            "set OUTLAST_KEY to a key with the scope consume, and OUTLAST_SIGNING_SECRET to the queue's secret"
        )
    host, port = chosen.listen.rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), handler(Worker(chosen.url, key, secret)))
    say(f"listening on http://{server.server_address[0]}:{server.server_address[1]}")
    server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
