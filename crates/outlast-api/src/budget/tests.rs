//! Tests of the shares and the reserve of a budget.

use super::*;

fn key(number: u32) -> Holder {
    Holder::Key { namespace: NamespaceId(number), key: KeyId(number) }
}

fn address(text: &str) -> Holder {
    Holder::Address(text.parse().unwrap())
}

fn token(job: u64) -> Holder {
    let job = JobId::new(outlast_core::Timestamp::from_millis(0), u128::from(job));
    Holder::Token { namespace: NamespaceId(1), key: KeyId(1), job }
}

fn budget(whole: usize, reserved: usize) -> Arc<Budget> {
    Budget::new("things", whole, reserved, Shares::of_key(50))
}

/// Takes one after the other until it is refused.
fn hog(budget: &Arc<Budget>, holder: Holder) -> Charge {
    let mut charge = budget.open(holder, Priority::Ordinary);
    while charge.grow(1).is_ok() {}
    charge
}

#[test]
fn a_charge_grows_with_what_comes_and_is_given_back_when_dropped() {
    let budget = budget(1000, 0);

    let mut charge = budget.take(key(1), Priority::Ordinary, 100).unwrap();
    charge.grow(50).unwrap();
    assert_eq!((charge.amount(), budget.used()), (150, 150));
    charge.release();
    assert_eq!((charge.amount(), budget.used()), (0, 0));
    charge.grow(7).unwrap();
    drop(charge);

    assert_eq!(budget.used(), 0);
    assert!(budget.lock().iter().all(|pool| pool.by_level.is_empty()));
}

#[test]
fn one_key_alone_gets_half_and_a_dozen_leave_room_for_the_next() {
    let budget = budget(1300, 0);

    let first = hog(&budget, key(1));
    assert_eq!(first.amount(), 650);
    let others: Vec<Charge> = (2..=12).map(|number| hog(&budget, key(number))).collect();

    // The first sender keeps its charge; it only gets no more.
    assert!(others.iter().all(|charge| charge.amount() > 0));
    let victim = hog(&budget, key(99));
    assert!(victim.amount() >= 5, "{} of 1300 in use", budget.used());
}

#[test]
fn a_refusal_distinguishes_the_share_from_the_whole() {
    let budget = budget(1000, 0);
    let full = |holder, amount| budget.take(holder, Priority::Ordinary, amount).err().unwrap();

    assert!(full(key(1), 600).is_own_share());
    assert!(!full(key(1), 1001).is_own_share());
    assert_eq!(full(address("10.0.0.1"), 300).level, Some(Level::Address("10.0.0.1".parse().unwrap())));

    let hogs: Vec<Charge> = (1..=20).map(|last| hog(&budget, address(&format!("10.0.0.{last}")))).collect();
    let last = full(address("10.0.1.1"), 1);
    assert_eq!(last.level, Some(Level::Anonymous));
    assert!(!last.is_own_share());
    drop(hogs);
}

#[test]
fn a_namespace_with_many_keys_is_bounded_too() {
    let budget = budget(1000, 0);

    let keys = |number| Holder::Key { namespace: NamespaceId(1), key: KeyId(number) };
    let hogs: Vec<Charge> = (1..=200).map(|number| hog(&budget, keys(number))).collect();

    let held: usize = hogs.iter().map(Charge::amount).sum();
    assert!((700..=750).contains(&held), "{held}");
    assert!(budget.take(key(99), Priority::Ordinary, 1).is_ok());
}

#[test]
fn tokens_do_not_use_up_the_share_of_their_key() {
    let budget = budget(1000, 0);

    let tokens: Vec<Charge> = (1..=50).map(|job| hog(&budget, token(job))).collect();

    let held: usize = tokens.iter().map(Charge::amount).sum();
    assert!((150..=250).contains(&held), "{held}");
    assert!(tokens.iter().all(|charge| charge.amount() <= 60));
    assert!(budget.take(key(1), Priority::Ordinary, 300).is_ok());
}

#[test]
fn the_reserve_is_for_vital_charges_and_shared_as_well() {
    let budget = budget(1000, 200);

    let ordinary = hog(&budget, key(1));
    assert_eq!(ordinary.amount(), 400);
    let mut vital = budget.take(key(1), Priority::Vital, 1).unwrap();
    while vital.grow(1).is_ok() {}
    assert_eq!(vital.amount(), 100);

    let others: Vec<Charge> = (2..=40).map(|number| hog(&budget, key(number))).collect();
    assert!(budget.take(key(99), Priority::Vital, 20).is_ok());
    drop((ordinary, vital, others));
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_charge_that_must_not_fail_may_exceed_the_whole() {
    let budget = budget(2, 0);

    let mut charge = budget.open(key(1), Priority::Ordinary);
    charge.grow_anyway(5);

    assert_eq!(budget.used(), 5);
    assert!(budget.take(key(2), Priority::Ordinary, 1).is_err());
    drop(charge);
    assert!(budget.take(key(2), Priority::Ordinary, 1).is_ok());
}

#[test]
fn a_guaranteed_amount_does_not_depend_on_what_is_free() {
    let every = Share::percent(50).at_least(8).at_most(100);
    let shares = Shares { key: every, ..Shares::of_key(50) };
    let budget = Budget::new("things", 10, 0, Shares { namespace: every, ..shares });

    assert!(budget.take(key(1), Priority::Ordinary, 8).is_ok());
    assert!(budget.take(key(1), Priority::Ordinary, 9).is_err());
}

#[test]
fn without_shares_only_the_whole_bounds() {
    let budget = Budget::new("things", 10, 0, Shares::of_key(100));

    assert!(budget.take(address("::1"), Priority::Ordinary, 10).is_ok());
    assert!(budget.take(address("::1"), Priority::Ordinary, 11).is_err());
}

#[test]
fn a_host_is_counted_by_its_network() {
    for (text, counted) in [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::1", "::"),
    ] {
        assert_eq!(network(text.parse().unwrap()), counted.parse::<IpAddr>().unwrap(), "{text}");
    }
}
