//! A step by a code of an authenticator app.

use crate::{
    auth::{
        factors::{
            credentials::{
                credential::{Credential, Strength},
                row::Credentials,
                table::CredentialTable,
            },
            step::LoginStep,
            totp::settings::TotpSettings,
            typed_code::{prove_by_code, typed_code},
        },
        http::problem::EndpointResult,
    },
    login::Keyed,
    policy::Method,
    session::UserId,
    store::StoreError,
    tenant::Tenant,
    util::clock::UnixTime,
};

/// Checks the code in the request.
pub(crate) async fn prove_by_totp(mut step: LoginStep<'_>) -> EndpointResult {
    let typed = typed_code(&mut step)?;
    let step = &step;
    prove_by_code(step, Method::Totp, async |owner| {
        let Some(settings) = &step.cx.core.factors.totp else { return Ok(None) };
        let counts = |strength: &Strength| strength.counts_as_factor(&step.login.plan);
        settings.use_code(&step.cx.core.credentials, owner, &typed, counts, (step.keyed, step.now())).await
    })
    .await
}

impl TotpSettings {
    /// Uses up a code of the user's app with one compare-and-swap: of requests with the same code, one succeeds. Returns
    /// the mark of the proof, or `None` if the code is wrong or used, or if the strength of the key does not count.
    pub(crate) async fn use_code(
        &self,
        credentials: &CredentialTable,
        (tenant, user): (&Tenant, &UserId),
        typed: &str,
        counts: impl Fn(&Strength) -> bool + Send + Sync,
        (keyed, now): (&Keyed, UnixTime),
    ) -> Result<Option<[u8; 32]>, StoreError> {
        let accept = |row: &mut Credentials| {
            let key = row.totp.as_mut().filter(|key| counts(&key.strength))?;
            key.accept((tenant, user), typed, now, &self.seal).then(|| key.mark(keyed))
        };
        credentials.update(tenant, user, accept).await
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        auth::factors::{
            credentials::table::{Added, Removed},
            enrolment::new_credential::NewCredential,
            totp::{key::PendingTotp, settings::Totp},
        },
        store::{AnyStore, Memory},
        support::seal::Seal,
        testing::{ManualClock, block_on},
        util::{clock::Clock, secret::Secret},
    };

    struct World {
        settings: TotpSettings,
        credentials: CredentialTable,
        clock: ManualClock,
        keyed: Keyed,
        tenant: Tenant,
        user: UserId,
    }

    impl World {
        fn new() -> Self {
            let clock = ManualClock::new();
            clock.set_wall(UnixTime::from_secs(1_000_000_005));
            let shared: Arc<dyn Clock> = Arc::new(clock.clone());
            let credentials = CredentialTable::new(&AnyStore::from(Memory::new()), &shared);
            let totp = Totp::new().seal(&Secret::generate()).complete("example.com", &Seal::default(), true).unwrap();
            let (tenant, user) = (Tenant::parse("acme").unwrap(), UserId::parse("u-ada").unwrap());
            Self { settings: totp, credentials, clock, keyed: Keyed::new(&Secret::generate()), tenant, user }
        }

        fn owner(&self) -> (&Tenant, &UserId) {
            (&self.tenant, &self.user)
        }

        fn now(&self) -> UnixTime {
            self.clock.unix(self.clock.now())
        }

        fn enrols(&self, pending: &PendingTotp, code: &str) -> bool {
            let strength = Strength::of_proofs(1, Method::Password.into(), []);
            let confirmed = pending.confirmed(self.owner(), code, (strength, self.now()), &self.settings.seal);
            confirmed.is_some_and(|key| {
                block_on(key.store(&self.credentials, self.owner(), |_| true)).unwrap() == Added::Done
            })
        }

        fn removes_totp(&self) -> bool {
            let removed = block_on(self.credentials.remove_totp(self.owner(), |_, _| true)).unwrap();
            removed == Removed::Done
        }

