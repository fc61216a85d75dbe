//! Whether the sentinels that a client was given watch one deployment.
//!
//! Two sentinels watch the same master if they name the same address, if one knows the other, or if
//! they know a third one. Otherwise, those that name different masters are of two deployments. What
//! a sentinel does not report is unknown, and contradicts nobody.

use crate::router::sentinels::report::SentinelReport;

/// Why the first reports are of several deployments; `None` if they are of one, as far as is known.
pub(crate) fn contradiction(reports: &[SentinelReport]) -> Option<String> {
    let naming: Vec<&SentinelReport> =
        reports.iter().filter(|report| report.master.is_some()).collect();
    let first = naming.iter().min_by_key(|report| &report.source)?;
    let mut related = vec![*first];
    // A report may be related to the first one by others.
    loop {
        let is_new = |report: &&&SentinelReport| {
            !related.iter().any(|other| std::ptr::eq(*other, **report))
                && related.iter().any(|other| is_related(other, report))
        };
        match naming.iter().find(is_new) {
            Some(report) => related.push(report),
            None => break,
        }
    }
    let is_apart =
        |report: &&&SentinelReport| !related.iter().any(|other| std::ptr::eq(*other, **report));
    let other = naming.iter().filter(is_apart).min_by_key(|report| &report.source)?;
    let (one, its) = (&first.source, first.address()?);
    let (another, others) = (&other.source, other.address()?);
    Some(format!(
        "the named sentinels are of several deployments: {one} names the master {its}, {another} \
         names {others}, and they do not know each other; name the sentinels of one deployment"
    ))
}

/// Returns true unless two reports are of different deployments.
fn is_related(one: &SentinelReport, other: &SentinelReport) -> bool {
    let (Some(id), Some(known)) = (&one.id, &one.known) else {
        return true;
    };
    let (Some(others_id), Some(others)) = (&other.id, &other.known) else {
        return true;
    };
    one.address() == other.address()
        || id == others_id
        || others.contains(id)
        || known.iter().any(|third| third == others_id || others.contains(third))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::address;
    use crate::router::sentinels::report::ReportedMaster;

    /// A report of a sentinel that knows these others.
    fn says(sentinel: &str, master: &str, known: &[&str]) -> SentinelReport {
        SentinelReport {
            source: address(sentinel),
            id: Some(sentinel.into()),
            epoch: 1,
            master: Some(ReportedMaster { address: address(master), run_id: None }),
            malformed: None,
            peer_count: Some(known.len()),
            known: Some(known.iter().map(|id| (*id).into()).collect()),
            peers: Vec::new(),
        }
    }

    #[test]
    fn contradiction_names_two_sentinels_and_their_masters() {
        for other in [says("z", "b", &[]), says("z", "b", &["y"])] {
            let reports = [says("2", "a", &["1"]), other, says("1", "a", &["2"])];
            let why = contradiction(&reports).unwrap();
            assert!(["1:1", "z:1", "a:1", "b:1"].iter().all(|it| why.contains(it)), "{why}");
        }
    }

    #[test]
    fn contradiction_is_none_in_a_failover_or_where_little_is_told() {
        let unknown = SentinelReport { known: None, ..says("2", "b", &[]) };
        let nameless = SentinelReport { id: None, ..says("2", "b", &[]) };
        let no_master = SentinelReport { master: None, ..says("2", "b", &[]) };
        for second in [
            says("2", "a", &[]),
            says("2", "b", &["1"]),
            says("2", "b", &["3"]),
            unknown,
            nameless,
            no_master,
        ] {
            assert_eq!(contradiction(&[says("1", "a", &["3"]), second.clone()]), None);
            assert_eq!(contradiction(&[second, says("1", "a", &["3"])]), None);
        }
        // By a third one alone.
        let chain = [says("1", "a", &["2"]), says("3", "b", &["2"]), says("2", "b", &[])];
        assert_eq!(contradiction(&chain), None);
        assert_eq!(contradiction(&[]), None);
    }
}
