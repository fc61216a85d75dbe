//! Replies as bytes, in both directions.

use rwlease::testing::{Decoder, Frame};
use rwlease_core::resp::{ProtocolError, RespValue};

/// All frames in bytes that arrive in parts of this size, and the failure behind them.
pub fn decode_in_parts(bytes: &[u8], size: usize) -> (Vec<Frame>, Option<ProtocolError>) {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    for part in bytes.chunks(size) {
        decoder.read_buffer().extend_from_slice(part);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(failure) => return (frames, Some(failure)),
            }
        }
    }
    (frames, None)
}

/// The replies at the beginning of the bytes.
pub fn replies(bytes: &[u8]) -> Vec<RespValue> {
    let (frames, _) = decode_in_parts(bytes, bytes.len().max(1));
    let reply = |frame| match frame {
        Frame::Reply(reply) => Some(reply),
        Frame::Push(_) => None,
    };
    frames.into_iter().filter_map(reply).collect()
}

/// Appends a reply as a server sends it.
pub fn encode(reply: &RespValue, bytes: &mut Vec<u8>) {
    match reply {
        RespValue::Nil => bytes.extend(b"_\r\n"),
        RespValue::Int(number) => bytes.extend(format!(":{number}\r\n").bytes()),
        RespValue::String(text) => encode_text(b'$', text, bytes),
        RespValue::Error(error) => {
            encode_text(b'!', format!("{} {}", error.code, error.message).as_bytes(), bytes);
        }
        RespValue::Array(items) => encode_items(b'*', items, bytes),
    }
}

/// Appends a frame as a server sends it.
pub fn encode_frame(frame: &Frame, bytes: &mut Vec<u8>) {
    match frame {
        Frame::Reply(reply) => encode(reply, bytes),
        Frame::Push(parts) => encode_items(b'>', parts, bytes),
    }
}

fn encode_text(kind: u8, text: &[u8], bytes: &mut Vec<u8>) {
    bytes.push(kind);
    bytes.extend(format!("{}\r\n", text.len()).bytes());
    bytes.extend(text);
    bytes.extend(b"\r\n");
}

fn encode_items(kind: u8, items: &[RespValue], bytes: &mut Vec<u8>) {
    bytes.push(kind);
    bytes.extend(format!("{}\r\n", items.len()).bytes());
    items.iter().for_each(|item| encode(item, bytes));
}

/// A text in a reply.
pub fn text(text: impl AsRef<[u8]>) -> RespValue {
    RespValue::String(bytes::Bytes::copy_from_slice(text.as_ref()))
}
