//! `POST /token`: from a code to an API call.

use crate::world::World;

#[tokio::test]
async fn a_code_gives_tokens_that_open_userinfo() {
    let world = World::new().await;
    let mut browser = world.browser();
    let code = browser.sign_in("web").await;
    let answer = browser.redeem("web", &code).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let tokens = answer.json();
    let access = tokens["access_token"].as_str().unwrap();
    let info = browser.with_token("/userinfo", access).await;
    assert_eq!((info.status.as_u16(), &info.json()["sub"]), (200, &"u-ada".into()), "{info:?}");
    let next = browser.refresh("web", tokens["refresh_token"].as_str().unwrap()).await;
    assert_eq!(next.status, 200, "{next:?}");
    for path in ["/jwks", "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"] {
        let answer = browser.get(path).await;
        println!("{path}: {answer:?}");
        assert_eq!(answer.status, 200);
    }
}
