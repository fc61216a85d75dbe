#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rwlease_parsers::check("url", bytes));
