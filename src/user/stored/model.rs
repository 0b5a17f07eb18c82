//! Random changes of accounts, compared with a plain list, also in a store that fails after any number of writes.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{StoredUsers, UserError};
use crate::{
    gate::MaybeReady,
    password::PasswordHash,
    session::UserId,
    store::{Entry, Key, Memory, Record, Store, StoreError, StoreErrorKind, Version, WriteOutcome},
    tenant::Tenant,
    testing::{ManualClock, block_on},
    user::{Account, Contact, Identifier, NewUser, PasswordUpgrade, PhoneNumber, Users},
};

#[derive(Clone, Debug)]
enum Operation {
    Create {
        user: usize,
        names: Vec<usize>,
    },
    Remove {
        user: usize,
    },
    AddName {
        user: usize,
        name: usize,
    },
    RemoveName {
        user: usize,
        name: usize,
    },
    Password {
        user: usize,
        password: usize,
    },
    Upgrade {
        user: usize,
        old: usize,
        new: usize,
    },
    Contact {
        user: usize,
        contact: usize,
        what: usize,
    },
    Disable {
        user: usize,
        disabled: bool,
    },
    /// Creates or removes the same id in another tenant.
    Elsewhere {
        user: usize,
        exists: bool,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let (user, name) = (|| 0..3_usize, || 0..4_usize);
    prop_oneof![
        6 => (user(), vec(name(), 1..4)).prop_map(|(user, names)| Operation::Create { user, names }),
        3 => user().prop_map(|user| Operation::Remove { user }),
        4 => (user(), name()).prop_map(|(user, name)| Operation::AddName { user, name }),
        3 => (user(), name()).prop_map(|(user, name)| Operation::RemoveName { user, name }),
        2 => (user(), 0..3_usize).prop_map(|(user, password)| Operation::Password { user, password }),
        1 => (user(), 0..3_usize, 0..3_usize).prop_map(|(user, old, new)| Operation::Upgrade { user, old, new }),
        4 => (user(), 0..2_usize, 0..3_usize).prop_map(|(user, contact, what)| Operation::Contact { user, contact, what }),
        1 => (user(), any::<bool>()).prop_map(|(user, disabled)| Operation::Disable { user, disabled }),
        2 => (user(), any::<bool>()).prop_map(|(user, exists)| Operation::Elsewhere { user, exists }),
    ]
}

pub(super) fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

pub(super) fn globex() -> Tenant {
    Tenant::parse("globex").unwrap()
}

pub(super) fn user(number: usize) -> UserId {
    UserId::parse(format!("u-{number}")).unwrap()
}

pub(super) fn name(number: usize) -> Identifier {
    Identifier::parse(format!("Name {number}")).unwrap()
}

fn password(number: usize) -> PasswordHash {
    let salt = ["MDEyMzQ1Njc4OWFiY2RlZg", "AAAAQ1Njc4OWFiY2RlZg", "BBBBQ1Njc4OWFiY2RlZg"][number];
    let hash = format!("$argon2id$v=19$m=19456,t=2,p=1${salt}$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0");
    PasswordHash::parse(hash).unwrap()
}

fn contact(number: usize) -> Contact {
    PhoneNumber::parse(format!("+1555555010{number}")).unwrap().into()
}

pub(super) fn new_user(number: usize, names: &[usize]) -> NewUser {
    let new = NewUser::new(user(number), name(names[0]));
    names[1..].iter().fold(new, |new, number| new.identifier(name(*number)))
}

async fn run(users: &StoredUsers, operation: &Operation) -> Result<(), UserError> {
    let acme = acme();
    match *operation {
        Operation::Create { user, ref names } => users.create(&acme, new_user(user, names)).await.map(|_| ()),
        Operation::Remove { user: id } => users.remove(&acme, &user(id)).await,
        Operation::AddName { user: id, name: number } => users.add_identifier(&acme, &user(id), &name(number)).await,
        Operation::RemoveName { user: id, name: number } => {
            users.remove_identifier(&acme, &user(id), &name(number)).await
        }
        Operation::Password { user: id, password: number } => {
            users.set_password(&acme, &user(id), Some(password(number))).await
        }
        Operation::Upgrade { user: id, old, new } => {
            let account = users.by_id(&acme, &user(id)).await?.ok_or(UserError::Unknown)?;
            let verified = account.clone().password(password(old));
            let outcome = users.upgrade_password(&acme, &verified, password(new)).await?;
            let expected = match account.password_hash() {
                Some(_) => PasswordUpgrade::Replaced,
                None => PasswordUpgrade::PasswordChanged,
            };
            assert_eq!(outcome, expected);
            let upgraded = users.by_id(&acme, &user(id)).await?.ok_or(UserError::Unknown)?;
            assert_eq!(upgraded.current_password_mark(), account.current_password_mark());
            Ok(())
        }
        Operation::Contact { user: id, contact: number, what } => match what {
            0 => users.add_contact(&acme, &user(id), contact(number)).await,
            1 => users.verify_contact(&acme, &user(id), contact(number)).await,
            _ => users.remove_contact(&acme, &user(id), &contact(number)).await,
        },
        Operation::Disable { user: id, disabled: true } => users.disable(&acme, &user(id)).await,
        Operation::Disable { user: id, disabled: false } => users.enable(&acme, &user(id)).await,
        Operation::Elsewhere { user: id, exists: true } => {
            users.create(&globex(), new_user(id, &[50 + id])).await.map(|_| ())
        }
        Operation::Elsewhere { user: id, exists: false } => users.remove(&globex(), &user(id)).await,
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    names: Vec<usize>,
    password: Option<usize>,
    contacts: BTreeMap<usize, bool>,
    disabled: bool,
}

/// The key of an account in the other tenant.
const ELSEWHERE: usize = 100;

/// Applies an operation to a plain list.
fn expect(known: &mut BTreeMap<usize, Known>, operation: &Operation) -> Result<(), &'static str> {
    let holder = |known: &BTreeMap<usize, Known>, name: &usize| {
        known.iter().find(|(_, account)| account.names.contains(name)).map(|(user, _)| *user)
    };
    match *operation {
        Operation::Create { user, ref names } => {
            if names.iter().any(|name| holder(known, name).is_some_and(|other| other != user)) {
                return Err("Taken");
            }
            if known.contains_key(&user) || known.contains_key(&(ELSEWHERE + user)) {
                return Err("Exists");
            }
            known.insert(user, Known { names: names.clone(), ..Known::default() });
        }
        Operation::Remove { user } => return known.remove(&user).map(|_| ()).ok_or("Unknown"),
        Operation::AddName { user, name } => {
            if holder(known, &name).is_some_and(|other| other != user) {
                return Err("Taken");
            }
            known.get_mut(&user).ok_or("Unknown")?.names.push(name);
        }
        Operation::RemoveName { user, name } => {
            known.get_mut(&user).ok_or("Unknown")?.names.retain(|other| *other != name);
        }
        Operation::Password { user, password } => known.get_mut(&user).ok_or("Unknown")?.password = Some(password),
        Operation::Upgrade { user, old, new } => {
            let password = &mut known.get_mut(&user).ok_or("Unknown")?.password;
            *password = password.map(|current| if current == old { new } else { current });
        }
        Operation::Contact { user, contact, what } => {
            let contacts = &mut known.get_mut(&user).ok_or("Unknown")?.contacts;
            match what {
                2 => drop(contacts.remove(&contact)),
                _ => *contacts.entry(contact).or_default() |= what == 1,
            }
        }
        Operation::Disable { user, disabled } => known.get_mut(&user).ok_or("Unknown")?.disabled = disabled,
        Operation::Elsewhere { user, exists: true } => {
            if known.contains_key(&user) || known.contains_key(&(ELSEWHERE + user)) {
                return Err("Exists");
            }
            known.insert(ELSEWHERE + user, Known::default());
        }
        Operation::Elsewhere { user, exists: false } => {
            return known.remove(&(ELSEWHERE + user)).map(|_| ()).ok_or("Unknown");
        }
    }
    Ok(())
}

fn kind(error: &UserError) -> &'static str {
    match error {
        UserError::Taken => "Taken",
        UserError::Exists => "Exists",
        UserError::Unknown => "Unknown",
        UserError::OutOfBounds => "OutOfBounds",
        UserError::Store(_) => "Store",
    }
}

