//! Events, messages and ended sessions after a user has changed how they sign in.

use std::time::Duration;

use crate::{
    auth::{
        core::{Core, amr},
        state::journal::EventSource,
    },
    delivery::{Channel, Message, Notice, NoticeKind},
    event::{Event, EventKind},
    policy::{FactorClass, Method},
    session::{Authentication, Proof, Session, UserId},
    store::StoreError,
    tenant::Tenant,
    user::{Account, Contact},
    words::Language,
};

/// How long a notice is worth sending.
const NOTICE_LIFETIME: Duration = Duration::from_secs(24 * 3600);

impl Core {
    /// Records a change of how a user signs in, and sends a notice in this language: by e-mail if possible, and to the phone if
    /// not. If one contact is not safe enough, all contacts of the account as it was before get the notice. Beyond the limit on
    /// messages to a contact, the change is only recorded.
    pub(crate) async fn announce<'a>(
        &self,
        source: impl Into<EventSource<'a>>,
        (tenant, account): (&Tenant, &Account),
        change: NoticeKind,
        language: Language,
    ) -> Result<(), StoreError> {
        let keyed = self.keyed().await?;
        let (kind, method, is_for_all) = event_of(change);
        let changed = self.journal.event(kind, source, method, keyed);
        self.journal.tally_event(&changed);
        let mut told = Ok(());
        for to in self.told_contacts(account, is_for_all) {
            // a message that fails stops no other
            told = told.and(self.tell(tenant, to, (change, changed.clone()), language).await);
        }
        told
    }

    /// Returns the verified contacts that are told of a change, each with its channel: all that a sender reaches, or the first
    /// of them, which is a mailbox if there is one.
    fn told_contacts<'a>(&self, account: &'a Account, is_for_all: bool) -> Vec<(Channel, &'a Contact)> {
        let reached = |contact: &'a Contact| Some((self.channel_to(contact.class())?, contact));
        let reached = account.verified_contacts().filter_map(reached);
        match is_for_all {
            true => reached.collect(),
            false => reached.min_by_key(|(channel, _)| *channel != Channel::Email).into_iter().collect(),
        }
    }

    /// Sends a notice to a contact, unless it has had too many.
    async fn tell(
        &self,
        tenant: &Tenant,
        (channel, contact): (Channel, &Contact),
        (change, changed): (NoticeKind, Event),
        language: Language,
    ) -> Result<(), StoreError> {
        let keyed = self.keyed().await?;
        let counted = self.guard.count_notice(tenant, method_of(channel), contact, keyed).await;
        // the change is made: if the store fails, its notice is sent all the same
        if matches!(counted, Ok(false)) {
            self.journal.tally(EventKind::NoticeUndelivered, Some(tenant), Some(channel.as_str()));
            return Ok(());
        }
        let now = self.logins.now();
        let notice = Notice::new(change, now);
        let message = Message::of_notice(channel, tenant.clone(), contact.as_str(), notice, now + NOTICE_LIFETIME);
        let message = message.in_language(language).with_words(self.pages.words.clone());
        if self.queue.push(channel, message) {
            // the limit on messages bounds these
            self.journal.record_event(Event { kind: EventKind::NoticeSent, ..changed });
        }
        counted.map(|_| ())
    }

    /// Returns the preferred channel to contacts of this class that has a sender.
    pub(crate) fn channel_to(&self, class: FactorClass) -> Option<Channel> {
        let all = [Channel::Email, Channel::Sms, Channel::Whatsapp];
        all.into_iter().find(|channel| method_of(*channel).class() == class && self.queue.has(*channel))
    }

    /// Ends what rests on a password, a contact or a credential that the user no longer has: proofs in sessions, and
    /// sessions whose other proofs do not meet the policy of the tenant. Returns how many sessions ended.
    ///
    /// `changed` is the session that has made the change, and what it has changed. It lives as long as any proof is left,
    /// because its user has just proved enough to make the change. Its proof by what it has replaced is renewed.
    pub(crate) async fn end_outdated(
        &self,
        tenant: &Tenant,
        user: &UserId,
        changed: Option<(&Session, Method)>,
    ) -> Result<usize, StoreError> {
        let mut ended = 0;
        for session in self.sessions.list(tenant, user).await? {
            let own = changed.filter(|(own, _)| own.sid() == session.sid()).map(|(_, method)| method);
            ended += usize::from(self.drop_outdated_proofs(&session, own).await?);
        }
        Ok(ended)
    }

    async fn drop_outdated_proofs(&self, session: &Session, own: Option<Method>) -> Result<bool, StoreError> {
        if session.proofs().is_empty() {
            return Ok(false);
        }
        let keyed = self.keyed().await?;
        let before = session.authentication();
        let renewed = match own {
            Some(method) => self.with_current_mark(before.clone(), method).await?,
            None => before.clone(),
        };
        let Some(current) = self.current_proofs(&renewed, keyed).await? else {
            return self.sessions.revoke_sid(&session.sid()).await;
        };
        let Some(_) = own else { return Ok(self.keep_proofs(session, &current).await?.is_none()) };
        let pairs: Vec<_> = before.proofs.iter().zip(&renewed.proofs).collect();
        // what was proved in the meantime counts too
        let keep = |proof: &Proof| match pairs.iter().find(|(before, _)| *before == proof) {
            Some((_, renewed)) => current.proofs.contains(renewed).then(|| Proof::clone(renewed)),
            None => Some(proof.clone()),
        };
        let amr = |proofs: &[Proof]| (!proofs.is_empty()).then(|| amr(proofs));
        Ok(self.sessions.keep_proofs(session, keep, amr).await?.is_none())
    }

    /// Gives the proof by this method the mark of what the user has now.
    async fn with_current_mark(&self, mut who: Authentication, method: Method) -> Result<Authentication, StoreError> {
        let keyed = self.keyed().await?;
        let account = self.accounts.of_user(&who.tenant, Some(&who.user)).await?;
        let credentials = self.credentials.get(&who.tenant, &who.user).await?;
        let mark = account.and_then(|account| Self::current_mark(&account, credentials.as_ref(), method, keyed));
        for proof in who.proofs.iter_mut().filter(|proof| &*proof.method == method.as_str()) {
            proof.mark = proof.mark.and(mark).or(proof.mark);
        }
        Ok(who)
    }
}

