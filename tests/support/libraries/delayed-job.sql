-- The table of delayed_job that the preset reads, after its migrations: columns and indexes.
CREATE TABLE delayed_jobs (
  id bigserial PRIMARY KEY,
  priority integer NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  handler text NOT NULL DEFAULT '',
  last_error text,
  run_at timestamp,
  locked_at timestamp,
  failed_at timestamp,
  locked_by varchar,
  queue varchar,
  created_at timestamp(6) DEFAULT timezone('UTC', now()),
  updated_at timestamp(6) DEFAULT timezone('UTC', now())
);
CREATE INDEX delayed_jobs_priority ON delayed_jobs (priority, run_at);
