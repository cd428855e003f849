"""A consumer of one queue: receive, handle, ack; on failure nack. Needs only `requests`.

Usage: OUTLAST_KEY=ol_... consumer.py QUEUE [--url URL] [--max N]
"""

import argparse
import os
import sys
import time

import requests

WAIT = "10s"
BATCH = 5
# Longer than the wait, so that a quiet queue is not taken for a dead server.
ANSWER_TIMEOUT_SECONDS = 20
PAUSE_AFTER_AN_ERROR_SECONDS = 1


def handle(payload):
    """Your work goes here. An exception means that the message is tried again, up to the queue's maxAttempts."""
    if isinstance(payload, dict) and payload.get("fail"):
        raise RuntimeError("asked to fail")


def consume(session, base, limit):
    done = 0
    while limit is None or done < limit:
        batch = BATCH if limit is None else min(BATCH, limit - done)
        try:
            messages = receive(session, base, batch)
        except requests.RequestException as error:
            # Nothing is lost: what was handed out and not acked comes back when its lease runs out.
            print(f"cannot receive: {error}", file=sys.stderr)
            time.sleep(PAUSE_AFTER_AN_ERROR_SECONDS)
            continue
        for message in messages:
            work_on(session, base, message)
            done += 1


def receive(session, base, batch):
    answer = session.get(
        f"{base}/messages",
        params={"wait": WAIT, "batch": batch},
        timeout=ANSWER_TIMEOUT_SECONDS,
    )
    answer.raise_for_status()
    return answer.json()["messages"]


def work_on(session, base, message):
    try:
        handle(message["payload"])
    except Exception as error:
        verb, remark = "nack", f"failed: {error}"
    else:
        verb, remark = "ack", "done"
    # The receipt and not the bare id: if the lease ran out meanwhile, this must not touch the next holder's.
    answer = session.post(
        f"{base}/{verb}",
        json={"ids": [message["receipt"]]},
        timeout=ANSWER_TIMEOUT_SECONDS,
    )
    answer.raise_for_status()
    print(f"{message['id']} attempt {message['attempt']} {remark}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description="consume one Outlast queue")
    arguments.add_argument("queue")
    arguments.add_argument("--url", default=os.environ.get("OUTLAST_URL", "http://127.0.0.1:8080"))
    arguments.add_argument("--max", type=int, help="stop after this many messages")
    chosen = arguments.parse_args()
    key = os.environ.get("OUTLAST_KEY")
    if not key:
        arguments.error("set OUTLAST_KEY to a key with the scope consume")

    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {key}"
    consume(session, f"{chosen.url}/api/queues/{chosen.queue}", chosen.max)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
