"""Messages for dramatiq-pg: its own schema and worker. ``install``, ``push JSON``, ``work``."""

import json
import os
import sys
import time
from importlib import resources

import dramatiq
from dramatiq.worker import Worker
from dramatiq_pg import PostgresBroker

broker = PostgresBroker(url=os.environ["DSN"], results=False)
dramatiq.set_broker(broker)


@dramatiq.actor
def ok() -> None:
    pass


@dramatiq.actor(max_retries=0)
def fail() -> None:
    raise RuntimeError("broken")


@dramatiq.actor(max_retries=5, min_backoff=3_600_000, max_backoff=7_200_000)
def retry() -> None:
    raise RuntimeError("later")


@dramatiq.actor(time_limit=700_000)
def slow() -> None:
    time.sleep(600)


def main() -> None:
    match sys.argv[1]:
        case "install":
            sql = resources.files("dramatiq_pg").joinpath("schema.sql").read_text()
            names = {':"schema"': "dramatiq", ':"state"': "state", ':"queue"': "queue"}
            for variable, name in names.items():
                sql = sql.replace(variable, name)
            lines = [line for line in sql.splitlines() if not line.startswith("\\")]
            with broker.pool.getconn() as connection:
                connection.cursor().execute("\n".join(lines))
        case "push":
            for name, count in json.loads(sys.argv[2]).items():
                for _ in range(count):
                    if name == "delayed":
                        ok.send_with_options(delay=3_600_000)
                    else:
                        broker.get_actor(name).send()
        case "work":
            Worker(broker, worker_threads=4).start()
            time.sleep(3600)


main()
