//! The shapes of a lock, and how each call leads from one to another, on the fast paths and by the
//! slow path alone.

use std::collections::BTreeSet;

use super::fixture::{Answer, BLOCK, Expect, HERE, Lab, id, start};
use super::request::Request;

/// The calls that lead to each shape.
const NONE: &str = "";
const F: &str = "write ann, release ann";
const W: &str = "write ann";
const W_LONG: &str = "long_write ann";
const W_REVOKED: &str = "write ann, revoke";
const W_DEAD: &str = "write ann, pass 10000";
const R: &str = "read ann";
const R_LONG: &str = "long_read ann";
const R_REVOKED: &str = "read ann, revoke";
const R_DEAD: &str = "read ann, pass 10000";
const S: &str = "read ann, read bob";
const S_LONG: &str = "read ann, long_read bob";
const S_ONE: &str = "read ann, read bob, release bob";
const S_ONE_DEAD: &str = "read ann, read bob, release bob, pass 10000";
const S_DEAD: &str = "read ann, read bob, pass 10000";
const S_TICKET: &str = "read ann, wait_write cat, release cat";
const S_TICKET_LONG: &str = "read ann, wait_write cat, release cat, extend ann";
const S_TICKETS: &str = "read ann, wait_write cat, release cat, read bob";
const Q_WRITER: &str = "write ann, wait_write cat";
const Q_WRITER_READER: &str = "write ann, wait_read cat";
const Q_READER: &str = "read ann, wait_write cat";
const Q_READERS: &str = "read ann, read bob, wait_write cat, wait_read dan";
const Q_LONE_WRITER: &str = "write ann, wait_write cat, release cat";
const Q_GRANTED: &str = "write bob, wait_write ann, release bob";
const Q_RAISED: &str = "write ann, raise ann";
const Q_REVOKED: &str = "read ann, read bob, revoke";
const Q_UPGRADER: &str = "read ann, read bob, wait_upgrade ann";

const W_CACHED: &str = "cached_write ann";
const W_RECALLED: &str = "cached_write ann, write bob";
const W_IN_USE: &str = "cached_write ann, renew ann";
const R_CACHED: &str = "cached_read ann";
const R_IN_USE: &str = "cached_read ann, renew ann";
const Q_CACHED: &str = "cached_read ann, read bob";

/// Each call, by an acquisition that may hold, by one that may wait, and by a stranger.
const CALLS: &str = "write ann, write cat, write new, read ann, read cat, read new, \
    wait_write ann, wait_write cat, wait_write new, wait_read ann, wait_read cat, wait_read new, \
    long_write new, long_read new, return_write cat, return_write new, return_read new, \
    release ann, release bob, release cat, release new, leave ann, leave cat, renew ann, \
    renew bob, renew new, extend ann, downgrade ann, upgrade ann, wait_upgrade ann, \
    accept_transfer ann, accept_transfer bob, raise ann, confirm ann, revoke, force, \
    grant_waiters, inspect, holds ann, late_write new";

/// Calls of the scripts that have fast paths.
const USUAL: [&str; 6] = ["write", "read", "release", "leave", "renew", "extend"];

/// Each call from each shape, also without the fast paths if the script has them.
pub fn all() -> impl Iterator<Item = (bool, (&'static str, &'static str))> {
    let starts: BTreeSet<&str> = rows().iter().map(|row| row.0).collect();
    let calls = starts.into_iter().flat_map(|from| CALLS.split(", ").map(move |call| (from, call)));
    let both = calls.flat_map(|at| [false, true].map(|slow_path| (slow_path, at)));
    both.filter(|(slow_path, (_, call))| !slow_path || USUAL.iter().any(|word| call.contains(word)))
}

/// A shape, a call, its answer, the new shape (with its flags), and the fields beside the line.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The fields while cat waits to write behind a writer, and behind ann, who reads.
const WRITER_WAITS: &str = "fair_writers q:cat ticket waiters writer writers_head writers_tail";
const WRITER_WAITS_BEHIND_ANN: &str =
    "fair_writers i:0 q:cat r:ann read_min readers ticket waiters writers_head writers_tail";

