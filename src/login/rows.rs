//! The stored form of a [`Login`]. Compact instead of JSON, because each call of a login reads and writes it.

use super::{
    one_time_code::OpenCode,
    parameters::{Binding, Wanted},
    state::{Challenge, Login, LoginPhase, OpenChallenge, OpenRedirect, Timeouts},
    subject::{BoundUser, Subject},
};
use crate::{
    client::Scopes,
    pkce::CodeChallenge,
    policy::{LoginPlan, Method},
    session::{Authentication, Proof, UserId},
    store::{StoreError, StoreErrorKind, table::Value},
    support::compact::{Reader, Writer},
    tenant::Tenant,
    user::Identifier,
    util::{public_id::PublicId, secret::SecretDigest},
    words::Language,
};

/// The first byte of a row. A number is never used again with another meaning: 1 had no flags in the plan.
const LOGIN: u8 = 2;

type Written = Result<(), StoreError>;

impl Value for Login {
    fn encode_row(&self) -> Result<Vec<u8>, StoreError> {
        let mut writer = Writer::new(LOGIN, 768);
        writer.bytes(self.id.as_bytes());
        writer.text(self.tenant.as_str())?;
        write_binding(&mut writer, &self.binding)?;
        write_wanted(&mut writer, &self.wanted)?;
        writer.optional_text(self.identifier.as_ref().map(Identifier::as_str))?;
        match &self.subject {
            Subject::Unbound => writer.byte(0),
            Subject::Unknown => writer.byte(1),
            Subject::User(user) => {
                writer.byte(2);
                write_user(&mut writer, user)?;
            }
        }
        self.plan.write_login_plan(&mut writer)?;
        write_proofs(&mut writer, &self.proofs)?;
        writer.number(self.carried as u64);
        option(&mut writer, self.session.as_ref(), |writer, sid| {
            writer.bytes(sid.as_bytes());
            Ok(())
        })?;
        match &self.phase {
            LoginPhase::Pending => writer.byte(0),
            LoginPhase::Success => writer.byte(1),
            LoginPhase::Failed => writer.byte(2),
            LoginPhase::Ended => writer.byte(3),
            LoginPhase::Completed(at) => {
                writer.byte(4);
                writer.number(*at);
            }
            LoginPhase::Consumed(session) => {
                writer.byte(5);
                writer.bytes(session.as_bytes());
            }
        }
        match &self.open {
            None => writer.byte(0),
            Some(Challenge::Code(code)) => {
                writer.byte(1);
                write_code(&mut writer, code)?;
            }
            Some(Challenge::Redirect(open)) => {
                writer.byte(2);
                writer.text(&open.provider)?;
                write_challenge(&mut writer, &open.state);
                writer.text(&open.query)?;
            }
        }
        option(&mut writer, self.max_age, |writer, age| {
            writer.number(age);
            Ok(())
        })?;
        option(&mut writer, self.passkey.as_ref(), |writer, passkey| {
            write_challenge(writer, passkey);
            Ok(())
        })?;
        writer.byte(self.failures);
        writer.byte(self.sends);
        let Timeouts { idle, absolute, completion } = self.timeouts;
        for number in [self.began, self.touched, idle, absolute, completion] {
            writer.number(number);
        }
        Ok(writer.into_bytes())
    }

    fn decode_row(bytes: &[u8]) -> Result<Self, StoreError> {
        let login = Reader::read_whole_value(LOGIN, bytes, |reader| {
            Some(Self {
                id: PublicId::from_bytes(*reader.bytes()?),
                tenant: Tenant::parse(reader.text()?).ok()?,
                binding: read_binding(reader)?,
                wanted: read_wanted(reader)?,
                identifier: reader.optional_text()?.map(Identifier::restore),
                subject: match reader.byte()? {
                    0 => Subject::Unbound,
                    1 => Subject::Unknown,
                    2 => Subject::User(read_user(reader)?),
                    _ => return None,
                },
                plan: LoginPlan::read_login_plan(reader)?,
                proofs: read_proofs(reader)?,
                carried: reader.number()?.try_into().ok()?,
                session: read_option(reader, |reader| reader.bytes().copied().map(PublicId::from_bytes))?,
                phase: match reader.byte()? {
                    0 => LoginPhase::Pending,
                    1 => LoginPhase::Success,
                    2 => LoginPhase::Failed,
                    3 => LoginPhase::Ended,
                    4 => LoginPhase::Completed(reader.number()?),
                    5 => LoginPhase::Consumed(PublicId::from_bytes(*reader.bytes()?)),
                    _ => return None,
                },
                open: match reader.byte()? {
                    0 => None,
                    1 => Some(Challenge::Code(read_code(reader)?)),
                    2 => Some(Challenge::Redirect(OpenRedirect {
                        provider: reader.text()?.to_owned(),
                        state: read_challenge(reader)?,
                        query: reader.text()?.to_owned(),
                    })),
                    _ => return None,
                },
                max_age: read_option(reader, Reader::number)?,
                passkey: read_option(reader, read_challenge)?,
                failures: reader.byte()?,
                sends: reader.byte()?,
                began: reader.number()?,
                touched: reader.number()?,
                timeouts: Timeouts { idle: reader.number()?, absolute: reader.number()?, completion: reader.number()? },
            })
        });
        login.ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "not the row of a login"))
    }
}

