"""Takes messages of one queue, handles each, and acks it; on failure nacks it. Needs nothing but Python 3.

Usage: OUTLAST_KEY=... python3 consumer.py QUEUE
"""

import http.client
import json
import os
import sys
import time
import urllib.request

# Longer than the wait, so that a quiet queue is not taken for a dead server.
ANSWER_TIMEOUT_SECONDS = 20
PAUSE_AFTER_AN_ERROR_SECONDS = 1


def handle(message):
    """Your work goes here. An exception means that the message comes again, up to the queue's max_attempts times."""
    invoice = message["payload"]["data"]["object"]
    if not invoice.get("customer"):
        raise ValueError("the invoice has no customer")


def work_on(call, message):
    try:
        handle(message)
    except Exception as error:
        call("POST", "nack", {"ids": [message["receipt"]]})
        print(f"failed {message['event_id']}: {error}", flush=True)
        return
    # The receipt and not the id: if this took longer than the visibility timeout, somebody else has the message now.
    acked = call("POST", "ack", {"ids": [message["receipt"]]})["acked"]
    print(f"{'done' if acked else 'too late'} {message['event_id']} {message['event_type']}", flush=True)


def caller(base, key):
    def call(method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(f"{base}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS) as answer:
            return json.load(answer)

    return call


def main():
    if len(sys.argv) != 2 or "OUTLAST_KEY" not in os.environ:
        sys.exit(__doc__)
    url = os.environ.get("OUTLAST_URL", "http://127.0.0.1:8080")
    call = caller(f"{url}/api/queues/{sys.argv[1]}", os.environ["OUTLAST_KEY"])
    while True:
        try:
            for message in call("GET", "messages?wait=10s&batch=5")["messages"]:
                work_on(call, message)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Nothing is lost: unacked messages come back when their visibility timeout ends.
            print(f"trying again: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_AFTER_AN_ERROR_SECONDS)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
