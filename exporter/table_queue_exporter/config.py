"""Configuration file → validated, frozen settings; every error at once, with its place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from .config_checks import cross_checks, did_you_mean, fill_empty
from .config_types import Duration, Expression, Expressions, Pace
from .dsn import check_dsn
from .errors import ConfigError, Problem
from .model import EXPRESSIONS, RELATIONS, QueueModel, build_model, preset_names
from .sqltext import parse_table
from .yaml_source import YamlPath, YamlSource, load_yaml


class _Settings(BaseModel):
    """Frozen, and a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class DatabaseConfig(_Settings):
    """How to reach one database. Without ``dsn``, libpq's PG* variables and files apply."""

    dsn: SecretStr = Field(SecretStr(""), description="libpq connection string or URI.")
    dsn_file: Path | None = Field(
        None, description="File that holds the dsn; read again at each connection."
    )
    password: SecretStr | None = Field(None, description="Overrides the dsn's password.")
    password_file: Path | None = Field(
        None, description="File that holds the password; read again at each connection."
    )
    connect_timeout: Pace = Field(5.0, description="Longest wait for a connection.")
    statement_timeout: Pace = Field(1.0, description="The server ends a longer statement.")
    lock_timeout: Pace = Field(
        0.2,
        description="Longest wait for a lock. Workers wait behind a waiting reader: keep it short.",
    )

    @field_validator("dsn")
    @classmethod
    def _dsn_parses(cls, value: SecretStr) -> SecretStr:
        check_dsn(value.get_secret_value())
        return value


class QueueSettings(_Settings):
    """What may stand under ``defaults`` and under each queue."""

    interval: Pace = Field(15.0, description="Time between two polls of a queue.")
    objective: Duration | None = Field(
        None, description="A task should be taken within this; the alerts compare with it."
    )
    lease: Duration | None = Field(
        None, description="Length of a lease; set it only where the lease is fixed at claim."
    )
    max_runtime: Duration | None = Field(None, description="An attempt should not run longer.")
    max_silence: Duration | None = Field(
        None, description="A task should be enqueued at least this often."
    )
    attempts_limit: int | None = Field(
        None, ge=1, description="Attempts after which a task fails for good."
    )
    failed_tolerated: int | None = Field(
        None, ge=0, description="Recently failed tasks that are no reason to worry."
    )
    failed_window: Duration = Field(3600.0, description="Window of `recently_failed_tasks`.")
    timezone: str = Field(
        "UTC", description="Zone of `timestamp` columns that carry none; an IANA name."
    )
    count_limit: int = Field(
        100_000,
        ge=100,
        description="Waiting rows counted per poll, shared by the task types; "
        "a count that hits its share is a lower bound and marked as such.",
    )
    max_task_types: int = Field(
        30, ge=1, description="Task types with a label of their own; the rest is `_other`."
    )
    max_queues: int = Field(
        100,
        ge=1,
        description="Values of the queue column with a label of their own; the rest is `_other`.",
    )
    buckets: tuple[Duration, ...] | None = Field(
        None,
        min_length=1,
        description="Upper bounds of the histograms' buckets, in place of the default series.",
    )
    lookback: Duration | None = Field(
        None,
        description="How far a row's time may lie behind its commit, where another clock than the "
        "server's stamps it.",
    )
    new_series_hold: Duration = Field(
        60.0,
        description="A new task type's counters are shown at 0 this long (and 2 intervals), so "
        "that increase() sees their first events.",
    )
    exemplars: bool = Field(
        False, description="In OpenMetrics, each bucket names a task that fell into it."
    )
    budget: float = Field(
        0.05, gt=0, le=1, description="Share of its interval that a poll may take."
    )

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"{value!r} is not a time zone: write UTC or Europe/Berlin") from None
        return value


class QueueConfig(QueueSettings):
    """One queue: a table, the preset that describes it, and what differs from the preset."""

    name: str = Field(min_length=1, max_length=100, description="Value of the label `queue`.")
    database: str = Field(description="A key of `databases`.")
    table: str = Field(description="Table or view, with its schema; quoted where SQL needs it.")
    preset: str = Field("lease", description="The queue library, or `none`.")

    rows: Expression | None = Field(
        None,
        description="Stands in FROM in the table's place: a subquery, or the table with an alias.",
    )
    finished_rows: Expression | None = Field(
        None, description="The same for finished tasks, where a library moves or logs them."
    )
    id: Expression | None = None
    queue: Expression | None = None
    task_type: Expression | None = None
    index_key: Expression | None = None
    enqueued_at: Expression | None = None
    enqueue_order: Expression | None = None
    due_at: Expression | None = None
    lease_until: Expression | None = None
    started_at: Expression | None = None
    finished_at: Expression | None = None
    attempts: Expression | None = None
    attempts_counted_at: Literal["claim", "end", "failure"] | None = None
    claim_stamp: Expression | None = None
    error: Expression | None = None
    waiting: Expressions | None = None
    blocked: Expression | None = None
    processing: Expression | None = None
    done: Expression | None = None
    failed: Expression | None = None
    cancelled: Expression | None = None

    @field_validator("table")
    @classmethod
    def _table_parses(cls, value: str) -> str:
        parse_table(value)
        return value

    @field_validator("preset")
    @classmethod
    def _preset_exists(cls, value: str) -> str:
        known = preset_names()
        if value not in known:
            raise ValueError(
                f"there is no preset {value!r}{did_you_mean(value, known)}; "
                f"known: {', '.join(known)}"
            )
        return value

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        self.model()
        return self

    def model(self) -> QueueModel:
        """The preset with this queue's expressions laid over it; null switches one off."""
        overrides = {
            name: getattr(self, name)
            for name in (*RELATIONS, *EXPRESSIONS)
            if name in self.model_fields_set
        }
        return build_model(
            self.table,
            self.preset,
            overrides,
            attempts_counted_at=self.attempts_counted_at,
            lease=self.lease,
        )


