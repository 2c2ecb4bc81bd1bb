-- A table queue: background work kept in PostgreSQL beside the data that it is about.
-- Enqueueing is an INSERT in the transaction that changes the business data: either both happen
-- or neither does. That is the reason to keep a queue in a table.
-- Works on PostgreSQL 13 and later. Copy it; the comments are stored with the objects (\d+).

CREATE TABLE payment (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_type       text        NOT NULL,
    status          text        NOT NULL DEFAULT 'NEW',
    payload         jsonb,
    created_at      timestamptz NOT NULL DEFAULT now(),
    attempts        int         NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    claimed_until   timestamptz,
    started_at      timestamptz,
    finished_at     timestamptz,
    last_error      text,
    idempotency_key uuid        NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT payment_status
        CHECK (status IN ('NEW', 'PROCESSING', 'DONE', 'FAILED', 'CANCELLED'))
) WITH (
    -- Every change of status leaves a dead row version and a dead entry in each index, and a claim
    -- has to step over them. The default (20 % of the table) waits for two million dead rows once
    -- ten million finished ones are kept; a fixed number does not grow with what is finished.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    -- Statuses come and go in minutes: old statistics lead to sequential scans.
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 5000,
    -- A vacuum that sleeps falls behind on a busy queue.
    autovacuum_vacuum_cost_delay = 0,
    -- Room for the next versions of a row (claimed, finished) on its own page: fewer pages get
    -- dirty. It does not make updates HOT, as status stands in the indexes' predicates.
    fillfactor = 70
);

COMMENT ON TABLE payment IS
    'Task queue (table-queue-exporter reference). One row is one task. Workers claim rows with FOR UPDATE SKIP LOCKED, hold them under a lease, and do the work outside any transaction.';
COMMENT ON COLUMN payment.id IS 'Names the task. Do not order by it: ids are given before commit.';
COMMENT ON COLUMN payment.task_type IS 'What to do. Few values: it becomes a label of metrics.';
COMMENT ON COLUMN payment.status IS
    'NEW: waits, due from next_attempt_at. PROCESSING: claimed until claimed_until. DONE, FAILED (attempts used up, a person must look), CANCELLED: final.';
COMMENT ON COLUMN payment.payload IS 'What the handler needs. Monitoring never reads it.';
COMMENT ON COLUMN payment.created_at IS 'When the task was enqueued; never changes. The age of the oldest unprocessed task is the figure to watch.';
COMMENT ON COLUMN payment.attempts IS
    'Claims so far; grows at each claim and never shrinks. With id it names one claim, so a worker that lost its lease cannot overwrite its successor''s result.';
COMMENT ON COLUMN payment.next_attempt_at IS 'Not to be claimed before: start time of a scheduled task, end of the backoff after a failure.';
COMMENT ON COLUMN payment.claimed_until IS 'End of the lease. Past and still PROCESSING: the worker died or is too slow, anybody may claim the task again.';
COMMENT ON COLUMN payment.started_at IS 'When the last claim began. finished_at - started_at is the processing time that sizes batch and lease.';
COMMENT ON COLUMN payment.finished_at IS 'When the task became DONE, FAILED or CANCELLED.';
COMMENT ON COLUMN payment.last_error IS 'Why the last attempt failed, cut to 300 characters.';
COMMENT ON COLUMN payment.idempotency_key IS
    'Sent with each call that has an effect, the same on every attempt, so that the other side can recognise a repetition.';

-- For the workers.
CREATE INDEX payment_claim ON payment (created_at) WHERE status IN ('NEW', 'PROCESSING');
COMMENT ON INDEX payment_claim IS 'The claim: oldest live task first. Holds live rows only, so it stays small.';

-- For monitoring. Small too, except the last two, which cover finished rows.
CREATE INDEX payment_waiting_by_age ON payment (task_type, created_at) WHERE status = 'NEW';
COMMENT ON INDEX payment_waiting_by_age IS 'Oldest waiting task of each type, in a few pages whatever the depth.';

CREATE INDEX payment_waiting_by_due ON payment (task_type, next_attempt_at)
    INCLUDE (attempts) WHERE status = 'NEW';
COMMENT ON INDEX payment_waiting_by_due IS 'Longest-overdue task of each type, even behind many delayed ones.';

CREATE INDEX payment_processing ON payment (claimed_until)
    INCLUDE (task_type, started_at, attempts) WHERE status = 'PROCESSING';
COMMENT ON INDEX payment_processing IS 'Claimed tasks by the end of their lease: expired ones come first.';

CREATE INDEX payment_failed ON payment (finished_at) INCLUDE (task_type) WHERE status = 'FAILED';
COMMENT ON INDEX payment_failed IS 'Failed in the last hour, without walking over everything that finished in it.';

CREATE INDEX payment_finished ON payment (finished_at);
COMMENT ON INDEX payment_finished IS 'Counts finished tasks slice by slice, and finds old ones to delete.';

CREATE INDEX payment_created ON payment (created_at);
COMMENT ON INDEX payment_created IS 'Counts enqueued tasks slice by slice.';

CREATE TABLE nightly_run (
    job         text        NOT NULL,
    day         date        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    PRIMARY KEY (job, day)
);
COMMENT ON TABLE nightly_run IS
    'One row for each run of a daily job. The primary key is what lets only one of several schedulers run it.';
COMMENT ON COLUMN nightly_run.finished_at IS 'NULL while it runs, and for ever when the run died.';
