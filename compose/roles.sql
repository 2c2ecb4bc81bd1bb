-- Two roles, as in life: the application owns its tables, and the exporter may only read.
CREATE ROLE app LOGIN PASSWORD 'app';
CREATE ROLE monitor LOGIN PASSWORD 'monitor' CONNECTION LIMIT 5;
-- Other sessions' transactions, which hold vacuum back, are hidden from everybody else.
GRANT pg_read_all_stats TO monitor;
ALTER SCHEMA public OWNER TO app;
ALTER DEFAULT PRIVILEGES FOR ROLE app IN SCHEMA public GRANT SELECT ON TABLES TO monitor;
