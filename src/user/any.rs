use std::{any::type_name, future::Future, sync::Arc, time::Duration};

use tokio::{runtime::Handle, time::timeout};

use super::{
    account::{Account, NewUser},
    changes::{AccountChange, NewAccount, OfferedChange},
    claims::{Claims, ClaimsRequest},
    contact::Contact,
    identifier::Identifier,
    password_attempt::{PasswordAttempt, PasswordCheck, PasswordUpgrade},
    users::{AccountPage, Users},
};
use crate::{
    password::PasswordHash,
    session::UserId,
    store::{BoxFuture, ScanCursor, StoreError, StoreErrorKind},
    tenant::Tenant,
};

/// The time that a call may take, by default.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time that [`Users::claims`] may take.
const CLAIMS_DEADLINE: Duration = Duration::from_secs(2);

/// A type-erased [`Users`]. Clones share the same accounts.
///
/// A call that fails or exceeds the deadline returns `StoreErrorKind::Unavailable`. The error of the call is its
/// [`source`](std::error::Error::source). A [`StoreError`] is passed on unchanged.
#[derive(Clone)]
pub struct AnyUsers {
    users: Arc<dyn DynUsers>,
    deadline: Duration,
}

impl AnyUsers {
    /// Sets a deadline for each call of these [`Users`], or of an `Arc` of them. Conversions with `From` use 10
    /// seconds. [`claims`](Self::claims) always has at most 2 seconds.
    pub fn with_deadline(users: impl Into<Self>, deadline: Duration) -> Self {
        Self { deadline, ..users.into() }
    }

    /// Calls [`Users::verify_password`].
    ///
    /// `Right` becomes `Wrong` if the attempt has no account, or if the password is empty or too long. A missing mark
    /// is taken from the account.
    pub async fn verify_password(&self, attempt: PasswordAttempt<'_>) -> Result<PasswordCheck, StoreError> {
        let (account, can_succeed) = (attempt.account(), attempt.can_succeed());
        Ok(match within(self.deadline, self.users.verify_password(attempt)).await? {
            PasswordCheck::Right { mark, upgrade } if can_succeed => {
                let mark = mark.or_else(|| account?.current_password_mark());
                PasswordCheck::Right { mark, upgrade }
            }
            PasswordCheck::Right { .. } => PasswordCheck::Wrong,
            other => other,
        })
    }

    /// Calls [`Users::claims`].
    pub async fn claims(
        &self,
        tenant: &Tenant,
        account: &Account,
        request: &ClaimsRequest,
    ) -> Result<Claims, StoreError> {
        within(self.deadline.min(CLAIMS_DEADLINE), self.users.claims(tenant, account, request)).await
    }

    /// Calls [`Users::list`].
    ///
    /// # Errors
    ///
    /// Returns [`StoreErrorKind::NotOffered`] if these accounts can't be listed, besides the errors of the call.
    pub async fn list(&self, tenant: &Tenant, cursor: Option<ScanCursor>) -> Result<AccountPage, StoreError> {
        let page = within(self.deadline, self.users.list(tenant, cursor)).await?;
        page.ok_or_else(|| StoreErrorKind::NotOffered.into())
    }

    /// Calls [`Users::offers`].
    pub fn offers(&self, change: OfferedChange) -> bool {
        self.users.offers(change)
    }
}

/// Waits for the response until the deadline.
async fn within<T>(deadline: Duration, (hook, answer): Answer<'_, T>) -> Result<T, StoreError> {
    match Handle::try_current() {
        Ok(_) => {
            timeout(deadline, answer).await.unwrap_or_else(|_| Err(StoreError::of_hook(hook, "the call timed out")))
        }
        // without a runtime there is no timer
        Err(_) => answer.await,
    }
}

impl<U: Users> From<U> for AnyUsers {
    fn from(users: U) -> Self {
        Arc::new(users).into()
    }
}

impl<U: Users> From<Arc<U>> for AnyUsers {
    fn from(users: Arc<U>) -> Self {
        Self { users, deadline: DEADLINE }
    }
}

