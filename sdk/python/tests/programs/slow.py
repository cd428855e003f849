"""A worker of slow jobs, to be stopped: by SIGTERM under load, or with SIGSTOP past its lease."""

import sys
import time
from typing import Any

from outlast import Worker

worker = Worker(grace=float(sys.argv[3]))


@worker.job(sys.argv[1], concurrency=int(sys.argv[2]))
def slow(job: Any) -> Any:
    until = time.monotonic() + job.payload["seconds"]
    while time.monotonic() < until:
        if job.payload.get("checks"):
            job.check()
        time.sleep(0.01)
    job.section("late", lambda: "written")
    return {"attempt": job.attempt}


worker.run()
