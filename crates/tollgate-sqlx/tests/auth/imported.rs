//! Accounts that SQL has imported: with a hash that is weak, and without the mark of the password.

use crate::{
    store::newest,
    world::{ADA, World},
};

const WEAK: &str = "$argon2i$v=19$m=256,t=2,p=2$MDEyMzQ1Njc4OWFiY2RlZg$sXwc3Rf6kDgWv5bHcJ5WyjuvYJei1pIw1cAx17a/Z2M";
const IMPORT: &str = "update tollgate_users set password_hash = $1, password_mark = null where id = 'u-ada'";
const STORED: &str = "select password_hash from tollgate_users where id = 'u-ada'";

macro_rules! on_pool {
    ($pool:ident => $code:expr) => {
        match newest().postgres_pool() {
            Some($pool) => $code,
            None => {
                let database = newest();
                let $pool = database.sqlite_pool().unwrap();
                $code
            }
        }
    };
}

#[tokio::test]
async fn the_first_login_of_an_imported_account_upgrades_its_hash_and_succeeds() {
    let world = World::new().await;
    on_pool!(pool => sqlx::query(IMPORT).bind(WEAK).execute(pool).await.map(|_| ()).unwrap());
    let mut rewritten = None;
    for _ in 0..2 {
        let mut browser = world.browser();
        let _login = browser.log_in("web", ADA).await;
        assert!(browser.authorize("web").await.redirected("code").is_some());
        let stored: String = on_pool!(pool => sqlx::query_scalar(STORED).fetch_one(pool).await.unwrap());
        assert!(stored.starts_with("$argon2id$"), "{stored}");
        // once
        assert_eq!(*rewritten.get_or_insert(stored.clone()), stored);
    }
}
