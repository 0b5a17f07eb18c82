-- The accounts of `SqlUsers`. Join these tables and refer to them from your own. Create and change accounts through the
-- crate, because it normalizes names and gives each password a new mark. All text is compared byte by byte.
-- Times are in seconds since 1970, by the clock of the application.
create table tollgate_users (
    -- unique among all tenants, because it is the `sub` of tokens
    id text primary key not null,
    tenant text not null,
    -- the displayed names: the claims `name` and `preferred_username`
    name text,
    username text,
    -- an argon2 hash as a PHC string, or a hash of another kind, which your own `Users::verify_password` checks
    password_hash text,
    -- changes with the password and not with its hash; null means that it is derived from the hash
    password_mark text,
    -- the password is checked elsewhere, such as by LDAP
    external_password integer not null default 0,
    disabled integer not null default 0,
    created_at integer not null,
    changed_at integer not null,
    unique (tenant, id)
) strict;

-- The names that users type to sign in, as `Identifier::parse` returns them.
create table tollgate_user_identifiers (
    tenant text not null,
    identifier text not null,
    user_id text not null,
    primary key (tenant, identifier),
    foreign key (tenant, user_id) references tollgate_users (tenant, id) on delete cascade
) strict;

create index tollgate_user_identifiers_user_id on tollgate_user_identifiers (tenant, user_id);

-- One-time codes are sent only to contacts that the user has proved to own.
create table tollgate_user_contacts (
    user_id text not null references tollgate_users on delete cascade,
    kind text not null check (kind in ('email', 'phone')),
    contact text not null,
    verified integer not null,
    primary key (user_id, kind, contact)
) strict;

-- Further claims, in JSON, for clients with the scope.
create table tollgate_user_claims (
    user_id text not null references tollgate_users on delete cascade,
    name text not null,
    scope text not null,
    value text not null,
    primary key (user_id, name)
) strict;

-- The ids of removed accounts, which no other account can have.
create table tollgate_removed_users (
    id text primary key not null,
    tenant text not null,
    removed_at integer not null
) strict;

create index tollgate_removed_users_tenant on tollgate_removed_users (tenant, id);

-- Remembers the id of an account, however its row is deleted.
create trigger tollgate_remember_removed_user after delete on tollgate_users
begin
    insert into tollgate_removed_users (id, tenant, removed_at) values (old.id, old.tenant, unixepoch())
    on conflict (id) do nothing;
end;
