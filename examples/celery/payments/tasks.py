"""What the workers do."""

import logging
import time
from typing import Any

from . import queue
from .app import app

log = logging.getLogger(__name__)


@app.task(name="payments.claim")
def claim() -> int:
    """Claims due rows and hands each to a worker of its own."""
    claimed = queue.claim()
    for one in claimed:
        process.delay(one.id, one.attempts)
    return len(claimed)


@app.task(name="payments.process")
def process(payment_id: int, attempts: int) -> None:
    """One attempt at one row, outside any transaction."""
    one = queue.Claim(payment_id, attempts)
    payment = queue.held(one)
    if payment is None:
        return  # Delivered late: the lease has run out, and the row may be another worker's.
    try:
        call_neighbour(payment.task_type, payment.payload or {}, str(payment.idempotency_key))
    except Exception as error:
        log.warning("payment %s failed: %s", payment_id, error)
        queue.fail(one, f"{type(error).__name__}: {error}")
    else:
        queue.complete(one)


def call_neighbour(task_type: str, payload: dict[str, Any], idempotency_key: str) -> None:
    """In place of a call over HTTP, with a time-out and the key in a header.

    `seconds` and `fails` in the payload make it slow or broken.
    """
    time.sleep(float(payload.get("seconds", 0.05)))
    if payload.get("fails"):
        raise RuntimeError(f"{task_type}: the neighbour answered 503 to {idempotency_key}")