crate::util::fmt::debug_text!(AnyUsers, |own| own.users.name());

/// The name of a call in the log, and its answer.
type Answer<'a, T> = (&'static str, BoxFuture<'a, Result<T, StoreError>>);

/// Declares [`Users`] as an object, with these calls, and a method of [`AnyUsers`] for each of the latter.
macro_rules! dyn_users {
    ($life:lifetime: { $($own:tt)* } { $($calls:tt)* }) => {
        dyn_users! { @object $life: $($own)* $($calls)* }
        dyn_users! { @methods $life: $($calls)* }
    };
    (@object $life:lifetime: $(fn $call:ident($($argument:ident: $kind:ty),+) -> $answer:ty;)+) => {
        trait DynUsers: Send + Sync {
            $(fn $call<$life>(&$life self, $($argument: $kind),+) -> Answer<$life, $answer>;)+
            fn offers(&self, change: OfferedChange) -> bool;
            fn name(&self) -> &'static str;
        }

        impl<U: Users> DynUsers for U {
            $(fn $call<$life>(&$life self, $($argument: $kind),+) -> Answer<$life, $answer> {
                boxed(concat!("Users::", stringify!($call)), Users::$call(self, $($argument),+))
            })+

            fn offers(&self, change: OfferedChange) -> bool {
                Users::offers(self, change)
            }

            fn name(&self) -> &'static str {
                type_name::<U>()
            }
        }
    };
    (@methods $life:lifetime: $(fn $call:ident($($argument:ident: $kind:ty),+) -> $answer:ty;)+) => {
        impl AnyUsers {$(
            #[doc = concat!("See [`Users::", stringify!($call), "`].")]
            pub async fn $call<$life>(&$life self, $($argument: $kind),+) -> Result<$answer, StoreError> {
                within(self.deadline, self.users.$call($($argument),+)).await
            }
        )+}
    };
}

