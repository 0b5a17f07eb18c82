//! `grant_type=authorization_code`: exchanges a code for the first tokens of a family.

use super::{
    dpop_proof::check_bound,
    form::{Posted, TokenCall},
    subject, user_claims,
};
use crate::{
    auth::{
        http::problem::{Code, Problem},
        state::{codes::AuthorizationCode, consents::Access},
    },
    client::Client,
    event::EventKind,
    login::Binding,
    pkce::CodeVerifier,
    store::StoreError,
    support::run_to_completion::RunToCompletion,
    tokens::{Grant, Issued, TokenRequest},
    util::secret::{Secret, SecretDigest},
};

/// The only error for a code that can't be redeemed.
fn invalid_grant() -> Problem {
    Problem::new(Code::InvalidGrant, "the authorization code is invalid, expired or was issued for another request")
}

/// Returns the tokens for a code.
pub(crate) async fn redeem(call: TokenCall<'_>) -> Result<Issued, Problem> {
    let TokenCall { cx, endpoints, client, posted } = call;
    let code = posted.required("code", "code is missing")?;
    let verifier = posted.required("code_verifier", "code_verifier is missing")?;
    let verifier = CodeVerifier::parse(verifier).map_err(|_| Problem::invalid("code_verifier is malformed"))?;
    let code = Secret::parse(code).ok_or_else(invalid_grant)?.digest();

    let (codes, tokens) = (&cx.core.codes, &endpoints.service);
    let Some(row) = codes.find(&code).await? else {
        revoke_if_replayed(call, &code, &verifier).await?;
        return Err(invalid_grant());
    };
    if row.who.tenant != *client.tenant() || !fits(&row.binding, client, posted, &verifier) {
        if !row.binding.code_challenge.verify(&verifier) {
            cx.core.journal.tally(EventKind::PkceRefused, Some(client.tenant()), None);
        }
        return Err(invalid_grant());
    }
    let jkt = cx.spend_request_proof("/token").await?;
    if row.wanted.dpop_jkt.as_ref().is_some_and(|wanted| jkt.as_ref() != Some(wanted)) {
        return Err(Problem::new(Code::InvalidDpopProof, "the authorization code is bound to another key"));
    }
    check_bound(client, jkt.as_deref())?;
    let AuthorizationCode { who, session, binding, wanted, .. } = row;
    let (id_token, userinfo) =
        (user_claims::allowed_claims(client, wanted.id_token), user_claims::allowed_claims(client, wanted.userinfo));
    let resources = wanted.resources;
    let grant = Grant { who, session, binding, jkt, id_token, userinfo, resources };
    let subject = subject::subject_of_grant(cx.core, &grant.who, Some(client)).await?.ok_or_else(invalid_grant)?;
    // the session may have ended since the code was issued; a raised generation of the user has left no subject
    if tokens.has_lost_session(&grant).await? {
        return Err(invalid_grant());
    }
    let audience = endpoints.narrowed_audience(client, &grant, posted.resources())?;
    let extra = user_claims::extra_claims(cx.core, &subject.account, &grant, grant.scope()).await?;
    endpoints.ready(client).await?;

    let request = TokenRequest {
        who: &subject.who,
        audience,
        with_id_token: true,
        id_token_algorithm: client.tokens.id_token_algorithm,
        scope: None,
        nonce: wanted.nonce.as_deref(),
        account_claims: user_claims::account_claims(&subject.account, grant.id_token.iter().map(String::as_str)),
        extra_claims: extra,
        keyed: cx.core.keyed().await?,
    };
    let deciding = client.is_third_party().then(|| {
        let access = Access::of_grant(&grant, tokens.default_audience(client));
        (cx.core.consents.clone(), client.clone(), subject.who.user.clone(), access)
    });
    cx.core.redeemed_challenges.note_redeemed(&grant.binding).await?;
    let family = tokens.new_family(&code, grant, !client.tokens.without_refresh);
    // signing comes before the code is redeemed, because it can fail
    let issued = tokens.first_tokens(&family, &request).await?;
    let (codes, service, journal) = (codes.clone(), tokens.clone(), cx.core.journal.clone());
    let id = family.id;
    // a caller that disconnects must not leave a family that is not listed
    let stored = RunToCompletion::new(async move {
        let stored = service.store_family(family).await?;
        // last, so that the user either finds this family when they revoke their consent, or has revoked it by now
        if let Some((consents, client, user, access)) = deciding
            && stored
            && !consents.allow((client.tenant(), &user), &client, &access).await?
        {
            service.revoke_family(&id).await?;
            return Ok(false);
        }
        // the family decides who redeemed the code, so this only cleans up
        if let Err(error) = codes.remove(&code).await {
            crate::util::trace::failure!("a redeemed code could not be removed", &error);
            journal.store_failed();
        }
        Ok::<_, StoreError>(stored)
    });
    if !stored.await? {
        revoke_if_replayed(call, &code, &verifier).await?;
        return Err(invalid_grant());
    }
    Ok(issued)
}

/// Returns whether a request shows everything that a code is bound to.
fn fits(binding: &Binding, client: &Client, posted: &Posted<'_>, verifier: &CodeVerifier) -> bool {
    binding.client_id == client.id()
        && posted.value("redirect_uri").is_none_or(|uri| uri == binding.redirect_uri)
        && binding.code_challenge.verify(verifier)
}

/// Revokes the family of a code that is redeemed again. A caller that has both code and verifier got them from the
/// client, so somebody else may have the tokens. A caller without the verifier ends nothing.
async fn revoke_if_replayed(call: TokenCall<'_>, code: &SecretDigest, verifier: &CodeVerifier) -> Result<(), Problem> {
    let TokenCall { cx, endpoints, client, posted } = call;
    let Some((family, grant, is_replay)) = endpoints.service.family_of_redeemed(code).await? else { return Ok(()) };
    let fits = grant.who.tenant == *client.tenant() && fits(&grant.binding, client, posted, verifier);
    if is_replay && fits {
        endpoints.service.revoke_family(&family).await?;
        cx.core.journal.tally(EventKind::TokenReused, Some(client.tenant()), None);
    }
    Ok(())
}