const REVOKED_READERS: &str = "i:0 i:1 r:ann r:bob read_min readers revoked_up_to";

/// The fields of shapes that are rarer.
const READER_WAITS_BEHIND_REVOKED: &str =
    "q:cat readers_head readers_tail revoked_up_to ticket waiters writer";
const WRITER_WAITS_BEHIND_TWO: &str = "fair_writers i:0 i:1 q:cat r:ann r:bob read_min readers \
    ticket waiters writers_head writers_tail";
const UPGRADER_WAITS: &str = "i:0 i:1 q:ann r:ann r:bob read_min readers upgrader waiters";
const WRITER_WAITS_BEHIND_EVE: &str =
    "fair_writers i:0 q:cat r:eve read_min readers ticket waiters writers_head writers_tail";
const REVOKED_READERS_AND_NEW: &str =
    "i:0 i:1 i:2 r:ann r:bob r:new read_min readers revoked_up_to";
const REVOKED_READERS_AND_EVE: &str = "i:0 i:1 r:bob r:eve read_min readers revoked_up_to";
const READER_WAITS: &str = "q:new readers_head readers_tail ticket waiters writer";
const CACHED_READER_AND_EVE: &str = "cached_readers i:0 i:1 r:ann r:eve read_min readers";
const BOTH_WAIT_BEHIND_BOB: &str = "fair_writers i:0 q:cat q:dan r:bob read_min readers \
    readers_head readers_tail ticket waiters writers_head writers_tail";

const FREE: &[Row] = &[
    (NONE, "write new", "granted", "W0", ""),
    (NONE, "read new", "granted", "R0", ""),
    (NONE, "wait_write new", "granted", "W0", ""),
    (NONE, "wait_read new", "granted", "R0", ""),
    (NONE, "long_write new", "granted", "W1", ""),
    (NONE, "long_read new", "granted", "R1", ""),
    (NONE, "return_write new", "granted", "Q", "ticket writer"),
    (NONE, "return_read new", "granted", "S2", "i:0 r:new ticket"),
    (NONE, "release new", "not_found", "-", ""),
    (NONE, "renew new", "not_held", "-", ""),
    (NONE, "accept_transfer ann", "not_held", "-", ""),
    (NONE, "revoke", "not_locked", "-", ""),
    (NONE, "force", "not_locked", "-", ""),
    (NONE, "grant_waiters", "done", "-", ""),
    (NONE, "inspect", "not_found", "-", ""),
    (F, "write new", "granted", "W0", ""),
    (F, "read new", "granted", "R0", ""),
    (F, "wait_write new", "granted", "W0", ""),
    (F, "wait_read new", "granted", "R0", ""),
    (F, "long_write new", "granted", "W1", ""),
    (F, "long_read new", "granted", "R1", ""),
    (F, "return_write new", "granted", "Q", "ticket writer"),
    (F, "return_read new", "granted", "S2", "i:0 r:new ticket"),
    (F, "late_write new", "too_late", "F", ""),
    (F, "release ann", "not_found", "F", ""),
    (F, "renew ann", "not_held", "F", ""),
    (F, "downgrade ann", "not_held", "F", ""),
    (F, "upgrade ann", "not_held", "F", ""),
    (F, "raise ann", "not_held", "F", ""),
    (F, "accept_transfer ann", "not_held", "F", ""),
    (F, "revoke", "not_locked", "F", ""),
    (F, "force", "not_locked", "F", ""),
    (F, "grant_waiters", "done", "F", ""),
    (F, "inspect", "lock", "F", ""),
    (F, "holds ann", "not_held", "F", ""),
];