        fn use_totp(&self, typed: &str, steps: usize) -> Option<[u8; 32]> {
            let counts = |strength: &Strength| strength.suffices_for(steps);
            let now = (&self.keyed, self.now());
            block_on(self.settings.use_code(&self.credentials, self.owner(), typed, counts, now)).unwrap()
        }

        /// The code that the app shows now.
        fn shown_code(&self, pending: &PendingTotp) -> String {
            pending.current_code(self.owner(), &self.settings.seal, self.now())
        }
    }

    #[test]
    fn c124_an_app_is_enrolled_by_a_right_code_and_each_code_is_accepted_once() {
        let world = World::new();
        let (new, pending) = world.settings.new_key(world.owner(), "ada").unwrap();
        assert!(new.uri.starts_with("otpauth://totp/example.com:ada?secret="));
        let app = || world.shown_code(&pending);
        assert!(!world.enrols(&pending, "000000") || app() == "000000");
        assert!(world.enrols(&pending, &app()));
        assert_eq!(world.use_totp(&app(), 1), None, "the code of the enrolment is used up");
        world.clock.advance(Duration::from_secs(30));
        let first = world.use_totp(&app(), 1);
        assert!(first.is_some());
        assert_eq!(world.use_totp(&app(), 1), None);
        world.clock.advance(Duration::from_secs(30));
        assert_eq!(world.use_totp(&app(), 2), None, "too weak for a login of two steps");
        assert_eq!(world.use_totp(&app(), 1), first);
        assert!(world.removes_totp());
        assert!(!world.removes_totp());
        world.clock.advance(Duration::from_secs(30));
        assert_eq!(world.use_totp(&app(), 1), None);
    }

    #[test]
    fn c124_an_app_works_on_with_a_new_seal_and_needs_the_old_one_until_its_next_code() {
        let mut world = World::new();
        let (old, new) = (Secret::generate(), Secret::generate());
        let sealed = |totp: Totp| totp.complete("example.com", &Seal::default(), true).unwrap();
        world.settings = sealed(Totp::new().seal(&old));
        let (_, pending) = world.settings.new_key(world.owner(), "ada").unwrap();
        let was = Seal::new(&old);
        let app = |world: &World| pending.current_code(world.owner(), &was, world.now());
        assert!(world.enrols(&pending, &app(&world)));
        world.clock.advance(Duration::from_secs(30));

        let only_new = || sealed(Totp::new().seal(&new));
        world.settings = only_new();
        assert_eq!(world.use_totp(&app(&world), 1), None);
        world.settings = Totp::new().complete("example.com", &Seal::new(&new).with_older(&old), true).unwrap();
        assert!(world.use_totp(&app(&world), 1).is_some());
        world.clock.advance(Duration::from_secs(30));
        world.settings = only_new();
        assert!(world.use_totp(&app(&world), 1).is_some());
        world.clock.advance(Duration::from_secs(30));
        world.settings = sealed(Totp::new().older_seal(&new).seal(&old));
        assert!(world.use_totp(&app(&world), 1).is_some(), "in either order");
    }

    #[test]
    fn c124_of_many_requests_with_the_same_code_of_an_app_one_succeeds() {
        let world = World::new();
        let (_, pending) = world.settings.new_key(world.owner(), "ada").unwrap();
        assert!(world.enrols(&pending, &world.shown_code(&pending)));
        for _ in 0..10 {
            world.clock.advance(Duration::from_secs(30));
            let code = world.shown_code(&pending);
            let barrier = std::sync::Barrier::new(8);
            let used = std::thread::scope(|scope| {
                let attempt = || {
                    barrier.wait();
                    world.use_totp(&code, 1).is_some()
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(attempt)).collect();
                all.into_iter().map(|one| one.join().unwrap()).filter(|used| *used).count()
            });
            assert_eq!(used, 1);
        }
    }
}
