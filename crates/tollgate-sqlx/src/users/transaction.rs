//! The same code for either database. The types of their connections differ, so this needs macros.

/// How often a transaction is repeated that the database has rolled back because of another one.
pub(super) const TRIES: usize = 4;

/// Runs an expression with the pool of the database, within the deadline.
macro_rules! on_pool {
    ($database:expr, $pool:ident => $code:block) => {
        $database
            .within(async {
                let run = async || match &$database.pool {
                    #[cfg(feature = "postgres")]
                    $crate::database::Pool::Postgres($pool) => $code,
                    #[cfg(feature = "sqlite")]
                    $crate::database::Pool::Sqlite($pool) => $code,
                };
                let result: Result<_, sqlx::Error> = run().await;
                result.map_err($crate::error::store_error)
            })
            .await
    };
}

/// Runs a block in a transaction, within the deadline. It is rolled back if the block fails, and repeated after a conflict.
macro_rules! in_transaction {
    ($database:expr, $connection:ident => $code:block) => {
        $database
            .within(async {
                let mut tries = 1;
                loop {
                    let result = match &$database.pool {
                        #[cfg(feature = "postgres")]
                        $crate::database::Pool::Postgres(pool) => {
                            // each statement sees what others have committed before
                            async {
                                let mut own = pool.acquire().await?;
                                $crate::users::transaction::transact!(
                                    own, "begin isolation level read committed", $connection => $code
                                )
                            }
                            .await
                        }
                        #[cfg(feature = "sqlite")]
                        $crate::database::Pool::Sqlite(pool) => {
                            async {
                                let mut own = pool.acquire().await?;
                                let result = $crate::users::transaction::transact!(
                                    own, "begin immediate", $connection => $code
                                );
                                if matches!(result, Err($crate::users::failure::Failure::Sql(_))) {
                                    $crate::sqlite::discard(own);
                                }
                                result
                            }
                            .await
                        }
                    };
                    match result {
                        Err(failure) if tries < $crate::users::transaction::TRIES && failure.is_conflict() => {
                            tries += 1;
                        }
                        result => return result.map_err(tollgate::user::UserError::from),
                    }
                }
            })
            .await
    };
}

macro_rules! transact {
    ($own:ident, $begin:literal, $connection:ident => $code:block) => {
        async {
            let mut transaction = sqlx::Connection::begin_with(&mut *$own, $begin).await?;
            let $connection = &mut *transaction;
            let value = $code;
            transaction.commit().await?;
            Ok::<_, $crate::users::failure::Failure>(value)
        }
        .await
    };
}

/// Changes an account that exists, in a transaction.
macro_rules! change {
    ($users:expr, $tenant:expr, $user:expr, $connection:ident => $code:block) => {
        $crate::users::transaction::in_transaction!($users.database, $connection => {
            let lock = sqlx::query($crate::users::statements::CHANGE).bind($tenant.as_str()).bind($user.as_str());
            let locked = lock.bind($users.seconds()).execute(&mut *$connection).await?;
            if locked.rows_affected() == 0 {
                return Err(tollgate::user::UserError::Unknown.into());
            }
            $code
        })
    };
}

pub(super) use {change, in_transaction, on_pool, transact};
