//! A credential in the database of a relying party.

/// A registered credential, as the relying party stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCredential {
    /// The id, of at most 1023 bytes. Ids are unique among all users.
    pub id: Vec<u8>,
    /// The handle of the user whom the credential belongs to: at most 64 random bytes, without personal information.
    pub user_handle: Vec<u8>,
    /// The public key as a COSE key. It determines the algorithm.
    pub public_key: Vec<u8>,
    /// The signature counter of the last response. Zero if the authenticator does not count.
    pub sign_count: u32,
    /// Whether the credential can be backed up (the flag BE), as synced passkeys can. This never changes.
    pub backup_eligible: bool,
    /// Whether the credential is currently backed up (the flag BS).
    pub backed_up: bool,
}
