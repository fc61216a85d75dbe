use super::*;
use crate::error::ErrorKind;

fn label(text: &str) -> ClientLabel {
    ClientLabel::Text(text.to_owned())
}

#[test]
fn label_that_the_server_refuses_as_a_name_is_invalid() {
    for accepted in ["", "billing", "web-1:4711", "!\"#~", &"x".repeat(64)] {
        label(accepted).check().unwrap();
    }
    for refused in ["two words", " ", "line\n", "bell\x07", "größe", "\x7f", &"x".repeat(65)] {
        let error = label(refused).check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{refused:?}");
        assert!(error.to_string().contains("`label` must have at most 64"), "{error}");
    }
}

#[test]
fn label_by_default_is_the_short_host_name_and_the_process_id() {
    assert_eq!(host_and_pid("web-1.example.org", 4711), "web-1:4711");
    let own = ClientLabel::default();
    let text = own.text().unwrap();
    assert!(text.ends_with(&format!(":{}", std::process::id())), "{text}");
    label(&text).check().unwrap();
}

#[test]
fn label_by_default_has_at_most_64_bytes() {
    let text = host_and_pid(&"h".repeat(100), 4_194_304);
    assert_eq!(text, format!("{}:4194304", "h".repeat(56)));
}

#[test]
fn label_host_name_is_one_printable_word() {
    assert_eq!(as_word("my host ü"), "my-host--");
    assert_eq!(as_word(""), "-");
    assert_eq!(as_word(&"h".repeat(200)).len(), 128);
}

#[test]
fn label_that_is_empty_is_none() {
    assert_eq!(label("").text(), None);
    assert_eq!(label("billing").text().as_deref(), Some("billing"));
}
