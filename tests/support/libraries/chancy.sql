-- The tables of chancy that the preset reads, as its own installation made them: columns and indexes.
CREATE TABLE public.chancy_jobs (
  id uuid NOT NULL,
  queue text NOT NULL,
  func text NOT NULL,
  kwargs jsonb DEFAULT '{}'::json NOT NULL,
  limits jsonb DEFAULT '[]'::json NOT NULL,
  meta jsonb DEFAULT '{}'::json NOT NULL,
  state character varying(25) DEFAULT 'pending'::character varying NOT NULL,
  priority integer DEFAULT 0,
  attempts integer DEFAULT 0,
  max_attempts integer DEFAULT 1 NOT NULL,
  taken_by text,
  created_at timestamp with time zone DEFAULT now() NOT NULL,
  started_at timestamp with time zone,
  completed_at timestamp with time zone,
  scheduled_at timestamp with time zone DEFAULT now() NOT NULL,
  unique_key text,
  errors jsonb DEFAULT '[]'::json NOT NULL,
  claim_id uuid
);
CREATE INDEX chancy_idx_jobs_fetch_prune ON public.chancy_jobs USING btree (queue, state, attempts, scheduled_at, priority DESC, id DESC) WHERE ((state)::text = ANY ((ARRAY['pending'::character varying, 'retrying'::character varying])::text[]));
CREATE INDEX chancy_idx_jobs_queue_state ON public.chancy_jobs USING btree (queue, state);
CREATE UNIQUE INDEX chancy_jobs_pkey ON public.chancy_jobs USING btree (id);
CREATE UNIQUE INDEX chancy_jobs_unique_key ON public.chancy_jobs USING btree (unique_key) WHERE ((unique_key IS NOT NULL) AND ((state)::text <> ALL ((ARRAY['succeeded'::character varying, 'failed'::character varying])::text[])));
CREATE UNLOGGED TABLE public.chancy_workers (
  worker_id text NOT NULL,
  tags text[],
  queues text[],
  last_seen timestamp with time zone DEFAULT now() NOT NULL,
  expires_at timestamp with time zone NOT NULL
);
CREATE UNIQUE INDEX chancy_workers_pkey ON public.chancy_workers USING btree (worker_id);
