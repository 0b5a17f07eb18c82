//! `GET /authentication/start`: the login page, or its data for a page of your own.

use std::collections::BTreeMap;

use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::{
    auth::{
        authorize::{expected_user::ExpectedUser, query},
        context::{incoming::IncomingRequest, stages::ClientReach},
        factors::{self, signed_in::SignedIn},
        http::{
            answer::{self, OfferedProvider},
            problem::{EndpointResult, Problem},
            route::{ACCOUNT_PAGE, FINISH_SIGN_IN, RESET_PAGE, SIGN_UP_PAGE},
        },
        pages::{built, page},
    },
    http::accept,
    login::Wanted,
    policy::Method,
    user::sign_up::SignUp,
};

/// The JSON that describes a request to a login page.
#[derive(Serialize)]
struct Description<'a> {
    client_id: &'a str,
    client_name: &'a str,
    available_methods: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    providers: Vec<OfferedProvider>,
    required_steps: usize,
    scopes: Vec<&'a str>,
    /// The claims that the client requests by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<&'a str>,
    redirect: Redirect<'a>,
    /// The signed-in user whose steps count here. Only our own pages learn it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_in: Option<String>,
    /// Whether that user must confirm.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmation_required: Option<bool>,
    /// The path to open after `complete` when the user signs in to the site itself. Otherwise it is `/authorize` with the
    /// query of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    continue_to: Option<String>,
    /// The path of the page on which the user can connect providers, if this site has one for the client's tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    account_page: Option<String>,
    /// The paths of the pages for people who have no account, or have forgotten their password.
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_up: Option<SignUpOffer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_password: Option<String>,
    /// The minimum number of characters of a new password, if users can choose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_password: Option<usize>,
    /// Whether users can choose to stay signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    remember_available: Option<bool>,
    /// The parameters of a pushed request, which are in no URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<BTreeMap<&'a str, &'a str>>,
}

/// The page on which users create an account.
#[derive(Serialize)]
struct SignUpOffer {
    path: String,
    /// Whether users need an invitation.
    invitation_only: bool,
}

/// Where the answer goes, as a user can judge it.
#[derive(Serialize)]
struct Redirect<'a> {
    kind: &'static str,
    host: &'a str,
}

pub(crate) async fn login_page(request: &mut IncomingRequest<'_>) -> EndpointResult {
    let (cx, asked) =
        query::read_authorize_request(request, ClientReach::Login).await.map_err(Problem::into_error_page)?;
    let cx = &cx;
    let checked = match asked.checked(cx) {
        Ok(checked) => checked,
        // the built-in client has no answers, so there is nowhere to send the error
        Err(wrong) if asked.to.client.is_first_party() => return Err(wrong.into_error_page()),
        Err(wrong) => return asked.error(cx, &wrong),
    };
    let client = &asked.to.client;
    if accept::favourite(&cx.parts.headers).is_none_or(|best| !best.eq_ignore_ascii_case(answer::JSON)) {
        let language = built::language(asked.query.value("ui_locales"), cx.parts);
        return Ok(page::login(&cx.core.pages, language));
    }
    let plan = checked.plan.as_ref().ok_or_else(Problem::unmet)?;
    let signed_in = match cx.is_read_elsewhere {
        false => SignedIn::find(cx, client, &checked.oidc).await?,
        true => None,
    };
    let now = cx.core.logins.now();
    let signed_in = signed_in.filter(|it| it.carried(plan, &checked.oidc, client, now).is_some());
    // an invalid hint is reported when the code is requested
    let signed_in = match signed_in {
        None => None,
        Some(it) => {
            let expected = ExpectedUser::from_oidc_parameters(cx, &checked.oidc, client).await;
            Some(it).filter(|it| expected.is_ok_and(|expected| expected.is(it.session.user())))
        }
    };
    let (is_first_party, (kind, host)) = (client.is_first_party(), asked.to.place());
    let description = Description {
        client_id: client.id(),
        client_name: client.display_name(),
        available_methods: plan.methods().that_can_be_first().iter().map(Method::as_str).collect(),
        providers: factors::providers(cx.core, client.tenant(), plan.methods()),
        required_steps: plan.steps(),
        scopes: checked.binding.scope.iter().collect(),
        claims: requested_claims(&checked.oidc.wanted),
        redirect: Redirect { kind, host },
        signed_in: signed_in.as_ref().map(SignedIn::display_name),
        confirmation_required: signed_in.as_ref().map(|_| checked.oidc.asks_user || !asked.to.is_of_a_site()),
        continue_to: is_first_party.then(|| format!("{}{FINISH_SIGN_IN}", cx.core.issuer.path())),
        account_page: cx.is_site_of(client.tenant()).then(|| format!("{}{ACCOUNT_PAGE}", cx.core.issuer.path())),
        sign_up: cx.core.offers_sign_up().then(|| SignUpOffer {
            path: format!("{}{SIGN_UP_PAGE}", cx.core.issuer.path()),
            invitation_only: cx.core.sign_up.kind == SignUp::InvitationOnly,
        }),
        reset_password: cx.core.offers_reset.then(|| format!("{}{RESET_PAGE}", cx.core.issuer.path())),
        least_password: (cx.core.offers_sign_up() || cx.core.offers_reset)
            .then(|| cx.core.least_password(client.tenant())),
        remember_available: cx.core.remember.map(|_| true),
        parameters: asked.unseen(),
    };
    let mut response = answer::json(StatusCode::OK, &description);
    // the URL also serves a page
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

/// Returns the claims that are requested by name, each once.
fn requested_claims(wanted: &Wanted) -> Vec<&str> {
    let mut names: Vec<&str> = wanted.id_token.iter().chain(&wanted.userinfo).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}
