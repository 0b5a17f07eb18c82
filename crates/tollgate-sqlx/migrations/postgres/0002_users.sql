-- The accounts of `SqlUsers`. Join these tables and refer to them from your own. Create and change accounts through the
-- crate, because it normalizes names and gives each password a new mark. All text is compared byte by byte.
-- Times are in seconds since 1970, by the clock of the application.
create table tollgate_users (
    -- unique among all tenants, because it is the `sub` of tokens
    id text collate "C" primary key,
    tenant text collate "C" not null,
    -- the displayed names: the claims `name` and `preferred_username`
    name text,
    username text,
    -- an argon2 hash as a PHC string, or a hash of another kind, which your own `Users::verify_password` checks
    password_hash text,
    -- changes with the password and not with its hash; null means that it is derived from the hash
    password_mark text,
    -- the password is checked elsewhere, such as by LDAP
    external_password boolean not null default false,
    disabled boolean not null default false,
    created_at bigint not null,
    changed_at bigint not null,
    unique (tenant, id)
);

-- The names that users type to sign in, as `Identifier::parse` returns them.
create table tollgate_user_identifiers (
    tenant text collate "C" not null,
    identifier text collate "C" not null,
    user_id text collate "C" not null,
    primary key (tenant, identifier),
    foreign key (tenant, user_id) references tollgate_users (tenant, id) on delete cascade
);

create index tollgate_user_identifiers_user_id on tollgate_user_identifiers (tenant, user_id);

-- One-time codes are sent only to contacts that the user has proved to own.
create table tollgate_user_contacts (
    user_id text collate "C" not null references tollgate_users on delete cascade,
    kind text collate "C" not null check (kind in ('email', 'phone')),
    contact text collate "C" not null,
    verified boolean not null,
    primary key (user_id, kind, contact)
);

-- Further claims, in JSON, for clients with the scope.
create table tollgate_user_claims (
    user_id text collate "C" not null references tollgate_users on delete cascade,
    name text collate "C" not null,
    scope text collate "C" not null,
    value text not null,
    primary key (user_id, name)
);

-- The ids of removed accounts, which no other account can have.
create table tollgate_removed_users (
    id text collate "C" primary key,
    tenant text collate "C" not null,
    removed_at bigint not null
);

create index tollgate_removed_users_tenant on tollgate_removed_users (tenant, id);

-- Remembers the id of an account, however its row is deleted.
create function tollgate_remember_removed_user() returns trigger language plpgsql as $$
begin
    insert into tollgate_removed_users (id, tenant, removed_at)
    values (old.id, old.tenant, floor(extract(epoch from clock_timestamp()))) on conflict (id) do nothing;
    return null;
end
$$;

create trigger tollgate_remember_removed_user after delete on tollgate_users
for each row execute function tollgate_remember_removed_user();
