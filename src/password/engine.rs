//! The work itself, on whatever thread it is done.

use std::sync::Arc;

use argon2::{Argon2, Params};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Password, PasswordHash, Verdict, cost::Cost, hash::Recipe};

const SALT: usize = 16;
const OUTPUT: usize = 32;

/// A salt and an output.
pub(super) type Decoy = ([u8; SALT], [u8; OUTPUT]);

/// Works out the output for a password and a salt; `None` without memory.
pub(super) type Run = dyn Fn(&Recipe, &[u8], &[u8], &mut [u8]) -> Option<()> + Send + Sync;

/// What works hashes out, at the cost of today.
#[derive(Clone)]
pub(super) struct Engine {
    pub(super) cost: Cost,
    /// Stands in for the hash of an account that has none: a salt and an output
    /// that are random, so that nobody knows a password for it.
    pub(super) decoy: Arc<Decoy>,
    pub(super) run: Arc<Run>,
}

impl Engine {
    pub(super) fn new() -> Self {
        Self { cost: Cost::DEFAULT, decoy: Arc::new((random(), random())), run: Arc::new(run) }
    }

    /// Hashes a password, with a new salt.
    pub(super) fn hash(&self, password: &[u8]) -> Option<PasswordHash> {
        let (recipe, salt) = (Recipe::new(self.cost), random::<SALT>());
        let mut output = [0; OUTPUT];
        (self.run)(&recipe, password, &salt, &mut output)?;
        Some(PasswordHash::new(recipe, &salt, &output))
    }

    /// Checks a password: one run of argon2 whoever asks, and after a wrong one
    /// under an outdated hash as much more as makes it one of today's.
    pub(super) fn verify(&self, password: &Password, stored: Option<&PasswordHash>) -> Option<Verdict> {
        let (recipe, salt, expected) = match stored {
            Some(stored) => (stored.recipe, &*stored.salt, &*stored.output),
            None => (Recipe::new(self.cost), &self.decoy.0[..], &self.decoy.1[..]),
        };
        let mut output = Zeroizing::new(vec![0; expected.len()]);
        // what is no password costs as much as one
        (self.run)(&recipe, password.usable().unwrap_or_default(), salt, &mut output)?;
        let equal = bool::from(output.ct_eq(expected));
        // no other place says `Right`: without a stored hash there is no way to it
        if let (true, Some(stored), Some(password)) = (equal, stored, password.usable()) {
            let rehashed = stored.is_outdated(self.cost).then(|| self.hash(password)).flatten();
            return Some(Verdict::Right { rehashed });
        }
        if let Some(rest) = self.cost.rest(recipe.cost) {
            (self.run)(&Recipe::new(rest), &[], &self.decoy.0, &mut [0; OUTPUT])?;
        }
        Some(Verdict::Wrong)
    }
}

/// argon2.
fn run(recipe: &Recipe, password: &[u8], salt: &[u8], output: &mut [u8]) -> Option<()> {
    let Cost { memory_kib, iterations, parallelism } = recipe.cost;
    let params = Params::new(memory_kib, iterations, parallelism, Some(output.len())).ok()?;
    Argon2::new(recipe.algorithm, recipe.version, params).hash_password_into(password, salt, output).ok()
}

#[expect(clippy::expect_used, reason = "no input reaches it, and there is no safe way to go on")]
fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
