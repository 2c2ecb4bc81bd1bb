-- The tables of Solid Queue that the preset reads, after its migrations: columns and indexes.
CREATE TABLE solid_queue_jobs (
  id bigserial PRIMARY KEY,
  queue_name varchar NOT NULL,
  class_name varchar NOT NULL,
  arguments text,
  priority integer NOT NULL DEFAULT 0,
  active_job_id varchar,
  scheduled_at timestamp(6),
  finished_at timestamp(6),
  concurrency_key varchar,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now()),
  updated_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
CREATE INDEX index_solid_queue_jobs_on_finished_at ON solid_queue_jobs (finished_at);
CREATE INDEX index_solid_queue_jobs_for_filtering ON solid_queue_jobs (queue_name, finished_at);
CREATE INDEX index_solid_queue_jobs_for_alerting ON solid_queue_jobs (scheduled_at, finished_at);
CREATE TABLE solid_queue_ready_executions (
  id bigserial PRIMARY KEY,
  job_id bigint NOT NULL UNIQUE,
  queue_name varchar NOT NULL,
  priority integer NOT NULL DEFAULT 0,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
CREATE INDEX index_solid_queue_poll_all ON solid_queue_ready_executions (priority, job_id);
CREATE INDEX index_solid_queue_poll_by_queue
  ON solid_queue_ready_executions (queue_name, priority, job_id);
CREATE TABLE solid_queue_scheduled_executions (
  id bigserial PRIMARY KEY,
  job_id bigint NOT NULL UNIQUE,
  queue_name varchar NOT NULL,
  priority integer NOT NULL DEFAULT 0,
  scheduled_at timestamp(6) NOT NULL,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
CREATE INDEX index_solid_queue_dispatch_all
  ON solid_queue_scheduled_executions (scheduled_at, priority, job_id);
CREATE TABLE solid_queue_blocked_executions (
  id bigserial PRIMARY KEY,
  job_id bigint NOT NULL UNIQUE,
  queue_name varchar NOT NULL,
  priority integer NOT NULL DEFAULT 0,
  concurrency_key varchar NOT NULL,
  expires_at timestamp(6) NOT NULL,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
CREATE INDEX index_solid_queue_blocked_executions_for_release
  ON solid_queue_blocked_executions (concurrency_key, priority, job_id);
CREATE TABLE solid_queue_claimed_executions (
  id bigserial PRIMARY KEY,
  job_id bigint NOT NULL UNIQUE,
  process_id bigint,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
CREATE INDEX index_solid_queue_claimed_executions_on_process_id_and_job_id
  ON solid_queue_claimed_executions (process_id, job_id);
CREATE TABLE solid_queue_failed_executions (
  id bigserial PRIMARY KEY,
  job_id bigint NOT NULL UNIQUE,
  error text,
  created_at timestamp(6) NOT NULL DEFAULT timezone('UTC', now())
);
CREATE TABLE solid_queue_processes (
  id bigserial PRIMARY KEY,
  kind varchar NOT NULL,
  last_heartbeat_at timestamp(6) NOT NULL,
  pid integer NOT NULL DEFAULT 1,
  name varchar NOT NULL DEFAULT 'worker'
);
