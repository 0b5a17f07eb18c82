-- The rows of the store. `value` is opaque. `expires` is in nanoseconds since 1970, by the clock of the application;
-- `sweep_after` in milliseconds, by the clock of this process, which decides only when a row is deleted.
create table tollgate_rows (
    key blob primary key,
    version integer not null,
    expires integer not null,
    sweep_after integer not null,
    value blob not null
) strict;

create index tollgate_rows_sweep_after on tollgate_rows (sweep_after);

-- Every write gets a number that never repeats.
create table tollgate_versions (latest integer not null) strict;
insert into tollgate_versions values (0);

-- Since when no write was lost, in nanoseconds since 1970 by the clock of the application. Each call reads it, so that all
-- processes notice when it moves.
create table tollgate_epoch (began integer not null) strict;
insert into tollgate_epoch values (0);
