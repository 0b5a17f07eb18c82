//! The statements of [`SqlUsers`](super::SqlUsers). PostgreSQL and SQLite run the same text.

/// The columns of an account `u`, as [`AccountRow`](super::row::AccountRow) reads them.
macro_rules! account {
    () => {
        "u.id, u.name, u.username, u.password_hash, u.password_mark, u.disabled, u.external_password"
    };
}

/// The contacts of the account with this id: one per line, with its kind, and `+` if it is verified.
macro_rules! contacts {
    ($id:literal) => {
        concat!(
            "(select string_agg(c.kind || case when c.verified then '+' else '-' end || c.contact, '\n'
              order by c.kind, c.contact) from tollgate_user_contacts c where c.user_id = ",
            $id,
            ")"
        )
    };
}

/// The identifiers of the account `u`, one per line.
macro_rules! identifiers {
    () => {
        "(select string_agg(i.identifier, '\n' order by i.identifier) from tollgate_user_identifiers i
          where i.tenant = u.tenant and i.user_id = u.id)"
    };
}

/// Looks in the same indexes for an unknown name, and returns one row in either case.
pub(super) const FIND: &str = concat!(
    "select ",
    account!(),
    ", ",
    contacts!("coalesce(f.id, '')"),
    " from (select (select user_id from tollgate_user_identifiers where tenant = $1 and identifier = $2) as id) f
     left join tollgate_users u on u.tenant = $1 and u.id = coalesce(f.id, '')"
);

/// Returns one row for an unknown id, too.
pub(super) const BY_ID: &str = concat!(
    "select ",
    account!(),
    ", ",
    contacts!("f.id"),
    " from (select cast($2 as text) as id) f left join tollgate_users u on u.tenant = $1 and u.id = f.id"
);

pub(super) const GET: &str = concat!(
    "select ",
    account!(),
    ", ",
    contacts!("u.id"),
    ", ",
    identifiers!(),
    ", u.created_at from tollgate_users u where u.tenant = $1 and u.id = $2"
);

pub(super) const LIST: &str = concat!(
    "select ",
    account!(),
    ", ",
    contacts!("u.id"),
    ", ",
    identifiers!(),
    ", u.created_at from tollgate_users u where u.tenant = $1 and u.id > $2 order by u.id limit $3"
);

/// The identifiers from `$2` to before `$3`.
pub(super) const SEARCH: &str = concat!(
    "select ",
    account!(),
    ", ",
    contacts!("u.id"),
    ", ",
    identifiers!(),
    ", u.created_at, n.identifier from tollgate_user_identifiers n
     join tollgate_users u on u.tenant = n.tenant and u.id = n.user_id
     where n.tenant = $1 and n.identifier >= $2 and n.identifier < $3 order by n.identifier limit $4"
);

pub(super) const CLAIMS: &str = "select scope, name, value from tollgate_user_claims where user_id = $1";

pub(super) const CREATE: &str = "insert into tollgate_users
     (tenant, id, name, username, password_hash, password_mark, disabled, created_at, changed_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $8)";

/// Run after [`CREATE`], which waits for a call that removes an account with the same id.
pub(super) const WAS_REMOVED: &str = "select count(*) from tollgate_removed_users where id = $1";

/// Locks the account, so that its changes come one after the other.
pub(super) const CHANGE: &str = "update tollgate_users set changed_at = $3 where tenant = $1 and id = $2";

pub(super) const ADD_IDENTIFIER: &str =
    "insert into tollgate_user_identifiers (tenant, user_id, identifier) values ($1, $2, $3)
     on conflict (tenant, identifier) do update set user_id = excluded.user_id
     where tollgate_user_identifiers.user_id = excluded.user_id";
pub(super) const REMOVE_IDENTIFIER: &str =
    "delete from tollgate_user_identifiers where tenant = $1 and user_id = $2 and identifier = $3";
pub(super) const COUNT_IDENTIFIERS: &str =
    "select count(*) from tollgate_user_identifiers where tenant = $1 and user_id = $2";

/// A verified contact stays verified.
pub(super) const ADD_CONTACT: &str = "insert into tollgate_user_contacts (user_id, kind, contact, verified)
     values ($1, $2, $3, $4)
     on conflict (user_id, kind, contact) do update
     set verified = (tollgate_user_contacts.verified or excluded.verified)";
pub(super) const REMOVE_CONTACT: &str =
    "delete from tollgate_user_contacts where user_id = $1 and kind = $2 and contact = $3";
pub(super) const HAS_CONTACT: &str =
    "select count(*) from tollgate_user_contacts where user_id = $1 and kind = $2 and contact = $3";
pub(super) const CONTACTS: &str = "select kind, contact, verified from tollgate_user_contacts where user_id = $1";
pub(super) const COUNT_CONTACTS: &str = "select count(*) from tollgate_user_contacts where user_id = $1";

pub(super) const SET_CLAIM: &str = "insert into tollgate_user_claims (user_id, name, scope, value)
     values ($1, $2, $3, $4)
     on conflict (user_id, name) do update set scope = excluded.scope, value = excluded.value";
pub(super) const REMOVE_CLAIM: &str = "delete from tollgate_user_claims where user_id = $1 and name = $2";

pub(super) const SET_NAMES: &str = "update tollgate_users set name = $3, username = $4 where tenant = $1 and id = $2";
pub(super) const SET_NAME: &str = "update tollgate_users set name = $3 where tenant = $1 and id = $2";
pub(super) const USERNAME: &str = "select username from tollgate_users where tenant = $1 and id = $2";
pub(super) const CLEAR_USERNAME: &str = "update tollgate_users set username = null where tenant = $1 and id = $2";
pub(super) const SET_EXTERNAL_PASSWORD: &str =
    "update tollgate_users set external_password = $3 where tenant = $1 and id = $2";
pub(super) const SET_DISABLED: &str = "update tollgate_users set disabled = $3 where tenant = $1 and id = $2";
pub(super) const SET_PASSWORD: &str =
    "update tollgate_users set password_hash = $3, password_mark = $4 where tenant = $1 and id = $2";
pub(super) const PASSWORD: &str =
    "select password_hash, password_mark from tollgate_users where tenant = $1 and id = $2";

/// Run before [`REMOVE`], whose trigger has only the clock of the database.
pub(super) const REMEMBER: &str = "insert into tollgate_removed_users (id, tenant, removed_at)
     select id, tenant, $3 from tollgate_users where tenant = $1 and id = $2
     on conflict (id) do nothing";
/// The rows that refer to an account are deleted with it.
pub(super) const REMOVE: &str = "delete from tollgate_users where tenant = $1 and id = $2";
pub(super) const REMOVED: &str =
    "select id from tollgate_removed_users where tenant = $1 and id > $2 order by id limit $3";
pub(super) const RELEASE_ID: &str = "delete from tollgate_removed_users where tenant = $1 and id = $2";
