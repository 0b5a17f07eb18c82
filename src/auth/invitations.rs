//! How an application invites users, and helps those who can't get into their account.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    auth::{
        http::route::{RESET_PAGE, SIGN_UP_PAGE},
        service::AuthService,
        state::{
            journal::EventSource,
            tickets::{Ticket, TicketPurpose},
        },
    },
    delivery::{Channel, Link, LinkKind, Message, NoticeKind},
    event::EventKind,
    login::BoundUser,
    session::UserId,
    store::{StoreError, StoreErrorKind},
    tenant::Tenant,
    user::{Claims, Contact, EmailAddress, sign_up::SignUp},
    words::Language,
};

/// How long an invitation can be accepted.
const INVITATION_LIVES: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a link for a new password can be used.
const RESET_LIVES: Duration = Duration::from_secs(15 * 60);

/// An invitation to create an account: an argument of [`AuthService::invite`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Invitation {
    address: EmailAddress,
    claims: Option<Map<String, Value>>,
    language: Language,
}

impl Invitation {
    /// Creates an invitation for the owner of this address.
    pub fn new(address: EmailAddress) -> Self {
        Self { address, claims: None, language: Language::English }
    }

    /// Adds a claim for the new account, such as its roles. [`Users::create`](crate::Users::create) receives it. Only
    /// the application sets such claims, so check what the inviting user may grant.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is [reserved](Claims), if the value can't be written as JSON, or if the claims
    /// exceed 4 KiB in all.
    pub fn claim(mut self, name: &str, value: impl Serialize) -> Result<Self, crate::user::ClaimError> {
        let value = serde_json::to_value(value).unwrap_or_default();
        let claims = self.claims.get_or_insert_default();
        claims.insert(name.to_owned(), value);
        let mut checked = Claims::new();
        for (name, value) in &*claims {
            checked.insert(name, value)?;
        }
        Ok(self)
    }

    /// Sets the language of the message. Defaults to English.
    pub fn in_language(self, language: Language) -> Self {
        Self { language, ..self }
    }
}

impl AuthService {
    /// Sends an invitation by e-mail. Its link creates one account, within seven days, and replaces an earlier one to this address. It
    /// opens the sign-up page, where the owner of the address sets a password; the address then counts as proved, because the link
    /// was sent to it. Returns whether the message was queued.
    ///
    /// Requires [`AuthServiceBuilder::sign_up`](crate::auth::AuthServiceBuilder::sign_up), and
    /// [`first_party`](crate::auth::AuthServiceBuilder::first_party) for the page. An address that already has an
    /// account still gets an invitation, but it can't be accepted.
    ///
    /// # Errors
    ///
    /// Besides errors of the store, returns [`StoreErrorKind::NotOffered`] if sign-up is closed.
    pub async fn invite(&self, tenant: &Tenant, invitation: Invitation) -> Result<bool, StoreError> {
        let core = &self.0;
        if core.sign_up.kind == SignUp::Closed {
            return Err(StoreErrorKind::NotOffered.into());
        }
        let Invitation { address, claims, language } = invitation;
        let (keyed, contact) = (core.keyed().await?, Contact::Email(address.clone()));
        let ticket = Ticket { claims, ..Ticket::for_contact(contact.clone()) };
        let secret = core.tickets.create_invitation((tenant, &contact), ticket, INVITATION_LIVES, keyed).await?;
        let url = format!("{}#invitation={}", core.link_to(tenant, SIGN_UP_PAGE), secret.expose());
        let expires = core.logins.now() + INVITATION_LIVES;
        let link = Link::new(LinkKind::Invitation, url);
        let message = Message::of_link(Channel::Email, tenant.clone(), address.as_str(), link, expires);
        let message = message.in_language(language).with_words(core.pages.words.clone());
        core.journal.tally(EventKind::InvitationSent, Some(tenant), None);
        Ok(core.queue.push(Channel::Email, message))
    }

    /// Ends the invitation to an address, if there is one. [`forget_user`](Self::forget_user) does this for the
    /// verified addresses of an account.
    pub async fn withdraw_invitation(&self, tenant: &Tenant, address: &EmailAddress) -> Result<(), StoreError> {
        let core = &self.0;
        core.tickets.end_invitation((tenant, &Contact::Email(address.clone())), core.keyed().await?).await
    }

    /// Creates a link with which a user can set a new password without any other proof. It works once, for fifteen minutes.
    /// Returns `None` if there is no such account.
    ///
    /// A user who proves enough factors needs no such link: see the page `/reset-password`. Call this for other users,
    /// once you have identified them, for example by a passport. The link is a secret.
    pub async fn create_reset_link(&self, tenant: &Tenant, user: &UserId) -> Result<Option<String>, StoreError> {
        let core = &self.0;
        let account = core.accounts.of_user(tenant, Some(user)).await?;
        let found = core.accounts.with_generation(tenant, account).await?;
        let Some(BoundUser { id, generation }) = found.user() else { return Ok(None) };
        let ticket = Ticket::default().of_user(BoundUser { id, generation });
        let secret = core.tickets.create_link((TicketPurpose::Reset, tenant), ticket, RESET_LIVES).await?;
        let keyed = core.keyed().await?;
        core.journal.record(EventKind::ResetLinkCreated, EventSource::of_user(tenant, user), None, keyed);
        Ok(Some(format!("{}#reset={}", core.link_to(tenant, RESET_PAGE), secret.expose())))
    }

    /// Deletes the passkeys, authenticator app, recovery codes and linked accounts of a user who has lost them and whom the
    /// application has identified. Ends everything that [`end_user`](Self::end_user) ends, and notifies the user at
    /// each verified contact. Returns how many sessions ended. Recorded as an event.
    ///
    /// The password stays. Call [`create_reset_link`](Self::create_reset_link) too if the user has forgotten it.
    pub async fn reset_factors(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        let core = &self.0;
        // the first one ends calls that could still add a factor, the second one sign-ins with a lost factor meanwhile
        let ended = core.sessions.end_user(tenant, user).await?;
        core.credentials.forget(tenant, user).await?;
        let ended = ended + core.sessions.end_user(tenant, user).await?;
        let source = || EventSource::of_user(tenant, user);
        match core.accounts.of_user(tenant, Some(user)).await? {
            Some(account) => {
                let change = NoticeKind::FactorsReset;
                core.announce(source(), (tenant, &account), change, Language::English).await?;
            }
            None => core.journal.record(EventKind::FactorsReset, source(), None, core.keyed().await?),
        }
        Ok(ended)
    }
}
