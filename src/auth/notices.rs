//! Events, messages and ended sessions after a user has changed how they sign in.

use std::time::Duration;

use crate::{
    auth::{core::Core, state::journal::EventSource},
    delivery::{Channel, Message, Notice, NoticeKind},
    event::EventKind,
    policy::Method,
    session::{Session, UserId},
    store::StoreError,
    tenant::Tenant,
    user::{Account, Contact},
};

/// How long a notice is worth sending.
const NOTICE_LIFETIME: Duration = Duration::from_secs(24 * 3600);

impl Core {
    /// Records a change of how a user signs in, and tells the user: by e-mail if possible, otherwise to their phone. Beyond the
    /// limit on messages to this contact, the change is only recorded.
    pub(crate) async fn announce<'a>(
        &self,
        source: impl Into<EventSource<'a>>,
        (tenant, account): (&Tenant, &Account),
        change: NoticeKind,
    ) -> Result<(), StoreError> {
        let keyed = self.keyed().await?;
        let (kind, method) = event_of(change);
        let changed = self.journal.event(kind, source, Some(method), keyed);
        let sent = changed.clone();
        self.journal.record_event(changed);
        let Some((channel, contact)) = self.reachable(account) else { return Ok(()) };
        if !self.guard.count_notice(tenant, method_of(channel), contact, keyed).await? {
            self.journal.tally(EventKind::NoticeUndelivered, Some(tenant), Some(channel.as_str()));
            return Ok(());
        }
        let now = self.logins.now();
        let notice = Notice::new(change, now);
        let message = Message::of_notice(channel, tenant.clone(), contact.as_str(), notice, now + NOTICE_LIFETIME);
        if self.queue.push(channel, Some(message)) {
            self.journal.record_event(crate::event::Event { kind: EventKind::NoticeSent, ..sent });
        }
        Ok(())
    }

    /// Returns where the user can be told something: a verified contact, and a channel that has a sender.
    fn reachable<'a>(&self, account: &'a Account) -> Option<(Channel, &'a Contact)> {
        [Channel::Email, Channel::Sms, Channel::Whatsapp]
            .into_iter()
            .filter(|channel| self.queue.has(*channel))
            .find_map(|channel| {
                let is_for = |contact: &Contact| matches!(contact, Contact::Email(_)) == (channel == Channel::Email);
                account.verified_contacts().find(|contact| is_for(contact)).map(|contact| (channel, contact))
            })
    }

    /// Ends what rests on a password, a contact or a credential that the user no longer has: proofs in sessions, and
    /// sessions without a proof. Returns how many sessions ended.
    pub(crate) async fn end_outdated(&self, tenant: &Tenant, user: &UserId) -> Result<usize, StoreError> {
        let mut ended = 0;
        for session in self.sessions.list(tenant, user).await? {
            ended += usize::from(self.drop_outdated_proofs(&session).await?);
        }
        Ok(ended)
    }

    async fn drop_outdated_proofs(&self, session: &Session) -> Result<bool, StoreError> {
        if session.proofs().is_empty() {
            return Ok(false);
        }
        match self.accounts.current(&session.authentication(), self.keyed().await?).await? {
            None => self.sessions.revoke_sid(&session.sid()).await,
            Some(current) => Ok(self.keep_proofs(session, &current.proofs).await?.is_none()),
        }
    }
}

fn method_of(channel: Channel) -> Method {
    match channel {
        Channel::Sms => Method::Sms,
        Channel::Email => Method::Email,
        Channel::Whatsapp => Method::Whatsapp,
    }
}

fn event_of(change: NoticeKind) -> (EventKind, Method) {
    use EventKind::{CredentialAdded, CredentialRemoved};
    match change {
        NoticeKind::PasskeyAdded => (CredentialAdded, Method::Passkey),
        NoticeKind::PasskeyRemoved => (CredentialRemoved, Method::Passkey),
        NoticeKind::TotpAdded => (CredentialAdded, Method::Totp),
        NoticeKind::TotpRemoved => (CredentialRemoved, Method::Totp),
        NoticeKind::RecoveryCodesRenewed => (CredentialAdded, Method::RecoveryCode),
        NoticeKind::LinkAdded => (EventKind::SsoLinked, Method::Sso),
        NoticeKind::LinkRemoved => (CredentialRemoved, Method::Sso),
    }
}
