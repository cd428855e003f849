"""A worker whose handlers run in child processes and hold the interpreter lock, for as many seconds as the payload says."""

import os
import re
import sys
from typing import Any

from outlast import Worker

worker = Worker(grace=20)


@worker.job(sys.argv[1], processes=2)
def burn(job: Any) -> Any:
    with open(sys.argv[2], "a") as log:
        log.write(f"{job.id} {job.attempt} {os.getpid()}\n")
    if "exit" in job.payload and job.attempt == 1:
        os._exit(7)
    # One call of the regular expression engine, which never lets go of the interpreter lock.
    letters = "a" * job.payload["letters"]
    re.match(r"(a+)+$", letters + "b")
    return {"pid": os.getpid()}


worker.run()