fn assert_same(account: &Account, known: &Known) {
    let hash = account.password_hash().map(|hash| hash.as_str().to_owned());
    assert_eq!(hash, known.password.map(|number| password(number).as_str().to_owned()));
    assert_eq!(account.is_disabled(), known.disabled);
    let contacts: BTreeMap<_, _> = (0..2)
        .filter_map(|number| Some((number, account.contacts().find(|(own, _)| **own == contact(number))?.1)))
        .collect();
    assert_eq!(contacts, known.contacts);
    assert!((0..2).all(|number| account.has_verified(&contact(number)) == (contacts.get(&number) == Some(&true))));
}

proptest! {
    #[test]
    fn accounts_agree_with_a_plain_list(operations in vec(operation(), 1..40)) {
        let users = StoredUsers::with_clock(Memory::new(), ManualClock::new());
        let mut known = BTreeMap::new();
        for operation in &operations {
            let answer = block_on(run(&users, operation)).map_err(|error| kind(&error));
            prop_assert_eq!(answer, expect(&mut known, operation), "{:?}", operation);
            for number in 0..4 {
                let found = block_on(users.find(&acme(), &name(number))).unwrap();
                let holder = known.iter().find(|(_, account)| account.names.contains(&number));
                prop_assert_eq!(found.as_ref().map(|found| found.id().clone()), holder.map(|(id, _)| user(*id)));
                found.iter().zip(holder).for_each(|(found, (_, known))| assert_same(found, known));
                // the name is unknown in another tenant
                prop_assert!(block_on(users.find(&globex(), &name(number))).unwrap().is_none());
            }
            for number in 0..3 {
                let found = block_on(users.by_id(&acme(), &user(number))).unwrap();
                prop_assert_eq!(found.is_some(), known.contains_key(&number));
                found.iter().zip(known.get(&number)).for_each(|(found, known)| assert_same(found, known));
                let elsewhere = block_on(users.by_id(&globex(), &user(number))).unwrap();
                prop_assert_eq!(elsewhere.is_some(), known.contains_key(&(ELSEWHERE + number)));
            }
        }
        let (mut listed, mut cursor) = (BTreeMap::new(), None);
        loop {
            let page = block_on(users.list(&acme(), cursor)).unwrap().unwrap();
            listed.extend(page.accounts.into_iter().map(|account| (account.id().as_str().to_owned(), account)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let here = known.iter().filter(|(number, _)| **number < ELSEWHERE);
        let here: BTreeMap<_, _> = here.map(|(number, known)| (user(*number).as_str().to_owned(), known)).collect();
        prop_assert!(listed.keys().eq(here.keys()), "{:?} {:?}", listed.keys(), here.keys());
        listed.values().zip(here.values()).for_each(|(account, known)| assert_same(account, known));
    }
}

/// A store that fails permanently after a number of writes. The last one may have happened.
#[derive(Clone, Default)]
struct Failing {
    memory: Arc<Memory>,
    left: Arc<AtomicUsize>,
    last_happens: bool,
    reads: Arc<AtomicUsize>,
}

impl Failing {
    /// Returns whether the write happens, and whether it is answered.
    fn decide_write(&self) -> (bool, bool) {
        match self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
            Ok(1) => (self.last_happens, false),
            Ok(_) => (true, true),
            Err(_) => (false, false),
        }
    }

    async fn run_failing_write<T>(&self, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let (happens, answered) = self.decide_write();
        let answer = if happens { Some(write.await) } else { None };
        answer.filter(|_| answered).unwrap_or_else(|| Err(StoreErrorKind::Unavailable.into()))
    }
}

impl Store for Failing {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        self.reads.fetch_add(1, SeqCst);
        match self.left.load(SeqCst) {
            0 => MaybeReady::Ready(Err(StoreErrorKind::Unavailable.into())),
            _ => Store::get(&*self.memory, key),
        }
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.run_failing_write(self.memory.insert(key, record)).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.run_failing_write(self.memory.swap(key, expected, record)).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.run_failing_write(self.memory.take(key)).await
    }
}

proptest! {
    #![proptest_config(Config::with_cases(400))]
    #[test]
    fn after_any_interruption_no_name_finds_a_wrong_account_or_is_lost(
        operations in vec(operation(), 0..8),
        last in operation(),
        last_happens: bool,
    ) {
        // interrupts the last operation after each of its writes
        for writes in 1.. {
            let failing = Failing { last_happens, ..Failing::default() };
            let users = StoredUsers::with_clock(failing.clone(), ManualClock::new());
            let mut known = BTreeMap::new();
            failing.left.store(usize::MAX, SeqCst);
            for operation in &operations {
                let answer = block_on(run(&users, operation)).map_err(|error| kind(&error));
                prop_assert_eq!(answer, expect(&mut known, operation));
            }
            failing.left.store(writes, SeqCst);
            let before = known.clone();
            let answer = block_on(run(&users, &last));
            let interrupted = failing.left.load(SeqCst) == 0;
            failing.left.store(usize::MAX, SeqCst);
            let refused = expect(&mut known, &last).is_err();
            for number in 0..4 {
                let holder = |known: &BTreeMap<usize, Known>| {
                    known.iter().find(|(_, account)| account.names.contains(&number)).map(|(id, _)| user(*id))
                };
                let found = block_on(users.find(&acme(), &name(number))).unwrap().map(|found| found.id().clone());
                let (was, is) = (holder(&before), holder(&known));
                prop_assert!(found == is || found == was, "{:?} finds {:?}, not {:?} or {:?}", number, found, was, is);
                if answer.is_ok() || refused {
                    prop_assert_eq!(&found, &is);
                }
                // a name that finds no account can be given to any
                let other = 90 + number;
                let claimed = block_on(users.create(&acme(), new_user(other, &[number])));
                prop_assert_eq!(claimed.is_ok(), found.is_none(), "{:?} {:?}", number, claimed);
                let now = block_on(users.find(&acme(), &name(number))).unwrap().map(|found| found.id().clone());
                prop_assert_eq!(now, Some(found.unwrap_or(user(other))));
            }
            // no id is in two tenants, and an interrupted operation can be undone
            for number in 0..3 {
                let exists = |tenant| block_on(users.by_id(&tenant, &user(number))).unwrap().is_some();
                let (here, elsewhere) = (exists(acme()), exists(globex()));
                prop_assert!(!(here && elsewhere));
                let create = |tenant| block_on(users.create(&tenant, new_user(number, &[60 + number])));
                prop_assert!(!here || create(globex()).is_err());
                prop_assert!(!elsewhere || create(acme()).is_err());
                prop_assert_eq!(block_on(users.remove(&acme(), &user(number))).is_ok(), here);
                prop_assert_eq!(block_on(users.remove(&globex(), &user(number))).is_ok(), elsewhere);
                prop_assert!(create(globex()).is_ok());
            }
            if !interrupted {
                break;
            }
        }
    }
}

#[test]
fn c048_known_and_unknown_names_and_ids_take_the_same_reads() {
    let failing = Failing::default();
    failing.left.store(usize::MAX, SeqCst);
    let users = StoredUsers::new(failing.clone());
    block_on(users.create(&acme(), new_user(1, &[1]))).unwrap();
    block_on(users.disable(&acme(), &user(1))).unwrap();
    for (number, found) in [(1, true), (2, false)] {
        failing.reads.store(0, SeqCst);
        assert_eq!(block_on(users.find(&acme(), &name(number))).unwrap().is_some(), found);
        assert_eq!(failing.reads.load(SeqCst), 2);
        failing.reads.store(0, SeqCst);
        assert_eq!(block_on(users.by_id(&acme(), &user(number))).unwrap().is_some(), found);
        assert_eq!(failing.reads.load(SeqCst), 1);
    }
}

#[test]
fn names_and_contacts_are_bounded() {
    let users = StoredUsers::new(Memory::new());
    let names: Vec<usize> = (0..17).collect();
    let too_many = block_on(users.create(&acme(), new_user(1, &names))).unwrap_err();
    assert!(matches!(too_many, UserError::OutOfBounds));
    // a repeated name counts once
    let new = new_user(1, &names[..16]).identifier(name(0));
    block_on(users.create(&acme(), new)).unwrap();
    assert!(matches!(block_on(users.add_identifier(&acme(), &user(1), &name(16))), Err(UserError::OutOfBounds)));
    block_on(users.add_identifier(&acme(), &user(1), &name(15))).unwrap();
    block_on(users.remove_identifier(&acme(), &user(1), &name(15))).unwrap();
    block_on(users.add_identifier(&acme(), &user(1), &name(16))).unwrap();
    let phone = |number: usize| Contact::from(PhoneNumber::parse(format!("+15555550{number:03}")).unwrap());
    for number in 0..16 {
        block_on(users.add_contact(&acme(), &user(1), phone(number))).unwrap();
    }
    assert!(matches!(block_on(users.verify_contact(&acme(), &user(1), phone(16))), Err(UserError::OutOfBounds)));
    block_on(users.verify_contact(&acme(), &user(1), phone(15))).unwrap();
    // a verified contact stays verified
    block_on(users.add_contact(&acme(), &user(1), phone(15))).unwrap();
    let account = block_on(users.find(&acme(), &name(16))).unwrap().unwrap();
    assert!(account.has_verified(&phone(15)) && !account.has_verified(&phone(14)));
}

#[test]
fn debug_shows_nothing_about_the_user() {
    let users = StoredUsers::new(Memory::new());
    let new = new_user(1, &[1]).contact(contact(0)).unverified_contact(contact(1)).password(password(0));
    let new = new.name("Ada Lovelace");
    let shown_before = format!("{new:?}");
    block_on(users.create(&acme(), new)).unwrap();
    let account = block_on(users.find(&acme(), &name(1))).unwrap();
    let shown = format!("{users:?} {account:?} {shown_before}");
    assert!(!["name 1", "Ada", "555", "argon2"].iter().any(|part| shown.contains(part)), "{shown}");
}
