-- Why: the key of the application's payments is a bigint here, a uuid there. One domain over the view's own key type
-- keeps every other statement static SQL whatever the key is, and keeps its index usable.
-- A domain's base type cannot be altered later, so an integer key is widened to bigint from the start.
-- Needs: the view reconciliation.payment (the adapter's read port).

do $$
declare
    key_type text;
    base_type text;
begin
    select pg_catalog.format_type(a.atttypid, null)
    into key_type
    from pg_catalog.pg_attribute a
    where a.attrelid = to_regclass('reconciliation.payment')
      and a.attname = 'id'
      and not a.attisdropped;

    base_type := case
        when key_type in ('smallint', 'integer', 'bigint') then 'bigint'
        when key_type = 'uuid' then 'uuid'
        when key_type in ('text', 'character varying') then 'text'
    end;

    if key_type is null then
        raise exception 'the view reconciliation.payment has no column "id"'
            using hint = 'Apply an adapter first: migrations/adapters/default.sql, or one of your own.';
    elsif base_type is null then
        raise exception 'the key of reconciliation.payment is %, which is not supported', key_type
            using hint = 'Cast it in the view to bigint, uuid or text, over an expression that has an index.';
    end if;

    execute format('create domain reconciliation.payment_id as %s', base_type);
end
$$;

comment on domain reconciliation.payment_id is 'The key of a payment, of the type that the view reconciliation.payment has.';
