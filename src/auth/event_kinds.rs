//! The kinds of events that the login service records. Names follow the OWASP logging vocabulary.

use crate::event::event_kinds;

event_kinds! {
    /// the login service no longer knows the addresses of clients. Until it does again, nothing limits a single
    /// address.
    ClientAddressUnknown = "client_address_unknown",
    /// the login service knows the addresses of clients again.
    ClientAddressKnown = "client_address_known",
    /// an account was linked to a user of another identity provider.
    SsoLinked = "authn_sso_linked" (of_users: true),
    /// a login started.
    LoginStarted = "authn_login_start",
    /// a login step was completed successfully.
    LoginStepProved = "authn_login_step",
    /// all steps of a login were completed, and a session or an authorization code was issued.
    LoginSucceeded = "authn_login_success",
    /// a login step failed. The reason for a failed sign-in at another identity provider is `no_address`,
    /// `address_not_verified`, `account_exists`, `no_account`, `not_linked`, `other_account`, `too_weak`, `not_fresh`
    /// or `wrong_answer`.
    LoginFailed = "authn_login_fail",
    /// a login was ended after too many failures.
    LoginFailedMost = "authn_login_fail_max",
    /// an attempt was rejected because of too many earlier failures.
    LoginLocked = "authn_login_lock",
    /// a correct attempt was rejected, or a message was not sent, because an account or address exceeded its limit. The
    /// caller cannot see this.
    LoginCeiling = "authn_login_ceiling",
    /// a valid signature of a passkey was refused, or reported, because its counter had not increased. The
    /// authenticator may have been cloned.
    PasskeyCloned = "authn_passkey_cloned" (of_users: true),
    /// an authorization code was issued.
    CodeIssued = "authn_code_created" (of_users: true),
    /// a one-time code was queued for delivery.
    OtpSent = "authn_otp_sent",
    /// a one-time code could not be delivered.
    OtpUndelivered = "authn_otp_undelivered",
    /// a notice about a change of sign-in methods was queued for delivery to the user.
    NoticeSent = "authn_notice_sent",
    /// a notice about a change of sign-in methods could not be delivered.
    NoticeUndelivered = "authn_notice_undelivered",
    /// a user added a passkey, an authenticator app, recovery codes or a linked account, or replaced one.
    CredentialAdded = "authn_credential_added" (of_users: true),
    /// a user removed a passkey, the authenticator app or a linked account.
    CredentialRemoved = "authn_credential_removed" (of_users: true),
    /// a user renamed a passkey.
    CredentialRenamed = "authn_credential_renamed" (of_users: true),
    /// a user changed the password.
    PasswordChanged = "authn_password_change" (of_users: true),
    /// a user changed an e-mail address or a phone number.
    ContactChanged = "authn_contact_change" (of_users: true),
    /// a user changed the name of the account.
    AccountUpdated = "user_updated" (of_users: true),
    /// a user deleted the account.
    AccountDeleted = "user_deleted" (of_users: true),
    /// a user created an account.
    AccountCreated = "account_created",
    /// the application invited the owner of an address to create an account.
    InvitationSent = "account_invitation_created",
    /// the application created a link for a user to set a new password.
    ResetLinkCreated = "authn_reset_link_created",
    /// a user reset a forgotten password, which ended everything that the user had begun.
    PasswordReset = "authn_password_reset",
    /// the application deleted the enrolled factors of a user who had lost them.
    FactorsReset = "authn_factors_reset",
    /// an operator ended all sessions, logins and tokens.
    EverythingEnded = "everything_ended",
    /// the application vouched for a credential of a user.
    CredentialVouched = "authn_credential_vouched",
    /// the application deleted all credentials of a user, and ended everything that the user had begun.
    UserForgotten = "authn_user_forgotten",
    /// a request came out of order, or its parameters differ from those at the start of the login.
    SequenceFailed = "sequence_fail",
    /// an authorization code or a refresh token was exchanged for tokens.
    TokenIssued = "authn_token_created",
    /// an authorization code or a refresh token was used a second time, so two parties have it. Everything issued from
    /// it was revoked.
    TokenReused = "authn_token_reuse",
    /// a user consented to the request of a third-party client.
    ConsentGiven = "authz_consent_given" (of_users: true),
    /// a user withdrew the consent to a third-party client, whose tokens were revoked.
    ConsentRevoked = "authz_consent_revoked" (of_users: true),
    /// tokens were revoked by their client or by a logout.
    TokenRevoked = "authn_token_revoked",
}
