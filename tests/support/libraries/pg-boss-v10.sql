-- The tables of pg-boss-v10 that the preset reads, as its own installation made them: columns and indexes.
CREATE SCHEMA pgboss;
CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
CREATE TABLE pgboss.job (
  id uuid DEFAULT gen_random_uuid() NOT NULL,
  name text NOT NULL,
  priority integer DEFAULT 0 NOT NULL,
  data jsonb,
  state pgboss.job_state DEFAULT 'created'::pgboss.job_state NOT NULL,
  retry_limit integer DEFAULT 2 NOT NULL,
  retry_count integer DEFAULT 0 NOT NULL,
  retry_delay integer DEFAULT 0 NOT NULL,
  retry_backoff boolean DEFAULT false NOT NULL,
  start_after timestamp with time zone DEFAULT now() NOT NULL,
  started_on timestamp with time zone,
  singleton_key text,
  singleton_on timestamp without time zone,
  expire_in interval DEFAULT '00:15:00'::interval NOT NULL,
  created_on timestamp with time zone DEFAULT now() NOT NULL,
  completed_on timestamp with time zone,
  keep_until timestamp with time zone DEFAULT (now() + '14 days'::interval) NOT NULL,
  output jsonb,
  dead_letter text,
  policy text
) PARTITION BY LIST (name);
CREATE UNIQUE INDEX job_pkey ON pgboss.job USING btree (name, id);
CREATE TABLE pgboss.job_ok PARTITION OF pgboss.job FOR VALUES IN ('ok');
CREATE INDEX ON pgboss.job_ok (name, start_after) INCLUDE (priority, created_on, id) WHERE state < 'active'::pgboss.job_state;
CREATE TABLE pgboss.job_fail PARTITION OF pgboss.job FOR VALUES IN ('fail');
CREATE INDEX ON pgboss.job_fail (name, start_after) INCLUDE (priority, created_on, id) WHERE state < 'active'::pgboss.job_state;
CREATE TABLE pgboss.job_retry PARTITION OF pgboss.job FOR VALUES IN ('retry');
CREATE INDEX ON pgboss.job_retry (name, start_after) INCLUDE (priority, created_on, id) WHERE state < 'active'::pgboss.job_state;
CREATE TABLE pgboss.job_slow PARTITION OF pgboss.job FOR VALUES IN ('slow');
CREATE INDEX ON pgboss.job_slow (name, start_after) INCLUDE (priority, created_on, id) WHERE state < 'active'::pgboss.job_state;
