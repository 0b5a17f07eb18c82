//! Hashes and checks passwords on the current thread.

use std::{hint::black_box, sync::Arc};

use argon2::Argon2;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{
    hash::{PasswordHash, StoredPassword},
    memory::Memory,
    password::Password,
    recipe::{Cost, Recipe},
};

const SALT: usize = 16;
const OUTPUT: usize = 32;

/// Computes the output for a password and a salt. Returns `None` if there is no memory for it.
pub(super) type Run = dyn Fn(&Recipe, &[u8], &[u8], &mut [u8]) -> Option<()> + Send + Sync;

/// The outcome of checking a password.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Verdict {
    /// The password matches the hash.
    #[non_exhaustive]
    Right {
        /// A new hash of the same password, if the stored one is weaker than the current parameters. Store it in place
        /// of the old one.
        rehashed: Option<PasswordHash>,
    },
    /// The password does not match, or there is no hash.
    Wrong,
}

/// Computes hashes at the configured cost.
#[derive(Clone)]
pub(super) struct Engine {
    pub(super) cost: Cost,
    /// Takes the place of a missing hash. Salt and output are random, so no password for it is known.
    pub(super) decoy: Arc<PasswordHash>,
    pub(super) run: Arc<Run>,
}

impl Engine {
    pub(super) fn new(cost: Cost) -> Self {
        let memory = Memory::new(cost.params(OUTPUT).map_or(0, |params| params.block_count()));
        let run = move |recipe: &Recipe, password: &[u8], salt: &[u8], output: &mut [u8]| {
            run(recipe, password, salt, output, &memory)
        };
        Self {
            cost,
            decoy: Arc::new(PasswordHash::new(Recipe::new(cost), &random::<SALT>(), &random::<OUTPUT>())),
            run: Arc::new(run),
        }
    }

    /// Hashes a password with a new salt.
    pub(super) fn hash(&self, password: &str) -> Option<PasswordHash> {
        let (recipe, salt) = (Recipe::new(self.cost), random::<SALT>());
        let mut output = [0; OUTPUT];
        (self.run)(&recipe, password.as_bytes(), &salt, &mut output)?;
        Some(PasswordHash::new(recipe, &salt, &output))
    }

    /// Checks a password with one run of argon2, whether there is a hash or not. A wrong password under a weaker hash
    /// costs a second run that makes up for the difference.
    pub(super) fn verify(&self, password: &Password, stored: Option<&PasswordHash>) -> Option<Verdict> {
        let recipe = stored.map_or(Recipe::new(self.cost), |stored| stored.recipe);
        let (salt, expected) = stored.unwrap_or(&self.decoy).bytes();
        let mut output = Zeroizing::new(vec![0; expected.len()]);
        // an unusable password costs as much as any other
        (self.run)(&recipe, password.usable().unwrap_or_default().as_bytes(), &salt, &mut output)?;
        let equal = bool::from(output.ct_eq(&expected));
        // `Right` needs a stored hash: the decoy never matches
        if let (true, Some(stored), Some(password)) = (equal, stored, password.usable()) {
            let rehashed = stored.is_outdated(self.cost).then(|| self.hash(password)).flatten();
            return Some(Verdict::Right { rehashed });
        }
        if let Some(rest) = self.cost.rest(recipe.cost) {
            (self.run)(&Recipe::new(rest), &[], &[0; SALT], &mut [0; OUTPUT])?;
        }
        Some(Verdict::Wrong)
    }

    /// Checks a password against an argon2 hash or a foreign one. A wrong password always costs one call of `check` and
    /// one check by argon2, so the time shows neither which kind of hash is stored nor whether there is one.
    pub(super) fn verify_either(
        &self,
        password: &Password,
        stored: Option<&StoredPassword>,
        foreign_decoy: &str,
        check: impl FnOnce(&str, &str) -> bool,
    ) -> Option<Verdict> {
        let typed = password.usable();
        let argon2 = match stored {
            Some(StoredPassword::Foreign(hash)) => {
                let matches = check(&hash.0, typed.unwrap_or_default());
                return match typed.filter(|_| matches) {
                    Some(typed) => Some(Verdict::Right { rehashed: self.hash(typed) }),
                    None => self.verify(password, None),
                };
            }
            Some(StoredPassword::Argon2(hash)) => Some(hash),
            None => None,
        };
        let verdict = self.verify(password, argon2)?;
        if matches!(verdict, Verdict::Wrong) {
            // a decoy is never right
            let _ = black_box(check(foreign_decoy, typed.unwrap_or_default()));
        }
        Some(verdict)
    }
}

/// Runs argon2.
fn run(recipe: &Recipe, password: &[u8], salt: &[u8], output: &mut [u8], memory: &Memory) -> Option<()> {
    let params = recipe.cost.params(output.len())?;
    let blocks = params.block_count();
    let argon2 = Argon2::new(recipe.algorithm, recipe.version, params);
    memory.with(blocks, |blocks| argon2.hash_password_into_with_memory(password, salt, output, blocks).ok())?
}

#[expect(clippy::expect_used, reason = "no input reaches it, and there is no safe way to go on")]
fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
