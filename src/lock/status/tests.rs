use super::*;

fn entry(ticket: u64, next: Option<u64>) -> WaiterRecord {
    WaiterRecord {
        id: format!("o{ticket}"),
        next: next.map(|next| format!("o{next}")),
        ticket,
        last_poll: 900,
        waiter_ttl: 50,
        joined_at: 400,
        permits: 0,
    }
}

fn view() -> InspectReply {
    let record = |deadline, token| HolderRecord { deadline, token, cached: token == 998_000 };
    InspectReply {
        server_now: 1_000,
        token: 999_000,
        reader_count: 5,
        revoked_up_to: 998_000,
        readers: vec![
            ("dead".into(), record(1_000, 997_000)),
            ("alive".into(), record(1_500, 998_000)),
        ],
        waiter_count: 9,
        waiting_writers: vec![entry(1, Some(4)), entry(4, Some(9))],
        waiting_readers: vec![entry(2, Some(3)), entry(3, None)],
        ..InspectReply::default()
    }
}

#[test]
fn waiters_come_in_the_order_of_their_tickets_and_the_dead_do_not_hold() {
    let status = status(view(), 2, 2);
    let names: Vec<_> = status.waiters.iter().map(|waiter| waiter.id.as_str()).collect();
    assert_eq!(names, ["o1", "o2"]);
    assert_eq!(status.waiters[0].waiting_for, Duration::from_millis(600));
    assert_eq!(status.waiters[0].ttl_remaining, Duration::ZERO);
    let [holder] = &status.readers[..] else { panic!("{status:?}") };
    assert_eq!(holder.id, "alive");
    assert_eq!(holder.held_for, Duration::from_millis(2));
    assert_eq!(holder.lease_remaining, Duration::from_millis(500));
    assert!(holder.revoked && holder.cached && status.is_locked());
    assert_eq!(status.next, Some(PageCursor::from(4, Some("o4".into()), Some("o3".into()))));
}

#[test]
fn the_next_page_goes_on_behind_what_was_shown() {
    let all = status(view(), 4, 100);
    assert_eq!(all.waiters.len(), 4);
    assert_eq!(all.next, Some(PageCursor::from(5, Some("o9".into()), None)), "{all:?}");
    let empty = status(InspectReply::default(), 0, 100);
    assert!(empty.is_last() && !empty.is_locked());
}

#[test]
fn status_of_the_largest_numbers_does_not_overflow() {
    const MAX: u64 = u64::MAX;
    let last = WaiterRecord { last_poll: MAX, waiter_ttl: MAX, joined_at: MAX, ..entry(MAX, None) };
    let record = HolderRecord { deadline: MAX, token: MAX, cached: false };
    for now in [0, MAX / 2, MAX - 1, MAX] {
        let view = InspectReply {
            server_now: now,
            token: MAX,
            writer: Some(("writer".into(), record)),
            reader_count: MAX,
            readers: vec![("reader".into(), HolderRecord { token: 1, ..record })],
            waiter_count: MAX,
            upgrader: Some(last.clone()),
            waiting_writers: vec![last.clone()],
            ..InspectReply::default()
        };
        let status = status(view, MAX, 100);
        assert_eq!(status.waiters[0].ttl_remaining, Duration::from_millis(MAX - now));
        assert_eq!(status.writer.is_some(), now < MAX);
    }
}

#[test]
fn is_id_of_text_that_servers_refuse_is_false() {
    assert!(is_id("abcdefghijklmn-_01"));
    for text in ["", "short", "abcdefghijklmn 01", "x".repeat(41).as_str()] {
        assert!(!is_id(text), "{text}");
    }
}
