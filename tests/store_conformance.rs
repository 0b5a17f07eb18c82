//! Runs the conformance suite on the stores of this crate.
#![cfg(feature = "test-util")]

use tollgate::{
    store::{Memory, Store},
    testing,
};

#[test]
fn memory_is_a_store() {
    testing::store_conformance(Memory::new, |future| testing::block_on(future));
    assert!(testing::block_on(Memory::new().scan(None)).is_ok());
}

#[cfg(feature = "store-disk")]
#[test]
fn disk_is_a_store() {
    use std::{
        env, fs,
        sync::atomic::{AtomicUsize, Ordering},
    };

    let directory = env::temp_dir().join(format!("tollgate-conformance-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let files = AtomicUsize::new(0);
    let make = || {
        let number = files.fetch_add(1, Ordering::Relaxed);
        tollgate::store::Disk::open(directory.join(number.to_string())).unwrap()
    };
    testing::store_conformance(make, |future| testing::block_on(future));
    assert!(testing::block_on(make().scan(None)).is_ok());
    fs::remove_dir_all(&directory).unwrap();
}
