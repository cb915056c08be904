-- Purpose: everything that is wrong with who may do what.
-- Parameters: none.
-- Returns: fact, role, object; a row for each.
-- Locks: none.
with recursive wanted as (
    select w.name, r.oid
    from (values
        ('reconciler_scan'), ('reconciler_writer'), ('reconciler_metrics'), ('reconciler_reviewer')) w (name)
    left join pg_roles r on r.rolname = w.name
),
-- The view and all that it is made of, through views of views.
behind as (
    select to_regclass('reconciliation.payment')::oid as oid
    where to_regclass('reconciliation.payment') is not null
    union
    select d.refobjid
    from behind b
    join pg_rewrite r on r.ev_class = b.oid
    join pg_depend d
        on d.classid = 'pg_rewrite'::regclass
        and d.objid = r.oid
        and d.refclassid = 'pg_class'::regclass
),
ours as (
    select p.oid, p.proname, p.prosecdef, p.proconfig, p.proowner, p.proacl
    from pg_proc p
    where p.pronamespace = to_regnamespace('reconciliation')
),
desk as (
    select to_regclass('reconciliation.review')::oid as oid
    where to_regclass('reconciliation.review') is not null
),
may_read as (
    select w.name, w.oid
    from wanted w
    where w.oid is not null
      and to_regclass('reconciliation.payment') is not null
)
select 'no_role' as fact, w.name as role, '' as object
from wanted w
where w.oid is null
union all
select 'may_write', w.name, b.oid::regclass::text
from wanted w
cross join behind b
where w.oid is not null
  and (has_table_privilege(w.oid, b.oid, 'insert, update, delete, truncate')
       or has_any_column_privilege(w.oid, b.oid, 'insert, update'))
union all
select 'may_execute', w.name, o.oid::regprocedure::text
from wanted w
join ours o
    on o.proname = 'apply_transition'
    or (o.proname = 'transition' and w.name not in ('reconciler_writer', 'reconciler_reviewer'))
where w.oid is not null
  and has_function_privilege(w.oid, o.oid, 'execute')
union all
select 'may_become', w.name, writer.name
from wanted w
join wanted writer on writer.name in ('reconciler_writer', 'reconciler_reviewer')
where w.name <> writer.name
  and w.oid is not null
  and writer.oid is not null
  and pg_has_role(w.oid, writer.oid, 'member')
union
-- An owner may do everything, and so may whoever can take the owner's role on, whether it inherits its rights or not.
select 'may_become', w.name, owner.rolname::text
from wanted w
cross join behind b
join pg_class c on c.oid = b.oid
join pg_roles owner on owner.oid = c.relowner
where w.oid is not null
  and pg_has_role(w.oid, owner.oid, 'member')
union all
-- What a person decided is added by the desk alone, and changed by nobody.
select 'may_decide', w.name, b.oid::regclass::text
from wanted w
cross join desk b
where w.oid is not null
  and w.name <> 'reconciler_reviewer'
  and (has_table_privilege(w.oid, b.oid, 'insert') or has_any_column_privilege(w.oid, b.oid, 'insert'))
union all
select 'may_rewrite', w.name, b.oid::regclass::text
from wanted w
cross join desk b
where w.oid is not null
  and (has_table_privilege(w.oid, b.oid, 'update, delete, truncate') or has_any_column_privilege(w.oid, b.oid, 'update'))
union all
select 'may_not', m.name, 'use the schema reconciliation'
from may_read m
where not has_schema_privilege(m.oid, 'reconciliation', 'usage')
union all
select 'may_not', m.name, 'read the view reconciliation.payment'
from may_read m
where not has_table_privilege(m.oid, to_regclass('reconciliation.payment'), 'select')
union all
select 'may_not', w.name, 'call ' || o.oid::regprocedure
from wanted w
join ours o on o.proname = 'transition'
where w.name in ('reconciler_writer', 'reconciler_reviewer')
  and w.oid is not null
  and not has_function_privilege(w.oid, o.oid, 'execute')
union all
select 'public', '', a.privilege_type || ' on the schema reconciliation'
from pg_namespace n
cross join aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
where n.nspname = 'reconciliation'
  and a.grantee = 0
union all
select 'public', '', a.privilege_type || ' on ' || c.oid::regclass
from pg_class c
cross join aclexplode(c.relacl) a
where c.relnamespace = to_regnamespace('reconciliation')
  and a.grantee = 0
union all
select 'public', '', a.privilege_type || ' on the column ' || t.attname || ' of ' || t.attrelid::regclass
from pg_class c
join pg_attribute t on t.attrelid = c.oid
cross join aclexplode(t.attacl) a
where c.relnamespace = to_regnamespace('reconciliation')
  and a.grantee = 0
union all
select 'public', '', a.privilege_type || ' on ' || o.oid::regprocedure
from ours o
cross join aclexplode(coalesce(o.proacl, acldefault('f', o.proowner))) a
where a.grantee = 0
union all
select 'unpinned', '', o.oid::regprocedure::text
from ours o
where o.prosecdef
  and not exists (select from unnest(o.proconfig) s (setting) where s.setting like 'search_path=%')
order by fact, role, object
