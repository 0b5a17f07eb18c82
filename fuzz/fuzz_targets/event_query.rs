#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::event::Query;

fuzz_target!(|text: &str| {
    let _ = Query::parse(text);
});
