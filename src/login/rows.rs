//! The stored form of a [`Login`]. Compact instead of JSON, because each call of a login reads and writes it.

use super::{
    one_time_code::OpenCode,
    parameters::{Binding, Wanted},
    state::{Challenge, Login, LoginPhase, OpenChallenge, OpenRedirect},
    subject::{BoundUser, Subject},
};
use crate::{
    client::Scopes,
    pkce::CodeChallenge,
    session::Authentication,
    store::compact::{row_enum, row_struct, row_text, stored_row},
    user::Identifier,
    util::public_id::PublicId,
    words::Language,
};

stored_row!(Login, 4, "not the row of a login");
row_struct!(Login {
    id,
    tenant,
    binding,
    wanted,
    identifier,
    subject,
    plan,
    proofs,
    carried,
    session,
    phase,
    open,
    max_age,
    passkey,
    failures,
    sends,
    began,
    touched,
    lifetime,
});
row_struct!(Binding { client_id, redirect_uri, scope, code_challenge });
row_enum!(Subject { 0 => Unbound, 1 => Unknown, 2 => User(BoundUser) });
row_struct!(BoundUser { id, generation });
row_enum!(LoginPhase {
    0 => Pending,
    1 => Success,
    2 => Failed,
    3 => Ended,
    4 => Completed(u64),
    5 => Consumed(PublicId),
});
row_enum!(Challenge { 1 => Code(OpenCode), 2 => Redirect(OpenRedirect) });
row_struct!(OpenCode { method, contact, code, owner, attempts_left, expires_at });
row_struct!(OpenRedirect { provider, state, query });
row_struct!(OpenChallenge { digest, expires_at });
row_struct!(Authentication { tenant, user, generation, proofs, acr });

