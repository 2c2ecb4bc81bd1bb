"""Celery: beat claims every few seconds, workers take one task per row.

The broker carries nothing but row ids. The table is the truth: what a broker or a worker loses is
claimed again when its lease has run out. That is why the file system will do as a broker here; in
production it is Redis or RabbitMQ, and nothing else changes.
"""

from celery import Celery

from .settings import BROKER_DIR, CLAIM_EVERY

for _name in ("messages", "control"):
    (BROKER_DIR / _name).mkdir(parents=True, exist_ok=True)

app = Celery("payments", broker="filesystem://", include=["payments.tasks"])
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(BROKER_DIR / "messages"),
        "data_folder_out": str(BROKER_DIR / "messages"),
        "control_folder": str(BROKER_DIR / "control"),
        "polling_interval": 0.1,
    },
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    beat_schedule_filename=str(BROKER_DIR / "schedule"),
    beat_schedule={
        "claim": {
            "task": "payments.claim",
            "schedule": CLAIM_EVERY,
            # Claims that nobody took must not pile up behind workers that are busy or gone.
            "options": {"expires": CLAIM_EVERY},
        },
    },
)
