//! Accounts of your own with bcrypt hashes, which become argon2 hashes at the first successful login.
//!
//! Run it with `cargo run --example bcrypt_users`. It signs in a user just as the login service does. In your
//! application, pass the accounts to `AuthServiceBuilder::users` instead.

#![expect(clippy::print_stdout, reason = "prints the outcome of each attempt")]

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use tollgate::{
    Identifier, Password, Passwords, Tenant, UserId, Users,
    password::{PasswordHash, PasswordMark},
    user::{Account, AnyUsers, PasswordAttempt, PasswordCheck, PasswordUpgrade},
};

/// A bcrypt hash of an unknown password, with the same cost as yours. It is checked for unknown users.
const DECOY: &str = "$2b$10$aaaaaaaaaaaaaaaaaaaaaOaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A row of your database.
#[derive(Clone)]
struct Person {
    id: &'static str,
    name: &'static str,
    /// A hash by bcrypt or argon2.
    hash: String,
    /// Counts changes of the password. A new hash of the same password is no change.
    password_version: u64,
}

/// Your database.
struct People(Mutex<Vec<Person>>);

impl People {
    fn with<T>(&self, is_wanted: impl Fn(&Person) -> bool, run: impl FnOnce(&mut Person) -> T) -> Option<T> {
        let mut people = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        people.iter_mut().find(|person| is_wanted(person)).map(run)
    }
}

fn account(person: &Person) -> Result<Account, Box<dyn Error + Send + Sync>> {
    let mark = PasswordMark::of_version(person.password_version.to_be_bytes());
    let account = Account::new(UserId::parse(person.id)?).password_mark(mark);
    Ok(match PasswordHash::parse(&person.hash) {
        Ok(argon2) => account.password(argon2),
        Err(_) => account.foreign_hash(person.hash.as_str()),
    })
}

impl Users for People {
    type Error = Box<dyn Error + Send + Sync>;

    async fn find(&self, _: &Tenant, identifier: &Identifier) -> Result<Option<Account>, Self::Error> {
        self.with(|person| person.name == identifier.as_str(), |person| account(person)).transpose()
    }

    async fn by_id(&self, _: &Tenant, id: &UserId) -> Result<Option<Account>, Self::Error> {
        self.with(|person| person.id == id.as_str(), |person| account(person)).transpose()
    }

    async fn verify_password(&self, attempt: PasswordAttempt<'_>) -> Result<PasswordCheck, Self::Error> {
        // bcrypt compares the first 72 bytes only
        let check = |hash: &str, password: &str| bcrypt::verify(password, hash).unwrap_or(false);
        Ok(attempt.blocking(DECOY, check).await)
    }

    async fn upgrade_password(
        &self,
        _: &Tenant,
        account: &Account,
        new: PasswordHash,
    ) -> Result<PasswordUpgrade, Self::Error> {
        let old = account.password_hash().map(PasswordHash::as_str).or(account.foreign_password_hash());
        let replace = |person: &mut Person| {
            if Some(person.hash.as_str()) != old {
                return PasswordUpgrade::PasswordChanged;
            }
            new.as_str().clone_into(&mut person.hash);
            PasswordUpgrade::Replaced
        };
        let outcome = self.with(|person| person.id == account.id().as_str(), replace);
        Ok(outcome.unwrap_or(PasswordUpgrade::PasswordChanged))
    }
}

/// Signs in as the login service does.
async fn sign_in(users: &AnyUsers, passwords: &Passwords, name: &str, password: &str) -> Result<bool, Box<dyn Error>> {
    let tenant = Tenant::parse("acme")?;
    let account = users.find(&tenant, &Identifier::parse(name)?).await?;
    let attempt = PasswordAttempt::new(&tenant, account.as_ref(), Password::new(password), passwords);
    match (users.verify_password(attempt).await?, &account) {
        (PasswordCheck::Right { upgrade: Some(new), .. }, Some(account)) => {
            Ok(users.upgrade_password(&tenant, account, new).await? != PasswordUpgrade::PasswordChanged)
        }
        (PasswordCheck::Right { .. }, _) => Ok(true),
        _ => Ok(false),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    bcrypt::verify("", DECOY)?; // a malformed decoy would be refused at once, and show who is unknown
    let hash = bcrypt::hash("correct horse battery staple", 10)?;
    let people = vec![Person { id: "u-1", name: "ada", hash, password_version: 1 }];
    let people = Arc::new(People(Mutex::new(people)));
    let (users, passwords) = (AnyUsers::from(people.clone()), Passwords::new());
    for (name, password) in [
        ("ada", "wrong"),
        ("eve", "correct horse battery staple"),
        ("ada", "correct horse battery staple"),
        ("ada", "correct horse battery staple"),
    ] {
        let right = sign_in(&users, &passwords, name, password).await?;
        let hash = people.with(|person| person.id == "u-1", |person| person.hash.clone()).unwrap_or_default();
        println!("{name}, {password:?}: {}, and ada's hash is {hash}", if right { "signed in" } else { "refused" });
    }
    Ok(())
}
