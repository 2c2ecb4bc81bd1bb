-- The tables of pg-boss that the preset reads, as its own installation made them: columns and indexes.
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
  retry_delay_max integer,
  expire_seconds integer DEFAULT 900 NOT NULL,
  deletion_seconds integer DEFAULT 604800 NOT NULL,
  singleton_key text,
  singleton_on timestamp without time zone,
  group_id text,
  group_tier text,
  start_after timestamp with time zone DEFAULT now() NOT NULL,
  created_on timestamp with time zone DEFAULT now() NOT NULL,
  started_on timestamp with time zone,
  completed_on timestamp with time zone,
  keep_until timestamp with time zone DEFAULT (now() + '336:00:00'::interval) NOT NULL,
  output jsonb,
  dead_letter text,
  policy text,
  heartbeat_on timestamp with time zone,
  heartbeat_seconds integer,
  blocked boolean DEFAULT false NOT NULL,
  blocking boolean DEFAULT false NOT NULL,
  pending_dependencies integer DEFAULT 0 NOT NULL,
  source_name text,
  source_id uuid,
  source_created_on timestamp with time zone,
  source_retry_count integer,
  source_output jsonb,
  source_root_id uuid,
  trace_context jsonb,
  upsert_by_key boolean
) PARTITION BY LIST (name);
CREATE UNIQUE INDEX job_pkey ON pgboss.job USING btree (name, id);
CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT;
CREATE UNIQUE INDEX job_common_i1 ON pgboss.job_common USING btree (name, COALESCE(singleton_key, ''::text)) WHERE ((state = 'created'::pgboss.job_state) AND (policy = 'short'::text));
CREATE INDEX job_common_i10 ON pgboss.job_common USING btree (name, singleton_key, state DESC, created_on, id) INCLUDE (start_after) WHERE ((state < 'active'::pgboss.job_state) AND (NOT blocked) AND (policy = 'key_strict_fifo'::text));
CREATE INDEX job_common_i11 ON pgboss.job_common USING btree (name, priority DESC, created_on, start_after) WHERE ((state < 'active'::pgboss.job_state) AND (NOT blocked));
CREATE INDEX job_common_i12 ON pgboss.job_common USING btree (source_root_id) WHERE (source_root_id IS NOT NULL);
CREATE UNIQUE INDEX job_common_i13 ON pgboss.job_common USING btree (name, singleton_key) WHERE ((state = 'created'::pgboss.job_state) AND upsert_by_key);
CREATE INDEX job_common_i14 ON pgboss.job_common USING btree (name, state, blocked, start_after) WHERE (state = ANY (ARRAY['created'::pgboss.job_state, 'retry'::pgboss.job_state, 'active'::pgboss.job_state, 'failed'::pgboss.job_state]));
CREATE INDEX job_common_i15 ON pgboss.job_common USING btree (name, created_on);
CREATE INDEX job_common_i16 ON pgboss.job_common USING btree (name, completed_on) WHERE (completed_on IS NOT NULL);
CREATE INDEX job_common_i17 ON pgboss.job_common USING btree (name, singleton_key, created_on) WHERE ((state < 'active'::pgboss.job_state) AND (singleton_key IS NOT NULL));
CREATE UNIQUE INDEX job_common_i2 ON pgboss.job_common USING btree (name, COALESCE(singleton_key, ''::text)) WHERE ((state = 'active'::pgboss.job_state) AND (policy = 'singleton'::text));
CREATE UNIQUE INDEX job_common_i3 ON pgboss.job_common USING btree (name, state, COALESCE(singleton_key, ''::text)) WHERE ((state <= 'active'::pgboss.job_state) AND (policy = 'stately'::text));
CREATE UNIQUE INDEX job_common_i4 ON pgboss.job_common USING btree (name, singleton_on, COALESCE(singleton_key, ''::text)) WHERE ((state <> 'cancelled'::pgboss.job_state) AND (singleton_on IS NOT NULL));
CREATE UNIQUE INDEX job_common_i6 ON pgboss.job_common USING btree (name, COALESCE(singleton_key, ''::text)) WHERE ((state <= 'active'::pgboss.job_state) AND (policy = 'exclusive'::text));
CREATE INDEX job_common_i7 ON pgboss.job_common USING btree (name, group_id) WHERE ((state = 'active'::pgboss.job_state) AND (group_id IS NOT NULL));
CREATE UNIQUE INDEX job_common_i8 ON pgboss.job_common USING btree (name, singleton_key) WHERE ((state = ANY (ARRAY['active'::pgboss.job_state, 'retry'::pgboss.job_state, 'failed'::pgboss.job_state])) AND (policy = 'key_strict_fifo'::text));
CREATE INDEX job_common_i9 ON pgboss.job_common USING btree (name, id) WHERE (blocking AND (state = 'completed'::pgboss.job_state));
