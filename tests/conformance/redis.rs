//! The conformance suite over the `redis` crate.

use conformance::lock_tests;
use conformance::site::two_clients;
use testkit::Backend;

lock_tests!(two_clients(Backend::Redis));
conformance::server_tests!(Backend::Redis);
conformance::server_tests!(Backend::Redis, with push);