/// Returns the method whose codes go through this channel.
pub(crate) fn method_of(channel: Channel) -> Method {
    match channel {
        Channel::Sms => Method::Sms,
        Channel::Email => Method::Email,
        Channel::Whatsapp => Method::Whatsapp,
    }
}

/// Returns the event of a change, the method that it concerns, and whether all contacts get a notice, because the person who
/// made it may read one of them.
pub(crate) fn event_of(change: NoticeKind) -> (EventKind, Option<Method>, bool) {
    let (added, removed, changed) =
        (EventKind::CredentialAdded, EventKind::CredentialRemoved, EventKind::ContactChanged);
    let (one, all) = (false, true);
    match change {
        NoticeKind::PasskeyAdded => (added, Some(Method::Passkey), one),
        NoticeKind::PasskeyRemoved => (removed, Some(Method::Passkey), one),
        NoticeKind::TotpAdded => (added, Some(Method::Totp), one),
        NoticeKind::TotpRemoved => (removed, Some(Method::Totp), one),
        NoticeKind::RecoveryCodesRenewed => (added, Some(Method::RecoveryCode), one),
        NoticeKind::LinkAdded => (EventKind::SsoLinked, Some(Method::Sso), one),
        NoticeKind::LinkRemoved => (removed, Some(Method::Sso), one),
        NoticeKind::PasswordReset => (EventKind::PasswordReset, Some(Method::Password), all),
        NoticeKind::FactorsReset => (EventKind::FactorsReset, None, all),
        NoticeKind::PasswordChanged => (EventKind::PasswordChanged, Some(Method::Password), all),
        NoticeKind::EmailChanged => (changed, Some(Method::Email), all),
        NoticeKind::PhoneChanged => (changed, Some(Method::Sms), all),
        NoticeKind::AccountDeleted => (EventKind::AccountDeleted, None, all),
    }
}
