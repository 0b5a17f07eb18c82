//! Errors of the application's hooks are logged with their sources, and callers see nothing of them.

use std::{error::Error, fmt, io};

use tollgate::{
    Identifier, Tenant, UserId, Users,
    auth::{Invitation, SignUp},
    delivery::{Message, OtpSender, SendError},
    store::Memory,
    user::{Account, EmailAddress},
};

use crate::{
    logged::Logged,
    world::{ADA, World},
};

/// An error of an application, with a source.
#[derive(Debug)]
struct Broken(io::Error);

impl Broken {
    fn new() -> Self {
        Self(io::Error::other("connection to 192.0.2.7 refused"))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the database is down")
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

const LOGGED: &str = "the database is down: connection to 192.0.2.7 refused";

struct NoUsers;

impl Users for NoUsers {
    type Error = Broken;

    async fn find(&self, _: &Tenant, _: &Identifier) -> Result<Option<Account>, Broken> {
        Err(Broken::new())
    }

    async fn by_id(&self, _: &Tenant, _: &UserId) -> Result<Option<Account>, Broken> {
        Err(Broken::new())
    }
}

#[tokio::test]
async fn b12_c114_an_error_of_users_is_logged_with_its_sources_and_not_shown() {
    let world = World::with(Memory::new(), |service| service.users(NoUsers)).await;
    let log = Logged::new();
    let mut browser = world.browser();
    let body = crate::world::with(crate::world::parameters("web"), &[("identifier", ADA)]);
    let answer = browser.post("/authentication/start", &body).await;
    assert_eq!((answer.status.as_u16(), answer.error().as_str()), (503, "temporarily_unavailable"));
    assert!(!answer.text.contains("database") && !answer.text.contains("hook"), "{answer:?}");
    assert_eq!(log.take(), [format!("a request failed: the hook Users::find failed: {LOGGED}")]);
}

#[cfg(feature = "external-providers")]
#[tokio::test]
async fn b12_c114_an_error_of_create_account_is_logged_with_its_sources_and_not_shown() {
    use tollgate::sso::{CreateAccount, ProviderUser};

    use crate::sso_provider::{SsoWorld, begun, outcome};

    struct NoAccounts;

    impl CreateAccount for NoAccounts {
        type Error = Broken;

        async fn account(&self, _: &Tenant, _: &ProviderUser) -> Result<Option<UserId>, Broken> {
            Err(Broken::new())
        }
    }

    let world = SsoWorld::with(|oidc| oidc, |connection| connection.create_account(NoAccounts)).await;
    let log = Logged::new();
    let mut browser = world.world.browser();
    let id = begun(&mut browser, "web").await;
    let answer = world.dance(&mut browser, "web", &id).await;
    assert_eq!(outcome(&answer), "unavailable");
    assert!(!format!("{answer:?}").contains("database"), "{answer:?}");
    assert_eq!(log.take(), [format!("a request failed: the hook CreateAccount failed: {LOGGED}")]);
}

/// A gateway that repeats the message in its error.
struct NoGateway;

impl OtpSender for NoGateway {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let Some(link) = message.link() else {
            let (to, code) = (message.to().to_uppercase(), message.code());
            return Err(SendError::permanent(format!("550 no mailbox for {to} (code {code})")));
        };
        let url = link.url();
        let secret = url.split_once('=').unwrap().1;
        Err(SendError::permanent(format!("554 blocked URL {url}, also {} and {secret}", url.replace('#', "%23"))))
    }
}

#[tokio::test]
async fn b12_c062_an_error_of_a_sender_is_logged_without_the_address_and_the_code() {
    let world = World::with(Memory::new(), |service| service.email(NoGateway)).await;
    let log = Logged::new();
    let mut browser = world.browser();
    let id = browser.start("web", ADA).await;
    let answer = browser.ask("web", &id, "email", ADA).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.text.contains("550"), "{answer:?}");
    world.settle().await;
    let lines = log.take();
    let expected = "the sender of email failed: the message cannot be sent: 550 no mailbox for … (code …)";
    assert!(lines.iter().any(|line| line == expected), "{lines:?}");
}

#[tokio::test]
async fn b12_c128_an_error_of_a_sender_is_logged_without_the_secret_of_a_link() {
    let world = World::with(Memory::new(), |service| service.email(NoGateway).sign_up(SignUp::Open)).await;
    let log = Logged::new();
    let invitation = Invitation::new(EmailAddress::parse("new@example.com").unwrap());
    assert!(world.service.invite(&"acme".parse().unwrap(), invitation).await.unwrap());
    world.settle().await;
    let lines = log.take();
    let expected = "the sender of email failed: the message cannot be sent: 554 blocked URL …, \
                    also https://auth.example/sign-up%23… and …";
    assert!(lines.iter().any(|line| line == expected), "{lines:?}");
}
