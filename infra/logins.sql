-- Four logins for the functions, each with the one role that it works with. psql asks for their passwords, which belong into
-- the secrets as well, and sends only their hashes. Run it as the payments' owner, before the first deployment or after it;
-- running it again changes the passwords.
\set ON_ERROR_STOP on

-- The roles are the migration's too, which finds them here.
select format('create role %1$I nologin; grant %1$I to current_user', wanted)
from unnest(array['reconciler_scan', 'reconciler_writer', 'reconciler_metrics', 'reconciler_reviewer']) wanted
where not exists (select from pg_catalog.pg_roles r where r.rolname = wanted)
\gexec
select format('create role %I login in role %I', wanted || '_login', wanted)
from unnest(array['reconciler_scan', 'reconciler_writer', 'reconciler_metrics', 'reconciler_reviewer']) wanted
where not exists (select from pg_catalog.pg_roles r where r.rolname = wanted || '_login')
\gexec

\password reconciler_scan_login
\password reconciler_writer_login
\password reconciler_metrics_login
\password reconciler_reviewer_login
