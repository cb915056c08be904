-- Why: everything that the reconciler owns lives in one schema, and three roles say who may touch what.
-- The roles cannot log in. Give each function's login role exactly one of them:
--     create role reconciler_scan_login login password '…' in role reconciler_scan;
-- Roles belong to the whole server, so another database of the same server may have made them already.

create schema if not exists reconciliation;
comment on schema reconciliation is
    'Payment reconciler: compares every payment with Stripe. Reaches the payments only through reconciliation.payment (reading) and reconciliation.transition (writing).';

revoke all on schema reconciliation from public;

do $$
declare
    wanted text;
begin
    foreach wanted in array array['reconciler_scan', 'reconciler_writer', 'reconciler_metrics'] loop
        if not exists (select from pg_catalog.pg_roles r where r.rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
                -- whoever made a role may take it on, so that the owner's login can run a scan on a laptop
                execute format('grant %I to current_user', wanted);
            exception
                when duplicate_object or unique_violation then null; -- made by a migration next door just now
            end;
        end if;
    end loop;
end
$$;
