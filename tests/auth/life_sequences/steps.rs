//! The calls of a random sequence, and paths through them that lead somewhere.

use proptest::{collection::vec, prelude::*};

use crate::world::{ADA, ADA_PHONE, GRACE, GRACE_PHONE, NOBODY};

pub(super) const THIEF: &str = "thief@example.com";
pub(super) const THIEF_PHONE: &str = "+15555550177";
/// The names that the thief types. Grace exists in one of two worlds.
pub(super) const NAMES: [&str; 6] = [ADA, "ada", THIEF, GRACE, "grace", NOBODY];
/// The addresses that the thief sends codes to.
pub(super) const ADDRESSES: [&str; 3] = [ADA, THIEF, GRACE];
pub(super) const PHONES: [&str; 3] = [ADA_PHONE, THIEF_PHONE, GRACE_PHONE];
/// Where the thief reads messages: the stolen mailbox, and the own mailbox and phone.
pub(super) const READ: [&str; 3] = [ADA, THIEF, THIEF_PHONE];
/// Where a login begins: at the clients of one and of two steps of acme, at the client of globex, and at the sites of both.
pub(super) const PLACES: usize = 5;
pub(super) const CLIENTS: [&str; 3] = ["web", "mfa", "other"];

/// A call. Logins are counted from the newest.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Start {
        browser: usize,
        place: usize,
        name: Option<usize>,
        is_reset: bool,
    },
    Login {
        login: usize,
        as_another: Option<Another>,
        call: LoginCall,
    },
    /// Asks for a code or a session with what was completed.
    Finish {
        browser: usize,
        place: usize,
    },
    Account {
        browser: usize,
        site: usize,
        call: AccountCall,
    },
    /// The application invites the owner of an address.
    Invite {
        site: usize,
        to: usize,
    },
    /// The application creates a link for a new password of an account of the thief.
    ResetLink {
        site: usize,
    },
    Owner(OwnerCall),
    Wait(u64),
}

/// How the thief uses a login that began elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) enum Another {
    Browser,
    Tenant,
}

#[derive(Clone, Debug)]
pub(super) enum LoginCall {
    Ask(usize),
    AskPhone(usize),
    /// Types the newest code of one of [`READ`].
    Verify(usize),
    Password(usize),
    /// A code of the app that the thief has begun to set up.
    App,
    RecoveryCode,
    SignUpCode(usize),
    SignUpVerify(usize),
    /// Opens a link, counted from the newest.
    Invitation(usize),
    ResetLink(usize),
    Create,
    SetPassword,
    Enrol,
    ConfirmEnrolment,
    Choices,
    Complete,
}

#[derive(Clone, Debug)]
pub(super) enum AccountCall {
    Show,
    /// One of the addresses and phones, perhaps in place of a contact.
    Contact {
        contact: usize,
        replaces: Option<usize>,
    },
    Confirm(usize),
    Password,
    Name,
    App,
    RemoveApp,
    RecoveryCodes,
    Link,
    RemoveLink,
    EndOthers,
    Delete,
}

/// The calls of ada. She signs in first.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnerCall {
    SignIn,
    Password,
    Name,
    Email,
    App,
    RemoveApp,
    RecoveryCodes,
    /// She has forgotten her password.
    Reset,
    Delete,
}

fn login_call() -> impl Strategy<Value = LoginCall> {
    let (three, link) = (|| 0..3_usize, || prop_oneof![3 => Just(0_usize), 1 => 0..3_usize]);
    prop_oneof![
        4 => three().prop_map(LoginCall::Ask),
        2 => three().prop_map(LoginCall::AskPhone),
        5 => three().prop_map(LoginCall::Verify),
        2 => (0..NAMES.len()).prop_map(LoginCall::Password),
        2 => Just(LoginCall::App),
        1 => Just(LoginCall::RecoveryCode),
        2 => three().prop_map(LoginCall::SignUpCode),
        2 => three().prop_map(LoginCall::SignUpVerify),
        2 => link().prop_map(LoginCall::Invitation),
        2 => link().prop_map(LoginCall::ResetLink),
        2 => Just(LoginCall::Create),
        4 => Just(LoginCall::SetPassword),
        1 => Just(LoginCall::Enrol),
        1 => Just(LoginCall::ConfirmEnrolment),
        1 => Just(LoginCall::Choices),
        2 => Just(LoginCall::Complete),
    ]
}

