-- The table of GoodJob that the preset reads, after its migrations: columns and indexes.
CREATE TABLE good_jobs (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  queue_name text,
  priority integer,
  serialized_params jsonb,
  scheduled_at timestamp(6),
  performed_at timestamp(6),
  finished_at timestamp(6),
  error text,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now()),
  updated_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now()),
  active_job_id uuid,
  concurrency_key text,
  retried_good_job_id uuid,
  executions_count integer,
  job_class text
);
CREATE INDEX index_good_jobs_on_scheduled_at ON good_jobs (scheduled_at)
  WHERE finished_at IS NULL;
CREATE INDEX index_good_jobs_on_queue_name_and_scheduled_at ON good_jobs (queue_name, scheduled_at)
  WHERE finished_at IS NULL;
CREATE INDEX index_good_jobs_jobs_on_finished_at ON good_jobs (finished_at)
  WHERE retried_good_job_id IS NULL AND finished_at IS NOT NULL;
CREATE INDEX index_good_jobs_jobs_on_priority_created_at_when_unfinished
  ON good_jobs (priority DESC NULLS LAST, created_at) WHERE finished_at IS NULL;
