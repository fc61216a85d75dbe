use super::*;

fn text(text: &'static str) -> RespValue {
    RespValue::String(Bytes::from_static(text.as_bytes()))
}

fn list(items: impl IntoIterator<Item = RespValue>) -> RespValue {
    RespValue::Array(items.into_iter().collect())
}

fn error(code: &str, detail: &str) -> RespValue {
    RespValue::Error(ServerError { code: code.into(), message: detail.into() })
}

/// All items in these bytes, which arrive in parts of that size.
fn frames_in_parts(bytes: &[u8], size: usize) -> Result<Vec<Frame>, ProtocolError> {
    let (mut decoder, mut all) = (Decoder::default(), Vec::new());
    for part in bytes.chunks(size) {
        decoder.read_buffer().extend_from_slice(part);
        while let Some(frame) = decoder.next_frame()? {
            all.push(frame);
        }
    }
    Ok(all)
}

fn replies(text: &str) -> Vec<RespValue> {
    let all = frames_in_parts(text.as_bytes(), text.len()).unwrap();
    for size in [1, 2, 7] {
        assert_eq!(frames_in_parts(text.as_bytes(), size).as_ref(), Ok(&all), "{text:?}");
    }
    let reply = |frame| match frame {
        Frame::Reply(reply) => reply,
        Frame::Push(parts) => panic!("a push: {parts:?}"),
    };
    all.into_iter().map(reply).collect()
}

#[test]
fn each_kind_of_reply() {
    for (frame, reply) in [
        ("+OK\r\n", text("OK")),
        ("+\r\n", text("")),
        ("$2\r\nab\r\n", text("ab")),
        ("$4\r\n\r\n\r\n\r\n", text("\r\n\r\n")),
        ("$0\r\n\r\n", text("")),
        ("$-1\r\n", RespValue::Nil),
        ("*-1\r\n", RespValue::Nil),
        ("_\r\n", RespValue::Nil),
        (":-7\r\n", RespValue::Int(-7)),
        ("#t\r\n", RespValue::Int(1)),
        ("#f\r\n", RespValue::Int(0)),
        ("=6\r\ntxt:ab\r\n", text("ab")),
        (",1.5\r\n", text("1.5")),
        ("(123456789012345678901234567890\r\n", text("123456789012345678901234567890")),
        ("*0\r\n", list([])),
        ("*2\r\n:1\r\n*0\r\n", list([RespValue::Int(1), list([])])),
        ("*2\r\n*1\r\n$1\r\na\r\n_\r\n", list([list([text("a")]), RespValue::Nil])),
        ("~1\r\n+a\r\n", list([text("a")])),
        ("%1\r\n+k\r\n:1\r\n", list([text("k"), RespValue::Int(1)])),
        ("|1\r\n+k\r\n:1\r\n+a\r\n", text("a")),
        ("*1\r\n|1\r\n+k\r\n*0\r\n+a\r\n", list([text("a")])),
        ("-MOVED 3999 127.0.0.1:6381\r\n", error("MOVED", "3999 127.0.0.1:6381")),
        ("-ERR x y\r\n", error("ERR", "x y")),
        ("-ERR x\n\ny\r\n", error("ERR", "x\n\ny")),
        ("-OOM\r\n", error("OOM", "")),
        ("!7\r\nBUSY \r\n\r\n", error("BUSY", "\r\n")),
        ("*1\r\n-LOCKTYPE not a lock\r\n", list([error("LOCKTYPE", "not a lock")])),
    ] {
        assert_eq!(replies(frame), std::slice::from_ref(&reply), "{frame:?}");
        assert_eq!(replies(&frame.repeat(3)), [reply.clone(), reply.clone(), reply], "{frame:?}");
    }
}

#[test]
fn pushes_come_between_replies() {
    let bytes = b"+a\r\n>2\r\n+smessage\r\n$1\r\nb\r\n+c\r\n";
    for size in [1, 3, bytes.len()] {
        let expected = vec![
            Frame::Reply(text("a")),
            Frame::Push(vec![text("smessage"), text("b")]),
            Frame::Reply(text("c")),
        ];
        assert_eq!(frames_in_parts(bytes, size), Ok(expected));
    }
}

