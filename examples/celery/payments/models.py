"""The table. Its indexes are those that `table-queue-exporter doctor` asks for."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    DateTime,
    Identity,
    Index,
    Integer,
    Text,
    create_engine,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from .settings import DATABASE_DSN

_TIME = DateTime(timezone=True)
_NEW = text("status = 'NEW'")


class Base(DeclarativeBase):
    """Root of the mapped classes."""


class Payment(Base):
    """One row is one task."""

    __tablename__ = "payment"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    task_type: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text, server_default="NEW")
    payload: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(_TIME, server_default=func.now())
    attempts: Mapped[int] = mapped_column(Integer, server_default="0")
    next_attempt_at: Mapped[datetime] = mapped_column(_TIME, server_default=func.now())
    claimed_until: Mapped[datetime | None] = mapped_column(_TIME)
    started_at: Mapped[datetime | None] = mapped_column(_TIME)
    finished_at: Mapped[datetime | None] = mapped_column(_TIME)
    last_error: Mapped[str | None] = mapped_column(Text)
    idempotency_key: Mapped[UUID] = mapped_column(
        PG_UUID(as_uuid=True), server_default=text("gen_random_uuid()")
    )

    __table_args__ = (
        # For the claim.
        Index(
            "payment_claim", "created_at", postgresql_where=text("status IN ('NEW', 'PROCESSING')")
        ),
        # For the exporter.
        Index("payment_waiting_by_age", "task_type", "created_at", postgresql_where=_NEW),
        Index(
            "payment_waiting_by_due",
            "task_type",
            "next_attempt_at",
            postgresql_include=["attempts"],
            postgresql_where=_NEW,
        ),
        Index(
            "payment_processing",
            "claimed_until",
            postgresql_include=["task_type", "started_at", "attempts"],
            postgresql_where=text("status = 'PROCESSING'"),
        ),
        Index(
            "payment_failed",
            "finished_at",
            postgresql_include=["task_type"],
            postgresql_where=text("status = 'FAILED'"),
        ),
        Index("payment_finished", "finished_at"),
        Index("payment_created", "created_at"),
    )


# `postgresql://` alone would ask for psycopg2.
engine = create_engine(
    DATABASE_DSN.replace("postgresql://", "postgresql+psycopg://", 1), pool_pre_ping=True
)
Session = sessionmaker(engine, expire_on_commit=False)
