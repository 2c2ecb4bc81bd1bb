"""The queue: enqueue, claim, and the two ways in which an attempt ends."""

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session as OrmSession

from .models import Payment, Session
from .settings import BATCH, FIRST_BACKOFF, LEASE, MAX_ATTEMPTS

MAX_ERROR = 300


@dataclass(frozen=True)
class Claim:
    """One claim of one task: `attempts` grows with each, so the pair names it."""

    id: int
    attempts: int


def enqueue(session: OrmSession, task_type: str, payload: dict[str, Any]) -> Payment:
    """Call it in the transaction that changes the business data: both happen, or neither."""
    payment = Payment(task_type=task_type, payload=payload)
    session.add(payment)
    return payment


def claim() -> list[Claim]:
    """Takes the oldest due tasks, and those whose worker was lost, in one short transaction."""
    due = and_(Payment.status == "NEW", Payment.next_attempt_at <= func.now())
    lost = and_(Payment.status == "PROCESSING", Payment.claimed_until < func.now())
    oldest = (
        select(Payment.id)
        .where(or_(due, lost))
        .order_by(Payment.created_at)
        .limit(BATCH)
        .with_for_update(skip_locked=True)
        .cte("claimable")
        .prefix_with("MATERIALIZED")
    )
    statement = (
        update(Payment)
        .where(Payment.id == oldest.c.id)
        .values(
            status="PROCESSING",
            attempts=Payment.attempts + 1,
            claimed_until=func.now() + timedelta(seconds=LEASE),
            started_at=func.now(),
        )
        .returning(Payment.id, Payment.attempts)
        .execution_options(synchronize_session=False)
    )
    with Session.begin() as session:
        return [Claim(row.id, row.attempts) for row in session.execute(statement)]


def held(claim: Claim) -> Payment | None:
    """The task, if this claim still holds it. No transaction stays open while work is done."""
    with Session() as session:
        return session.scalar(
            select(Payment).where(*_fence(claim), Payment.claimed_until > func.now())
        )


def complete(claim: Claim) -> bool:
    """Closes the row; False when the claim was lost to another worker."""
    return _end(claim, status="DONE", finished_at=func.now(), claimed_until=None)


def fail(claim: Claim, error: str) -> bool:
    """Back to the queue after a pause, or given up once the attempts are used up."""
    said = error[:MAX_ERROR]
    if claim.attempts >= MAX_ATTEMPTS:
        return _end(
            claim, status="FAILED", finished_at=func.now(), claimed_until=None, last_error=said
        )
    pause = FIRST_BACKOFF * 2 ** (claim.attempts - 1) * random.uniform(1, 1.5)
    due = func.now() + timedelta(seconds=pause)
    return _end(claim, status="NEW", next_attempt_at=due, claimed_until=None, last_error=said)


def _end(claim: Claim, **values: Any) -> bool:
    statement = (
        update(Payment)
        .where(*_fence(claim))
        .values(**values)
        .returning(Payment.id)
        .execution_options(synchronize_session=False)
    )
    with Session.begin() as session:
        return session.execute(statement).first() is not None


def _fence(claim: Claim) -> tuple[Any, ...]:
    """A worker that lost its lease matches no row and changes nothing."""
    return (
        Payment.id == claim.id,
        Payment.attempts == claim.attempts,
        Payment.status == "PROCESSING",
    )
