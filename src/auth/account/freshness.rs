//! How much a user must have proved within the last minutes to change how they sign in.

use std::{cmp::Reverse, time::Duration};

use crate::{
    auth::{authorize::signed_in::SignedIn, core::Core},
    policy::{FactorClass, Method, MethodSet},
    session::Session,
    user::{Account, Contact},
    util::clock::UnixTime,
};

/// How long a proof is fresh.
pub(super) const FRESH: Duration = Duration::from_secs(300);

/// Returns the factor classes of young proofs, each with its newest proof, newest first.
pub(super) fn fresh_classes(session: &Session, now: UnixTime) -> Vec<(FactorClass, UnixTime)> {
    let proofs = session.authentication().proofs.iter();
    let mut young: Vec<_> = proofs
        .filter_map(|proof| Some((Method::from_name(&proof.method)?.class(), UnixTime::from_nanos(proof.at))))
        .filter(|(_, at)| now < *at + FRESH)
        .collect();
    young.sort_by_key(|(_, at)| Reverse(*at));
    let mut fresh: Vec<(FactorClass, UnixTime)> = Vec::new();
    for (class, at) in young {
        if fresh.iter().all(|(known, _)| *known != class) {
            fresh.push((class, at));
        }
    }
    fresh
}

/// Returns how many factor classes must be proved: as many as the longest login of this tenant that the account can
/// complete has steps, and at least two if the account has two.
pub(super) fn required(core: &Core, who: &SignedIn) -> usize {
    let session = &who.session;
    let usable = usable(session, &who.account).intersection(core.enabled(session.tenant()));
    let listed = core.clients.listed();
    let clients = listed.iter().filter(|client| client.tenant() == session.tenant()).map(|client| client.demands());
    let most = core.policies.most_steps(session.tenant(), clients, |_| usable);
    most.max(usable.classes().min(2)).max(1)
}

/// Returns the methods that the account can use. A password that only the application knows shows in the session.
fn usable(session: &Session, account: &Account) -> MethodSet {
    let proved = session.authentication().methods().filter_map(Method::from_name);
    let password = account.current_password_mark().map(|_| Method::Password);
    let verified = account.contacts().filter(|(_, is_verified)| *is_verified);
    let by_code = verified.flat_map(|(contact, _)| match contact {
        Contact::Email(_) => [Method::Email].iter(),
        Contact::Phone(_) => [Method::Sms, Method::Whatsapp].iter(),
    });
    proved.chain(password).chain(by_code.copied()).collect()
}
