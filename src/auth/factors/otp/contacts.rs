//! The contacts that a user can choose after a proved step: shown masked, and named by an id that only this login knows.

use crate::{
    auth::{
        factors::step::LoginStep,
        http::{
            answer::ContactChoice,
            problem::{Code, Problem},
        },
        state::guard::submitted,
    },
    login::{Keyed, Login},
    policy::{Method, MethodSet},
    user::{Account, Contact},
    util::public_id::PublicId,
};

/// Returns the mark of a proof by a code that was sent to this contact.
pub(crate) fn contact_mark(contact: &Contact, keyed: &Keyed) -> [u8; 32] {
    *submitted::address(contact, keyed).as_bytes()
}

/// Returns whether a proof with this mark still counts: the contact is still a verified one of the account.
pub(crate) fn counts(account: &Account, method: Method, mark: [u8; 32], keyed: &Keyed) -> bool {
    reachable(account, method).any(|contact| contact_mark(contact, keyed) == mark)
}

/// Returns the contacts that a login can choose, with each of these methods.
pub(crate) fn choices(account: &Account, methods: MethodSet, login: &Login, keyed: &Keyed) -> Vec<ContactChoice> {
    let of = |method: Method| {
        reachable(account, method).map(move |contact| ContactChoice {
            contact_id: contact_id(contact, login, keyed),
            method: method.as_str(),
            masked: masked(contact),
        })
    };
    methods.iter().flat_map(of).collect()
}

/// Returns the contacts that the account has verified and that this method can reach.
pub(crate) fn reachable(account: &Account, method: Method) -> impl Iterator<Item = &Contact> {
    account.verified_contacts().filter(move |contact| contact.class() == method.class())
}

/// Returns the id of a contact in this login. It says nothing about the contact, and means nothing in another login.
fn contact_id(contact: &Contact, login: &Login, keyed: &Keyed) -> String {
    let digest = keyed.hash("contact id", [login.id.as_bytes(), contact.as_str().as_bytes()]);
    PublicId::of_digest(&digest).to_string()
}

/// Returns the contact with this id. Only signed-in users, and users who proved a step, have learned ids.
pub(crate) async fn chosen(step: &LoginStep<'_>, id: &str, method: Method) -> Result<Contact, Problem> {
    if step.login.proofs.is_empty() && step.login.session.is_none() {
        return Err(step.problem(Problem::new(Code::StepRequired, "prove a step first")));
    }
    let found = step.account(None).await?;
    let mut contacts = found.active().into_iter().flat_map(|account| reachable(account, method));
    let chosen = contacts.find(|contact| contact_id(contact, &step.login, step.keyed) == id);
    chosen.cloned().ok_or_else(|| step.problem(Problem::invalid("contact_id is unknown in this login")))
}

/// Returns a contact in a form that only its owner recognizes: `a•••@example.com`, `+•••••••00`.
pub(crate) fn masked(contact: &Contact) -> String {
    let text = contact.as_str();
    match (contact, text.split_once('@')) {
        (Contact::Email(_), Some((local, domain))) => {
            // a single letter would be the whole name
            let first = local.chars().next().filter(|_| local.len() > 1).map(String::from).unwrap_or_default();
            format!("{first}•••@{domain}")
        }
        _ => {
            let (hidden, last) = text.split_at_checked(text.len().saturating_sub(2)).unwrap_or_default();
            format!("+{}{last}", "•".repeat(hidden.len().saturating_sub(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::{EmailAddress, PhoneNumber};

    #[test]
    fn c115_a_masked_contact_shows_the_first_letter_and_the_domain_or_the_last_two_digits() {
        for (address, shown) in [
            ("ada@example.com", "a•••@example.com"),
            ("ab@x.example", "a•••@x.example"),
            ("a@x.example", "•••@x.example"),
        ] {
            assert_eq!(masked(&EmailAddress::parse(address).unwrap().into()), shown);
        }
        for (number, shown) in [("+15555550100", "+•••••••••00"), ("+12345678", "+••••••78")]
        {
            assert_eq!(masked(&PhoneNumber::parse(number).unwrap().into()), shown);
        }
    }
}
