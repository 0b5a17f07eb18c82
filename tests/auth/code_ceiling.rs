//! A right code and a wrong one for the same account at the same time, when the account has one attempt left.

use tollgate::auth::LoginLimits;

use crate::{
    controlled_store::{ControlledStore, Running, interleave},
    world::{ADA, ADA_PHONE, Answer, World},
};

/// The operations of the right guess: it reads its login, the account, the generation and two counts, writes both counts, and
/// then the login.
const OPERATIONS: usize = 8;
/// The operations after which the counts are written.
const COUNTED: usize = 7;

/// Lets the wrong guess go first after each operation of the right one. It uses up the last attempt, so the right one counts
/// only if both of its counts were written before.
#[tokio::test]
async fn c058_c110_a_right_code_counts_only_if_no_other_attempt_used_up_the_ceiling_meanwhile() {
    for first in 0..=OPERATIONS {
        let store = ControlledStore::default();
        // strangers have four attempts
        let limits = LoginLimits::new().failure_ceiling(5);
        let world = World::with(store.clone(), |service| service.login_limits(limits)).await;
        let mut browsers = [world.browser(), world.browser()];
        let mut logins = Vec::new();
        for browser in &mut browsers {
            let id = browser.start("web", ADA).await;
            browser.ask("web", &id, "sms", ADA_PHONE).await;
            logins.push((id, world.code(ADA_PHONE).await));
            world.advance(31);
        }
        let [mut right, mut wrong] = browsers;
        for _ in 0..3 {
            assert_eq!(wrong.verify("web", &logins[1].0, "wrong").await.error(), "invalid_otp");
        }
        store.done();
        store.yields();
        let [(id, code), (other, _)] = [logins[0].clone(), logins[1].clone()];
        let calls: Vec<Running<Answer>> = vec![
            Box::pin(async move { right.verify("web", &id, &code).await }),
            Box::pin(async move { wrong.verify("web", &other, "wrong").await }),
        ];
        // each operation takes two polls, and the first poll stops before the first operation
        let order: Vec<usize> = std::iter::repeat_n(0, 1 + first).chain(std::iter::repeat_n(1, 50)).collect();
        let answers = interleave(calls, &order);
        assert_eq!(answers[1].error(), "invalid_otp", "{first}");
        assert_eq!(answers[0].status == 200, first >= COUNTED, "{first}: {:?}", answers[0]);
    }
}
