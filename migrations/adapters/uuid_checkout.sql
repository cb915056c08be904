-- A second adapter, which proves the ports: uuid keys, other column names, other words for the states.
-- Read it beside default.sql when you write your own.

create schema if not exists shop;

create table if not exists shop.checkout_payment (
    payment_uuid   uuid        primary key default gen_random_uuid(),
    cart_number    text        not null,
    intent         text        constraint one_checkout_per_intent unique,
    progress       text        not null default 'Processing',
    first_saved_at timestamptz not null default now(),
    last_saved_at  timestamptz not null default now(),
    constraint progress_is_known
        check (progress in ('Processing', 'FinalizePending', 'Expired', 'Captured', 'Failed'))
);
-- Random keys do not grow with time, so the walk goes by (created_at, id), and wants this index.
create index if not exists checkout_payment_keyset on shop.checkout_payment (first_saved_at, payment_uuid);

create table if not exists shop.booking (
    booking_number bigint      generated always as identity primary key,
    payment_uuid   uuid        not null,
    what           text        not null,
    booked_at      timestamptz not null default now()
);

create or replace view reconciliation.payment as
select
    c.payment_uuid   as id,
    c.intent         as external_ref,
    c.cart_number    as match_key,
    case c.progress
        when 'Processing' then 'finalizing'
        when 'FinalizePending' then 'finalizing'
        when 'Expired' then 'expired'
        when 'Captured' then 'paid'
        when 'Failed' then 'failed'
        else c.progress
    end              as state,
    c.first_saved_at as created_at,
    c.last_saved_at  as updated_at,
    c.xmin::text     as version
from shop.checkout_payment c;

create or replace function reconciliation.apply_transition(payment_id uuid, transition text, evidence jsonb)
returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    target       text;
    allowed_from text[];
    found_now    shop.checkout_payment;
begin
    case transition
        when 'succeeded'           then target := 'Captured'; allowed_from := array['Processing', 'FinalizePending', 'Expired'];
        when 'canceled'            then target := 'Failed';   allowed_from := array['Processing', 'FinalizePending', 'Expired'];
        when 'failed'              then target := 'Failed';   allowed_from := array['Processing', 'FinalizePending', 'Expired'];
        when 'reverse_paid'        then target := 'Failed';   allowed_from := array['Captured'];
        when 'accept_late_success' then target := 'Captured'; allowed_from := array['Failed'];
        else raise exception 'unknown transition %', coalesce(transition, 'null')
            using errcode = 'invalid_parameter_value';
    end case;

    select * into found_now from shop.checkout_payment c where c.payment_uuid = apply_transition.payment_id for update;
    if not found or found_now.intent is distinct from evidence ->> 'external_ref' then
        return 'superseded';
    elsif found_now.progress = target then
        return 'already_written';
    elsif found_now.progress <> all (allowed_from) then
        return 'superseded';
    end if;

    update shop.checkout_payment c
    set progress = target, last_saved_at = now()
    where c.payment_uuid = apply_transition.payment_id;
    insert into shop.booking (payment_uuid, what) values (apply_transition.payment_id, transition);
    return 'written';
end
$$;
