-- Purpose: what the newest rows are like by id; a null comes before them.
-- Parameters: 1 limit bigint.
-- Returns: a row a state: state, rows, and how many of them have a null.
-- Locks: none.
select
    s.state,
    count(*) as rows,
    count(*) filter (where s.id is null) as id_nulls,
    count(*) filter (where s.created_at is null) as created_at_nulls,
    count(*) filter (where s.updated_at is null) as updated_at_nulls,
    count(*) filter (where s.version is null) as version_nulls
from (
    select p.id, p.state, p.created_at, p.updated_at, p.version
    from reconciliation.payment p
    order by p.id desc
    limit $1
) s
group by s.state