fn write_challenge(writer: &mut Writer, challenge: &OpenChallenge) {
    writer.bytes(challenge.digest.as_bytes());
    writer.number(challenge.expires_at);
}

fn read_challenge(reader: &mut Reader<'_>) -> Option<OpenChallenge> {
    Some(OpenChallenge { digest: SecretDigest::from_bytes(*reader.bytes()?), expires_at: reader.number()? })
}

fn write_code(writer: &mut Writer, code: &OpenCode) -> Written {
    writer.text(code.method.as_str())?;
    writer.bytes(&code.contact);
    writer.bytes(&code.code);
    option(writer, code.owner.as_ref(), write_user)?;
    writer.byte(code.attempts_left);
    writer.number(code.expires_at);
    Ok(())
}

fn read_code(reader: &mut Reader<'_>) -> Option<OpenCode> {
    Some(OpenCode {
        method: Method::from_name(reader.text()?)?,
        contact: *reader.bytes()?,
        code: *reader.bytes()?,
        owner: read_option(reader, read_user)?,
        attempts_left: reader.byte()?,
        expires_at: reader.number()?,
    })
}

fn write_user(writer: &mut Writer, user: &BoundUser) -> Written {
    writer.text(user.id.as_str())?;
    writer.number(user.generation);
    Ok(())
}

fn read_user(reader: &mut Reader<'_>) -> Option<BoundUser> {
    Some(BoundUser { id: UserId::parse(reader.text()?).ok()?, generation: reader.number()? })
}

pub(crate) fn write_binding(writer: &mut Writer, binding: &Binding) -> Written {
    let Binding { client_id, redirect_uri, scope, code_challenge } = binding;
    writer.text(client_id)?;
    writer.text(redirect_uri)?;
    writer.text(&scope.to_string())?;
    writer.text(code_challenge.as_str())
}

pub(crate) fn read_binding(reader: &mut Reader<'_>) -> Option<Binding> {
    Some(Binding {
        client_id: reader.text()?.to_owned(),
        redirect_uri: reader.text()?.to_owned(),
        scope: Scopes::parse(reader.text()?).ok()?,
        code_challenge: CodeChallenge::parse(reader.text()?).ok()?,
    })
}

/// The bit of the flags that says that a list of resources follows.
const HAS_RESOURCES: u8 = 32;

pub(crate) fn write_wanted(writer: &mut Writer, wanted: &Wanted) -> Written {
    let Wanted {
        nonce,
        dpop_jkt,
        id_token,
        userinfo,
        resources,
        is_confirmed,
        remember,
        return_to,
        language,
        is_reset,
    } = wanted;
    let language = match language {
        None => 0,
        Some(Language::English) => 1,
        Some(Language::German) => 2,
    };
    let has_resources = if resources.is_empty() { 0 } else { HAS_RESOURCES };
    let flags = u8::from(*is_confirmed) | u8::from(*remember) << 1 | language << 2 | u8::from(*is_reset) << 4;
    writer.byte(flags | has_resources);
    for text in [nonce, dpop_jkt, return_to] {
        option(writer, text.as_deref(), Writer::text)?;
    }
    let resources = Some(resources).filter(|resources| !resources.is_empty());
    for names in [id_token, userinfo].into_iter().chain(resources) {
        writer.list(names, |writer, name| writer.text(name))?;
    }
    Ok(())
}

