//! The stored form of a [`Family`]. Compact instead of JSON, because every exchange reads and writes one.

use super::{
    family::{Current, Family, Used},
    grant::Grant,
};
use crate::store::compact::{row_struct, stored_row};

stored_row!(Family, 2, "not the row of a family");
row_struct!(Family { born, ends, current, used, grant });
row_struct!(Current { generation, digest });
row_struct!(Used { digest, salt, at });
row_struct!(Grant { session, who, binding, jkt, id_token, userinfo, resources });

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use crate::{
        client::Scopes,
        login::Binding,
        pkce::CodeChallenge,
        session::{Authentication, Proof, UserId},
        store::table::Value,
        tokens::{family::Next, refresh_token::RefreshToken},
        util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
    };

    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn proofs() -> impl Strategy<Value = Vec<Proof>> {
        let proof = ("[a-z]{0,9}", any::<u64>(), any::<Option<[u8; 32]>>(), any::<Option<u64>>());
        vec(proof.prop_map(|(method, at, mark, elsewhere)| Proof { method: method.into(), at, mark, elsewhere }), 0..4)
    }

    fn grants() -> impl Strategy<Value = Grant> {
        let who = ("[a-z]{1,9}", "[!-~]{1,255}", any::<u64>(), option::of("[a-z]{1,9}"), proofs());
        let who = who.prop_map(|(tenant, user, generation, acr, proofs)| Authentication {
            tenant: tenant.parse().unwrap(),
            user: UserId::parse(user).unwrap(),
            generation,
            proofs,
            acr: acr.map(Box::from),
        });
        let binding = ("[!-~]{1,128}", ".{0,600}", vec("[a-z]{1,9}", 1..5));
        let binding = binding.prop_map(|(client_id, redirect_uri, scope)| Binding {
            client_id,
            redirect_uri,
            scope: Scopes::parse(&scope.join(" ")).unwrap(),
            code_challenge: CodeChallenge::parse(CHALLENGE).unwrap(),
        });
        let names = || vec("[ -~]{0,64}", 0..4);
        (who, any::<[u8; 16]>(), binding, option::of("[!-~]{43}"), names(), names(), names()).prop_map(
            |(who, session, binding, jkt, id_token, userinfo, resources)| {
                let session = PublicId::from_bytes(session);
                Grant { who, session, binding, jkt, id_token, userinfo, resources }
            },
        )
    }

    proptest! {
        /// Every family is read back as it was written, at each stage of its life.
        #[test]
        fn a_family_survives_its_row(grant in grants(), born: u64, ends: u64, refreshes: bool, salt: [u8; 32]) {
            let first = RefreshToken::first(PublicId::from_bytes([7; 16]));
            let (born, ends) = (UnixTime::from_nanos(born), UnixTime::from_nanos(ends));
            let new = Family::new(grant.clone(), refreshes.then_some(&first), born, ends);
            let (next, _) = new.refresh(&first, true, SecretDigest::from_bytes(salt), Duration::ZERO, born);
            prop_assert_eq!(next.is_some(), refreshes);
            for family in [Some(new), next].into_iter().flatten() {
                let bytes = family.encode_row().unwrap();
                let read = Family::decode_row(&bytes).unwrap();
                prop_assert_eq!(&*read.grant, &grant);
                prop_assert_eq!((read.born, read.ends), (family.born, family.ends));
                prop_assert_eq!(read.encode_row().unwrap(), bytes);
            }
        }

        #[test]
        fn nothing_panics_and_a_cut_row_is_corrupt(grant in grants(), noise in vec(any::<u8>(), 0..300)) {
            let _ = Family::decode_row(&noise);
            let first = RefreshToken::first(PublicId::from_bytes([7; 16]));
            let bytes = Family::new(grant, Some(&first), UnixTime::default(), UnixTime::default()).encode_row().unwrap();
            for end in 0..bytes.len() {
                prop_assert!(Family::decode_row(&bytes[..end]).is_err());
            }
            prop_assert!(Family::decode_row(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn a_row_of_a_used_token_still_yields_the_same_successor() {
        let first = RefreshToken::first(PublicId::from_bytes([7; 16]));
        let (now, grace) = (UnixTime::from_secs(1000), Duration::from_secs(10));
        let grant = Grant {
            who: Authentication {
                tenant: "acme".parse().unwrap(),
                user: UserId::parse("u-ada").unwrap(),
                generation: 0,
                proofs: vec![Proof { method: "password".into(), at: 1, mark: Some([7; 32]), elsewhere: None }],
                acr: None,
            },
            session: PublicId::from_bytes([1; 16]),
            binding: Binding {
                client_id: "web".to_owned(),
                redirect_uri: "https://app.example/callback".to_owned(),
                scope: Scopes::parse("openid").unwrap(),
                code_challenge: CodeChallenge::parse(CHALLENGE).unwrap(),
            },
            jkt: None,
            id_token: Vec::new(),
            userinfo: Vec::new(),
            resources: Vec::new(),
        };
        let family = Family::new(grant, Some(&first), now, now + Duration::from_secs(3600));
        let (used, Some(Next { token, jti, .. })) =
            family.refresh(&first, true, SecretDigest::from_bytes([3; 32]), grace, now)
        else {
            panic!("the token is current");
        };
        let row = used.unwrap().encode_row().unwrap();
        assert!(row.len() <= 320, "{} bytes", row.len());
        let read = Family::decode_row(&row).unwrap();
        let (changed, Some(Next { token: again, jti: same, at })) =
            read.refresh(&first, true, SecretDigest::from_bytes([4; 32]), grace, now + Duration::from_secs(1))
        else {
            panic!("the token was just used");
        };
        assert!(changed.is_none() && again.digest().matches(token.digest()));
        assert_eq!((same, at), (jti, now));
        assert!(read.is_current(&token) && !read.is_current(&first));
    }
}