const WRITER: &[Row] = &[
    (W, "release ann", "released", "F", ""),
    (W, "release new", "not_found", "W0", ""),
    (W, "leave ann", "upgrade_granted", "W0", ""),
    (W, "force", "forced", "F", ""),
    (W, "renew ann", "renewed", "W0", ""),
    (W, "extend ann", "renewed", "W1", ""),
    (W, "renew new", "not_held", "W0", ""),
    (W, "revoke", "revoked", "W2", ""),
    (W, "write ann", "granted", "W0", ""),
    (W, "wait_write ann", "granted", "W0", ""),
    (W, "read ann", "busy", "W0", ""),
    (W, "wait_read ann", "LOCKARGS", "W0", ""),
    (W, "write new", "busy", "W0", ""),
    (W, "read new", "busy", "W0", ""),
    (W, "late_write new", "too_late", "W0", ""),
    (W, "downgrade ann", "granted", "R0", ""),
    (W, "upgrade ann", "granted", "W0", ""),
    (W, "wait_upgrade ann", "granted", "W0", ""),
    (W, "accept_transfer ann", "granted", "W0", ""),
    (W, "accept_transfer bob", "not_held", "W0", ""),
    (W, "confirm ann", "raised", "W0", ""),
    (W, "raise ann", "raised", "Q", "writer"),
    (W, "raise new", "not_held", "W0", ""),
    (W, "grant_waiters", "done", "W0", ""),
    (W, "inspect", "lock", "W0", ""),
    (W, "holds ann", "writes", "W0", ""),
    (W, "wait_write cat", "queued", "Q", WRITER_WAITS),
    (W, "wait_read cat", "queued", "Q", "q:cat readers_head readers_tail ticket waiters writer"),
    (W, "return_write cat", "queued", "Q", WRITER_WAITS),
    (W_LONG, "release ann", "released", "F", ""),
    (W_LONG, "renew ann", "renewed", "W1", ""),
    (W_LONG, "downgrade ann", "granted", "R1", ""),
    (W_LONG, "accept_transfer ann", "granted", "W1", ""),
    (W_LONG, "revoke", "revoked", "W3", ""),
    (W_REVOKED, "release ann", "released", "F", ""),
    (W_REVOKED, "renew ann", "revoked", "W2", ""),
    (W_REVOKED, "write ann", "granted", "W2", ""),
    (W_REVOKED, "write new", "busy", "W2", ""),
    (W_REVOKED, "downgrade ann", "granted", "R2", ""),
    (W_REVOKED, "accept_transfer ann", "granted", "W2", ""),
    (W_REVOKED, "force", "forced", "F", ""),
    // A raised token is newer than what is revoked.
    (W_REVOKED, "raise ann", "raised", "Q", "revoked_up_to writer"),
    (W_REVOKED, "wait_read cat", "queued", "Q", READER_WAITS_BEHIND_REVOKED),
    (W_DEAD, "write new", "granted", "W0", ""),
    (W_DEAD, "read new", "granted", "R0", ""),
    (W_DEAD, "wait_write new", "granted", "W0", ""),
    (W_DEAD, "return_write new", "granted", "Q", "ticket writer"),
    (W_DEAD, "return_read new", "granted", "S2", "i:0 r:new ticket"),
    (W_DEAD, "write ann", "granted", "W0", ""),
    (W_DEAD, "renew ann", "not_held", "W0", ""),
    (W_DEAD, "release ann", "released", "F", ""),
    (W_DEAD, "accept_transfer ann", "not_held", "F", ""),
    (W_DEAD, "grant_waiters", "done", "F", ""),
];