fn account_call() -> impl Strategy<Value = AccountCall> {
    let contact = (0..5_usize, prop::option::of(0..2_usize));
    prop_oneof![
        1 => Just(AccountCall::Show),
        4 => contact.prop_map(|(contact, replaces)| AccountCall::Contact { contact, replaces }),
        4 => (0..3_usize).prop_map(AccountCall::Confirm),
        2 => Just(AccountCall::Password),
        1 => Just(AccountCall::Name),
        2 => Just(AccountCall::App),
        1 => Just(AccountCall::RemoveApp),
        1 => Just(AccountCall::RecoveryCodes),
        1 => Just(AccountCall::Link),
        1 => Just(AccountCall::RemoveLink),
        1 => Just(AccountCall::EndOthers),
        2 => Just(AccountCall::Delete),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let (browser, site) = (|| 0..2_usize, || prop_oneof![3 => Just(0_usize), 1 => Just(1_usize)]);
    let another = prop_oneof![8 => Just(None), 1 => Just(Some(Another::Browser)), 1 => Just(Some(Another::Tenant))];
    let owner = prop::sample::select(vec![
        OwnerCall::SignIn,
        OwnerCall::Password,
        OwnerCall::Name,
        OwnerCall::Email,
        OwnerCall::App,
        OwnerCall::RemoveApp,
        OwnerCall::RecoveryCodes,
        OwnerCall::Reset,
        OwnerCall::Delete,
    ]);
    prop_oneof![
        4 => (browser(), 0..PLACES, prop::option::of(0..NAMES.len()), any::<bool>())
            .prop_map(|(browser, place, name, is_reset)| Step::Start { browser, place, name, is_reset }),
        14 => (0..4_usize, another, login_call())
            .prop_map(|(login, as_another, call)| Step::Login { login, as_another, call }),
        2 => (browser(), 0..PLACES).prop_map(|(browser, place)| Step::Finish { browser, place }),
        8 => (browser(), site(), account_call())
            .prop_map(|(browser, site, call)| Step::Account { browser, site, call }),
        1 => (site(), 0..2_usize).prop_map(|(site, to)| Step::Invite { site, to }),
        1 => site().prop_map(|site| Step::ResetLink { site }),
        4 => owner.prop_map(Step::Owner),
        2 => prop_oneof![2 => 1_u64..40, 1 => 40_u64..700].prop_map(Step::Wait),
    ]
}

/// A path of steps about ada, the thief or grace, and then changes of the account that it has led to. It may be cut off.
fn path() -> impl Strategy<Value = Vec<Step>> {
    let where_and_who = (0..2_usize, 0..PLACES, 0..3_usize);
    let cut = prop_oneof![4 => Just(usize::MAX), 1 => 1..6_usize];
    let contact = prop::sample::select(vec![(0, 0), (1, 1), (4, 2)]);
    let changes = (contact, prop::option::of(Just(0_usize)), vec(account_call(), 0..6));
    (0..7_usize, where_and_who, cut, changes).prop_map(|(kind, (browser, place, who), cut, changes)| {
        let (site, name) = (usize::from([2, 4].contains(&place)), Some([0, 2, 3][who]));
        let login = |call| Step::Login { login: 0, as_another: None, call };
        let start = |name, is_reset| Step::Start { browser, place, name, is_reset };
        let code = |who: usize| [Step::Wait(31), login(LoginCall::Ask(who)), login(LoginCall::Verify(who.min(1)))];
        let second = [LoginCall::AskPhone(1), LoginCall::Verify(2), LoginCall::App].map(login);
        let own = [start(Some(2), false), login(LoginCall::Password(2))];
        let mut steps = match kind {
            0 => vec![
                start(None, false),
                login(LoginCall::SignUpCode(who)),
                login(LoginCall::SignUpVerify(who.min(1))),
                login(LoginCall::Create),
            ],
            1 => vec![
                Step::Invite { site, to: who.min(1) },
                start(None, false),
                login(LoginCall::Invitation(0)),
                login(LoginCall::Create),
            ],
            2 => [vec![start(name, false)], code(who).into()].concat(),
            3 => {
                [vec![start(name, true)], code(who).into(), second.into(), vec![login(LoginCall::SetPassword)]].concat()
            }
            4 => vec![
                Step::ResetLink { site },
                start(None, true),
                login(LoginCall::ResetLink(0)),
                login(LoginCall::SetPassword),
            ],
            5 => [&own[..], &second[2..]].concat(),
            _ => [&own[..], &code(1)].concat(),
        };
        steps.extend([login(LoginCall::Complete), Step::Finish { browser, place }]);
        let ((contact, mailbox), replaces, changes) = changes;
        let changes =
            [AccountCall::Contact { contact, replaces }, AccountCall::Confirm(mailbox)].into_iter().chain(changes);
        steps.extend(changes.map(|call| Step::Account { browser, site, call }));
        steps.truncate(cut);
        steps
    })
}

pub(super) fn script() -> impl Strategy<Value = Vec<Step>> {
    vec(prop_oneof![1 => path(), 2 => step().prop_map(|step| vec![step])], 1..24).prop_map(|parts| parts.concat())
}
