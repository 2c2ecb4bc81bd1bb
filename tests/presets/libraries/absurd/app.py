"""Tasks for Absurd: its own schema and worker. ``install``, ``push JSON``, ``work``."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from absurd_sdk import Absurd, TaskContext

app = Absurd(os.environ["DSN"], queue_name="mail")
LATER = {"kind": "fixed", "base_seconds": 3600}


@app.register_task("ok")
def ok(params: object, context: TaskContext) -> None:
    pass


@app.register_task("fail", default_max_attempts=1)
def fail(params: object, context: TaskContext) -> None:
    raise RuntimeError("broken")


@app.register_task("retry", default_max_attempts=5)
def retry(params: object, context: TaskContext) -> None:
    raise RuntimeError("later")


@app.register_task("slow")
def slow(params: object, context: TaskContext) -> None:
    time.sleep(600)


@app.register_task("sleep")
def sleep(params: object, context: TaskContext) -> None:
    context.sleep_for("nap", 3600)


@app.register_task("event")
def event(params: object, context: TaskContext) -> None:
    context.await_event("never")


def main() -> None:
    match sys.argv[1]:
        case "install":
            tool = Path(sys.executable).with_name("absurdctl")
            subprocess.run([tool, "init", "-d", os.environ["DSN"]], check=True)
            app.create_queue("mail")
        case "push":
            for name, count in json.loads(sys.argv[2]).items():
                for _ in range(count):
                    app.spawn(name, {}, retry_strategy=LATER if name == "retry" else None)
        case "work":
            app.start_worker(worker_id="one", claim_timeout=60, concurrency=4, poll_interval=0.1)


main()