const READER: &[Row] = &[
    (R, "release ann", "released", "F", ""),
    (R, "force", "forced", "F", ""),
    (R, "renew ann", "renewed", "R0", ""),
    (R, "extend ann", "renewed", "R1", ""),
    (R, "revoke", "revoked", "R2", ""),
    (R, "read ann", "granted", "R0", ""),
    (R, "wait_read ann", "granted", "R0", ""),
    (R, "write ann", "busy", "R0", ""),
    (R, "wait_write ann", "LOCKARGS", "R0", ""),
    (R, "write new", "busy", "R0", ""),
    (R, "read new", "granted", "S0", "i:0 i:1 r:ann r:new"),
    (R, "wait_read new", "granted", "S0", "i:0 i:1 r:ann r:new"),
    (R, "long_read new", "granted", "S1", "i:0 i:1 r:ann r:new"),
    (R, "return_read new", "granted", "S2", "i:0 i:1 r:ann r:new ticket"),
    (R, "upgrade ann", "granted", "W0", ""),
    (R, "wait_upgrade ann", "granted", "W0", ""),
    (R, "upgrade new", "not_held", "R0", ""),
    (R, "confirm ann", "raised", "R0", ""),
    (R, "raise ann", "raised", "S0", "i:0 r:ann"),
    (R, "downgrade ann", "granted", "R0", ""),
    (R, "accept_transfer ann", "granted", "R0", ""),
    (R, "grant_waiters", "done", "R0", ""),
    (R, "inspect", "lock", "R0", ""),
    (R, "holds ann", "reads", "R0", ""),
    (R, "wait_write cat", "queued", "Q", WRITER_WAITS_BEHIND_ANN),
    (R_LONG, "release ann", "released", "F", ""),
    (R_LONG, "read new", "granted", "S1", "i:0 i:1 r:ann r:new"),
    (R_LONG, "upgrade ann", "granted", "W1", ""),
    (R_LONG, "accept_transfer ann", "granted", "R1", ""),
    (R_REVOKED, "renew ann", "revoked", "R2", ""),
    (R_REVOKED, "release ann", "released", "F", ""),
    (R_REVOKED, "upgrade ann", "revoked", "R2", ""),
    (R_REVOKED, "read new", "granted", "Q", "i:0 i:1 r:ann r:new read_min readers revoked_up_to"),
    (R_REVOKED, "accept_transfer ann", "granted", "R2", ""),
    (R_REVOKED, "force", "forced", "F", ""),
    (R_DEAD, "write new", "granted", "W0", ""),
    (R_DEAD, "read new", "granted", "R0", ""),
    (R_DEAD, "read ann", "granted", "R0", ""),
    (R_DEAD, "release ann", "released", "F", ""),
    (R_DEAD, "accept_transfer ann", "not_held", "F", ""),
    (R_DEAD, "grant_waiters", "done", "F", ""),
];

const READERS: &[Row] = &[
    (S, "read new", "granted", "S0", "i:0 i:1 i:2 r:ann r:bob r:new"),
    (S, "wait_read new", "granted", "S0", "i:0 i:1 i:2 r:ann r:bob r:new"),
    (S, "long_read new", "granted", "S1", "i:0 i:1 i:2 r:ann r:bob r:new"),
    (S, "return_read new", "granted", "S2", "i:0 i:1 i:2 r:ann r:bob r:new ticket"),
    (S, "read ann", "granted", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "write new", "busy", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "renew ann", "renewed", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "extend bob", "renewed", "S1", "i:0 i:1 r:ann r:bob"),
    (S, "release ann", "released", "S0", "i:0 r:bob"),
    (S, "release bob", "released", "S0", "i:0 r:ann"),
    (S, "upgrade ann", "busy", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "revoke", "revoked", "Q", REVOKED_READERS),
    (S, "force", "forced", "F", ""),
    (S, "raise ann", "raised", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "confirm ann", "raised", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "accept_transfer ann", "granted", "S0", "i:0 i:1 r:bob r:eve"),
    (S, "accept_transfer bob", "granted", "S0", "i:0 i:1 r:ann r:eve"),
    (S, "grant_waiters", "done", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "holds bob", "reads", "S0", "i:0 i:1 r:ann r:bob"),
    (S, "wait_write cat", "queued", "Q", WRITER_WAITS_BEHIND_TWO),
    (S, "wait_upgrade ann", "queued", "Q", UPGRADER_WAITS),
    (S_LONG, "release bob", "released", "S1", "i:0 r:ann"),
    (S_LONG, "read new", "granted", "S1", "i:0 i:1 i:2 r:ann r:bob r:new"),
    (S_LONG, "accept_transfer bob", "granted", "S1", "i:0 i:1 r:ann r:eve"),
    (S_ONE, "release ann", "released", "F", ""),
    (S_ONE, "renew ann", "renewed", "S0", "i:0 r:ann"),
    (S_ONE, "read new", "granted", "S0", "i:0 i:1 r:ann r:new"),
    (S_ONE, "upgrade ann", "granted", "W0", ""),
    (S_ONE, "wait_upgrade ann", "granted", "W0", ""),
    (S_ONE, "revoke", "revoked", "Q", "i:0 r:ann read_min readers revoked_up_to"),
    (S_ONE, "accept_transfer ann", "granted", "S0", "i:0 r:eve"),
    (S_ONE, "force", "forced", "F", ""),
    (S_DEAD, "write new", "granted", "W0", ""),
    // No acquisition blocks it, so it checks only two of the readers.
    (S_DEAD, "read new", "granted", "Q", "i:0 i:1 r:ann r:new read_min readers sweep"),
    (S_ONE_DEAD, "read new", "granted", "S0", "i:0 r:new"),
    (S_DEAD, "grant_waiters", "done", "F", ""),
    (S_DEAD, "accept_transfer ann", "not_held", "F", ""),
    (S_TICKET, "read new", "granted", "S2", "i:0 i:1 r:ann r:new ticket"),
    (S_TICKET, "long_read new", "granted", "S3", "i:0 i:1 r:ann r:new ticket"),
    (S_TICKET, "renew ann", "renewed", "S2", "i:0 r:ann ticket"),
    (S_TICKET, "extend ann", "renewed", "S3", "i:0 r:ann ticket"),
    (S_TICKET, "release ann", "released", "F", ""),
    (S_TICKET, "upgrade ann", "granted", "Q", "ticket writer"),
    (S_TICKET, "revoke", "revoked", "Q", "i:0 r:ann read_min readers revoked_up_to ticket"),
    (S_TICKET, "accept_transfer ann", "granted", "S2", "i:0 r:eve ticket"),
    (S_TICKET, "force", "forced", "F", ""),
    (S_TICKET, "return_write cat", "queued", "Q", WRITER_WAITS_BEHIND_ANN),
    (S_TICKET_LONG, "release ann", "released", "F", ""),
    (S_TICKETS, "release ann", "released", "S2", "i:0 r:bob ticket"),
    (S_TICKETS, "release bob", "released", "S2", "i:0 r:ann ticket"),
];

