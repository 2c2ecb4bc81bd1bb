-- The tables of absurd that the preset reads, as its own installation made them: columns and indexes.
CREATE SCHEMA absurd;
CREATE TABLE absurd.t_mail (
  task_id uuid NOT NULL,
  task_name text NOT NULL,
  params jsonb NOT NULL,
  headers jsonb,
  retry_strategy jsonb,
  max_attempts integer,
  cancellation jsonb,
  enqueue_at timestamp with time zone DEFAULT now() NOT NULL,
  first_started_at timestamp with time zone,
  state text NOT NULL,
  attempts integer DEFAULT 0 NOT NULL,
  last_attempt_run uuid,
  completed_payload jsonb,
  cancelled_at timestamp with time zone,
  idempotency_key text
);
CREATE INDEX t_mail_ci ON absurd.t_mail USING btree (task_id) WHERE (cancellation IS NOT NULL);
CREATE UNIQUE INDEX t_mail_idempotency_key_key ON absurd.t_mail USING btree (idempotency_key);
CREATE UNIQUE INDEX t_mail_pkey ON absurd.t_mail USING btree (task_id);
CREATE TABLE absurd.r_mail (
  run_id uuid NOT NULL,
  task_id uuid NOT NULL,
  attempt integer NOT NULL,
  state text NOT NULL,
  claimed_by text,
  claim_expires_at timestamp with time zone,
  available_at timestamp with time zone NOT NULL,
  wake_event text,
  event_payload jsonb,
  started_at timestamp with time zone,
  completed_at timestamp with time zone,
  failed_at timestamp with time zone,
  result jsonb,
  failure_reason jsonb,
  created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE INDEX r_mail_cei ON absurd.r_mail USING btree (claim_expires_at) WHERE ((state = 'running'::text) AND (claim_expires_at IS NOT NULL));
CREATE UNIQUE INDEX r_mail_pkey ON absurd.r_mail USING btree (run_id);
CREATE INDEX r_mail_sai ON absurd.r_mail USING btree (state, available_at);
CREATE INDEX r_mail_ti ON absurd.r_mail USING btree (task_id);
