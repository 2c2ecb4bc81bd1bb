-- The tables of dramatiq-pg that the preset reads, as its own installation made them: columns and indexes.
CREATE SCHEMA dramatiq;
CREATE TYPE dramatiq.state AS ENUM ('queued', 'consumed', 'rejected', 'done');
CREATE TABLE dramatiq.queue (
  message_id uuid NOT NULL,
  queue_name text DEFAULT 'default'::text NOT NULL,
  state dramatiq.state,
  mtime timestamp with time zone DEFAULT (now() AT TIME ZONE 'UTC'::text),
  message jsonb,
  result jsonb,
  result_ttl timestamp with time zone
);
CREATE UNIQUE INDEX queue_pkey ON dramatiq.queue USING btree (message_id);
CREATE INDEX queue_state_mtime_idx ON dramatiq.queue USING btree (state, mtime);
