-- The tables of River that the preset reads, after its migrations: columns and indexes.
CREATE TYPE river_job_state AS ENUM
  ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
CREATE TABLE river_job (
  id bigserial PRIMARY KEY,
  state river_job_state NOT NULL DEFAULT 'available',
  attempt smallint NOT NULL DEFAULT 0,
  max_attempts smallint NOT NULL DEFAULT 25,
  attempted_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  finalized_at timestamptz,
  scheduled_at timestamptz NOT NULL DEFAULT now(),
  priority smallint NOT NULL DEFAULT 1,
  args jsonb NOT NULL DEFAULT '{}',
  kind text NOT NULL,
  queue text NOT NULL DEFAULT 'default'
);
CREATE INDEX river_job_kind ON river_job (kind);
CREATE INDEX river_job_state_and_finalized_at_index ON river_job (state, finalized_at)
  WHERE finalized_at IS NOT NULL;
CREATE INDEX river_job_prioritized_fetching_index
  ON river_job (state, queue, priority, scheduled_at, id);