pub(crate) fn read_wanted(reader: &mut Reader<'_>) -> Option<Wanted> {
    let flags = reader.byte().filter(|flags| *flags < 64)?;
    let language = match flags >> 2 & 3 {
        0 => None,
        1 => Some(Language::English),
        2 => Some(Language::German),
        _ => return None,
    };
    let mut text = || read_option(reader, |reader| reader.text().map(str::to_owned));
    let (nonce, dpop_jkt, return_to) = (text()?, text()?, text()?);
    let mut names = || reader.list(|reader| reader.text().map(str::to_owned));
    let (id_token, userinfo) = (names()?, names()?);
    let resources = if flags & HAS_RESOURCES == 0 { Vec::new() } else { names().filter(|names| !names.is_empty())? };
    Some(Wanted {
        nonce,
        dpop_jkt,
        id_token,
        userinfo,
        resources,
        is_confirmed: flags & 1 != 0,
        remember: flags & 2 != 0,
        return_to,
        language,
        is_reset: flags & 16 != 0,
    })
}

pub(crate) fn write_authentication(writer: &mut Writer, who: &Authentication) -> Written {
    let Authentication { tenant, user, generation, proofs, acr } = who;
    writer.text(tenant.as_str())?;
    writer.text(user.as_str())?;
    writer.number(*generation);
    write_proofs(writer, proofs)?;
    option(writer, acr.as_deref(), Writer::text)
}

pub(crate) fn read_authentication(reader: &mut Reader<'_>) -> Option<Authentication> {
    Some(Authentication {
        tenant: Tenant::parse(reader.text()?).ok()?,
        user: UserId::parse(reader.text()?).ok()?,
        generation: reader.number()?,
        proofs: read_proofs(reader)?,
        acr: read_option(reader, |reader| reader.text().map(Box::from))?,
    })
}

fn write_proofs(writer: &mut Writer, proofs: &[Proof]) -> Written {
    writer.list(proofs, |writer, Proof { method, at, mark, elsewhere }| {
        writer.text(method)?;
        writer.number(*at);
        option(writer, mark.as_ref(), |writer, mark| {
            writer.bytes(mark);
            Ok(())
        })?;
        option(writer, *elsewhere, |writer, time| {
            writer.number(time);
            Ok(())
        })
    })
}

fn read_proofs(reader: &mut Reader<'_>) -> Option<Vec<Proof>> {
    reader.list(|reader| {
        Some(Proof {
            method: reader.text()?.into(),
            at: reader.number()?,
            mark: read_option(reader, |reader| reader.bytes().copied())?,
            elsewhere: read_option(reader, Reader::number)?,
        })
    })
}

/// Writes whether there is a value, and the value.
fn option<T>(writer: &mut Writer, value: Option<T>, write: impl FnOnce(&mut Writer, T) -> Written) -> Written {
    writer.byte(u8::from(value.is_some()));
    value.map_or(Ok(()), |value| write(writer, value))
}

/// Reads a value if there is one. The outer value is `None` if the row is malformed.
fn read_option<'a, T>(reader: &mut Reader<'a>, read: impl FnOnce(&mut Reader<'a>) -> Option<T>) -> Option<Option<T>> {
    match reader.byte()? {
        0 => Some(None),
        1 => read(reader).map(Some),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        login::{Keyed, LoginLimits, OneTimeCode},
        policy::{EnrolledFactors, MethodSet, Policies, Policy},
        util::{clock::UnixTime, secret::Secret},
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
            assert_eq!(bytes[0], 2);
            bytes[0] = 1;
            assert_eq!(Login::decode_row(&bytes).unwrap_err().kind(), StoreErrorKind::Corrupt);
        }
    }

    #[test]
    fn parameters_with_a_flag_that_does_not_exist_are_corrupt() {
        let mut writer = Writer::new(0, 0);
        write_wanted(&mut writer, &Wanted { remember: true, ..Wanted::default() }).unwrap();
        let mut bytes = writer.into_bytes();
        for (flags, is_valid) in [
            (0, true),
            (3, true),
            (11, true),
            (12, false),
            (16, true),
            (28, false),
            (32, false),
            (64, false),
            (255, false),
        ] {
            bytes[1] = flags;
            assert_eq!(Reader::read_whole_value(0, &bytes, read_wanted).is_some(), is_valid, "{flags}");
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
