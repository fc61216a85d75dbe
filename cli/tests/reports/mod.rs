//! What others reported of commands that run others under a lock: a file for each public report,
//! `docs/reports.md` lists them with their first results.

mod ceph_qa_suite_583;
mod consul_9788;
mod etcd_10840;