row_text! {
    Identifier: as_str, |reader| Some(Identifier::restore(reader.text()?));
    Scopes: to_string, |reader| Scopes::parse(reader.text()?).ok();
    CodeChallenge: as_str, |reader| CodeChallenge::parse(reader.text()?).ok();
}
row_struct!(Wanted {
    is_confirmed,
    remember,
    is_reset,
    language,
    nonce,
    dpop_jkt,
    id_token,
    userinfo,
    resources,
    return_to,
});
row_enum!(Language { 0 => English, 1 => German });

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        login::{Keyed, LoginLimits, OneTimeCode},
        policy::{EnrolledFactors, Method, MethodSet, Policies, Policy},
        session::{Proof, UserId},
        store::{
            StoreErrorKind,
            compact::{Reader, RowPart, Writer},
            table::Value,
        },
        util::{
            clock::UnixTime,
            secret::{Secret, SecretDigest},
        },
    };

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);

    /// Returns logins that together use every part of the row.
    fn logins() -> Vec<Login> {
        let (limits, secret) = (LoginLimits::new(), Secret::generate());
        let binding = Binding {
            client_id: "web".to_owned(),
            redirect_uri: "https://app.example/callback".to_owned(),
            scope: Scopes::parse("openid email").unwrap(),
            code_challenge: CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap(),
        };
        let wanted = Wanted {
            nonce: Some(String::new()),
            dpop_jkt: Some("jkt".to_owned()),
            id_token: vec!["email".to_owned(), String::new()],
            userinfo: vec!["name".to_owned()],
            resources: vec!["https://api.example".to_owned()],
            is_confirmed: true,
            remember: false,
            return_to: Some("/x".to_owned()),
            language: Some(Language::German),
            is_reset: true,
        };
        let user = BoundUser { id: UserId::parse("u-ada").unwrap(), generation: u64::MAX };
        let plan = Policies::new(Policy::any(2).unwrap());
        let plan = plan.plan(&"acme".parse().unwrap(), None, None, Method::Password | Method::Sms).unwrap();
        let begun = Login::begin_login(&secret, "acme".parse().unwrap(), (binding, wanted), plan, (&limits, NOW));
        let named = begun.clone().identified(Identifier::parse("Ada@Example.com").unwrap(), Subject::Unknown);
        let mut bound = Login { subject: Subject::User(user.clone()), wanted: Wanted::default(), ..named.clone() };
        bound.proofs = vec![
            Proof { method: "password".into(), at: 7, mark: Some([9; 32]), elsewhere: None },
            Proof { method: "sso".into(), at: 8, mark: None, elsewhere: Some(0) },
        ];
        (bound.carried, bound.session, bound.max_age) = (1, Some(PublicId::random()), Some(0));
        let code = |owner| {
            let keyed = Keyed::new(&secret);
            let to = (Method::Sms, &SecretDigest::of_secret("an address"));
            Challenge::Code(OpenCode::new(to, owner, &begun.id, &OneTimeCode::generate(), &keyed, (&limits, NOW)))
        };
        let state = OpenChallenge::new(SecretDigest::of_secret("x"), UnixTime::from_nanos(5));
        let redirect = OpenRedirect { provider: "idp".to_owned(), state: state.clone(), query: "a=b".to_owned() };
        let open = [None, Some(code(None)), Some(code(Some(user))), Some(Challenge::Redirect(redirect))];
        let mut extended = Login { subject: bound.subject.clone(), ..begun.clone() };
        let factors = EnrolledFactors { all: Method::Totp.into(), counting: MethodSet::EMPTY, reset: None };
        extended.plan.demand_factor(Method::Password.into(), factors);
        let phases = [
            LoginPhase::Pending,
            LoginPhase::Success,
            LoginPhase::Failed,
            LoginPhase::Ended,
            LoginPhase::Completed(3),
            LoginPhase::Consumed(PublicId::random()),
        ];
        let passkey = Some(state);
        let mut all = vec![begun, named, bound.clone(), extended];
        all.extend(open.into_iter().map(|open| Login { open, ..bound.clone() }));
        all.extend(phases.map(|phase| Login {
            phase,
            passkey: passkey.clone(),
            failures: 3,
            sends: 2,
            ..bound.clone()
        }));
        all
    }

    #[test]
    fn every_login_is_read_as_it_was_written_and_a_cut_row_is_corrupt() {
        for login in logins() {
            let bytes = login.encode_row().unwrap();
            let read = Login::decode_row(&bytes).unwrap();
            assert_eq!(format!("{read:?}"), format!("{login:?}"));
            assert_eq!(read.encode_row().unwrap(), bytes);
            for len in 0..bytes.len() {
                assert_eq!(Login::decode_row(&bytes[..len]).unwrap_err().kind(), StoreErrorKind::Corrupt, "{len}");
            }
            assert!(Login::decode_row(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn b08_rows_of_the_format_before_are_refused() {
        for login in logins() {
            let mut bytes = login.encode_row().unwrap();
            assert_eq!(bytes[0], 4);
            bytes[0] = 3;
            assert_eq!(Login::decode_row(&bytes).unwrap_err().kind(), StoreErrorKind::Corrupt);
        }
    }

    #[test]
    fn parameters_with_a_flag_that_does_not_exist_are_corrupt() {
        let mut writer = Writer::new(0, 0);
        Wanted { remember: true, ..Wanted::default() }.write_part(&mut writer).unwrap();
        let mut bytes = writer.into_bytes();
        for (flags, is_valid) in [(0, true), (1, true), (2, false), (255, false)] {
            bytes[1] = flags;
            assert_eq!(Reader::read_whole_value(0, &bytes, Wanted::read_part).is_some(), is_valid, "{flags}");
        }
    }

    proptest! {
        #[test]
        fn no_row_causes_a_panic(noise in vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), byte: u8) {
            let _ = Login::decode_row(&noise);
            for login in logins() {
                let mut bytes = login.encode_row().unwrap();
                *at.get_mut(&mut bytes) = byte;
                let _ = Login::decode_row(&bytes);
            }
        }
    }
}