class Config(_Settings):
    """The whole configuration."""

    databases: dict[str, DatabaseConfig] = Field(min_length=1)
    queues: tuple[QueueConfig, ...] = ()
    max_series: int = Field(
        200_000, ge=1000, description="Most series on the page; the rest is dropped and counted."
    )

    def queues_of(self, database: str) -> tuple[QueueConfig, ...]:
        """The queues of one database, in the file's order."""
        return tuple(queue for queue in self.queues if queue.database == database)


class _File(Config):
    """The file as written: ``defaults`` are folded into the queues before they are validated."""

    defaults: QueueSettings = QueueSettings()


def load_config(
    path: Path, *, environment: Mapping[str, str] | None = None, files: bool = True
) -> Config:
    """Reads and validates a configuration file. Raises ConfigError with every problem.

    Without ``files``, secrets' files need not exist: they rarely do where a change is checked.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError([Problem(str(path), None, "", f"cannot be read: {reason}")]) from error
    return parse_config(text, str(path), environment=environment, files=files)


def parse_config(
    text: str,
    file: str = "<text>",
    *,
    environment: Mapping[str, str] | None = None,
    files: bool = True,
) -> Config:
    """Validates the text of a configuration file. Raises ConfigError with every problem."""
    source = load_yaml(text, file, environment)
    problems = list(source.problems)
    config: Config | None = None
    if source.data is None and not problems:
        problems.append(Problem(file, None, "", "is empty: at least databases is required"))
    elif not isinstance(source.data, dict):
        if not problems:
            problems.append(source.problem((), "must hold keys: databases, defaults, queues"))
    else:
        fill_empty(source.data)
        folded = _fold_defaults(source.data)
        try:
            parsed = _File.model_validate(source.data)
        except ValidationError as error:
            # What is wrong in a default is said once, where it stands.
            details = [detail for detail in error.errors() if detail["loc"][:3] not in folded]
            found = [_problem(source, detail) for detail in details]
            told = {problem.path for problem in source.problems}
            problems += [problem for problem in found if problem.path not in told]
        else:
            config = Config.model_construct(
                databases=parsed.databases, queues=parsed.queues, max_series=parsed.max_series
            )
        problems += cross_checks(source, source.data, files=files)
    if problems or config is None:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line or 0))
    return config


def _fold_defaults(data: dict[str, object]) -> set[YamlPath]:
    """Lays the queues over the defaults. Returns the paths that came from there."""
    defaults, queues = data.get("defaults"), data.get("queues")
    folded: set[YamlPath] = set()
    if isinstance(defaults, dict) and isinstance(queues, list):
        known = {k: v for k, v in defaults.items() if k in QueueSettings.model_fields}
        for index, queue in enumerate(queues):
            if isinstance(queue, dict):
                folded |= {("queues", index, key) for key in known.keys() - queue.keys()}
                queues[index] = known | queue
    return folded


_MESSAGES = {
    "missing": "is required",
    "model_type": "must hold keys",
    "dict_type": "must hold keys",
    "tuple_type": "must be a list",
    "string_type": "must be text: put it into quotes",
    "string_unicode": "is not valid text",
    "too_short": "must hold at least one",
    "string_too_short": "is empty",
}


def _problem(source: YamlSource, detail: ErrorDetails) -> Problem:
    """One of pydantic's errors in our words. Never shows the value, which may be a secret."""
    path: YamlPath = detail["loc"]
    kind = detail["type"]
    if kind == "extra_forbidden":
        return source.problem(
            path, f"is not a known key{did_you_mean(str(path[-1]), _keys_at(path))}"
        )
    if kind in _MESSAGES:
        return source.problem(path, _MESSAGES[kind])
    message = detail["msg"].removeprefix("Value error, ")
    return source.problem(path, message[0].lower() + message[1:])


def _keys_at(path: YamlPath) -> list[str]:
    """The keys that may stand where a path ends."""
    if len(path) == 1:
        return list(_File.model_fields)
    fields = {
        "databases": DatabaseConfig.model_fields,
        "queues": QueueConfig.model_fields,
        "defaults": QueueSettings.model_fields,
    }
    return list(fields.get(str(path[0]), ()))
