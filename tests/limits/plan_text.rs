//! Plans as text.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, test_runner::Config};
use tollgate::{Plan, Quota};

fn quota(limit: u32, seconds: u64) -> Quota {
    Quota::new(limit, Duration::from_secs(seconds)).unwrap()
}

#[test]
fn plans_are_written_and_read() {
    let burst = Quota::per_second(50).unwrap().with_name("burst").unwrap();
    for (plan, text) in [
        (Plan::unlimited(), "unlimited"),
        (Plan::denied(), "denied"),
        (Quota::per_minute(600).unwrap().into(), "600/minute"),
        (Plan::new([burst, quota(7, 10)]).unwrap(), "50/second name=burst; 7/10s"),
        (quota(9, 10).slices(5).unwrap().reserve(0.5).unwrap().shadow().into(), "9/10s slices=5 reserve=5 shadow"),
        (Quota::fixed(5, Duration::from_secs(86_400)).unwrap().reserve(1.0).unwrap().into(), "5/day fixed reserve=5"),
        (Plan::new([quota(7, 10), Quota::concurrent(5).unwrap()]).unwrap(), "7/10s; 5 concurrent"),
        (Quota::concurrent(5).unwrap().reserve(0.5).unwrap().into(), "5 concurrent reserve=3"),
        (quota(7, 10).with_unit("tokens").unwrap().shadow().into(), "7/10s unit=tokens shadow"),
        (
            Quota::concurrent(5).unwrap().with_name("default").unwrap().shadow().into(),
            "5 concurrent name=default shadow",
        ),
    ] {
        assert_eq!((plan.to_string().as_str(), text.parse().as_ref()), (text, Ok(&plan)));
    }
    let loose = "  7/10s\tslices=60   reserve=0 name=default ;\n50/second shadow name=b\n";
    let shadow = Quota::per_second(50).unwrap().with_name("b").unwrap().shadow();
    assert_eq!(loose.parse(), Plan::new([quota(7, 10), shadow]));
}

#[cfg(feature = "smooth")]
#[test]
fn smooth_plans_are_written_and_read() {
    let plan = Plan::from(Quota::smooth(10, Duration::from_secs(1), 20).unwrap().reserve(0.5).unwrap());
    assert_eq!((plan.to_string().as_str(), "20/2s smooth reserve=10".parse()), ("20/2s smooth reserve=10", Ok(plan)));
    assert!("20/2s smooth slices=4".parse::<Plan>().is_err());
    for bad in ["1/0s smooth", "0/1s smooth", "1/367d smooth"] {
        assert!(bad.parse::<Plan>().is_err(), "{bad}");
    }
}

#[test]
fn a_text_that_is_no_plan_is_refused() {
    for bad in [
        "",
        " ",
        ";",
        "600/minute;",
        "Unlimited",
        "unlimited; 600/minute",
        "unlimited 600/minute",
        "denied denied",
        "600",
        "600/min",
        "0/minute",
        "600/minute name",
        "600/minute name=",
        "600/minute name=a=b",
        "600/minute name=a name=b",
        "600/minute shadow shadow",
        "600/minute shadow=1",
        "600/minute shadow fixed",
        "600/minute slices=0",
        "600/minute slices=1001",
        "600/minute slices=65537",
        "600/minute slices=+5",
        "600/minute fixed slices=5",
        "600/minute reserve=601",
        "600/minute reserve=0.5",
        "600/minute reserve",
        "600/minute reserved=5",
        "600/minute, 5/second name=b",
        "600/minute; 5/second",
        "1/1s;2/1s name=a;3/1s name=b;4/1s name=c;5/1s name=d;6/1s name=e;7/1s name=f",
        "600/minute é",
        "0 concurrent",
        "5 concurrent reserve=6",
        "5 concurrent unit=tokens",
        "600/minute unit=",
        "600/minute unit=to\"ken",
        "5 concurrent slices=5",
        "5/minute concurrent",
        "concurrent",
    ] {
        assert!(bad.parse::<Plan>().is_err(), "{bad}");
    }
    let error = "600/minute limit=5".parse::<Plan>().unwrap_err();
    assert_eq!((error.setting(), error.value()), ("plan", "limit=5"));
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let basis = (1..=u32::MAX, 1000..31_000_000_000_000_u64, 1..=1000_u16, 0..5_u8);
    let extras = (0..=4_u8, any::<bool>(), option::of("[A-Za-z0-9._-]{1,2}"));
    (basis, extras).prop_map(|((limit, micros, slices, rule), (quarters, shadow, name))| {
        let window = Duration::from_micros(micros);
        let quota = match rule {
            0 => Quota::fixed(limit, window),
            #[cfg(feature = "smooth")]
            1 => Quota::smooth(limit % 10_000 + 1, Duration::from_micros(micros % 100_000_000 + 1000), 7),
            2 => Quota::new(limit, window),
            3 => Quota::concurrent(limit),
            _ => Quota::new(limit, window).and_then(|quota| quota.slices(slices)),
        };
        let quota = quota.unwrap().reserve(f64::from(quarters) / 4.0).unwrap();
        let quota = if shadow { quota.shadow() } else { quota };
        let has_unit = limit % 3 == 0 && quota.window() > Duration::ZERO;
        let quota = if has_unit { quota.with_unit("tokens").unwrap() } else { quota };
        name.iter().fold(quota, |quota, name| quota.with_name(name).unwrap())
    })
}

proptest! {
    // most random plans are invalid
    #![proptest_config(Config { max_global_rejects: 1_000_000, ..Config::default() })]

    #[test]
    fn every_plan_is_read_back(quotas in vec(any_quota(), 1..=6)) {
        let plan = Plan::new(quotas);
        prop_assume!(plan.is_ok());
        let plan = plan.unwrap();
        let text = plan.to_string();
        prop_assert!(text.len() <= 512, "{}", text);
        prop_assert_eq!(text.parse(), Ok(plan), "{}", text);
    }

    #[test]
    fn reading_a_plan_never_panics_and_unlimited_is_never_guessed(
        text in r"(unlimited|denied|[0-9]{1,12}/(minute|[0-9]{1,12}(ns|ms|s|d))( fixed| smooth)?| concurrent|[ -~é]{0,12}| (slices|reserve|name)=[0-9a]{1,7}| shadow|;){0,6}",
    ) {
        if let Ok(plan) = text.parse::<Plan>() {
            prop_assert_eq!(plan == Plan::unlimited(), text.trim_ascii() == "unlimited");
            prop_assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }
}
