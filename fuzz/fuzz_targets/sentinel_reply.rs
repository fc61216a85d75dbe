#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rwlease_parsers::check("sentinel_reply", bytes));
