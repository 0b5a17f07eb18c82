//! The text of a plan must be refused, or be a plan that is written and read unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::Plan;

fuzz_target!(|text: &str| {
    let Ok(plan) = text.parse::<Plan>() else { return };
    let written = plan.to_string();
    assert_eq!(written.parse(), Ok(plan.clone()), "{written}");
    assert!(written.len() <= 1024 && written.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    assert_eq!(plan == Plan::unlimited(), text.trim_ascii() == "unlimited");
    assert!(plan.quotas().count() <= Plan::MAX_QUOTAS);
});