const QUEUE: &[Row] = &[
    (Q_WRITER, "release ann", "released", "Q", "ticket writer"),
    (Q_WRITER, "release cat", "left_queue", "Q", "ticket writer"),
    (Q_WRITER, "write cat", "queued", "Q", WRITER_WAITS),
    (Q_WRITER, "renew ann", "renewed", "Q", WRITER_WAITS),
    (Q_WRITER, "accept_transfer ann", "granted", "Q", WRITER_WAITS),
    (Q_WRITER, "force", "forced", "Q", "ticket writer"),
    (Q_WRITER_READER, "release ann", "released", "S2", "i:0 r:cat reader_phase ticket"),
    (Q_WRITER_READER, "downgrade ann", "granted", "S2", "i:0 i:1 r:ann r:cat reader_phase ticket"),
    (Q_WRITER_READER, "release cat", "left_queue", "Q", "ticket writer"),
    (Q_READER, "release ann", "released", "Q", "ticket writer"),
    (Q_READER, "release cat", "left_queue", "S2", "i:0 r:ann ticket"),
    (Q_READER, "accept_transfer ann", "granted", "Q", WRITER_WAITS_BEHIND_EVE),
    (Q_READER, "upgrade ann", "granted", "Q", WRITER_WAITS),
    (Q_READERS, "release cat", "left_queue", "S2", "i:0 i:1 i:2 r:ann r:bob r:dan ticket"),
    (Q_READERS, "release ann", "released", "Q", BOTH_WAIT_BEHIND_BOB),
    (Q_LONE_WRITER, "release ann", "released", "F", ""),
    (Q_LONE_WRITER, "renew ann", "renewed", "Q", "ticket writer"),
    (Q_LONE_WRITER, "downgrade ann", "granted", "S2", "i:0 r:ann ticket"),
    (Q_LONE_WRITER, "write new", "busy", "Q", "ticket writer"),
    (Q_LONE_WRITER, "read new", "busy", "Q", "ticket writer"),
    (Q_LONE_WRITER, "revoke", "revoked", "Q", "revoked_up_to ticket writer"),
    (Q_LONE_WRITER, "accept_transfer ann", "granted", "Q", "ticket writer"),
    (Q_LONE_WRITER, "force", "forced", "F", ""),
    (Q_GRANTED, "write ann", "granted", "Q", "ticket writer"),
    (Q_GRANTED, "wait_write ann", "granted", "Q", "ticket writer"),
    (Q_GRANTED, "renew ann", "renewed", "Q", "ticket writer"),
    (Q_GRANTED, "accept_transfer ann", "granted", "Q", "ticket writer"),
    (Q_GRANTED, "release ann", "released", "F", ""),
    (Q_GRANTED, "downgrade ann", "granted", "S2", "i:0 r:ann ticket"),
    (Q_RAISED, "release ann", "released", "F", ""),
    (Q_RAISED, "renew ann", "renewed", "Q", "writer"),
    (Q_RAISED, "downgrade ann", "granted", "S0", "i:0 r:ann"),
    (Q_RAISED, "confirm ann", "raised", "Q", "writer"),
    (Q_RAISED, "accept_transfer ann", "granted", "Q", "writer"),
    (Q_REVOKED, "renew ann", "revoked", "Q", REVOKED_READERS),
    (Q_REVOKED, "release ann", "released", "Q", "i:0 r:bob read_min readers revoked_up_to"),
    (Q_REVOKED, "read new", "granted", "Q", REVOKED_READERS_AND_NEW),
    (Q_REVOKED, "accept_transfer ann", "granted", "Q", REVOKED_READERS_AND_EVE),
    (Q_REVOKED, "force", "forced", "F", ""),
    (Q_UPGRADER, "release bob", "released", "Q", "writer"),
    (Q_UPGRADER, "release ann", "released", "S0", "i:0 r:bob"),
    (Q_UPGRADER, "leave ann", "left_queue", "S0", "i:0 i:1 r:ann r:bob"),
    (Q_UPGRADER, "accept_transfer ann", "granted", "S0", "i:0 i:1 r:bob r:eve"),
    (Q_UPGRADER, "revoke", "revoked", "Q", REVOKED_READERS),
];

