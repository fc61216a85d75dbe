//! Replies of scripts: grants, renewals, the state of a lock, and the times that follow from them.

use std::time::Duration;

use rwlease::testing::lock_status;
use rwlease_core::protocol::{
    AcquireReply, AcquireRequest, AcquisitionId, Confirmation, Envelope, FencedReply,
    ForceReleaseReply, Fsync, Grant, HoldsRequest, InspectReply, InspectRequest,
    InspectSemaphoreRequest, InspectSetNxRequest, RaiseTokenRequest, ReleasePermitsRequest,
    ReleaseRequest, RenewReply, RevokeReply, SetLimitRequest, WriteRecordRequest,
    parse_grant_waiters_reply, parse_record_reply,
};
use rwlease_core::resp::{ReplyShape, RespValue, ScriptShape, server_ms};
use rwlease_core::slot::Slot;
use rwlease_core::time::{ClockBounds, LocalInstant};

use crate::resp::{replies, text};

const ID: &str = "0123456789A0000001";
const LARGEST_PAGE: usize = 100;

/// The first bytes are the numbers of a grant, and the others are replies.
pub fn check(data: &[u8]) {
    if let Some((numbers, _)) = data.split_first_chunk::<32>() {
        let number = |at| u64::from_le_bytes(numbers.as_chunks::<8>().0[at]);
        check_grant([number(0), number(1), number(2), number(3)]);
    }
    let replies = replies(data);
    check_confirmation(&replies);
    for reply in replies {
        check_envelope(&reply);
        read_as_each_script(reply.clone());
        if let Ok(page) = InspectRequest::read(reply.clone()) {
            check_records(&reply, &page);
            let status = lock_status(page, LARGEST_PAGE);
            assert!(status.waiters.len() <= LARGEST_PAGE);
        }
    }
}

/// Every number of a grant arrives, and no time that follows from it overflows.
fn check_grant([now, token, deadline, last_token]: [u64; 4]) {
    let reply = text(format!("granted {now} 0 {ID} {token} {deadline} {last_token} w"));
    let (envelope, granted) = AcquireRequest::read(reply).unwrap();
    let AcquireReply::Granted(grant) = granted else { panic!("not granted: {granted:?}") };
    assert_eq!(envelope, Envelope { server_now: now, has_more_work: false });
    assert_eq!((grant.token, grant.deadline, grant.last_token), (token, deadline, last_token));
    check_times(grant, now, last_token);
    let record = RespValue::Array(vec![
        text("lock"),
        RespValue::Int(0),
        RespValue::Int(0),
        RespValue::Int(0),
        text(format!("w{:013}{:016}{ID}", deadline % 10_u64.pow(13), token % 10_u64.pow(16))),
    ]);
    // The rest is missing.
    assert!(InspectRequest::read(record).is_err());
}

fn check_times(grant: Grant, now: u64, local: u64) {
    let sent = LocalInstant::from_nanos(local);
    let received = sent.saturating_add(Duration::from_millis(1));
    let mut bounds = ClockBounds::default();
    bounds.observe(sent, received, now);
    let first = bounds.not_before(grant.deadline, received);
    bounds.observe(received, received, grant.token);
    let second = bounds.not_before(grant.deadline, received);
    if let (Some(first), Some(second)) = (first, second) {
        // A second answer only narrows the bounds, and a later bound is a later end.
        assert!(second >= first);
    }
    let _ = bounds.max_server_ms(received);
}

fn check_confirmation(replies: &[RespValue]) {
    let wanted = Confirmation { replicas: 1, fsync: Fsync::All };
    let fewer = Confirmation { replicas: 0, ..wanted };
    if wanted.read(replies).is_ok() {
        assert!(fewer.read(replies).is_ok());
    }
}

/// A reply that fits a script has an envelope.
fn check_envelope(reply: &RespValue) {
    let shape = ScriptShape { slot: Slot::of("a"), statuses: &[], id: None };
    let fits = ReplyShape::Script(shape).check(reply).is_ok();
    let is_error = matches!(reply, RespValue::Error(_));
    assert_eq!(fits && !is_error, server_ms(reply).is_some());
    if let Ok(envelope) = parse_grant_waiters_reply(reply.clone()) {
        assert_eq!(server_ms(reply), Some(envelope.server_now));
    }
}

fn read_as_each_script(reply: RespValue) {
    let id = AcquisitionId::parse(ID).unwrap();
    let _ = AcquireRequest::read(reply.clone());
    let _ = RenewReply::read(reply.clone());
    let _ = ReleaseRequest::read(reply.clone());
    let _ = HoldsRequest::read(reply.clone());
    let _ = RevokeReply::read(reply.clone());
    let _ = ForceReleaseReply::read(reply.clone());
    let _ = FencedReply::read(reply.clone());
    let _ = ReleasePermitsRequest::read(reply.clone());
    let _ = SetLimitRequest::read(reply.clone());
    let _ = InspectSemaphoreRequest::read(reply.clone());
    let _ = InspectSetNxRequest::read(reply.clone());
    let _ = RaiseTokenRequest { id, token: 1 }.read(reply.clone());
    let (age, ttl) = (Duration::from_secs(1), Duration::from_secs(1));
    let _ = WriteRecordRequest { age, ttl, description: "" }.read(reply.clone());
    let _ = parse_record_reply(reply);
}

/// The record of the writer is the one in the reply, digit by digit.
fn check_records(reply: &RespValue, page: &InspectReply) {
    let (Some((id, record)), RespValue::Array(items)) = (&page.writer, reply) else { return };
    let Some(RespValue::String(written)) = items.get(4) else { return };
    let numbers = format!("{:013}{:016}{id}", record.deadline, record.token);
    assert_eq!(written.get(1..), Some(numbers.as_bytes()), "{written:?}");
}
