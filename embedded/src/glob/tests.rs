use super::matches;

#[test]
fn matches_follows_redis_glob_syntax() {
    for (pattern, text) in [
        ("", ""),
        ("*", ""),
        ("a*c", "abbc"),
        ("a*c", "ac"),
        ("?b", "ab"),
        ("[a-c]x", "bx"),
        ("[^a-c]x", "dx"),
        ("[\\]]", "]"),
        ("\\*", "*"),
        ("rwlease:*{4?}", "rwlease:order:{42}"),
    ] {
        assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
    for (pattern, text) in [
        ("", "a"),
        ("a", ""),
        ("a*c", "abcd"),
        ("[a-c]x", "dx"),
        ("[^a-c]x", "ax"),
        ("\\*", "a"),
        ("?", ""),
    ] {
        assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
}