const CACHED: &[Row] = &[
    (W_CACHED, "write new", "recalling", "W0", ""),
    (W_CACHED, "read new", "recalling", "W0", ""),
    (W_CACHED, "write ann", "granted", "W0", ""),
    (W_CACHED, "wait_read new", "queued", "Q", READER_WAITS),
    (W_CACHED, "renew ann", "renewed", "W0", ""),
    (W_CACHED, "extend ann", "renewed", "W1", ""),
    (W_CACHED, "downgrade ann", "granted", "R0", ""),
    (W_CACHED, "revoke", "revoked", "W2", ""),
    (W_CACHED, "force", "forced", "F", ""),
    (W_CACHED, "raise ann", "not_held", "W0", ""),
    (W_RECALLED, "raise ann", "not_held", "W0", ""),
    (W_RECALLED, "write new", "recalling", "W0", ""),
    (W_CACHED, "accept_transfer ann", "not_held", "W0", ""),
    (W_CACHED, "release ann", "released", "F", ""),
    (W_IN_USE, "write new", "busy", "W0", ""),
    (W_IN_USE, "accept_transfer ann", "not_held", "W0", ""),
    (W_IN_USE, "raise ann", "not_held", "W0", ""),
    (W_IN_USE, "release ann", "released", "F", ""),
    (R_CACHED, "write new", "recalling", "R0", ""),
    (R_CACHED, "read new", "granted", "Q", "cached_readers i:0 i:1 r:ann r:new read_min readers"),
    (R_CACHED, "upgrade ann", "granted", "W0", ""),
    (R_CACHED, "accept_transfer ann", "not_held", "R0", ""),
    (R_CACHED, "raise ann", "not_held", "R0", ""),
    (R_IN_USE, "accept_transfer ann", "not_held", "R0", ""),
    (R_IN_USE, "raise ann", "not_held", "R0", ""),
    (R_CACHED, "revoke", "revoked", "R2", ""),
    (R_CACHED, "release ann", "released", "F", ""),
    (Q_CACHED, "write new", "busy", "Q", "cached_readers i:0 i:1 r:ann r:bob read_min readers"),
    (Q_CACHED, "renew ann", "renewed", "S0", "i:0 i:1 r:ann r:bob"),
    (Q_CACHED, "release ann", "released", "S0", "i:0 r:bob"),
    (Q_CACHED, "release bob", "released", "Q", "cached_readers i:0 r:ann read_min readers"),
    (Q_CACHED, "accept_transfer bob", "granted", "Q", CACHED_READER_AND_EVE),
    (Q_CACHED, "force", "forced", "F", ""),
];