#[test]
fn decoder_line_that_arrives_byte_by_byte_is_searched_once() {
    let mut decoder = Decoder::default();
    for size in 1..=1000 {
        decoder.read_buffer().extend_from_slice(b"+");
        assert_eq!(decoder.next_frame(), Ok(None));
        assert_eq!(decoder.scanned, size);
    }
    decoder.read_buffer().extend_from_slice(CRLF);
    assert_eq!(
        decoder.next_frame(),
        Ok(Some(Frame::Reply(RespValue::String("+".repeat(999).into()))))
    );
    assert_eq!(decoder.scanned, 0);
}

#[test]
fn decoder_given_http_or_tls_names_that_protocol() {
    let failure = |bytes: &[u8]| frames_in_parts(bytes, bytes.len()).unwrap_err().to_string();
    assert_eq!(failure(b"HTTP/1.1 400 Bad Request\r\n"), "the port speaks HTTP");
    for reason in [22, b'\n'] {
        assert_eq!(failure(&[TLS_ALERT, 3, 3, 0, 2, 2, reason]), "the port expects TLS");
    }
    let smtp = failure(b"220 mail.example.com ESMTP\r\n");
    assert_eq!(smtp, r#"invalid RESP3: unknown type in "220 mail.example.com ESMTP""#);
}

#[test]
fn decoder_given_invalid_resp3_returns_error() {
    let lines = "hello : :1x :99999999999999999999 $x $-2 $? $-0 $99999999999 \
        $9223372036854775807 *+1 *-2 *1048577 *9223372036854775807 %-1 %9223372036854775807 \
        # #x #tt _junk >-1 |-1 ~-1 =-1 !-1";
    let lines = lines.split(' ').map(|line| format!("{line}\r\n"));
    let others = ["HTTP/1.1 400 Bad Request\r\n", "\r\n", "\n", "+a\n"];
    let parts = ["$2\r\nabc\r\n", "*1\r\n>1\r\n+a\r\n"];
    for bytes in lines.chain(others.into_iter().chain(parts).map(str::to_owned)) {
        assert!(frames_in_parts(bytes.as_bytes(), bytes.len()).is_err(), "{bytes:?}");
    }
    let deep = "*1\r\n".repeat(MAX_DEPTH + 1);
    assert!(frames_in_parts(deep.as_bytes(), deep.len()).is_err());
    let mut long = vec![b'+'; MAX_LINE + 1];
    assert!(frames_in_parts(&long, long.len()).is_err(), "a line without an end");
    long.truncate(MAX_LINE);
    assert_eq!(frames_in_parts(&long, long.len()), Ok(Vec::new()));
    long.extend(CRLF);
    assert!(frames_in_parts(&long, long.len()).is_err(), "a long line that arrives at once");
}

/// Each list and each string is short, but they never end.
#[test]
fn a_reply_without_end_is_left() {
    let lists =
        "*1024\r\n".to_owned() + &("*1024\r\n".to_owned() + &":1\r\n".repeat(1024)).repeat(1023);
    assert_eq!(frames_in_parts(lists.as_bytes(), 1 << 16).map(|frame| frame.len()), Ok(0));
    assert!(frames_in_parts((lists + "*1024\r\n").as_bytes(), 1 << 16).is_err());

    let (mut decoder, mega) = (Decoder::default(), vec![b'x'; 1 << 20]);
    decoder.read_buffer().extend_from_slice(b"*100\r\n");
    let full = (0..100).find(|_| {
        decoder.read_buffer().extend_from_slice(b"$1048576\r\n");
        decoder.read_buffer().extend_from_slice(&mega);
        decoder.read_buffer().extend_from_slice(CRLF);
        decoder.next_frame().is_err()
    });
    assert_eq!(full, Some(63));
}
