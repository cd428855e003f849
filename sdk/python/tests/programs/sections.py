"""A worker of 161 sections in a process of its own, to be killed. Each section that is made is a line of the file in argv[1]."""

import os
import sys
import time
from typing import Any

from outlast import Worker

worker = Worker(grace=5)
written = os.open(sys.argv[1], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
pause = float(sys.argv[3])


def write_section(name: str) -> dict[str, str]:
    os.write(written, f"{name}\n".encode())
    time.sleep(pause)
    return {"text": name}


@worker.job(sys.argv[2])
def report(job: Any) -> Any:
    names = [f"section-{n:03}" for n in range(1, 162)]
    parts = job.each_section(names, write_section)
    return {"title": job.payload["title"], "sections": len(parts)}


worker.run()