fn rows() -> Vec<Row> {
    [FREE, WRITER, READER, READERS, QUEUE, CACHED].concat()
}

#[test]
fn each_call_leads_to_its_shape() {
    let server = start("");
    let mut wrong = Vec::new();
    for (from, call, said, to, beside) in rows() {
        for slow_path in [false, true] {
            let mut lab = Lab::on(&server);
            follow(&mut lab, from);
            (lab.slow_path, lab.watched) = (slow_path, true);
            let answer = make(&mut lab, call);
            let (shape, fields) = lab.shape();
            let fields: Vec<String> = fields.iter().map(|field| short(field)).collect();
            let found = (status(&answer), shape.as_str(), fields.join(" "));
            let is_expected = found == (said, to, beside.into());
            if !is_expected || must_move(from, call, said).is_some_and(|must| must != lab.moved) {
                wrong.push(format!(
                    "from {from:?} by {call}, slow path {slow_path}: {found:?} instead of \
                     {said}, {to}, {beside}; written: {}",
                    lab.moved
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Replicas confirm only what is written. So a call writes what it tells a holder. A refusal writes
/// nothing, unless the call finds dead holders.
fn must_move(from: &str, call: &str, said: &str) -> Option<bool> {
    match said {
        "granted" | "renewed" | "raised" => Some(true),
        "revoked" if call != "revoke" && !call.contains("upgrade") => Some(true),
        "queued" if call.starts_with("write") || call.starts_with("read") => Some(false),
        "released" | "left_queue" | "forced" | "queued" | "revoked" | "recalling" => None,
        _ if from.contains("pass") => None,
        _ => Some(false),
    }
}

/// The table has all shapes, and reaches each of them from all others that can lead to it.
#[test]
fn table_of_lock_shapes_has_every_transition() {
    let rows = rows();
    let ways = |from: char, to: char| {
        rows.iter().any(|(start, _, _, end, _)| shape_of(start) == from && end.starts_with(to))
    };
    for (from, targets) in [
        ('-', "-WRQS"),
        ('F', "FWRQS"),
        ('W', "WFRQS"),
        ('R', "RFSWQ"),
        ('S', "SFWQ"),
        ('Q', "QFS"),
    ] {
        for to in "-FWRSQ".chars() {
            let is_there = from == to || ways(from, to);
            assert_eq!(is_there, targets.contains(to), "from {from} to {to}");
        }
    }
}

fn shape_of(start: &str) -> char {
    let mut lab = Lab::new();
    follow(&mut lab, start);
    lab.shape().0.remove(0)
}

/// An answer's status, or its error's code.
pub fn status(answer: &Answer) -> &str {
    answer.as_ref().map_or_else(|refusal| &refusal.code, |reply| &reply.status)
}

/// A field with the short names of acquisitions, as in the table.
fn short(field: &str) -> String {
    match field.split_once(':') {
        Some((kind @ ("r" | "q"), id)) => format!("{kind}:{}", id[..11].trim_end_matches('_')),
        _ => field.into(),
    }
}

/// Brings a lock into a state at this time, without the checks of the hash and by the fast paths.
pub fn restart(lab: &mut Lab, us: u64, from: &str) {
    let slow_path = std::mem::take(&mut lab.slow_path);
    lab.delete();
    lab.set_clock(us);
    lab.checked = false; // the tests of shapes check it
    follow(lab, from);
    lab.slow_path = slow_path;
}

/// Makes calls, which must not fail.
pub fn follow(lab: &mut Lab, calls: &str) {
    for call in calls.split(", ").filter(|call| !call.is_empty()) {
        match call.strip_prefix("pass ") {
            Some(ms) => lab.pass(ms.parse().unwrap()),
            None => drop(make(lab, call).unwrap()),
        }
    }
}

impl Lab {
    /// A new lock after these calls.
    #[track_caller]
    pub fn after(calls: &str) -> Lab {
        let mut lab = Lab::new();
        lab.run(calls);
        lab
    }

    /// Makes calls, which must not fail. Tries must be granted, and waits must be queued.
    #[track_caller]
    pub fn run(&mut self, calls: &str) {
        for call in calls.split(", ") {
            if let Some(ms) = call.strip_prefix("pass ") {
                self.pass(ms.parse().unwrap());
                continue;
            }
            let answer = make(self, call);
            match call.split([' ', '/']).next() {
                Some("read" | "write" | "cached_read" | "cached_write") => {
                    assert_eq!(answer.status(), "granted", "{call}");
                }
                Some(wait) if wait.starts_with("wait_") || wait.starts_with("subscribed_") => {
                    assert_eq!(answer.status(), "queued", "{call}");
                }
                _ => drop(answer.unwrap()),
            }
        }
    }
}

/// A token later than that of any holder.
const ANY: u64 = 1 << 53;

pub fn make(lab: &mut Lab, call: &str) -> Answer {
    let (call, name) = call.split_once(' ').unwrap_or((call, ""));
    // A lease of its own, in ms, or a time to live in the queue: `write/100 ann`.
    if let Some((call, ms)) = call.split_once('/') {
        let ms = ms.parse().unwrap();
        return match call {
            "write" => lab.request(&Request::write(name).lease(ms)),
            "read" => lab.request(&Request::read(name).lease(ms)),
            "wait_write" => lab.request(&Request::write(name).waiting().ttl(ms)),
            "wait_read" => lab.request(&Request::read(name).waiting().ttl(ms)),
            "renew" => lab.renew(name, ms),
            _ => panic!("{call}"),
        };
    }
    let request = match call {
        "write" => Request::write(name),
        "read" => Request::read(name),
        "cached_write" => Request::write(name).cached(BLOCK),
        "cached_read" => Request::read(name).cached(BLOCK),
        "wait_write" => Request::write(name).waiting(),
        "wait_read" => Request::read(name).waiting(),
        "subscribed_write" => Request::write(name).waiting().subscribed(HERE),
        "subscribed_read" => Request::read(name).waiting().subscribed(HERE),
        "long_write" => Request::write(name).lease(60_000),
        "long_read" => Request::read(name).lease(60_000),
        "soft_write" => Request::write(name).trying(),
        "soft_read" => Request::read(name).trying(),
        "late_write" => Request::write(name).not_after(lab.now() - 1),
        "return_write" => Request::write(name).waiting().ticket(7),
        "return_read" => Request::read(name).waiting().ticket(7),
        "upgrade" => Request::upgrade(name, lab.token_of(name)),
        "wait_upgrade" => Request::upgrade(name, lab.token_of(name)).waiting(),
        "raise" => return raise(lab, name, 1_000_000),
        "confirm" => return raise(lab, name, 0),
        "release" => return lab.release(name),
        "leave" => return lab.leave_upgrade(name),
        "renew" => return lab.renew(name, 10_000),
        "extend" => return lab.renew(name, 60_000),
        "downgrade" => {
            let token = lab.token_of(name);
            return lab.downgrade(name, token, 10_000);
        }
        "accept_transfer" => {
            let (token, writes) = (lab.token_of(name), lab.state().writes() == Some(id(name)));
            return lab.accept_transfer(name, if writes { "w" } else { "r" }, token, "eve");
        }
        "revoke" => return lab.revoke_up_to(ANY),
        "force" => return lab.force_up_to(ANY),
        "grant_waiters" => return lab.grant_waiters(),
        "inspect" => return lab.inspect(),
        "holds" => return lab.holds(name),
        _ => panic!("{call}"),
    };
    lab.request(&request)
}

/// Raises the last token by this much.
fn raise(lab: &mut Lab, name: &str, by: u64) -> Answer {
    let token = lab.state().number("fence") + by;
    lab.raise_token(name, token)
}
