//! `GET /authentication/status`: the state of a login. It changes nothing.

use http::{Response, StatusCode};

use crate::{
    auth::{
        context::stages::OwnLogin,
        http::answer::{self, LoginProgress},
    },
    http::body::Body,
};

pub(crate) fn serve_login_status(OwnLogin { cx, stored, .. }: &OwnLogin<'_>) -> Response<Body> {
    let now = cx.core.logins.now();
    answer::json(StatusCode::OK, &LoginProgress::from(stored.value.to_login_view(now)))
}
