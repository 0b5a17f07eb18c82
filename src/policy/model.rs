//! Compares plans with a brute-force model.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{demand::Policy, enrolled::EnrolledFactors, method::Method, method::MethodSet, plan::LoginPlan};
use crate::store::compact::{Reader, RowPart, Writer};

type Methods = BTreeSet<Method>;

fn class(method: Method) -> &'static str {
    match method {
        Method::Password => "knowledge",
        Method::Sms | Method::Whatsapp => "phone",
        Method::Email => "mailbox",
        Method::Passkey => "key",
        Method::Sso => "federated",
        Method::Totp | Method::RecoveryCode => "authenticator",
    }
}

fn subsets(of: &Methods) -> Vec<Methods> {
    of.iter().fold(vec![Methods::new()], |found, method| {
        let with = found.iter().map(|set| set | &Methods::from([*method])).collect::<Vec<_>>();
        found.into_iter().chain(with).collect()
    })
}

fn prove_different_things(set: &Methods) -> bool {
    set.iter().map(|method| class(*method)).collect::<BTreeSet<_>>().len() == set.len()
}

/// Tries every assignment of methods to slots.
fn meets(set: &Methods, slots: &[Methods]) -> bool {
    match slots {
        [] => true,
        [slot, rest @ ..] => (slot & set).into_iter().any(|method| meets(&(set - &Methods::from([method])), rest)),
    }
}

/// Returns all smallest sets that satisfy all policies.
fn accepted(demands: &[Vec<Methods>], enabled: &Methods) -> Vec<Methods> {
    let meets_all = |set: &Methods| demands.iter().all(|slots| meets(set, slots));
    let mut found = subsets(enabled);
    // a login can't consist of a code of an authenticator alone
    let has_first = |set: &Methods| set.iter().any(|method| class(*method) != "authenticator");
    found.retain(|set| prove_different_things(set) && has_first(set) && meets_all(set));
    let fewest = found.iter().map(BTreeSet::len).min().unwrap_or_default();
    found.retain(|set| set.len() == fewest);
    found
}

fn methods(of: MethodSet) -> Methods {
    of.iter().collect()
}

fn set(of: &Methods) -> MethodSet {
    of.iter().copied().collect()
}

fn model_of(demands: &[Policy]) -> Vec<Vec<Methods>> {
    demands.iter().map(|policy| policy.slots.iter().map(|slot| methods(*slot)).collect()).collect()
}

fn plan(demands: &[Policy], enabled: MethodSet) -> Option<LoginPlan> {
    LoginPlan::from_policies(&demands.iter().collect::<Vec<_>>(), (enabled, 1), None).ok()
}

/// Returns the bytes of a plan as they are in a row.
fn encode_plan(plan: &LoginPlan) -> Vec<u8> {
    let mut writer = Writer::new(0, 0);
    plan.write_part(&mut writer).unwrap();
    writer.into_bytes()
}

fn decode_plan(bytes: &[u8]) -> Option<LoginPlan> {
    Reader::read_whole_value(0, bytes, LoginPlan::read_part)
}

fn any_set() -> impl Strategy<Value = MethodSet> {
    prop_oneof![
        2 => prop::collection::vec(prop::sample::select(Method::ALL), 0..8).prop_map(MethodSet::from_iter),
        1 => Just(MethodSet::ALL),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        3 => prop::collection::vec(any_set(), 1..4).prop_filter_map("must be possible", |slots| Policy::slots(slots).ok()),
        1 => (1..=6_usize).prop_map(|steps| Policy::any(steps).unwrap()),
    ]
}

