//! The same code for either database. The types of their connections differ, so this needs macros.

/// Runs an expression with the pool of the database, within the deadline: `reads` is repeated after a lost connection, and
/// `writes` is not.
macro_rules! on_pool {
    ($database:expr, reads, $pool:ident => $code:block) => {
        $crate::users::transaction::on_pool!(@ $database, reads, true, $pool => $code)
    };
    ($database:expr, writes, $pool:ident => $code:block) => {
        $crate::users::transaction::on_pool!(@ $database, writes, false, $pool => $code)
    };
    (@ $database:expr, $kind:ident, $is_read:literal, $pool:ident => $code:block) => {
        $database
            .within(async {
                let run = async || match &$database.pool {
                    #[cfg(feature = "postgres")]
                    $crate::database::Pool::Postgres($pool, _) => $code,
                    #[cfg(feature = "sqlite")]
                    $crate::database::Pool::Sqlite { $kind: $pool, .. } => $code,
                };
                let mut tries = $database.tries($is_read);
                loop {
                    let result: Result<_, sqlx::Error> = run().await;
                    match result {
                        Err(error) if tries.again(&error) => {}
                        result => return result.map_err($crate::error::store_error),
                    }
                }
            })
            .await
    };
}

/// Runs a block in a transaction, within the deadline. It is rolled back if the block fails, and repeated after a conflict.
macro_rules! in_transaction {
    ($database:expr, $connection:ident => $code:block) => {
        $database
            .within(async {
                let mut tries = $database.tries(false);
                loop {
                    let result = match &$database.pool {
                        #[cfg(feature = "postgres")]
                        $crate::database::Pool::Postgres(pool, _) => {
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
                        $crate::database::Pool::Sqlite { writes, .. } => {
                            async {
                                let mut own = writes.acquire().await?;
                                let result = $crate::users::transaction::transact!(
                                    own, $crate::sqlite::TO_WRITE, $connection => $code
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
                        Err($crate::users::failure::Failure::Sql(error)) if tries.again(&error) => {}
                        result => return result.map_err(tollgate::user::UserError::from),
                    }
                }
            })
            .await
    };
}

macro_rules! transact {
    ($own:ident, $begin:expr, $connection:ident => $code:block) => {
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
