-- The rows of the store. `value` is opaque. `expires` is in nanoseconds since 1970, by the clock of the application;
-- `sweep_after` in milliseconds, by the clock of this server, which decides only when a row is deleted.
create table tollgate_rows (
    key bytea primary key,
    version bigint not null,
    expires bigint not null,
    sweep_after bigint not null,
    value bytea not null
);

create index tollgate_rows_sweep_after on tollgate_rows (sweep_after);

-- Every write gets a number that never repeats.
create sequence tollgate_versions;

-- Since when no write was lost, in nanoseconds since 1970 by the clock of the application. Each call returns it, so that all
-- processes notice when it moves.
create table tollgate_epoch (began bigint not null);
insert into tollgate_epoch values (0);

-- Executes several operations in their order and stops after the first write that loses. What comes before it stays.
-- kind: 0 reads, 1 writes if there is no row, 2 writes over this version, 3 over this version or no row, 4 takes.
create function tollgate_run(
    kinds smallint[], keys bytea[], versions bigint[], expiries bigint[], lifetimes bigint[], contents bytea[]
) returns table (
    epoch bigint, written boolean, found_version bigint, found_expires bigint, found_value bytea
)
language plpgsql as $$
#variable_conflict use_column
declare
    now_ms bigint := floor(extract(epoch from clock_timestamp()) * 1000);
    next_version bigint;
    is_done boolean;
begin
    -- each statement has to see what others have committed while this call waited for its locks
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'tollgate needs connections with the isolation level "read committed", and this one has "%"',
            current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state', hint = 'Set default_transaction_isolation for this pool.';
    end if;
    -- Others see the writes of a call only at its end. So a call that writes locks what it reads, too: if it misses a write of
    -- another call, that call's later reads see its own writes. All calls lock in one order, so that they never wait for each
    -- other in a circle, and a lock that two keys share is taken once.
    if exists (select from unnest(kinds) as operation(kind) where kind > 0) then
        perform case when is_written then pg_advisory_xact_lock(lock_id) else pg_advisory_xact_lock_shared(lock_id) end
        from (
            select hashtextextended(encode(k, 'base64'), 0) as lock_id, bool_or(kind > 0) as is_written
            from unnest(keys, kinds) as operation(k, kind) group by 1 order by 1
        ) as locks;
    end if;
    select began into epoch from tollgate_epoch;
    for i in 1 .. cardinality(kinds) loop
        if kinds[i] = 0 or kinds[i] = 4 then
            written := false;
            found_version := null;
            if kinds[i] = 0 then
                select r.version, r.expires, r.value into found_version, found_expires, found_value
                from tollgate_rows r where r.key = keys[i];
            else
                delete from tollgate_rows r where r.key = keys[i]
                returning r.version, r.expires, r.value into found_version, found_expires, found_value;
            end if;
            return next;
            continue;
        end if;
        next_version := nextval('tollgate_versions');
        is_done := false;
        if kinds[i] in (2, 3) then
            update tollgate_rows r
            set version = next_version, expires = expiries[i], sweep_after = now_ms + lifetimes[i], value = contents[i]
            where r.key = keys[i] and r.version = versions[i];
            is_done := found;
        end if;
        if not is_done and kinds[i] in (1, 3) then
            insert into tollgate_rows (key, version, expires, sweep_after, value)
            values (keys[i], next_version, expiries[i], now_ms + lifetimes[i], contents[i])
            on conflict (key) do nothing;
            is_done := found;
        end if;
        written := is_done;
        found_version := next_version;
        found_expires := null;
        found_value := null;
        if not is_done then
            found_version := null;
            select r.version, r.expires, r.value into found_version, found_expires, found_value
            from tollgate_rows r where r.key = keys[i];
        end if;
        return next;
        if not is_done then
            return;
        end if;
    end loop;
end
$$;