fn any_demands() -> impl Strategy<Value = Vec<Policy>> {
    prop::collection::vec(any_policy(), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_policy_is_valid_if_distinct_factor_classes_can_satisfy_it(slots in prop::collection::vec(any_set(), 0..8)) {
        let model: Vec<Methods> = slots.iter().map(|slot| methods(*slot)).collect();
        let possible = subsets(&methods(MethodSet::ALL)).iter().any(|set| prove_different_things(set) && meets(set, &model));
        let expected = possible && (1..=6).contains(&slots.len());
        prop_assert_eq!(Policy::slots(slots).is_ok(), expected);
    }

    #[test]
    fn a_policy_is_met_by_a_method_for_each_slot(policy in any_policy(), proved in any_set()) {
        let slots = &model_of(std::slice::from_ref(&policy))[0];
        let expected = subsets(&methods(proved)).iter().any(|set| prove_different_things(set) && meets(set, slots));
        prop_assert_eq!(policy.is_met_by(proved), expected);
    }

    #[test]
    fn a_plan_accepts_exactly_the_smallest_sets_that_satisfy_all_policies(demands in any_demands(), enabled in any_set()) {
        let expected = accepted(&model_of(&demands), &methods(enabled));
        match plan(&demands, enabled) {
            None => prop_assert!(expected.is_empty()),
            Some(plan) => {
                let sets: BTreeSet<Methods> = plan.sets.iter().map(|set| methods(*set)).collect();
                prop_assert_eq!(plan.sets.len(), sets.len());
                prop_assert!(sets.len() <= 144);
                prop_assert_eq!(plan.steps(), expected[0].len());
                prop_assert_eq!(methods(plan.methods()), expected.iter().flatten().copied().collect::<Methods>());
                prop_assert_eq!(sets, expected.into_iter().collect::<BTreeSet<_>>());
            }
        }
    }

    #[test]
    fn allowed_steps_are_exactly_those_that_lead_to_an_accepted_set(
        demands in any_demands(),
        enabled in any_set(),
        proved in any_set(),
    ) {
        let Some(plan) = plan(&demands, enabled) else { return Ok(()) };
        let accepted = accepted(&model_of(&demands), &methods(enabled));
        let proved = methods(proved);
        for method in Method::ALL.iter().copied() {
            let then = &proved | &Methods::from([method]);
            let in_order = !proved.is_empty() || class(method) != "authenticator";
            let leads = in_order && !proved.contains(&method) && accepted.iter().any(|goal| then.is_subset(goal));
            prop_assert_eq!(plan.allows(set(&proved), method), leads, "{}", method);
            prop_assert_eq!(plan.next(set(&proved)).contains(method), leads, "{}", method);
        }
        prop_assert_eq!(plan.is_met_by(set(&proved)), accepted.iter().any(|goal| goal.is_subset(&proved)));
    }

    #[test]
    fn allowed_steps_complete_the_plan_in_the_stated_number(
        demands in any_demands(),
        enabled in any_set(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 6),
    ) {
        let Some(plan) = plan(&demands, enabled) else { return Ok(()) };
        prop_assert!(plan.steps() > 0);
        let mut proved = MethodSet::EMPTY;
        for choice in choices.iter().take(plan.steps()) {
            prop_assert!(!plan.is_met_by(proved), "fewer steps would do");
            let next: Vec<Method> = plan.next(proved).iter().collect();
            prop_assert!(!next.is_empty(), "stuck after {}", proved);
            proved = proved.with(*choice.get(&next));
            prop_assert!(prove_different_things(&methods(proved)) && proved.is_subset(enabled));
        }
        prop_assert!(plan.is_met_by(proved) && plan.next(proved).is_empty());
        prop_assert!(demands.iter().all(|demand| demand.is_met_by(proved)));
    }

    #[test]
    fn another_policy_never_weakens_a_login(demands in any_demands(), more in any_policy(), enabled in any_set()) {
        let stricter = [&demands[..], &[more]].concat();
        let Some(after) = plan(&stricter, enabled) else { return Ok(()) };
        let before = plan(&demands, enabled).expect("a set that satisfies all policies satisfies fewer");
        prop_assert!(after.steps() >= before.steps());
        for set in &after.sets {
            prop_assert!(demands.iter().all(|demand| demand.is_met_by(*set)), "{}", set);
        }
        if after.steps() == before.steps() {
            prop_assert!(after.sets.iter().all(|set| before.is_met_by(*set)));
        }
    }

    #[test]
    fn b08_c131_no_way_through_a_plan_leaves_out_an_enrolled_factor(
        demands in any_demands(),
        enabled in any_set(),
        (all, counting) in (any_set(), any_set()),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 7),
    ) {
        let Some(mut plan) = plan(&demands, enabled) else { return Ok(()) };
        let all = all.intersection(MethodSet::ENROLLED);
        let factors = EnrolledFactors { all, counting: counting.intersection(all), reset: None };
        let (before, mut proved) = (plan.clone(), MethodSet::EMPTY);
        let mut read_again = Vec::new();
        for choice in &choices {
            if plan.is_met_by(proved) {
                break;
            }
            let next: Vec<Method> = plan.next(proved).iter().collect();
            prop_assert!(!next.is_empty(), "stuck after {}", proved);
            proved = proved.with(*choice.get(&next));
            plan.demand_factor(proved, factors);
            read_again.push(decode_plan(&encode_plan(&plan)) == Some(plan.clone()));
        }
        prop_assert!(plan.is_met_by(proved) && prove_different_things(&methods(proved)), "{}", proved);
        prop_assert!(read_again.into_iter().all(|is_same| is_same));
        prop_assert_eq!(plan.policy_steps(), before.steps());
        prop_assert!(plan.steps() <= before.steps() + 1 && before.is_met_by(proved));
        let has_factor = !proved.intersection(MethodSet::ENROLLED).is_empty();
        prop_assert!(has_factor || all.is_empty(), "{}", proved);
        // an account without a factor sees nothing of the rule
        prop_assert!(!all.is_empty() || plan == before);
    }

    #[test]
    fn b01_methods_meet_the_names_of_a_plan_if_they_meet_each_policy_that_names_any(
        demands in any_demands(),
        enabled in any_set(),
        proved in any_set(),
    ) {
        let Some(plan) = plan(&demands, enabled) else { return Ok(()) };
        let names = |policy: &&Policy| policy.slots.iter().any(|slot| *slot != MethodSet::ALL);
        let naming: Vec<Policy> = demands.iter().filter(names).cloned().collect();
        let model = model_of(&naming);
        let counts = |set: &Methods| prove_different_things(set) && model.iter().all(|slots| meets(set, slots));
        let expected = subsets(&methods(proved.intersection(enabled))).iter().any(counts);
        prop_assert_eq!(plan.names_methods(), !naming.is_empty());
        prop_assert_eq!(plan.is_named_by(proved), expected);
    }

    #[test]
    fn the_order_of_policies_and_slots_does_not_matter(demands in any_demands(), enabled in any_set()) {
        let turned: Vec<Policy> = demands
            .iter()
            .rev()
            .map(|policy| Policy::slots(policy.slots.iter().rev().copied()).unwrap())
            .collect();
        prop_assert!(demands.iter().rev().eq(&turned));
        prop_assert_eq!(plan(&turned, enabled), plan(&demands, enabled));
    }

    #[test]
    fn plans_round_trip(demands in any_demands(), enabled in any_set(), acr in prop::option::of("[!-~]{1,20}")) {
        let Ok(plan) = LoginPlan::from_policies(&demands.iter().collect::<Vec<_>>(), (enabled, 1), acr.as_deref()) else { return Ok(()) };
        prop_assert_eq!(plan.acr(), acr.as_deref());
        prop_assert_eq!(decode_plan(&encode_plan(&plan)), Some(plan));
    }
}

