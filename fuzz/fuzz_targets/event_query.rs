#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::event::Query;

fuzz_target!(|text: &str| {
    if let Ok(query) = Query::parse(text) {
        assert_eq!(Query::parse(&query.to_string()), Ok(query));
    }
});
