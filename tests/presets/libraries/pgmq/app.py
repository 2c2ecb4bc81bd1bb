"""Messages for PGMQ: its own SQL, a consumer as its documents write it."""

import json
import os
import sys
import time

import psycopg
from pgmq import PGMQueue
from pgmq.install import get_embedded_install_sql

VISIBLE = 5
"""Seconds for which a message that was read belongs to its reader."""


def main() -> None:
    pgmq = PGMQueue(conn_string=os.environ["DSN"], init_extension=False)
    match sys.argv[1]:
        case "install":
            with psycopg.connect(os.environ["DSN"], autocommit=True) as connection:
                connection.execute(get_embedded_install_sql())
            pgmq.create_queue("Mail")
        case "push":
            for name, count in json.loads(sys.argv[2]).items():
                for _ in range(count):
                    delay = 3600 if name == "delayed" else 0
                    pgmq.send("Mail", {"do": name}, delay=delay)
        case "work":
            work(pgmq)
    pgmq.close()


def work(pgmq: PGMQueue) -> None:
    while True:
        for message in pgmq.read_batch("Mail", vt=VISIBLE, batch_size=1):
            match message.message["do"]:
                case "ok":
                    pgmq.delete("Mail", message.msg_id)
                case "archive":
                    pgmq.archive("Mail", message.msg_id)
                case "retry":
                    pgmq.set_vt("Mail", message.msg_id, 3600)
                case "slow":
                    time.sleep(600)
        time.sleep(0.05)


main()
