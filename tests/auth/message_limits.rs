//! The number of one-time codes that one address can request.

use tollgate::{Quota, auth::AbuseLimits, store::Memory};

use crate::world::{ADA, ADA_PHONE, GRACE, GRACE_PHONE, World};

#[tokio::test]
async fn one_client_address_can_request_only_a_limited_number_of_codes() {
    let world = World::with(Memory::new(), |service| {
        service.abuse_limits(AbuseLimits::new().messages_per_address(Quota::per_minute(2).unwrap()))
    })
    .await;
    let mut browser = world.browser();
    for (who, phone, status) in [(ADA, ADA_PHONE, 200), (GRACE, GRACE_PHONE, 200), (GRACE, ADA_PHONE, 429)] {
        let id = browser.start("web", who).await;
        let asked = browser.ask("web", &id, "sms", phone).await;
        assert_eq!(asked.status, status, "{asked:?}");
        if status == 429 {
            assert_eq!((asked.error().as_str(), asked.header("retry-after")), ("too_many_attempts", "60"));
        }
    }
    let mut elsewhere = world.browser();
    elsewhere.address = [192, 0, 2, 2].into();
    let id = elsewhere.start("web", GRACE).await;
    assert_eq!(elsewhere.ask("web", &id, "whatsapp", GRACE_PHONE).await.status, 200);
    for phone in [ADA_PHONE, GRACE_PHONE] {
        world.code(phone).await;
    }
}
