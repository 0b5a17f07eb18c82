use super::{IdentityError, UserId, user::is_visible};
use crate::{tenant::Tenant, util::clock::UnixTime};

/// Who signed in and how: what a session is made of, once and for good.
///
/// ```
/// use tollgate::{NewSession, Tenant, UserId};
///
/// let ada = NewSession::new(Tenant::parse("acme")?, UserId::parse("ada")?).acr("mfa")?.amr(["pwd", "otp"])?;
/// # let _ = ada;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NewSession {
    pub(super) user: UserId,
    pub(super) tenant: Tenant,
    pub(super) auth_time: Option<UnixTime>,
    pub(super) acr: Option<Box<str>>,
    pub(super) amr: Box<[Box<str>]>,
}

impl NewSession {
    /// A session of this user of this tenant, who has proved it right now.
    pub fn new(tenant: Tenant, user: UserId) -> Self {
        Self { user, tenant, auth_time: None, acr: None, amr: Box::default() }
    }

    /// When the user proved it, if earlier: the `auth_time` of OpenID Connect.
    pub fn auth_time(mut self, time: UnixTime) -> Self {
        self.auth_time = Some(time);
        self
    }

    /// How strong the proof was, by a name of your own: the `acr` of OpenID
    /// Connect. Up to 255 visible ASCII characters.
    pub fn acr(mut self, class: &str) -> Result<Self, IdentityError> {
        if !is_visible(class, 255) {
            return Err(IdentityError("the acr must have 1 to 255 visible ASCII characters"));
        }
        self.acr = Some(class.into());
        Ok(self)
    }

    /// What was proved, by the names of RFC 8176: the `amr` of OpenID Connect.
    /// Up to 16 names of up to 64 visible ASCII characters.
    pub fn amr<'a>(mut self, methods: impl IntoIterator<Item = &'a str>) -> Result<Self, IdentityError> {
        // one more than fit is enough to tell
        let methods: Vec<&str> = methods.into_iter().take(17).collect();
        if methods.len() > 16 || !methods.iter().all(|method| is_visible(method, 64)) {
            return Err(IdentityError("the amr must be up to 16 names of 1 to 64 visible ASCII characters"));
        }
        self.amr = methods.into_iter().map(Box::from).collect();
        Ok(self)
    }
}
