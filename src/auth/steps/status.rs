//! `GET /authentication/status`: the state of a login. It changes nothing.

use http::Response;

use crate::{
    auth::{context::stages::OwnLogin, http::answer},
    http::body::Body,
};

pub(crate) fn serve_login_status(OwnLogin { cx, stored, .. }: &OwnLogin<'_>) -> Response<Body> {
    answer::login_progress(stored.value.to_login_view(cx.core.logins.now()), ())
}
