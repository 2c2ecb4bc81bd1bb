-- The tables of django-tasks-db that the preset reads, as its own installation made them: columns and indexes.
CREATE TABLE public.django_tasks_database_dbtaskresult (
  id uuid NOT NULL,
  status character varying(10) NOT NULL,
  args_kwargs jsonb NOT NULL,
  priority integer NOT NULL,
  task_path text NOT NULL,
  queue_name character varying(32) NOT NULL,
  backend_name character varying(32) NOT NULL,
  run_after timestamp with time zone NOT NULL,
  enqueued_at timestamp with time zone NOT NULL,
  finished_at timestamp with time zone,
  started_at timestamp with time zone,
  return_value jsonb,
  exception_class_path text NOT NULL,
  traceback text NOT NULL,
  worker_ids jsonb NOT NULL
);
CREATE INDEX django_task_backend_071754_idx ON public.django_tasks_database_dbtaskresult USING btree (backend_name);
CREATE INDEX django_task_queue_n_99c321_idx ON public.django_tasks_database_dbtaskresult USING btree (queue_name);
CREATE UNIQUE INDEX django_tasks_database_dbtaskresult_pkey ON public.django_tasks_database_dbtaskresult USING btree (id);
CREATE INDEX tasks_db_new_ordering_idx ON public.django_tasks_database_dbtaskresult USING btree (status, priority DESC, run_after, enqueued_at) WHERE ((status)::text = 'READY'::text);