#[test]
fn a_code_of_an_authenticator_is_never_the_first_step_nor_the_only_one() {
    let totp = [Policy::slots([Method::Totp]).unwrap()];
    let needed = plan(&totp, Method::Password | Method::Totp | Method::RecoveryCode).unwrap();
    assert_eq!((needed.steps(), needed.methods()), (2, Method::Password | Method::Totp));
    assert_eq!(needed.next(MethodSet::EMPTY), Method::Password.into());
    assert_eq!(needed.next(Method::Password.into()), Method::Totp.into());
    assert_eq!(plan(&totp, Method::Totp | Method::RecoveryCode), None);
    let any = plan(&[Policy::default()], MethodSet::ALL).unwrap();
    assert!(!any.methods().contains(Method::Totp) && !any.methods().contains(Method::RecoveryCode));
}

#[test]
fn stored_plans_are_validated() {
    use Method::{Email, Password, RecoveryCode, Sms, Totp, Whatsapp};

    // the kind, no `acr`, then three flags, two lists of sets, each set in two bytes
    let row = |flags: u8, sets: &[MethodSet]| {
        let sets = sets.iter().flat_map(|set| set.to_bits().to_le_bytes());
        let length = |sets: usize| (sets as u16).to_le_bytes();
        let flags = [flags & 1, flags >> 1 & 1, flags >> 2];
        let sets = [&length(sets.clone().count() / 2)[..], &sets.collect::<Vec<_>>()].concat();
        [&[0, 0][..], &flags, &sets, &length(0)].concat()
    };
    let two = [Password | Email, Sms | Email];
    let stored = decode_plan(&row(3, &two)).unwrap();
    assert_eq!((stored.steps(), stored.policy_steps(), stored.asks_enrolled), (2, 2, true));
    assert!(stored.without_self_enrolment && !decode_plan(&row(0, &two)).unwrap().without_self_enrolment);
    assert_eq!(decode_plan(&row(4, &two)).unwrap().policy_steps(), 1);
    let one = |set: MethodSet| vec![set];
    for (flags, bad) in [
        (0, vec![]),
        (0, one(MethodSet::EMPTY)),
        (0, vec![Password.into(), Sms | Email]),
        (0, one(Sms | Whatsapp)),
        (0, vec![Sms.into(), Sms.into()]),
        (0, vec![Sms.into(), Password.into()]),
        (0, one(Totp.into())),
        (0, one(Password | Totp | RecoveryCode)),
        // an added step next to none, and a flag that does not exist
        (4, one(Password.into())),
        (8, two.to_vec()),
    ] {
        assert_eq!(decode_plan(&row(flags, &bad)), None, "{flags} {bad:?}");
    }
    assert_eq!(decode_plan(&[0, 0, 0, 0, 0, 1, 0, 0, 128, 0, 0]), None, "a method that does not exist");
}