dyn_users! { 'a: {
    fn verify_password(attempt: PasswordAttempt<'a>) -> PasswordCheck;
    fn claims(tenant: &'a Tenant, account: &'a Account, request: &'a ClaimsRequest) -> Claims;
    fn list(tenant: &'a Tenant, cursor: Option<ScanCursor>) -> Option<AccountPage>;
} {
    fn find(tenant: &'a Tenant, identifier: &'a Identifier) -> Option<Account>;
    fn by_id(tenant: &'a Tenant, id: &'a UserId) -> Option<Account>;
    fn upgrade_password(tenant: &'a Tenant, account: &'a Account, new: PasswordHash) -> PasswordUpgrade;
    fn create(tenant: &'a Tenant, new: NewUser) -> NewAccount;
    fn set_password(tenant: &'a Tenant, account: &'a Account, new: PasswordHash) -> AccountChange;
    fn set_name(tenant: &'a Tenant, id: &'a UserId, name: Option<&'a str>) -> AccountChange;
    fn set_contact(
        tenant: &'a Tenant, id: &'a UserId, old: Option<&'a Contact>, new: Option<&'a Contact>
    ) -> AccountChange;
    fn remove(tenant: &'a Tenant, id: &'a UserId) -> AccountChange;
} }

fn boxed<'a, T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    hook: &'static str,
    answer: impl Future<Output = Result<T, E>> + Send + 'a,
) -> Answer<'a, T> {
    (hook, Box::pin(async move { answer.await.map_err(|error| store_error(hook, error.into())) }))
}

fn store_error(hook: &'static str, error: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    match error.downcast::<StoreError>() {
        Ok(error) => *error,
        Err(error) => StoreError::of_hook(hook, error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        future::pending,
        io,
        sync::{Arc, Mutex},
    };

    use tokio::time::Instant;

    use super::*;
    use crate::{
        password::{Password, PasswordMark, Passwords},
        store::StoreErrorKind,
        user::claims::ClaimTarget,
    };

    fn acme() -> Tenant {
        Tenant::parse("acme").unwrap()
    }

    fn ada() -> Account {
        Account::new(UserId::parse("u-1").unwrap()).password_mark(PasswordMark::of_version("1"))
    }

    fn hash() -> PasswordHash {
        let hash = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
        PasswordHash::parse(hash).unwrap()
    }

    /// Overrides every method and records the calls.
    #[derive(Default)]
    struct Overrides(Mutex<Vec<&'static str>>);

    impl Overrides {
        fn note(&self, call: &'static str) {
            self.0.lock().unwrap().push(call);
        }
    }

    impl Users for Overrides {
        type Error = io::Error;

        async fn find(&self, _: &Tenant, _: &Identifier) -> io::Result<Option<Account>> {
            self.note("find");
            Ok(Some(ada()))
        }

        async fn by_id(&self, _: &Tenant, _: &UserId) -> io::Result<Option<Account>> {
            self.note("by_id");
            Ok(Some(ada()))
        }

        async fn verify_password(&self, _: PasswordAttempt<'_>) -> io::Result<PasswordCheck> {
            self.note("verify_password");
            Ok(PasswordCheck::Right { mark: None, upgrade: Some(hash()) })
        }

        async fn upgrade_password(&self, _: &Tenant, _: &Account, _: PasswordHash) -> io::Result<PasswordUpgrade> {
            self.note("upgrade_password");
            Ok(PasswordUpgrade::Replaced)
        }

        async fn claims(&self, _: &Tenant, _: &Account, _: &ClaimsRequest) -> io::Result<Claims> {
            self.note("claims");
            let mut claims = Claims::new();
            claims.insert("roles", ["admin"]).map_err(io::Error::other)?;
            Ok(claims)
        }

        async fn list(&self, _: &Tenant, _: Option<ScanCursor>) -> io::Result<Option<AccountPage>> {
            self.note("list");
            Ok(Some(AccountPage { accounts: vec![ada()], next: None }))
        }

        fn offers(&self, change: OfferedChange) -> bool {
            change == OfferedChange::Create
        }

        async fn create(&self, _: &Tenant, new: NewUser) -> io::Result<NewAccount> {
            self.note("create");
            Ok(NewAccount::Created(new.account().id().clone()))
        }

        async fn set_password(&self, _: &Tenant, _: &Account, _: PasswordHash) -> io::Result<AccountChange> {
            self.note("set_password");
            Ok(AccountChange::Done)
        }

        async fn set_name(&self, _: &Tenant, _: &UserId, _: Option<&str>) -> io::Result<AccountChange> {
            self.note("set_name");
            Ok(AccountChange::Done)
        }

        async fn set_contact(
            &self,
            _: &Tenant,
            _: &UserId,
            _: Option<&Contact>,
            _: Option<&Contact>,
        ) -> io::Result<AccountChange> {
            self.note("set_contact");
            Ok(AccountChange::Taken)
        }

        async fn remove(&self, _: &Tenant, _: &UserId) -> io::Result<AccountChange> {
            self.note("remove");
            Ok(AccountChange::Outdated)
        }
    }

    async fn verify(users: &AnyUsers, account: Option<&Account>, password: &str) -> PasswordCheck {
        let (acme, passwords) = (acme(), Passwords::insecure_fast());
        let attempt = PasswordAttempt::new(&acme, account, Password::new(password), &passwords);
        users.verify_password(attempt).await.unwrap()
    }

    #[tokio::test]
    async fn every_method_is_forwarded() {
        let own = Arc::new(Overrides::default());
        let users = AnyUsers::from(Arc::clone(&own)).clone();
        let (acme, ada) = (acme(), ada());
        assert!(users.find(&acme, &Identifier::parse("ada").unwrap()).await.unwrap().is_some());
        assert!(users.by_id(&acme, ada.id()).await.unwrap().is_some());
        let PasswordCheck::Right { mark, upgrade: Some(_) } = verify(&users, Some(&ada), "a").await else { panic!() };
        assert_eq!(mark, ada.current_password_mark());
        let upgraded = users.upgrade_password(&acme, &ada, hash()).await.unwrap();
        assert_eq!(upgraded, PasswordUpgrade::Replaced);
        let claims = users.claims(&acme, &ada, &ClaimsRequest::new("web")).await.unwrap();
        assert!(claims.get::<Vec<String>>(ClaimTarget::IdToken, "roles").is_some());
        assert_eq!(users.list(&acme, None).await.unwrap().accounts.len(), 1);
        assert!(users.offers(OfferedChange::Create) && !users.offers(OfferedChange::Remove));
        let new = NewUser::new(ada.id().clone(), Identifier::parse("ada").unwrap());
        assert_eq!(users.create(&acme, new).await.unwrap(), NewAccount::Created(ada.id().clone()));
        assert_eq!(users.set_password(&acme, &ada, hash()).await.unwrap(), AccountChange::Done);
        assert_eq!(users.set_name(&acme, ada.id(), None).await.unwrap(), AccountChange::Done);
        assert_eq!(users.set_contact(&acme, ada.id(), None, None).await.unwrap(), AccountChange::Taken);
        assert_eq!(users.remove(&acme, ada.id()).await.unwrap(), AccountChange::Outdated);
        let calls = ["find", "by_id", "verify_password", "upgrade_password", "claims", "list"];
        let changes = ["create", "set_password", "set_name", "set_contact", "remove"];
        assert_eq!(*own.0.lock().unwrap(), [&calls[..], &changes[..]].concat());
        assert!(format!("{users:?}").contains("Overrides"));
    }

    #[tokio::test]
    async fn c048_without_an_account_or_a_usable_password_nothing_is_right() {
        let users = AnyUsers::from(Overrides::default());
        let long = "x".repeat(Password::MAX_LEN + 1);
        let disabled = ada().disabled(true);
        for (account, password) in
            [(None, "a"), (Some(&disabled), "a"), (Some(&ada()), ""), (Some(&ada()), long.as_str())]
        {
            assert!(matches!(verify(&users, account, password).await, PasswordCheck::Wrong), "{account:?}");
        }
        assert!(matches!(verify(&users, Some(&ada()), "a").await, PasswordCheck::Right { .. }));
    }

    /// Implements only the required methods, with accounts that have this password.
    struct Defaults(PasswordHash);

    impl Users for Defaults {
        type Error = &'static str;

        async fn find(&self, _: &Tenant, _: &Identifier) -> Result<Option<Account>, &'static str> {
            Err("the database password is hunter2")
        }

        async fn by_id(&self, _: &Tenant, id: &UserId) -> Result<Option<Account>, &'static str> {
            Ok(Some(Account::new(id.clone()).password(self.0.clone())))
        }
    }

    #[tokio::test]
    async fn the_defaults_check_argon2_upgrade_nothing_and_claim_nothing() {
        let stored = Passwords::insecure_fast().hash(Password::new("a")).await.unwrap();
        let users = AnyUsers::from(Defaults(stored));
        let ada = users.by_id(&acme(), ada().id()).await.unwrap().unwrap();
        let PasswordCheck::Right { mark, upgrade: None } = verify(&users, Some(&ada), "a").await else { panic!() };
        assert_eq!(mark, ada.current_password_mark());
        assert!(matches!(verify(&users, Some(&ada), "b").await, PasswordCheck::Wrong));
        assert!(matches!(verify(&users, None, "a").await, PasswordCheck::Wrong));
        // a foreign hash is no password for argon2
        let foreign = Account::new(ada.id().clone()).foreign_hash("a");
        assert!(matches!(verify(&users, Some(&foreign), "a").await, PasswordCheck::Wrong));
        let upgraded = users.upgrade_password(&acme(), &ada, hash()).await.unwrap();
        assert_eq!(upgraded, PasswordUpgrade::NotSupported);
        let claims = users.claims(&acme(), &ada, &ClaimsRequest::new("web")).await.unwrap();
        assert_eq!(claims.iter(ClaimTarget::IdToken).count(), 0);
        let new = NewUser::new(ada.id().clone(), Identifier::parse("ada").unwrap());
        assert_eq!(users.create(&acme(), new).await.unwrap(), NewAccount::NotOffered);
        assert_eq!(users.set_password(&acme(), &ada, hash()).await.unwrap(), AccountChange::NotOffered);
        assert_eq!(users.set_name(&acme(), ada.id(), None).await.unwrap(), AccountChange::NotOffered);
        assert_eq!(users.set_contact(&acme(), ada.id(), None, None).await.unwrap(), AccountChange::NotOffered);
        assert_eq!(users.remove(&acme(), ada.id()).await.unwrap(), AccountChange::NotOffered);
        assert!(!users.offers(OfferedChange::Create));
    }

    #[tokio::test]
    async fn an_error_becomes_unavailable_with_its_source_and_a_store_error_stays() {
        let error =
            AnyUsers::from(Defaults(hash())).find(&acme(), &Identifier::parse("ada").unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert_eq!(error.source().unwrap().to_string(), "the database password is hunter2");
        assert_eq!(error.to_string(), "the hook Users::find failed");
        assert_eq!(
            store_error("Users::find", StoreError::from(StoreErrorKind::Corrupt).into()).kind(),
            StoreErrorKind::Corrupt
        );
    }

    /// Never answers.
    struct Hangs;

    impl Users for Hangs {
        type Error = StoreError;

        async fn find(&self, _: &Tenant, _: &Identifier) -> Result<Option<Account>, StoreError> {
            pending().await
        }

        async fn by_id(&self, _: &Tenant, _: &UserId) -> Result<Option<Account>, StoreError> {
            pending().await
        }

        async fn verify_password(&self, _: PasswordAttempt<'_>) -> Result<PasswordCheck, StoreError> {
            pending().await
        }

        async fn upgrade_password(
            &self,
            _: &Tenant,
            _: &Account,
            _: PasswordHash,
        ) -> Result<PasswordUpgrade, StoreError> {
            pending().await
        }

        async fn claims(&self, _: &Tenant, _: &Account, _: &ClaimsRequest) -> Result<Claims, StoreError> {
            pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_method_has_a_deadline() {
        let (acme, ada, passwords) = (acme(), ada(), Passwords::insecure_fast());
        let half = Duration::from_millis(500);
        let (short, usual) = (AnyUsers::with_deadline(Hangs, half), AnyUsers::from(Hangs));
        for (users, deadline, claims) in [(short, half, half), (usual, DEADLINE, CLAIMS_DEADLINE)] {
            let took = async |call: BoxFuture<'_, Option<StoreErrorKind>>| {
                let began = Instant::now();
                assert_eq!(call.await, Some(StoreErrorKind::Unavailable));
                Duration::from_millis(u64::try_from(began.elapsed().as_millis()).unwrap())
            };
            let name = Identifier::parse("ada").unwrap();
            let attempt = PasswordAttempt::new(&acme, Some(&ada), Password::new("a"), &passwords);
            let request = ClaimsRequest::new("web");
            let kind = |error: StoreError| error.kind();
            let near = |took: Duration, expected: Duration| took.abs_diff(expected) < Duration::from_millis(5);
            assert!(near(took(Box::pin(async { users.find(&acme, &name).await.err().map(kind) })).await, deadline));
            assert!(near(took(Box::pin(async { users.by_id(&acme, ada.id()).await.err().map(kind) })).await, deadline));
            let verified = Box::pin(async { users.verify_password(attempt).await.err().map(kind) });
            assert!(near(took(verified).await, deadline));
            let upgraded = Box::pin(async { users.upgrade_password(&acme, &ada, hash()).await.err().map(kind) });
            assert!(near(took(upgraded).await, deadline));
            let claimed = Box::pin(async { users.claims(&acme, &ada, &request).await.err().map(kind) });
            assert!(near(took(claimed).await, claims));
        }
    }
}
