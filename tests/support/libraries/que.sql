-- The table of Que that the preset reads, after its migration 7: columns and indexes.
CREATE TABLE que_jobs (
  priority smallint NOT NULL DEFAULT 100,
  run_at timestamptz NOT NULL DEFAULT now(),
  id bigserial PRIMARY KEY,
  job_class text NOT NULL,
  error_count integer NOT NULL DEFAULT 0,
  last_error_message text,
  queue text NOT NULL DEFAULT 'default',
  last_error_backtrace text,
  finished_at timestamptz,
  expired_at timestamptz,
  args jsonb NOT NULL DEFAULT '[]',
  data jsonb NOT NULL DEFAULT '{}',
  job_schema_version integer DEFAULT 2
);
CREATE INDEX que_poll_idx ON que_jobs (queue, priority, run_at, id)
  WHERE finished_at IS NULL AND expired_at IS NULL;
CREATE INDEX que_poll_idx_with_job_schema_version
  ON que_jobs (job_schema_version, queue, priority, run_at, id)
  WHERE finished_at IS NULL AND expired_at IS NULL;
