"""Tasks for django-tasks-db: its own schema and worker. ``install``, ``push JSON``, ``work``."""

import json
import os
import sys
import time
from datetime import timedelta
from urllib.parse import urlsplit

import django
from django.conf import settings

url = urlsplit(os.environ["DSN"])
if not settings.configured:  # the worker imports this module by its name as well
    settings.configure(
        INSTALLED_APPS=["django_tasks_db"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": url.path[1:],
                "USER": url.username,
                "HOST": url.hostname,
                "PORT": url.port,
            }
        },
        USE_TZ=True,
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    )
    django.setup()

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task
from django.core.management import call_command
from django.utils import timezone


@task()
def ok() -> None:
    pass


@task()
def fail() -> None:
    raise RuntimeError("broken")


@task()
def slow() -> None:
    time.sleep(600)


if __name__ == "__main__":
    from app import fail, ok, slow  # under the name that the worker imports

    match sys.argv[1]:
        case "install":
            call_command("migrate", verbosity=0)
        case "push":
            for name, count in json.loads(sys.argv[2]).items():
                for _ in range(count):
                    if name == "delayed":
                        ok.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
                    else:
                        {"ok": ok, "fail": fail, "slow": slow}[name].enqueue()
        case "work":
            call_command("db_worker", interval=0.1)
