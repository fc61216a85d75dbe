use super::Command;

#[test]
fn words_come_out_as_they_went_in() {
    let tail = Command::from_words(["", "b"]);
    let all = Command::new().arg("GET").arg_u64(0).arg_u64(u64::MAX).append(&tail).arg([0xff, 0]);
    let words: Vec<&[u8]> = all.iter().collect();
    assert_eq!(words, [&b"GET"[..], b"0", b"18446744073709551615", b"", b"b", &[0xff, 0]]);
    assert_eq!((all.word_count(), all.iter().len()), (6, 6));
    let lines = Command::from_words(["\r\n$1\r\n", "$"]);
    assert!(lines.iter().eq([&b"\r\n$1\r\n"[..], b"$"]));
}

#[test]
fn leading_id_is_the_first_word_if_it_has_the_length_of_one() {
    let id = "0123456789abcdefgh";
    assert_eq!(
        Command::from_words([id, "x"]).leading_id().as_ref().map(|id| &id[..]),
        Some(id.as_bytes())
    );
    for other in [&["0123456789abcdefg"][..], &["x", id], &["0123456789abcdefghi"], &[]] {
        assert_eq!(Command::from_words(other.iter().copied()).leading_id(), None, "{other:?}");
    }
}

#[test]
fn command_bytes_have_the_length_before_each_word() {
    let long = "x".repeat(1000);
    let command = Command::new().arg([0xff]).arg_u64(1234567890).arg(&long);
    let expected = [b"$1\r\n\xff\r\n$10\r\n1234567890\r\n$1000\r\n", long.as_bytes(), b"\r\n"];
    assert_eq!(command.bytes(), expected.concat());
}
