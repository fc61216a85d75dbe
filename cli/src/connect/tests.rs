use super::*;

#[test]
fn split_keeps_commas_of_credentials() {
    assert_eq!(split("h1:1,h2"), ["h1:1", "h2"]);
    assert_eq!(split("redis://h1,redis://h2,h3:3"), ["redis://h1", "redis://h2", "h3:3"]);
    assert_eq!(split("redis://:a,b@h1,h2:2"), ["redis://:a,b@h1", "h2:2"]);
    assert_eq!(
        split("h0,redis://u:a,b,c@h1/0,redis://:d@e,f@h2"),
        ["h0", "redis://u:a,b,c@h1/0", "redis://:d@e,f@h2"]
    );
    assert_eq!(split("redis+sentinel://:a,b@s1,s2/m"), ["redis+sentinel://:a,b@s1", "s2/m"]);
}
